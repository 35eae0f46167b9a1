"""Metrics for decisions: asks Prometheus what the policies in force read, and shows how fresh the answers are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from kube_policy_scheduler.adapters.process.loops import Loop, Loops
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.process.spare_time import in_turns
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.configuration.settings import PrometheusSettings
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource

logger = logging.getLogger(__name__)

Joining = Callable[[Sequence[Query], Signals], Iterator[None]]
"""Lays the readings of some queries over the nodes in steps; of those that are, no step is left."""


class ReadyReadings:
    """Publishes a reading once it is laid over the nodes: until then, decisions are made by the one before."""

    def __init__(self, *, publish: Callable[[Signals], None], joining: Joining, loops: Loops) -> None:
        """publish: receives every new snapshot. joining: see `Joining`."""
        self._publish, self._joining, self._loops = publish, joining, loops
        self._queries: Sequence[Query] = ()
        self._newest = self._published = Signals.EMPTY
        self._arrived = asyncio.Event()
        self._running: Loop | None = None

    async def __aenter__(self) -> Self:
        self._running = self._loops.start("signals-join", self._run, restarts=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            await self._loops.end(self._running)
            self._running = None

    def use(self, queries: Sequence[Query]) -> None:
        """Lay the readings of these queries over the nodes from now on, and of no others."""
        self._queries = queries

    def take(self, signals: Signals) -> None:
        """Take a snapshot, and publish what of it is ready."""
        self._newest = signals
        self._show()

    async def join(self, queries: Sequence[Query], signals: Signals) -> None:
        """Lay readings over the nodes in slices; at the return, those that were not replaced meanwhile are ready."""
        await in_turns(self._joining(queries, signals))

    async def join_all(self) -> None:
        """Lay the newest readings over the nodes as they are now."""
        await self.join(self._queries, self._newest)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self.join_all()
            self._show()

    def _show(self) -> None:
        newest, before = self._newest, self._published.readings
        waiting = {query.promql for query in self._queries if next(self._joining((query,), newest), self) is not self}
        ready = [
            reading
            for promql, reading in newest.readings.items()
            # where only the time of an answer changed, as when the clock is set, hardly anything is left to do
            if promql not in waiting or (promql in before and before[promql].series is reading.series)
        ]
        known = {reading.promql for reading in ready}
        ready += [before[promql] for promql in before.keys() & newest.readings.keys() - known]
        self._published = msgspec.structs.replace(newest, readings=Signals.of(ready).readings)
        self._publish(self._published)
        if waiting:
            self._arrived.set()


class SignalFeed:
    """The signals of a daemon; without Prometheus every value is missing, and said to be."""

    def __init__(
        self,
        settings: PrometheusSettings | None,
        *,
        publish: Callable[[Signals], None],
        joining: Joining,
        missing: Callable[[], Mapping[str, int]],
        unusable: Callable[[], Mapping[str, str]],
        clock: SettableClock,
        loops: Loops,
    ) -> None:
        """Set up; nothing is asked yet.

        Args:
            settings: of Prometheus; None: there is none.
            publish: receives every new snapshot.
            joining: see `Joining`.
            missing: returns by PromQL how many nodes have no value, by what was published.
            unusable: returns by PromQL why what was published has no value for any node.
            clock: of the process.
            loops: of the process.
        """
        self._settings = settings
        self._queries: Sequence[Query] = ()
        self._use, self._missing, self._unusable = publish, missing, unusable
        self._told: Mapping[str, str] = {}
        """By PromQL: why no node has a value, as it was logged."""
        self._ready = ReadyReadings(publish=self._publish, joining=joining, loops=loops)
        self._source: SignalSource | None = None
        if settings is not None:
            from kube_policy_scheduler.adapters.prometheus.queries import (
                PrometheusEndpoint,  # 60 ms, for nothing where there is none
            )
            from kube_policy_scheduler.adapters.prometheus.signal_source import SignalSource

            endpoint = PrometheusEndpoint(
                url=settings.url,
                timeout_seconds=settings.timeout,
                bearer_token_file=settings.bearer_token_file,
                ca_file=settings.ca_file,
                client_certificate_file=settings.client_certificate_file,
                client_key_file=settings.client_key_file,
            )
            self._source = SignalSource(
                endpoint, publish=self._ready.take, node_label=settings.node_label, clock=clock, loops=loops
            )
            clock.on_set(self._source.clock_was_set)

    def _publish(self, signals: Signals) -> None:
        """Hand readings on, and log which of them have no value for any node, though Prometheus answers."""
        self._use(signals)
        unusable = self._unusable()
        for promql, why in unusable.items():
            if promql not in self._told:
                logger.warning("metric query gives no value that can be used", extra={"query": promql, "why": why})
        for promql in self._told.keys() & signals.readings.keys() - unusable.keys():
            logger.info("metric query gives values again", extra={"query": promql})
        self._told = unusable

    async def __aenter__(self) -> Self:
        await self._ready.__aenter__()
        if self._source is not None:
            await self._source.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source is not None:
            await self._source.__aexit__(kind, error, trace)
        await self._ready.__aexit__()

    async def prime(self, queries: Sequence[Query]) -> None:
        """Wait a little for the first values of new queries, and until those that came are laid over the nodes."""
        if self._source is not None and self._settings is not None:
            signals = await self._source.prime(queries, timeout_seconds=self._settings.prime_timeout)
            await self._ready.join(queries, signals)

    async def join_all(self) -> None:
        """Lay the readings over the nodes as they are now: after the first lists no node is as it was before."""
        await self._ready.join_all()

    def use(self, queries: Sequence[Query]) -> None:
        """Ask these from now on, and no others."""
        self._queries = queries
        self._ready.use(queries)
        if self._source is not None:
            self._source.set_queries(queries)
        elif queries:
            logger.warning(
                "no Prometheus is configured, so the values of %d queries are missing; set prometheus.url",
                len({query.promql for query in queries}),
            )

    def rows(self) -> list[SignalRow]:
        """Return the state of each query, for a scrape."""
        missing, unusable = self._missing(), self._unusable()
        if self._source is None:
            return [
                SignalRow(promql, None, degraded=True, series=0, missing_nodes=missing.get(promql), fetch_seconds=0.0)
                for promql in dict.fromkeys(query.promql for query in self._queries)
            ]
        return [
            SignalRow(
                query=health.promql,
                age_seconds=health.age_seconds,
                degraded=health.degraded or health.promql in unusable,
                series=health.series,
                missing_nodes=None if health.may_be_empty else missing.get(health.promql),
                fetch_seconds=health.fetch_seconds,
            )
            for health in self._source.health()
        ]
