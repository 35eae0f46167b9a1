"""Metrics for decisions: asks Prometheus what the policies in force read, and shows how fresh the answers are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kube_policy_scheduler.adapters.loops import Loops
from kube_policy_scheduler.adapters.settable_clock import SettableClock
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.configuration.settings import PrometheusSettings
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow

if TYPE_CHECKING:
    from kube_policy_scheduler.adapters.signal_source import SignalSource

logger = logging.getLogger(__name__)


class SignalFeed:
    """The signals of a daemon; without Prometheus every value is missing, and said to be."""

    def __init__(
        self,
        settings: PrometheusSettings | None,
        *,
        publish: Callable[[Signals], None],
        clock: SettableClock,
        loops: Loops,
    ) -> None:
        """publish: is handed every new snapshot. loops: of the process."""
        self._settings = settings
        self._queries: Sequence[Query] = ()
        self._source: SignalSource | None = None
        if settings is not None:
            from kube_policy_scheduler.adapters.prometheus import (
                PrometheusEndpoint,  # 60 ms, for nothing where there is none
            )
            from kube_policy_scheduler.adapters.signal_source import SignalSource

            endpoint = PrometheusEndpoint(
                url=settings.url,
                timeout_seconds=settings.timeout,
                bearer_token_file=settings.bearer_token_file,
                ca_file=settings.ca_file,
                client_certificate_file=settings.client_certificate_file,
                client_key_file=settings.client_key_file,
            )
            self._source = SignalSource(
                endpoint, publish=publish, node_label=settings.node_label, clock=clock, loops=loops
            )
            clock.on_set(self._source.clock_was_set)

    async def __aenter__(self) -> Self:
        if self._source is not None:
            await self._source.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source is not None:
            await self._source.__aexit__(kind, error, trace)

    async def prime(self, queries: Sequence[Query]) -> None:
        """Wait a little for the first values of new queries."""
        if self._source is not None and self._settings is not None:
            await self._source.prime(queries, timeout_seconds=self._settings.prime_timeout)

    def use(self, queries: Sequence[Query]) -> None:
        """Ask these from now on, and no others."""
        self._queries = queries
        if self._source is not None:
            self._source.set_queries(queries)
        elif queries:
            logger.warning(
                "no Prometheus is configured, so the values of %d queries are missing; set prometheus.url",
                len({query.promql for query in queries}),
            )

    def rows(self) -> list[SignalRow]:
        """Return the state of each query, for a scrape."""
        if self._source is None:
            return [_never_answered(promql) for promql in dict.fromkeys(query.promql for query in self._queries)]
        return [
            SignalRow(
                query=health.promql,
                age_seconds=health.age_seconds,
                degraded=health.degraded,
                series=health.series,
                missing_nodes=None,
                fetch_seconds=health.fetch_seconds,
            )
            for health in self._source.health()
        ]


def _never_answered(promql: str) -> SignalRow:
    return SignalRow(promql, age_seconds=None, degraded=True, series=0, missing_nodes=None, fetch_seconds=0.0)
