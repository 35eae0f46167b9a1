"""Serves health checks, metrics and the running configuration. Knows none of them: they are handed in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler as AnyHandler
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kube_policy_scheduler.adapters.http.access import Review, certified, guarded
from kube_policy_scheduler.adapters.http.health_checks import Check, HealthChecks, Remark
from kube_policy_scheduler.adapters.http.limits import HANDLER_LIMITS, ConnectionLimits
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.process.spare_time import SpareTime
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from kube_policy_scheduler.loopback import is_meant

log = logging.getLogger(__name__)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


_SAMPLES_AT_ONCE = 100
_SAMPLE = re.compile(rb"^[^#].*\n", re.MULTILINE)
_END = b"# EOF\n"

HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "policy-scheduler",
}
"""Of every answer that does not say otherwise."""


class Routes(NamedTuple):
    """What a server answers beside probes, metrics and its configuration: handlers by path."""

    gets: Mapping[str, Handler] = MappingProxyType({})
    posts: Mapping[str, Handler] = MappingProxyType({})
    """They bound the bodies that they read themselves."""


NO_ROUTES = Routes()


class Scrapes:
    """Answers scrapes with what a registry has; those that wait for their turn at the same time get one answer."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        spare_time: SpareTime | None = None,
        before: Callable[[], Iterator[None]] = lambda: iter(()),
    ) -> None:
        """Set up.

        Args:
            registry: what a scrape gets.
            spare_time: when scrapes are answered; None: in slices of their own.
            before: steps that are taken before the registry is asked.
        """
        self.registry = registry
        self._spare_time, self._before = spare_time or SpareTime(), before
        self._last: dict[str, tuple[float, bytes]] = {}
        """By content type: when the last one began, and its answer."""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a scrape."""
        encode, content_type = encoder_for(request.headers.get("Accept", ""))
        # the state that a scrape asks for belongs to the event loop, so this can't go to a thread
        asked = asyncio.get_running_loop().time()
        body = await self._spare_time.run(self._scrape(encode, content_type, asked))
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _scrape(
        self, encode: Callable[[Collector], bytes], content_type: str, asked: float
    ) -> Generator[None, None, bytes]:
        last = self._last.get(content_type)
        if last is not None and last[0] >= asked:  # begun while this one waited for its turn
            return last[1]
        began = asyncio.get_running_loop().time()
        yield from self._before()
        lines = []
        for family in self.registry.collect():
            yield
            for at in range(0, max(1, len(family.samples)), _SAMPLES_AT_ONCE):
                part = copy(family)
                part.samples = family.samples[at : at + _SAMPLES_AT_ONCE]
                text = encode(_Family(part)).removesuffix(_END)
                # what is said of a family is said once
                lines.append(text if at == 0 else b"".join(_SAMPLE.findall(text)))
                yield
        body = b"".join([*lines, _END if "openmetrics" in content_type else b""])
        self._last = {content_type: (began, body)}
        return body


class HttpServer:
    """`/livez`, `/readyz`, `/healthz` (as kube-scheduler: `?verbose`, `?exclude=NAME`, `/livez/NAME`), `/metrics`,
    `/configz`, and routes of others. Probes are open to all, everything else to whom `review` lets in.
    """

    def __init__(
        self,
        *,
        port: HttpPort,
        checks: HealthChecks,
        scrapes: Scrapes,
        configuration: Callable[[], Mapping[str, Any]] = dict,
        routes: Routes = NO_ROUTES,
        certificate: ServingCertificate | None = None,
        review: Review | None = None,
        limits: ConnectionLimits | None = None,
        loops: Loops | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            port: where it listens; it may be taken already.
            checks: what the probes ask.
            scrapes: answers `/metrics`.
            configuration: the settings in force, without secrets.
            routes: of others.
            certificate: for TLS; None: plain HTTP. Where it asks clients for theirs, POST is for who has one.
            review: who may use what is not a probe; None: everyone.
            limits: of connections and times; None: the usual ones.
            loops: of the process; None: its own.
        """
        self._port = port
        self._checks = checks
        self._scrapes = scrapes
        self._configuration = configuration
        self._routes = routes
        self._certificate = certificate
        self._review = review
        self._limits = limits or ConnectionLimits()
        malformed = Counter(
            "policy_scheduler_http_malformed_requests",
            "Number of requests to this port that were not HTTP, or larger than it accepts.",
            registry=scrapes.registry,
        )
        self._limits.on_malformed = malformed.inc
        self._loops = loops or Loops()
        self._runner: web.AppRunner | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> HttpServer:
        """Listen.

        Raises:
            ServerError: the address is taken or not ours.
        """
        app = web.Application(middlewares=[self._limits.middleware, _known_host(self._port.host)], client_max_size=1)
        app.on_response_prepare.append(_add_headers)
        everything = {**self._checks.live, **self._checks.ready}
        for path, checks in (("livez", self._checks.live), ("readyz", self._checks.ready), ("healthz", everything)):
            app.router.add_get(f"/{path}", _probe(path, checks))
            app.router.add_get(f"/{path}/{{name}}", _single(checks))
        for path, handler in {"/metrics": self._scrapes.answer, "/configz": self._configz, **self._routes.gets}.items():
            app.router.add_get(path, guarded(handler, self._review) if self._review is not None else handler)
        for path, handler in self._routes.posts.items():
            app.router.add_post(path, self._guarded_post(handler))
        async with contextlib.AsyncExitStack() as stack:
            self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, **HANDLER_LIMITS)
            await self._runner.setup()
            stack.push_async_callback(self._limits.end_all)
            stack.push_async_callback(self._runner.cleanup)
            assert self._runner.server is not None
            context = self._certificate.context if self._certificate is not None else None
            watched = self._limits.over(self._runner.server, context, bodies_at=self._routes.posts, loops=self._loops)
            await stack.enter_async_context(watched)
            await stack.enter_async_context(self._port)
            await self._port.serve(self._limits.protocol)
            if self._certificate is not None:
                keeping = self._loops.start("serving-certificate", self._certificate.keep, restarts=True)
                stack.push_async_callback(self._loops.end, keeping)
            self._stack = stack.pop_all()
        return self

    def _guarded_post(self, handler: Handler) -> Handler:
        with_token = guarded(handler, self._review) if self._review is not None else None
        certificate = self._certificate
        if certificate is None or certificate.clients is None:
            return with_token or handler
        return certified(handler, certificate.clients, otherwise=with_token)

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Where it listens, with the real port."""
        return f"{'http' if self._certificate is None else 'https'}://{self._port.address}"

    async def _configz(self, _: web.Request) -> web.Response:
        return web.json_response(
            dict(self._configuration()), dumps=lambda value: json.dumps(value, default=str, indent=2) + "\n"
        )


def encoder_for(accepted: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return how metrics are written for an `Accept` header, and the content type; as plain text for a strange one."""
    try:
        return choose_encoder(accepted)
    except (TypeError, ValueError):  # the library compares versions that are none
        return choose_encoder("")


class _Family(Collector):
    """A registry of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield it."""
        yield self._family


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        if name == hdrs.SERVER:
            response.headers[name] = value
        else:
            response.headers.setdefault(name, value)


def _known_host(listening_at: str) -> Any:
    """Return a middleware that keeps web pages of others out of a server that only this machine can reach."""

    @web.middleware
    async def checked(request: web.Request, handler: AnyHandler) -> web.StreamResponse:
        if not is_meant(request.url.host or "", listening_at):
            return web.Response(status=421, text="this server serves only this machine: use the host name localhost\n")
        return await handler(request)

    return checked


def _probe(path: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        excluded = set(request.query.getall("exclude", []))
        lines, healthy = [], True
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            said = _ask(name, check)
            passes = said is None or isinstance(said, Remark)
            healthy = healthy and passes
            lines.append(f"[+]{name} ok{f': {said}' if said else ''}" if passes else f"[-]{name} failed: {said}")
        if healthy and "verbose" not in request.query:
            return web.Response(text="ok")
        end = f"{path} check {'passed' if healthy else 'failed'}"
        return web.Response(text="\n".join([*lines, end, ""]), status=200 if healthy else 500)

    return answer


def _single(checks: Mapping[str, Check]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in checks:
            return web.Response(
                text=f"unknown check {name}; the checks are: {', '.join(checks) or 'none'}\n", status=404
            )
        said = _ask(name, checks[name])
        if said is None or isinstance(said, Remark):
            return web.Response(text=f"ok: {said}\n" if said and "verbose" in request.query else "ok")
        return web.Response(text=f"{said}\n", status=500)

    return answer


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        log.exception("health check %s failed with an unexpected error", name)
        return f"the check itself failed: {type(error).__name__}"
