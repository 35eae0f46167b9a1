"""The scorer: what is known of a hub's managed clusters, and the scores that each of them is to have next.

It does no I/O: its caller hands in what a watch shows, writes what `next` hands out, and says how that ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Outcome, Reason
from kube_policy_scheduler.fleet.ocm import reading
from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Waiting, Wake
from kube_policy_scheduler.times import Steady

DecideEach: TypeAlias = Callable[[Fleet], Mapping[str, Outcome]]
"""Returns what each policy says of the clusters, by the name of the policy."""
Key: TypeAlias = tuple[str]
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
WITHOUT = frozenset(("APIEnablement",))
"""Filters of Karmada that ask for what a ManagedCluster does not say."""


class Scores(msgspec.Struct, frozen=True, eq=False):
    """What is to be written for a cluster."""

    key: Key
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
    """Knows the managed clusters, and when each is to get its scores again."""

    def __init__(self) -> None:
        """Know nothing yet, and no policies."""
        self._decide_each: DecideEach | None = None
        self._clusters: dict[str, FleetCluster] = {}
        self._fleet: Fleet | None = None
        self._values: Mapping[str, Mapping[str, int]] = {}
        """By cluster and policy."""
        self._computed: float | None = None
        """On the steady clock."""
        self.waiting: Waiting[Key] = Waiting()
        self.tallies = Tallies()

    def use(self, decide_each: DecideEach, now: Steady) -> None:
        """Score by these policies from now on."""
        self._decide_each, self._computed = decide_each, None
        for name in self._clusters:
            self.waiting.wake((name,), Wake.OWN, now)

    @property
    def fleet(self) -> Fleet:
        """Return the clusters as they are now."""
        if self._fleet is None:
            clusters = tuple(self._clusters[name] for name in sorted(self._clusters))
            self._fleet = Fleet(clusters, without=WITHOUT, whole=True, keep_empty=True)
        return self._fleet

    # --- what is there ------------------------------------------------------------------------------

    def replace_clusters(self, listed: Sequence[ManagedCluster], now: Steady) -> None:
        """Take all managed clusters."""
        for name in self._clusters.keys() - {each.metadata.name for each in listed}:
            self.delete_cluster(name)
        for each in listed:
            self.set_cluster(each, now)

    def set_cluster(self, written: ManagedCluster, now: Steady) -> None:
        """Take a cluster that is new or has changed; only a new one gets its scores at once."""
        before, after = self._clusters.get(written.metadata.name), reading.cluster(written)
        if after.deleting:
            self.delete_cluster(after.name)
            return
        if before != after:
            self._clusters[after.name], self._fleet = after, None
        if before is None:
            self.waiting.wake((after.name,), Wake.OWN, now)

    def delete_cluster(self, name: str) -> None:
        """Take note that a cluster goes; OCM takes its scores away."""
        if self._clusters.pop(name, None) is not None:
            self._fleet = None
            self.waiting.forget((name,))

    # --- what is to be done -------------------------------------------------------------------------

    def next(self, now: Steady) -> Scores | None:
        """Return the scores that are to be written next; None if there are none now, or no policies."""
        while self._decide_each is not None and (key := self.waiting.next(now)) is not None:
            values = self.values(key[0], now)
            if values:
                return Scores(key, values)
            self.done(key, now)
        return None

    def values(self, name: str, now: Steady) -> Mapping[str, int] | None:
        """Return the scores of a cluster; None if it is not known, or there are no policies."""
        if name not in self._clusters or self._decide_each is None:
            return None
        if self._computed is None or now - self._computed >= REUSED_SECONDS or name not in self._values:
            found: dict[str, dict[str, int]] = {each: {} for each in self._clusters}
            for policy, outcome in self._decide_each(self.fleet).items():
                for cluster, value in values_of(outcome).items():
                    found[cluster][policy] = value
            self._values, self._computed = found, now
        return self._values[name]

    # --- how it ended -------------------------------------------------------------------------------

    def done(self, key: Key, now: Steady) -> None:
        """Take note that the scores of a cluster are written."""
        self.tallies.decided(Reason.SUCCESS.value)
        self.waiting.settled(key, now, again_seconds=EVERY_SECONDS)

    def refused(self, key: Key, now: Steady) -> None:
        """Take note that a write failed; it is tried again after a pause."""
        self.tallies.failed_writes += 1
        self.waiting.refused(key, now)
