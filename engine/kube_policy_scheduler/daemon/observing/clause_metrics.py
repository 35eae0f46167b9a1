"""What each clause said, counted by close looks, and exported for Prometheus when a scrape comes.

The counts are of a sample of the decisions where there are many. They start at 0 with every new policy set, as counters
may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kube_policy_scheduler.daemon.observing.live_metrics import label_value
from kube_policy_scheduler.policy.detail import Plugin, PluginVerdict
from kube_policy_scheduler.policy.policy_set import PolicySet


class Counts(msgspec.Struct):
    """What one plugin said since its policies came into force, in the decisions that were looked at closely."""

    decisions: int = 0
    asked: int = 0
    """Nodes; 1 a decision for a rule about the pod as a whole."""
    rejected: int = 0
    missing: int = 0
    degraded: int = 0
    """Decisions in which a value was missing for at least one node."""
    seconds: float = 0.0
    """What asking took in all."""
    low: float | None = None
    high: float | None = None


class ClauseCounts:
    """Counts by plugin. A new policy set has new plugins, so its counts start at 0."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}
        self.decisions = 0
        """How many decisions were looked at."""

    def clear(self) -> None:
        """Start again."""
        self._counts = {}
        self.decisions = 0

    def add(self, verdicts: Iterable[PluginVerdict]) -> None:
        """Add one decision."""
        self.decisions += 1
        counts = self._counts
        for verdict in verdicts:
            found = counts.get(id(verdict.plugin))
            if found is None:
                found = counts[id(verdict.plugin)] = Counts()
            found.decisions += 1
            found.asked += verdict.asked
            found.rejected += verdict.rejected
            found.missing += verdict.missing
            found.seconds += verdict.seconds
            found.degraded += verdict.missing > 0
            low, high = verdict.low, verdict.high
            if low is not None and (found.low is None or low < found.low):
                found.low = low
            if high is not None and (found.high is None or high > found.high):
                found.high = high

    def of(self, plugin: Plugin) -> Counts:
        """Return a copy of a plugin's counts."""
        found = self._counts.get(id(plugin))
        return (
            Counts() if found is None else Counts(**{name: getattr(found, name) for name in Counts.__struct_fields__})
        )


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
                labels = (policy.name, label_value(plugin.name))
                # clauses may share a name, and a series must not be there twice
                decisions[labels] += counts.decisions
                missing[labels] += counts.degraded
                seconds[labels] += counts.seconds
                for result in ("asked", "rejected", "missing"):
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
