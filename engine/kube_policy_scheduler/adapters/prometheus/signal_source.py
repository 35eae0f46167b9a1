"""Keeps the readings of all policies' queries fresh, ahead of decisions. Knows no nodes and no policies.

All state lives on the event loop; only the HTTP call itself runs elsewhere, in one worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import promql_parser

from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.process.worker_thread import WorkerThread
from kube_policy_scheduler.adapters.prometheus.queries import (
    PrometheusClient,
    PrometheusEndpoint,
    PrometheusError,
    PrometheusUnreachableError,
    QueryRefusedError,
    QueryTimedOutError,
)
from kube_policy_scheduler.cluster.signals import About, Failure, Query, Reading, Signals
from kube_policy_scheduler.times import Steady

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
"""Also the longest that a recovered Prometheus waits to be noticed."""

ABANDON_AFTER_TIMEOUTS = 4
"""An HTTP timeout is per read: a server that sends a byte now and then passes it for ever. After this many
timeouts the call is left behind with its thread, and the next one gets a new one."""

SILENT_QUERIES = 2
"""Queries in a row without an answer after which the rest of a round is not tried: the server hangs."""


class QueryClient(Protocol):
    """What asks one query; blocks. `PrometheusClient`, or a stand-in."""

    def fetch(self, query: Query) -> Reading:
        """Ask once."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class QueryHealth:
    """How one query is doing, for metrics and the status page."""

    promql: str
    last_success_at: float | None
    """Unix seconds; None where there was none yet."""
    age_seconds: float | None
    stale: bool
    """Too old, or absent, for every policy that reads it."""
    empty: bool
    """Answered with no series, by a query that should have some: nothing has a value."""
    may_be_empty: bool
    """Having no series is an answer as good as any."""
    several: bool
    """Answered with several series, by a query that has one value for the cluster: it has none."""
    series: int
    fetch_seconds: float
    """How long the last fetch took."""
    failure: Failure | None
    warnings: tuple[str, ...]

    @property
    def degraded(self) -> bool:
        """Whether an operator should look."""
        return self.stale or self.empty or self.several or self.failure is not None


@dataclass(slots=True)
class _Tracked:
    query: Query
    due: float
    """Event loop time of the next fetch."""
    keep: bool
    """False for a query primed for a policy set that is not active yet: asked once."""
    reading: Reading | None = None
    fetched: Steady = field(default=Steady(0.0))
    """When the reading came; its own time is that by the wall clock, which policies compare with that of series."""
    failure: Failure | None = None
    failure_logged: bool = False
    empty: bool = False
    several: bool = False
    fetch_seconds: float = 0.0
    attempted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def active(self) -> bool:
        return self.keep or not self.attempted.is_set()


class SignalSource:
    """Refreshes each query at its interval and publishes an immutable `Signals` after every round.

    Failures are retried with growing, jittered pauses; the last readings stay in the snapshot, where a caller that
    reads them sees their age. `publish` is called on the event loop.
    """

    def __init__(
        self,
        endpoint: PrometheusEndpoint,
        *,
        publish: Callable[[Signals], None],
        node_label: str | None = None,
        clock: SettableClock | None = None,
        chance: random.Random | None = None,
        connect: Callable[[PrometheusEndpoint], QueryClient] = PrometheusClient,
        loops: Loops | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._publish = publish
        self._node_label = node_label
        self._clock = clock or SettableClock()
        self._chance = chance or random.Random()
        self._connect = connect
        self._client: QueryClient | None = None
        self._worker: WorkerThread | None = None
        self._tracked: dict[str, _Tracked] = {}
        self._wake = asyncio.Event()
        self._loops = loops or Loops()
        self._refreshing: Loop | None = None
        self._unreachable: Failure | None = None
        self._unreachable_since = 0.0
        self._blocked_until = 0.0
        self.signals = Signals.EMPTY
        """The latest snapshot."""

    async def __aenter__(self) -> SignalSource:
        """Start refreshing."""
        self._refreshing = self._loops.start("signals", self._run, restarts=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop at once; a request in flight ends on its own."""
        if self._refreshing is not None:
            await self._loops.end(self._refreshing)
            self._refreshing = None
        self._leave_worker()

    def set_queries(self, queries: Iterable[Query]) -> None:
        """Follow these queries and no others; unchanged ones keep their readings, new ones are asked at once."""
        wanted = _merged(queries)
        for promql in self._tracked.keys() - wanted.keys():
            self._tracked.pop(promql).attempted.set()
        for query in wanted.values():
            self._track(query, keep=True)
        self._snapshot()

    async def prime(self, queries: Iterable[Query], *, timeout_seconds: float) -> Signals:
        """Ask those queries that have no answer yet, wait a bounded time, return the snapshot.

        For a policy set about to be activated: its first decision then has values. The queries are not
        refreshed until `set_queries` names them. Needs the source to be started.
        """
        assert self._refreshing is not None, "start the source first"
        waiting = [self._track(query, keep=False) for query in _merged(queries).values()]
        attempts = [tracked.attempted.wait() for tracked in waiting]
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.gather(*attempts)
        except TimeoutError:
            log.info("activating policies without the first values of some metrics after %g s", timeout_seconds)
        self._snapshot()
        return self.signals

    def clock_was_set(self, ahead: float) -> None:
        """Publish the readings again: they are as old as they were, so they came at another time of the wall clock."""
        for tracked in self._tracked.values():
            if tracked.reading is not None:
                tracked.reading = msgspec.structs.replace(tracked.reading, fetched_at=tracked.fetched + ahead)
        asyncio.get_running_loop().call_soon(self._snapshot)  # the caller is in the middle of something

    def health(self) -> tuple[QueryHealth, ...]:
        """Return how each query is doing now, in the order of their texts."""
        now, ahead = self._clock(), self._clock.ahead()
        found = []
        for promql, tracked in sorted(self._tracked.items()):
            reading = tracked.reading
            found.append(
                QueryHealth(
                    promql=promql,
                    last_success_at=None if reading is None else tracked.fetched + ahead,
                    age_seconds=None if reading is None else now - tracked.fetched,
                    stale=not self.signals.usable(tracked.query, now=now + ahead),
                    empty=tracked.empty,
                    may_be_empty=may_be_empty(promql),
                    several=tracked.several,
                    series=0 if reading is None else len(reading.series),
                    fetch_seconds=tracked.fetch_seconds,
                    failure=tracked.failure,
                    warnings=() if reading is None else reading.warnings,
                )
            )
        return tuple(found)

    # --- the loop ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            now = _loop_time()
            active = [tracked for tracked in self._tracked.values() if tracked.active]
            due = sorted((tracked for tracked in active if tracked.due <= now), key=lambda one: one.due)
            if due and now >= self._blocked_until:
                await self._refresh(due)
                continue
            at = min((tracked.due for tracked in active), default=now + 3600)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(at, self._blocked_until) - now):
                    await self._wake.wait()

    async def _refresh(self, due: list[_Tracked]) -> None:
        silent = 0
        for tracked in due:
            if self._unreachable is not None and self._blocked_until > _loop_time():
                self._failed(tracked, PrometheusUnreachableError(self._unreachable.text))
                continue
            started, asked = _loop_time(), self._clock()
            try:
                reading = await self._fetch(tracked.query)
            except PrometheusUnreachableError as error:
                self._server_failed(error)
                self._failed(tracked, error)
            except QueryTimedOutError as error:
                silent += 1
                self._failed(tracked, error)
                if silent >= SILENT_QUERIES:
                    self._server_failed(PrometheusUnreachableError(str(error)))
            except PrometheusError as error:
                silent = 0
                self._server_answered()
                self._failed(tracked, error)
            else:
                silent = 0
                self._server_answered()
                self._succeeded(tracked, reading, asked)
            tracked.fetch_seconds = _loop_time() - started
        self._snapshot()
        for tracked in due:
            tracked.attempted.set()

    async def _fetch(self, query: Query) -> Reading:
        if self._worker is None or self._client is None:
            self._worker, self._client = WorkerThread("prometheus"), self._connect(self._endpoint)
        client = self._client
        patience = self._endpoint.timeout_seconds * ABANDON_AFTER_TIMEOUTS
        try:
            # not wait_for: Python 3.11's forgets that it was cancelled where the answer is there at the same time
            async with asyncio.timeout(patience):
                return await self._worker.call(lambda: client.fetch(query))
        except TimeoutError:
            self._leave_worker()
            raise PrometheusUnreachableError(
                f"no complete answer from {self._endpoint.shown()} within {patience:g} s"
            ) from None
        except PrometheusError:
            raise
        except Exception as error:
            # a bug here or in a library must not end the refreshing of all other queries
            log.exception("unexpected error while querying Prometheus")
            raise PrometheusError(f"unexpected error: {type(error).__name__}") from error

    def _leave_worker(self) -> None:
        if self._worker is not None and self._client is not None:
            self._worker.stop(finally_call=self._client.close)
        self._worker = self._client = None

    # --- state ---------------------------------------------------------------------------------------

    def _track(self, query: Query, *, keep: bool) -> _Tracked:
        now = _loop_time()
        tracked = self._tracked.get(query.promql)
        if tracked is None:
            tracked = self._tracked[query.promql] = _Tracked(query=query, due=now, keep=keep)
        elif keep:
            tracked.query, tracked.keep = query, True
            tracked.due = min(tracked.due, now + query.every_seconds)
        elif tracked.failure is not None:
            tracked.due = now
            tracked.attempted.clear()
        if self._unreachable is not None and not tracked.attempted.is_set() and now < self._blocked_until:
            # known to fail: a policy reload need not wait for it
            self._failed(tracked, PrometheusUnreachableError(self._unreachable.text))
            tracked.attempted.set()
        self._wake.set()
        return tracked

    def _succeeded(self, tracked: _Tracked, reading: Reading, asked: Steady) -> None:
        if tracked.failure_logged:
            log.info("metric query answers again: %s", tracked.query.promql)
            tracked.failure_logged = False
        known = () if tracked.reading is None else tracked.reading.warnings
        if reading.warnings and reading.warnings != known:
            log.warning("Prometheus warns about query %s: %s", tracked.query.promql, "; ".join(reading.warnings))
        empty = reading.scalar is None and not len(reading.series) and not may_be_empty(reading.promql)
        if empty and not tracked.empty:
            log.warning(
                "metric query matches no series, so its value is missing%s: %s: is the metric exported?",
                " for every node" if tracked.query.about is About.NODES else "",
                tracked.query.promql,
            )
        elif tracked.empty and not empty:
            log.info("metric query matches series again: %s", tracked.query.promql)
        several = tracked.query.about is About.CLUSTER and len(reading.series) > 1
        if several and not tracked.several:
            log.warning(
                "metric query returns %d series, but the metric has one value for the cluster, so its value is missing:"
                " %s: aggregate in the query, for example sum(…)",
                len(reading.series),
                tracked.query.promql,
            )
        elif tracked.several and not several:
            log.info("metric query returns one series again: %s", tracked.query.promql)
        tracked.failure, tracked.empty, tracked.several = None, empty, several
        tracked.fetched = asked
        tracked.reading = msgspec.structs.replace(reading, fetched_at=asked + self._clock.ahead())
        # a little early and never the same, so that several schedulers do not ask in step
        every = tracked.query.every_seconds * self._chance.uniform(0.9, 1.0)
        tracked.due = _loop_time() + every

    def _failed(self, tracked: _Tracked, error: PrometheusError) -> None:
        before = tracked.failure
        failure = Failure(
            promql=tracked.query.promql,
            text=str(error),
            since=self._clock.wall() if before is None else before.since,
            attempts=1 if before is None else before.attempts + 1,
            refused=isinstance(error, QueryRefusedError),
        )
        if isinstance(error, PrometheusUnreachableError):
            due = self._blocked_until  # said once, for the server
        else:
            due = _loop_time() + self._pause(failure.attempts)
            if not tracked.failure_logged:
                log.warning("metric query fails: %s: %s", failure.promql, failure.text)
                tracked.failure_logged = True
        tracked.failure = failure
        tracked.due = due

    def _server_failed(self, error: PrometheusUnreachableError) -> None:
        before = self._unreachable
        if before is None:
            log.warning("%s; using the last values until they are too old", error)
        attempts = 1 if before is None else before.attempts + 1
        since = self._clock.wall() if before is None else before.since
        self._unreachable = Failure(promql="", text=str(error), since=since, attempts=attempts)
        if before is None:
            self._unreachable_since = _loop_time()
        self._blocked_until = _loop_time() + self._pause(attempts)

    def _server_answered(self) -> None:
        if self._unreachable is not None:
            seconds = _loop_time() - self._unreachable_since
            log.info("Prometheus answers again after %.0f s", seconds)
        self._unreachable = None
        self._blocked_until = 0.0

    def _pause(self, attempts: int) -> float:
        longest = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempts - 1, 10))
        return longest * self._chance.uniform(0.5, 1.0)

    def _snapshot(self) -> None:
        self.signals = Signals.of(
            (tracked.reading for tracked in self._tracked.values() if tracked.reading is not None),
            failures=(tracked.failure for tracked in self._tracked.values() if tracked.failure is not None),
            node_label=self._node_label,
        )
        self._publish(self.signals)


def _merged(queries: Iterable[Query]) -> dict[str, Query]:
    """One query per text: as often as the most eager wants it, as old as the most patient allows."""
    merged: dict[str, Query] = {}
    for query in queries:
        other = merged.get(query.promql, query)
        merged[query.promql] = Query(
            promql=query.promql,
            every_seconds=min(query.every_seconds, other.every_seconds),
            stale_after_seconds=max(query.stale_after_seconds, other.stale_after_seconds),
            about=About.CLUSTER if other.about is About.CLUSTER else query.about,
        )
    return merged


_FILTERS = frozenset({"==", "!=", "<", "<=", ">", ">=", "and", "unless"})
"""Operators that leave out series, the comparisons without `bool`."""
_ONLY_WHERE_SOMETHING_IS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
"""Series that are there while something is wrong."""


@lru_cache(maxsize=256)
def may_be_empty(promql: str) -> bool:
    """Return whether no series is an answer as good as any: the query asks for those that meet a condition."""
    try:
        parts: list[Any] = [promql_parser.parse(promql)]
    except ValueError:
        return False
    while parts:
        match parts.pop():
            case promql_parser.BinaryExpr(op=operator, modifier=modifier, lhs=left, rhs=right):
                if str(operator) in _FILTERS and not (modifier is not None and modifier.return_bool):
                    return True
                parts += [left, right]
            case promql_parser.Call(func=function, args=arguments):
                if function.name.startswith("absent"):
                    return True
                parts += arguments
            case promql_parser.VectorSelector(name=name) if name in _ONLY_WHERE_SOMETHING_IS:
                return True
            case (
                promql_parser.AggregateExpr(expr=inner)
                | promql_parser.ParenExpr(expr=inner)
                | promql_parser.UnaryExpr(expr=inner)
            ):
                parts.append(inner)
            case _:
                pass
    return False


def _loop_time() -> float:
    """Monotonic seconds: schedules must not move when the wall clock is set."""
    return asyncio.get_running_loop().time()
