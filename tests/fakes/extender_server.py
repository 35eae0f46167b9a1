"""An HTTP extender on loopback, as real ones are written, and as they are at their worst."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.patience import PATIENCE_SECONDS

Json = Any
Answer = Callable[[Json], Json]


def everything(asked: Json) -> Json:
    """Let all nodes pass."""
    return {"NodeNames": names_of(asked), "FailedNodes": {}, "Error": ""}


def only(*names: str, **reasons: str) -> Answer:
    """Return a filter that lets these nodes pass."""

    def answer(asked: Json) -> Json:
        passed = [name for name in names_of(asked) if name in names]
        if asked["NodeNames"] is None:
            items = [node for node in asked["Nodes"]["items"] if node["metadata"]["name"] in names]
            return {"Nodes": {"metadata": {}, "items": items}, "FailedNodes": reasons, "Error": ""}
        return {"NodeNames": passed, "FailedNodes": reasons, "Error": ""}

    return answer


def names_of(asked: Json) -> list[str]:
    """Return the nodes of a request."""
    if asked["NodeNames"] is not None:
        return list(asked["NodeNames"])
    return [node["metadata"]["name"] for node in asked["Nodes"]["items"]]


def scoring(**scores: int) -> Answer:
    """Return a prioritizer; nodes without a score get 0."""
    return lambda asked: [{"Host": name, "Score": scores.get(name, 0)} for name in names_of(asked)]


@dataclass
class ExtenderServer:
    """Answers verbs; an answer may be JSON, bytes, or a response."""

    filter: Answer = everything
    prioritize: Answer = field(default_factory=scoring)
    preempt: Answer = lambda asked: {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]}
    bind: Answer = lambda asked: {"Error": ""}
    delay_seconds: float = 0.0
    asked: list[tuple[str, Json]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    _now: int = 0

    def of(self, verb: str) -> list[Json]:
        """Return the requests of a verb."""
        return [asked for each, asked in self.asked if each == verb]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        verb, asked = request.match_info["verb"], json.loads(await request.read())
        self.asked.append((verb, asked))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(self.delay_seconds)
            found = getattr(self, verb)(asked)
        finally:
            self._now -= 1
        if isinstance(found, web.StreamResponse):
            return found
        if isinstance(found, bytes):
            return web.Response(body=found, content_type="application/json")
        return web.json_response(found)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ExtenderServer]:
        """Serve on a free port of loopback."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/scheduler/{verb}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/scheduler"
        try:
            yield self
        finally:
            await runner.cleanup()


@contextmanager
def in_thread(server: ExtenderServer) -> Iterator[ExtenderServer]:
    """Serve from a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()
    ready, end = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with server.served():
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE_SECONDS)
        loop.close()
