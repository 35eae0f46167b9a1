"""Serves health checks, metrics and the running configuration. Knows none of them: they are handed in."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""Answers None when all is well, else a short reason. Called on the event loop; must not block."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """Named checks. A name may be in several."""

    live: Mapping[str, Check] = field(default_factory=dict)
    """A failing one means that only a restart helps: the kubelet makes one."""
    ready: Mapping[str, Check] = field(default_factory=dict)
    """A failing one means that the scheduler does not do its work at present; waiting may help."""


class ServerError(Exception):
    """The server cannot listen where it was told to."""


class HttpServer:
    """`/livez`, `/readyz`, `/healthz` (as kube-scheduler: `?verbose`, `?exclude=NAME`, `/livez/NAME`), `/metrics`,
    `/configz`, and routes of others. Without authentication: show nothing secret.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        checks: HealthChecks,
        registry: CollectorRegistry,
        configuration: Callable[[], Mapping[str, Any]] = dict,
        routes: Mapping[str, Handler] | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            host: address to listen at; `127.0.0.1` for this machine only, `0.0.0.0` in a pod.
            port: 0 takes a free one, see `url`.
            checks: what the probes ask.
            registry: what a scrape gets.
            configuration: the settings in force, without secrets.
            routes: further GET handlers by path.
        """
        self._host = host
        self._port = port
        self._checks = checks
        self._registry = registry
        self._configuration = configuration
        self._routes = dict(routes or {})
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> HttpServer:
        """Listen.

        Raises:
            ServerError: the address is taken or not ours.
        """
        app = web.Application()
        everything = {**self._checks.live, **self._checks.ready}
        for path, checks in (("livez", self._checks.live), ("readyz", self._checks.ready), ("healthz", everything)):
            app.router.add_get(f"/{path}", _probe(path, checks))
            app.router.add_get(f"/{path}/{{name}}", _single(checks))
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/configz", self._configz)
        for path, handler in self._routes.items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ServerError(f"cannot listen at {self._host}:{self._port}: {_reason(error)}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """Where it listens, with the real port."""
        assert self._runner is not None, "not started"
        host, port = self._runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # the state that a scrape asks for belongs to the event loop, so this can't go to a thread
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _configz(self, _: web.Request) -> web.Response:
        return web.json_response(
            dict(self._configuration()), dumps=lambda value: json.dumps(value, default=str, indent=2) + "\n"
        )


def _reason(error: OSError) -> str:
    """Return the system's own words; asyncio puts a sentence around them."""
    return (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()


def _probe(path: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        excluded = set(request.query.getall("exclude", []))
        lines, healthy = [], True
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = _ask(name, check)
            healthy = healthy and reason is None
            lines.append(f"[+]{name} ok" if reason is None else f"[-]{name} failed: {reason}")
        if healthy and "verbose" not in request.query:
            return web.Response(text="ok")
        end = f"{path} check {'passed' if healthy else 'failed'}"
        return web.Response(text="\n".join([*lines, end, ""]), status=200 if healthy else 500)

    return answer


def _single(checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in checks:
            return web.Response(text=f"no check {name}; there are: {', '.join(checks) or 'none'}\n", status=404)
        reason = _ask(name, checks[name])
        return web.Response(text="ok" if reason is None else f"{reason}\n", status=200 if reason is None else 500)

    return answer


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        log.exception("health check %s failed in an unforeseen way", name)
        return f"the check itself failed: {type(error).__name__}"
