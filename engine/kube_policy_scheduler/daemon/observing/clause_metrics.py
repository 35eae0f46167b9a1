"""What each clause said, exported for Prometheus: read from the counts when a scrape comes.

The counts are those of close looks, hence of a sample of the decisions where there are many. They begin at 0 with
every new policy set, as counters may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kube_policy_scheduler.daemon.observing.clause_counts import ClauseCounts
from kube_policy_scheduler.daemon.observing.live_metrics import query_label
from kube_policy_scheduler.policy.detail import Plugin
from kube_policy_scheduler.policy.policy_set import PolicySet


class ClauseMetrics(Collector):
    """`policy_scheduler_clause_*` and `policy_scheduler_missing_values`, of the policies in use."""

    def __init__(self, counts: ClauseCounts, *, policies: Callable[[], PolicySet | None]) -> None:
        self._counts = counts
        self._policies = policies

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry then does not call `collect` when it registers us."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the counts of now."""
        decisions: dict[tuple[str, ...], int] = defaultdict(int)
        nodes: dict[tuple[str, ...], int] = defaultdict(int)
        missing: dict[tuple[str, ...], int] = defaultdict(int)
        seconds: dict[tuple[str, ...], float] = defaultdict(float)
        policies = self._policies()
        for policy in policies.policies if policies is not None else ():
            scores: Iterable[Plugin] = (weighted.plugin for weighted in policy.profile.scores)
            for plugin in (*policy.profile.filters, *scores):
                counts = self._counts.of(plugin)
                if not counts.decisions:
                    continue
                labels = (policy.name, query_label(plugin.name))
                # clauses may share a name, and a series must not be there twice
                decisions[labels] += counts.decisions
                missing[labels] += counts.degraded
                seconds[labels] += counts.seconds
                for result in ("asked", "refused", "missing"):
                    nodes[*labels, result] += getattr(counts, result)
        yield _family(
            "policy_scheduler_clause_decisions",
            "Number of sampled decisions in which a filter or score was evaluated.",
            ("policy", "clause"),
            decisions,
        )
        yield _family(
            "policy_scheduler_clause_nodes",
            "Number of nodes in the sampled decisions that a filter or score was evaluated for, rejected, or had"
            " no value for, by result.",
            ("policy", "clause", "result"),
            nodes,
        )
        yield _family(
            "policy_scheduler_clause_evaluation_seconds",
            "Total time that the evaluation of a filter or score took in the sampled decisions, in seconds.",
            ("policy", "clause"),
            seconds,
        )
        yield _family(
            "policy_scheduler_missing_values",
            "Number of sampled decisions in which a statement had no value for at least one node.",
            ("policy", "statement"),
            missing,
        )


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for found, value in values.items():
        family.add_metric(found, value)
    return family
