"""A playground that serves from a thread of its own, for a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kube_policy_scheduler.playground.opening import start, start_policy
from kube_policy_scheduler.playground.server import Doors, Playground
from kube_policy_scheduler.playground.session import Session
from tests.patience import PATIENCE_SECONDS

FILE = "start.policy"


def example() -> Session:
    """Return a session on the example."""
    started = start()
    now = started.cluster.now
    return Session(
        {FILE: start_policy()}, started.cluster, measure=lambda queries: started.metrics.signals(queries, now=now)
    )


@contextmanager
def serving(session: Session, doors: Doors | None = None) -> Iterator[str]:
    """Yield the address of a playground while it serves."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()
    found: list[str] = []
    ended = asyncio.Event()

    async def serve() -> None:
        async with Playground(session, doors=doors) as server:
            found.append(server.url)
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="playground")
    thread.start()
    try:
        assert ready.wait(PATIENCE_SECONDS)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE_SECONDS)
        loop.close()
