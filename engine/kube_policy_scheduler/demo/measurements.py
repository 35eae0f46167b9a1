"""The demo's cpu measurements: a metrics exporter, and the Prometheus that serves them.

A real Prometheus scrapes the exporter where the program is installed. Elsewhere the exporter itself answers
the one query that the demo's policies ask, in Prometheus' form, and the demo says so.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from aiohttp import ClientError, ClientSession, web

METRIC = "cpu_usage"
_ANSWERABLE = re.compile(rf"\s*(timestamp\s*\(\s*)?{METRIC}\s*\)?\s*")
_START_SECONDS = 20.0
_CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1m}}
scrape_configs:
- job_name: demo
  honor_labels: true
  static_configs: [{{targets: ["{target}"]}}]
"""


class Measurements:
    """Serves `cpu_usage{node="…"}` in percent; `url` is where PromQL is answered."""

    def __init__(self, usage: Mapping[str, float], *, directory: Path) -> None:
        self.usage = dict(usage)
        self.url = ""
        self.real = shutil.which("prometheus") is not None
        """Whether a real Prometheus answers."""
        self._directory = directory
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:  # also where the start is cancelled, all of it ends
            await self._start_exporter(stack)
            if self.real:
                await self._start_prometheus(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start_exporter(self, stack: AsyncExitStack) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/api/v1/query", self._query)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = site.name if not (addresses := runner.addresses) else f"http://127.0.0.1:{addresses[0][1]}"

    async def _start_prometheus(self, stack: AsyncExitStack) -> None:
        config = self._directory / "prometheus.yml"
        config.write_text(_CONFIG.format(target=self.url.removeprefix("http://")), encoding="utf-8")
        port = await _free_port()
        log = stack.enter_context((self._directory / "prometheus.log").open("wb"))
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
        stack.push_async_callback(_end, process)
        self.url = f"http://127.0.0.1:{port}"
        await self._first_sample()

    async def _first_sample(self) -> None:
        """Wait until every node has a sample (a fresh Prometheus begins to scrape after about 5 s)."""
        async with ClientSession() as session, asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    async with session.get(f"{self.url}/api/v1/query", params={"query": METRIC}) as answer:
                        body = await answer.json(content_type=None)
                    if len(body.get("data", {}).get("result", ())) >= len(self.usage):
                        return
                except (ClientError, json.JSONDecodeError):
                    pass
                await asyncio.sleep(0.1)

    async def _metrics(self, _: web.Request) -> web.Response:
        lines = [f"# HELP {METRIC} CPU in use, percent.", f"# TYPE {METRIC} gauge"]
        lines += [f'{METRIC}{{node="{node}"}} {percent}' for node, percent in self.usage.items()]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")

    async def _query(self, request: web.Request) -> web.Response:
        query = (await request.post() if request.method == "POST" else {}).get("query") or request.query.get("query")
        asked = _ANSWERABLE.fullmatch(str(query))
        if asked is None:
            error = f"this demo has no Prometheus; it answers only the query {METRIC}"
            return web.json_response({"status": "error", "errorType": "bad_data", "error": error}, status=400)
        now = time.time()
        name: dict[str, str] = {} if asked[1] else {"__name__": METRIC}
        result = [
            {"metric": name | {"node": node}, "value": [now, str(now if asked[1] else percent)]}
            for node, percent in self.usage.items()
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


async def _free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
