"""What the daemon shows to those who ask: metrics, decisions, state, the status page; and to whom. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import msgspec
from aiohttp import web

from kube_policy_scheduler.adapters.http_access import Clients, Review
from kube_policy_scheduler.adapters.http_server import Check, HealthChecks, HttpServer
from kube_policy_scheduler.adapters.kube.reviews import AccessDecision, AccessReviewer
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.loops import Loops
from kube_policy_scheduler.adapters.rotating_file import RotatingLines
from kube_policy_scheduler.adapters.serving_certificate import ServingCertificate
from kube_policy_scheduler.adapters.spare_time import SpareTime
from kube_policy_scheduler.daemon.configuration.settings import DecisionLogSettings, HttpSettings, Settings
from kube_policy_scheduler.daemon.modes.selection import Mode
from kube_policy_scheduler.daemon.observing.clause_metrics import ClauseCounts, ClauseMetrics
from kube_policy_scheduler.daemon.observing.decision_entry import Entry, select_in_steps
from kube_policy_scheduler.daemon.observing.decision_log import DecisionLog
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.observing.metrics import SchedulerMetrics
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.policies.owners import OwnerState
from kube_policy_scheduler.daemon.policies.reload import PolicyReloader
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.daemon.serving.state_dump import State, dump_in_steps
from kube_policy_scheduler.daemon.serving.status_page import StatusPage
from kube_policy_scheduler.daemon.serving.status_snapshot import PolicyStatus, Replica, SnapshotSources, take_snapshot
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.decision_record import Outcome, encode

logger = logging.getLogger(__name__)

FILE_NAME = "decisions.jsonl"
DEFAULT_LIMIT = 100
MOST_ANSWER_BYTES = 16 * 2**20
"""Of decisions in one answer: some 10,000."""
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
            settings,
            seed=seed,
            replica=replica,
            stopwatch=time.perf_counter,
            counts=counts,
            hand_on=self._write if self._file is not None else lambda entry: None,
        )

    def _write(self, entry: Entry) -> None:
        assert self._file is not None
        self._file.put(partial(self._line, entry), size=entry.size + entry.pod.template.size)

    def _line(self, entry: Entry) -> bytes:
        return encode(self.log.record(entry))

    def tallies(self) -> Mapping[str, int]:
        """Return how many records were written to files, and how many were left out."""
        return {"written": self._file.written, "dropped": self._file.dropped} if self._file is not None else {}

    async def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            await asyncio.to_thread(self._file.close)


class DaemonServer:
    """The port of a daemon, and what is kept for those who ask there."""

    def __init__(
        self,
        settings: Settings,
        *,
        scheduler: Scheduler,
        reloader: PolicyReloader[LivePolicies],
        owners: Callable[[], Sequence[OwnerState]],
        transport: Transport,
        metrics: SchedulerMetrics,
        ready: Mapping[str, Check],
        replica: Callable[[], Replica],
        signals: Callable[[], Sequence[SignalRow]],
        before_scrape: Callable[[], Iterator[None]],
        identity: str,
        mode: Mode,
        loops: Loops,
    ) -> None:
        """Set up; nothing is opened but the decision log's file.

        Raises:
            CertificateError: there is no certificate to serve with.
            FileError: the decision log cannot be written.
        """
        self._scheduler = scheduler
        self._reloader = reloader
        self._owners = owners
        self._counts = ClauseCounts()
        self._policy_status = PolicyStatus()
        self._spare_time = SpareTime()
        self._printing: asyncio.Task[None] | None = None
        self.recorder = DecisionRecorder(
            settings.decision_log, seed=settings.scheduling.seed, replica=identity, counts=self._counts
        )
        metrics.registry.register(ClauseMetrics(self._counts, policies=lambda: self._policy_status.policies))
        self._fetched = signals
        self._sources = SnapshotSources(
            cluster=scheduler.cluster,
            queue=scheduler.queue,
            gangs=scheduler.waiting_pods.states,
            assumed=lambda: len(scheduler.cluster.assumed),
            log=self.recorder.log,
            counts=self._counts,
            policy_status=self._policy_status,
            metrics=self.signals,
            replica=replica,
            clock=time.time,
            shadow=mode.shadow.summary if mode.shadow is not None else None,
        )
        self._status = StatusPage(lambda: take_snapshot(self._sources), stopwatch=time.monotonic)
        self.http = http_server(
            settings,
            transport,
            checks=HealthChecks(live={"ping": lambda: None}, ready=ready),
            registry=metrics.registry,
            routes={
                "/": self._status.show,
                "/status": self._status.show,
                "/policies": self._policies,
                "/debug/decisions": self._decisions,
                "/debug/state": self._state,
                **mode.routes,
            },
            posts=mode.posts,
            spare_time=self._spare_time,
            before_scrape=before_scrape,
            loops=loops,
        )

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Return the observers of the scheduler."""
        return self.recorder.log, self._policy_status

    def use_policies(self, policies: PolicySet, *, hash: str) -> None:  # noqa: A002 - the record's word
        """Take note of the policies that decide from now on."""
        self._counts.clear()
        self.recorder.log.use_policies(policies, hash=hash)
        self._policy_status.use_policies(policies, hash=hash)

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ServerError: the address is taken or not ours.
        """
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, and write what is left of the decision log."""
        await self.http.__aexit__()
        await self.recorder.close()

    def signals(self) -> list[SignalRow]:
        """Return the state of each query, with the nodes that had no value for it in the last close look."""
        missing = self.recorder.log.missing
        return [msgspec.structs.replace(row, missing_nodes=missing.get(row.query)) for row in self._fetched()]

    async def _policies(self, _: web.Request) -> web.Response:
        last, active = self._reloader.last, self._reloader.active_record
        return web.json_response(
            {
                "active": active.hash if active is not None else None,
                "generation": self._reloader.generation,
                "restored": active.origin or None if active is not None else None,
                "candidate": last.hash if last is not None else None,
                "accepted": last.successful if last is not None else False,
                "problems": list(last.problems) if last is not None else [],
                "owners": {state.owner: state.as_data() for state in self._owners()},
            }
        )

    async def _decisions(self, request: web.Request) -> web.Response:
        wanted: dict[str, Any] = {name: request.query.get(name, "") for name in ("pod", "node", "outcome")}
        outcomes = [outcome.value for outcome in Outcome]
        unknown = sorted(request.query.keys() - {*wanted, "limit"})
        if unknown:
            return _wrong(f"unknown parameter {unknown[0]}; the parameters are: {', '.join(wanted)}, limit")
        if wanted["outcome"] and wanted["outcome"] not in outcomes:
            return _wrong(f"expected outcome to be one of {', '.join(outcomes)}, got {wanted['outcome']}")
        limit = request.query.get("limit", str(DEFAULT_LIMIT))
        if not limit.isascii() or not limit.isdecimal() or len(limit) > 7:
            return _wrong(f"expected limit to be a number such as 100, got {limit[:40]}")
        body = await self._spare_time.run(self._lines(wanted, int(limit)))
        return web.Response(body=body, content_type=JSON_LINES)

    def _lines(self, wanted: Mapping[str, str], limit: int) -> Generator[None, None, bytes]:
        """Return the newest decisions that are wanted, oldest first; no more of them than fit an answer."""
        log = self._sources.log
        lines: list[bytes] = []
        room = MOST_ANSWER_BYTES
        for entry in (yield from select_in_steps(log.entries(), **wanted, limit=limit)):
            line = encode(log.record(entry))
            room -= len(line)
            if room < 0:
                break
            lines.append(line)
            yield
        return b"".join(reversed(lines))

    async def _state(self, request: web.Request) -> web.Response:
        state = await self._spare_time.run(self._dump(recount="recount" in request.query))
        return web.Response(body=await asyncio.to_thread(_pretty, state), content_type="application/json")

    def _dump(self, *, recount: bool) -> Generator[None, None, State]:
        sources, replica = self._sources, self._sources.replica()
        return dump_in_steps(
            sources.cluster,
            sources.queue,
            assumed=self._scheduler.cluster.assumed,
            now=sources.clock(),
            leading=replica.leading,
            shard=replica.shard,
            recount=recount,
            is_under_way=self._scheduler.is_under_way,
        )

    def print_state(self) -> None:
        """Write the state to standard error as one line of JSON, recounted; for SIGUSR2."""
        if self._printing is None or self._printing.done():
            self._printing = asyncio.create_task(self._print_state(), name="print state")

    async def _print_state(self) -> None:
        state = await self._spare_time.run(self._dump(recount=True))
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
        certificate = ServingCertificate(
            certificate_file=http.tls.certificate_file,
            key_file=http.tls.key_file,
            client_ca_file=http.tls.client_ca_file,
            clients=Clients(frozenset(http.tls.client_names)),
        )
    if http.authentication == "none" and http.host not in ("127.0.0.1", "::1", "localhost"):
        logger.warning(
            "http.authentication is none, so everybody who can connect to port %d sees pods, nodes and policies;"
            " restrict access with a NetworkPolicy",
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
    reviewer = AccessReviewer(transport.dedicated(max_connections=2), clock=time.monotonic)

    async def review(token: str, verb: str, path: str) -> AccessDecision:
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
