"""What the daemon shows to those who ask: metrics, decisions, state, the status page; and to whom. Decides nothing.

It is imported once the first pods are bound: aiohttp takes a tenth of a start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import msgspec
from aiohttp import web

from kube_policy_scheduler.adapters.http import parameters
from kube_policy_scheduler.adapters.http.access import Review
from kube_policy_scheduler.adapters.http.health_checks import Check, HealthChecks
from kube_policy_scheduler.adapters.http.port import HttpPort
from kube_policy_scheduler.adapters.http.server import HttpServer, Routes, Scrapes
from kube_policy_scheduler.adapters.kube.reviews import AccessDecision, AccessReviewer
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.adapters.tls.client_certificates import Clients
from kube_policy_scheduler.adapters.tls.serving_certificate import ServingCertificate
from kube_policy_scheduler.daemon.configuration.settings import HttpSettings, Settings
from kube_policy_scheduler.daemon.modes.selection import Mode
from kube_policy_scheduler.daemon.observing.decision_entry import select_in_steps
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.policies.owners import OwnerState
from kube_policy_scheduler.daemon.policies.reload import PolicyReloader
from kube_policy_scheduler.daemon.serving.records import Records
from kube_policy_scheduler.daemon.serving.state_dump import State
from kube_policy_scheduler.daemon.serving.status_page import StatusPage, rendered
from kube_policy_scheduler.daemon.serving.status_snapshot import Snapshot, look, take_snapshot
from kube_policy_scheduler.tooling.decision_record import Outcome, encode

logger = logging.getLogger(__name__)


class DaemonServer:
    """A context manager: the port of a daemon is served while it lasts."""

    def __init__(
        self,
        records: Records,
        serve: Callable[[HealthChecks, Scrapes, Routes], HttpServer],
        *,
        reloader: PolicyReloader[LivePolicies],
        owners: Callable[[], Sequence[OwnerState]],
        scrapes: Scrapes,
        ready: Mapping[str, Check],
        mode: Mode,
    ) -> None:
        """Set up; nothing is served yet.

        Args:
            records: of what was decided.
            serve: makes the server, as `http_server`.
            reloader: of the administrator's policies.
            owners: returns the state of the policies of others.
            scrapes: answers `/metrics`.
            ready: what `/readyz` asks.
            mode: of the daemon; it has routes of its own.
        """
        self._records = records
        self._reloader = reloader
        self._owners = owners
        self._status = StatusPage(self._take_snapshot, make=rendered, stopwatch=time.monotonic)
        gets = {
            **mode.routes,
            "/": self._status.show,
            "/status": self._status.show,
            "/policies": self._policies,
            "/debug/decisions": self._decisions,
            "/debug/state": self._state,
        }
        self._http = serve(
            HealthChecks(live={"ping": lambda: None}, ready=ready),
            scrapes,
            Routes(gets, mode.posts),
        )

    async def __aenter__(self) -> Self:
        """Serve.

        Raises:
            ServerError: the address is taken or not ours.
        """
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._http.__aexit__()

    @property
    def url(self) -> str:
        """Where it listens, with the real port."""
        return self._http.url

    async def _take_snapshot(self) -> Snapshot:
        sources = self._records.sources
        return take_snapshot(sources, await self._records.spare_time.run(look(sources)))

    async def _policies(self, _: web.Request) -> web.Response:
        owners = {state.owner: state.as_data() for state in self._owners()}
        return web.json_response({**policies_in_force(self._reloader), "owners": owners})

    async def _decisions(self, request: web.Request) -> web.Response:
        outcomes = (outcome.value for outcome in Outcome)
        wanted, limit = parameters.selection(request, ("pod", "node"), outcomes=outcomes)
        body = await self._records.spare_time.run(self._lines(wanted, limit))
        return web.Response(body=body, content_type=parameters.JSON_LINES)

    def _lines(self, wanted: Mapping[str, str], limit: int) -> Generator[None, None, bytes]:
        log = self._records.sources.log
        found = yield from select_in_steps(log.entries(), **wanted, limit=limit)
        return (yield from parameters.last_lines(encode(log.record(entry)) for entry in found))

    async def _state(self, request: web.Request) -> web.Response:
        state = await self._records.spare_time.run(self._records.dump(recount="recount" in request.query))
        return web.Response(body=await asyncio.to_thread(_pretty, state), content_type="application/json")


def policies_in_force(reloader: PolicyReloader[Any]) -> dict[str, Any]:
    """Return which policies are active, and what became of the newest."""
    last, active = reloader.last, reloader.active_record
    return {
        "active": active.hash if active is not None else None,
        "generation": reloader.generation,
        "restored": active.origin or None if active is not None else None,
        "candidate": last.hash if last is not None else None,
        "accepted": last.successful if last is not None else False,
        "problems": list(last.problems) if last is not None else [],
    }


def _pretty(state: State) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"


def make_certificate(http: HttpSettings) -> ServingCertificate | None:
    """Return the certificate of a daemon's port, None for plain HTTP. For a thread: one that is made takes 0.1 s.

    Raises:
        CertificateError: there is no certificate to serve with.
    """
    if http.tls is None:
        return None
    return ServingCertificate(
        certificate_file=http.tls.certificate_file,
        key_file=http.tls.key_file,
        client_ca_file=http.tls.client_ca_file,
        clients=Clients(frozenset(http.tls.client_names)),
    )


def http_server(
    checks: HealthChecks,
    scrapes: Scrapes,
    routes: Routes,
    *,
    settings: Settings,
    transport: Transport,
    port: HttpPort,
    certificate: ServingCertificate | None,
    loops: Loops,
) -> HttpServer:
    """Return the server of a daemon: authentication as set."""
    http = settings.http
    if http.authentication == "none" and http.host not in ("127.0.0.1", "::1", "localhost"):
        logger.warning(
            "http.authentication is none, so everybody who can connect to port %d sees pods, nodes and policies;"
            " restrict access with a NetworkPolicy",
            http.port,
        )
    return HttpServer(
        configuration=lambda: shown_settings(settings),
        review=_review(http, transport),
        checks=checks,
        scrapes=scrapes,
        routes=routes,
        port=port,
        certificate=certificate,
        loops=loops,
    )


def _review(http: HttpSettings, transport: Transport) -> Review | None:
    if http.authentication == "none":
        return None
    reviewer = AccessReviewer(transport.dedicated(max_connections=2), clock=time.monotonic)

    async def review(token: str, verb: str, path: str) -> AccessDecision:
        return await reviewer.review(token, verb=verb, path=path)

    return review


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values; a password in a URL is left out."""
    values: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    if settings.prometheus is not None:
        values["prometheus"]["url"] = without_password(settings.prometheus.url)
    return values


def without_password(url: str) -> str:
    """Return a URL without what stands before the host."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host))
