"""What a shadow has found so far: totals by policy, the last comparisons, metrics. Decides nothing.

Noting one takes microseconds; the text is made when somebody asks.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from kube_policy_scheduler.daemon.observing.live_metrics import OTHERS, label_value
from kube_policy_scheduler.daemon.observing.metrics import ShadowMetrics
from kube_policy_scheduler.daemon.observing.observers import Compared, Observer, ShadowOutcome

MOST_CLAUSES = 10
MOST_NAMES = 10_000
"""Clauses, and policies, of which is counted: an owner can name them otherwise with each change. Half of them are kept
when there are more, those with most pods."""


class ComparisonReport:
    """Counts comparisons since the start, of pods or of workloads."""

    def __init__(
        self, *, kept: int, clock: Callable[[], float], names: tuple[str, ...] = (), things: str = "pods"
    ) -> None:
        """Make an empty report.

        Args:
            kept: comparisons kept.
            clock: unix seconds.
            names: of the schedulers that are looked at.
            things: what is compared, in the plural: the key of their number.
        """
        self._since = clock()
        self.names = names
        self._things = things
        self._totals: Counter[tuple[str, ShadowOutcome]] = Counter()
        self._clauses: Counter[tuple[str, str]] = Counter()
        self._margins: defaultdict[str, float] = defaultdict(float)
        """Sums by policy."""
        self._rated: Counter[str] = Counter()
        self._late = 0
        self._last: deque[dict[str, Any]] = deque(maxlen=kept)
        """As plain values: the things themselves may be large, and gone."""

    def count(self, policy: str, verdict: ShadowOutcome, clauses: Iterable[str], told: dict[str, Any]) -> None:
        """Count a comparison.

        Args:
            policy: that decided; "" if none did.
            verdict: how the two compare.
            clauses: that reject what the other chose, or everything.
            told: what the report says of it.
        """
        self._totals[policy, verdict] += 1
        for clause in clauses:
            self._clauses[policy, clause] += 1
        if len(self._clauses) > MOST_NAMES:
            self._clauses = Counter(dict(self._clauses.most_common(MOST_NAMES // 2)))
        if len(self._totals) > MOST_NAMES:
            self._forget_smallest()
        self._last.append(told)

    def _forget_smallest(self) -> None:
        """Count the policies with fewest pods as one."""
        largest = Counter(dict(self._totals.most_common(MOST_NAMES // 2)))
        for (policy, verdict), number in self._totals.items():
            if (policy, verdict) not in largest:
                largest[OTHERS, verdict] += number
        self._totals = largest
        kept = {policy for policy, _ in largest}
        self._rated = Counter({policy: number for policy, number in self._rated.items() if policy in kept})
        self._margins = defaultdict(float, {policy: sum_ for policy, sum_ in self._margins.items() if policy in kept})

    @property
    def total(self) -> int:
        """Return how many were compared."""
        return sum(self._totals.values())

    def summary(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        policies = sorted({policy for policy, _ in self._totals})
        return {
            "schedulers": list(self.names),
            "since": self._since,
            self._things: self.total,
            "late": self._late,
            "verdicts": {verdict.value: self._count(verdict) for verdict in ShadowOutcome},
            "policies": {policy: self._of(policy) for policy in policies},
        }

    def _count(self, verdict: ShadowOutcome) -> int:
        return sum(number for (_, each), number in self._totals.items() if each is verdict)

    def _of(self, policy: str) -> dict[str, Any]:
        rated = self._rated[policy]
        clauses = Counter({clause: n for (named, clause), n in self._clauses.items() if named == policy})
        return {
            "verdicts": {verdict.value: self._totals[policy, verdict] for verdict in ShadowOutcome},
            "meanMargin": round(self._margins[policy] / rated, 4) if rated else None,
            "refusingClauses": dict(clauses.most_common(MOST_CLAUSES)),
        }

    def last(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest comparisons, the newest first, as plain values."""
        newest = list(self._last)[-limit:] if limit else []
        return newest[::-1]


class ShadowReport(ComparisonReport, Observer):
    """Counts comparisons of pods since the start."""

    def __init__(
        self, metrics: ShadowMetrics, *, kept: int, clock: Callable[[], float], names: tuple[str, ...] = ()
    ) -> None:
        """Make an empty report. metrics: counts too; the others are those of `ComparisonReport`."""
        super().__init__(kept=kept, clock=clock, names=names)
        self._metrics = metrics

    def on_compared(self, compared: Compared) -> None:
        """Count it, and keep what the report says of it."""
        policy = compared.policy or ""
        self._metrics.pods.of(policy, compared.verdict.value).inc()
        for clause in compared.clauses:
            self._metrics.refusals.of(policy, label_value(clause)).inc()
        if compared.margin is not None:
            self._margins[policy] += compared.margin
            self._rated[policy] += 1
            self._metrics.margin.of(policy).observe(compared.margin)
        if compared.late:
            self._late += 1
            self._metrics.late.inc()
        self.count(policy, compared.verdict, compared.clauses, {"time": compared.at, **facts(compared)})


def facts(compared: Compared) -> dict[str, Any]:
    """Return a comparison as plain values, without what is empty."""
    values = {
        "pod": compared.pod.key,
        "verdict": compared.verdict.value,
        "policy": compared.policy,
        "ours": compared.ours,
        "theirs": compared.theirs,
        "why": compared.why,
        "clauses": sorted(compared.clauses) or None,
        "score": compared.score,
        "theirScore": compared.their_score,
        "margin": round(compared.margin, 4) if compared.margin is not None else None,
        "late": compared.late,
    }
    return {name: value for name, value in values.items() if value is not None and value is not False and value != ""}
