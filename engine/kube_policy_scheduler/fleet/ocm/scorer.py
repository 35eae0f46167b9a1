"""Scores of managed clusters: their values by the policies, and how long they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.fleet.model import Fleet, Outcome
from kube_policy_scheduler.times import Steady

DecideEach: TypeAlias = Callable[[Fleet], Mapping[str, Outcome]]
"""Returns what each policy says of the clusters, by the name of the policy."""
ScoresKey: TypeAlias = tuple[str]
"""The name of a cluster."""
SCORED = "AddOnPlacementScore"
"""The kind of workload that policies see: the score is for no Placement in particular."""
LOWEST, WORST, BEST = -100, 0, 100
"""Values: of a cluster that the policy rejects, of the worst that passes, of the best. OCM allows no others."""
EVERY_SECONDS = 60.0
"""Between two writes of the scores of a cluster."""
VALID_SECONDS = 180.0
"""For so long scores count; OCM takes those that are older for 0."""
REUSED_SECONDS = 5.0
"""For so long the scores of all clusters are used that were computed for one of them."""
WITHOUT = frozenset(("TaintToleration",))
"""Filters that are not asked for a score: a Placement says which taints it tolerates, and OCM's scheduler asks it."""


class Scores(msgspec.Struct, frozen=True, eq=False):
    """What is to be written for a cluster."""

    key: ScoresKey
    values: Mapping[str, int]
    """By the name of the policy."""

    @property
    def cluster(self) -> str:
        """Return the name of the cluster."""
        return self.key[0]


def values_of(outcome: Outcome) -> dict[str, int]:
    """Return the value of each cluster: the best has 100, the worst that passes 0, what is rejected -100.

    Those between are on the line between. If all that pass have the same score, all have 100.
    """
    passing = [each.score for each in outcome.verdicts.values() if not each.rejected_by]
    low, high = min(passing, default=0.0), max(passing, default=0.0)
    return {
        name: LOWEST if each.rejected_by else _value(each.score, low, high) for name, each in outcome.verdicts.items()
    }


def _value(score: float, low: float, high: float) -> int:
    if low == high:
        return BEST
    # halves, as the difference of two large scores may not be a number
    return WORST + round((BEST - WORST) * ((score / 2 - low / 2) / (high / 2 - low / 2)))


class Scorer:
    """Computes the scores of all clusters, and uses them for a while."""

    def __init__(self) -> None:
        """Have no policies yet."""
        self._decide_each: DecideEach | None = None
        self._values: Mapping[str, Mapping[str, int]] = {}
        """By cluster and policy."""
        self._computed: float | None = None
        """On the steady clock."""

    def use(self, decide_each: DecideEach) -> None:
        """Score by these policies from now on."""
        self._decide_each, self._computed = decide_each, None

    def stale_for(self, changed: float, now: Steady) -> float:
        """Return for how many seconds scores are still used that do not know of a change at a steady time."""
        if self._computed is None or changed <= self._computed:
            return 0.0
        return max(0.0, self._computed + REUSED_SECONDS - now)

    def values(self, name: str, fleet: Fleet, now: Steady) -> Mapping[str, int] | None:
        """Return the scores of a cluster; None if there are no policies. fleet: all clusters, with this one."""
        if self._decide_each is None:
            return None
        if self._computed is None or now - self._computed >= REUSED_SECONDS or name not in self._values:
            found: dict[str, dict[str, int]] = {each.name: {} for each in fleet.clusters}
            asked = msgspec.structs.replace(fleet, without=fleet.without | WITHOUT)
            for policy, outcome in self._decide_each(asked).items():
                for cluster, value in values_of(outcome).items():
                    found[cluster][policy] = value
            self._values, self._computed = found, now
        return self._values[name]
