"""What the daemon shows to those who ask: metrics, decisions, state, the status page; and to whom. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from aiohttp import web

from engine.adapters.http_access import Review
from engine.adapters.http_server import Handler, HttpServer
from engine.adapters.kube.reviews import AccessReviewer, Verdict
from engine.adapters.kube.transport import Transport
from engine.adapters.rotating_file import RotatingLines
from engine.adapters.serving_certificate import ServingCertificate
from engine.daemon.clause_counts import ClauseCounts
from engine.daemon.decision_log import DecisionLog, Entry, select
from engine.daemon.settings import DecisionLogSettings, HttpSettings, Settings
from engine.daemon.state_dump import State, dump
from engine.daemon.status_page import StatusPage
from engine.daemon.status_snapshot import Sources, take
from engine.tooling.decision_record import Outcome, encode

logger = logging.getLogger(__name__)

FILE_NAME = "decisions.jsonl"
DEFAULT_LIMIT = 100
JSON_LINES = "application/jsonl"


class DecisionRecorder:
    """The decision log of a daemon, with its file if there is to be one."""

    def __init__(self, settings: DecisionLogSettings, *, seed: int, replica: str, counts: ClauseCounts) -> None:
        """Raises FileError: the file cannot be written to."""
        self._file: RotatingLines | None = None
        if settings.directory is not None:
            self._file = RotatingLines(
                settings.directory, FILE_NAME, file_bytes=settings.file_mebibytes * 2**20, files=settings.files
            )
        self.log = DecisionLog(
            size=settings.kept,
            seed=seed,
            replica=replica,
            detail_share=settings.detail_share,
            best_nodes=settings.best_nodes,
            repeat_seconds=settings.repeat_after,
            stopwatch=time.perf_counter,
            counts=counts,
            hand_on=self._write if self._file is not None else lambda entry: None,
        )

    def _write(self, entry: Entry) -> None:
        assert self._file is not None
        self._file.put(partial(self._line, entry))

    def _line(self, entry: Entry) -> bytes:
        return encode(self.log.record(entry))

    def tallies(self) -> Mapping[str, int]:
        """Return how many records were written to files, and how many were left out."""
        return {"written": self._file.written, "dropped": self._file.dropped} if self._file is not None else {}

    async def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            await asyncio.to_thread(self._file.close)


class Pages:
    """The routes that tell about decisions and state."""

    def __init__(self, sources: Sources, *, assumed: Callable[[], Mapping[str, str]]) -> None:
        self._sources = sources
        self._assumed = assumed
        self._status = StatusPage(lambda: take(sources), stopwatch=time.monotonic)

    def routes(self) -> dict[str, Handler]:
        """Return handlers by path."""
        return {
            "/": self._status.show,
            "/status": self._status.show,
            "/debug/decisions": self._decisions,
            "/debug/state": self._state,
        }

    async def _decisions(self, request: web.Request) -> web.Response:
        wanted: dict[str, Any] = {name: request.query.get(name, "") for name in ("pod", "node", "outcome")}
        outcomes = [outcome.value for outcome in Outcome]
        unknown = sorted(request.query.keys() - {*wanted, "limit"})
        if unknown:
            return _wrong(f"unknown parameter {unknown[0]}; there are: {', '.join(wanted)}, limit")
        if wanted["outcome"] and wanted["outcome"] not in outcomes:
            return _wrong(f"expected outcome to be one of {', '.join(outcomes)}, got {wanted['outcome']}")
        limit = request.query.get("limit", str(DEFAULT_LIMIT))
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 7:
            return _wrong(f"expected limit to be a number such as 100, got {limit[:40]}")
        log = self._sources.log
        entries = log.entries()

        def lines() -> bytes:
            return b"".join(encode(log.record(entry)) for entry in select(entries, limit=int(limit), **wanted))

        return web.Response(body=await asyncio.to_thread(lines), content_type=JSON_LINES)

    async def _state(self, request: web.Request) -> web.Response:
        body = await asyncio.to_thread(_pretty, self._dump(recount="recount" in request.query))
        return web.Response(body=body, content_type="application/json")

    def _dump(self, *, recount: bool) -> State:
        sources = self._sources
        return dump(
            sources.cluster,
            sources.queue,
            assumed=self._assumed(),
            now=sources.clock(),
            leading=sources.replica().leading,
            recount=recount,
        )

    def print_state(self) -> None:
        """Write the state to standard error as one line of JSON, recounted; for SIGUSR2."""
        state = self._dump(recount=True)
        for difference in state.differences or ():
            logger.error("a recount differs", extra={"difference": difference})
        sys.stderr.write(msgspec.json.encode(state).decode() + "\n")
        sys.stderr.flush()


def _pretty(state: State) -> bytes:
    return msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n"


def _wrong(text: str) -> web.Response:
    return web.Response(status=400, text=f"{text}\n")


def http_server(settings: Settings, transport: Transport, **given: Any) -> HttpServer:
    """Return the server of a daemon: TLS and authentication as set.

    Raises:
        CertificateError: there is no certificate to serve with.
    """
    http = settings.http
    certificate = None
    if http.tls is not None:
        certificate = ServingCertificate(certificate_file=http.tls.certificate_file, key_file=http.tls.key_file)
    if http.authentication == "none" and http.host not in ("127.0.0.1", "::1", "localhost"):
        logger.warning(
            "whoever can connect to port %d sees pods, nodes and policies: set http.authentication, or keep others out"
            " by a NetworkPolicy",
            http.port,
        )
    return HttpServer(
        host=http.host,
        port=http.port,
        configuration=lambda: shown_settings(settings),
        certificate=certificate,
        review=_review(http, transport),
        **given,
    )


def _review(http: HttpSettings, transport: Transport) -> Review | None:
    if http.authentication == "none":
        return None
    reviewer = AccessReviewer(transport.aside(max_connections=2), clock=time.monotonic)

    async def review(token: str, verb: str, path: str) -> Verdict:
        return await reviewer.review(token, verb=verb, path=path)

    return review


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values; a password in a URL is left out."""
    values = asdict(settings)
    if settings.prometheus is not None:
        values["prometheus"]["url"] = without_password(settings.prometheus.url)
    return values


def without_password(url: str) -> str:
    """Return a URL without what stands before the host."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host))
