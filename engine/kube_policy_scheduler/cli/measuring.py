"""The metrics that policies read, asked of Prometheus now, and why some have no answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube_policy_scheduler.cli.progress import status_line

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.signals import Query, Signals


@dataclass(frozen=True, slots=True)
class Measured:
    """What Prometheus said."""

    signals: Signals
    unanswered: dict[str, str]
    """By query: why nobody knows its value."""
    refused: dict[str, str]
    """By query: why Prometheus itself has no value for it."""

    @property
    def failures(self) -> dict[str, str]:
        """Return why queries have no answer, whoever is to blame."""
        return {**self.unanswered, **self.refused}


def measured(url: str, queries: Iterable[Query]) -> Measured:
    """Ask each query once."""
    from kube_policy_scheduler.adapters.prometheus import (
        PrometheusClient,
        PrometheusEndpoint,
        PrometheusError,
        PrometheusUnreachableError,
        QueryTimedOutError,
    )
    from kube_policy_scheduler.cluster.signals import Signals

    client = PrometheusClient(PrometheusEndpoint(url))
    readings = []
    unanswered: dict[str, str] = {}
    refused: dict[str, str] = {}
    try:
        with status_line() as show:
            for query in queries:
                show(f"metric: {query.promql}")
                try:
                    readings.append(client.fetch(query))
                except (PrometheusUnreachableError, QueryTimedOutError) as error:
                    unanswered[query.promql] = str(error)
                except PrometheusError as error:
                    refused[query.promql] = str(error)
    finally:
        client.close()
    return Measured(Signals.of(readings), unanswered, refused)
