"""A hub of Open Cluster Management: what is known of it, and what is to be written next: scores, and decisions.

It does no I/O: its caller hands in what a watch shows, carries out what `next` hands out, and says how that ended. All
that it knows follows from the objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from kube_policy_scheduler.fleet.model import Fleet, FleetCluster, Reason
from kube_policy_scheduler.fleet.ocm import reading
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    PlacementDecision,
)
from kube_policy_scheduler.fleet.ocm.placer import Decide, Decided, PlacementKey, Placer
from kube_policy_scheduler.fleet.ocm.scorer import EVERY_SECONDS, DecideEach, Scorer, Scores, ScoresKey
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Position, Waiting, Wake
from kube_policy_scheduler.times import Steady

Key: TypeAlias = ScoresKey | PlacementKey
"""A cluster that gets scores, or a Placement that is decided."""
WITHOUT = frozenset(("APIEnablement",))
"""Filters of Karmada that ask for what a ManagedCluster does not say."""
LOOKED_AT, LOOKED_TESTS = 50, 200_000
"""Placements that are looked at in one look, and the requirements times clusters of all but the last: each takes as
long as a decision."""
LITTLE = 10_000
"""Requirements times clusters that take no time to speak of."""
_PLACE = ("labels", "taints", "provider", "region")
"""What of a cluster decides which Placements may choose it."""
_READ_BY: Mapping[str, frozenset[str]] = {
    "annotations": frozenset(("cluster.annotation", "cluster.price")),
    "conditions": frozenset(("cluster.ready", "cluster.conditions", "cluster.condition_age")),
    "version": frozenset(("cluster.version",)),
    "allocatable": frozenset(
        ("cluster.allocatable", "cluster.requested", "cluster.free", "cluster.used_fraction", "cluster.room")
    ),
}
"""What else of a cluster is known, and the fields of policies that read it."""


class Hub:
    """Knows managed clusters and Placements, and when each is to be written."""

    def __init__(self, schedulers: Collection[str]) -> None:
        """Know nothing yet. schedulers: our names, by which Placements ask for us."""
        self._written: dict[str, ManagedCluster] = {}
        self._clusters: dict[str, FleetCluster] = {}
        self._changed: dict[str, float] = {}
        """When each cluster changed last, on the steady clock."""
        self._fleet: Fleet | None = None
        self._scorer, self._placer = Scorer(), Placer(schedulers)
        self._to_look_at: list[PlacementKey] = []
        self._reads: frozenset[str] | None = None
        self._looks = True
        self.waiting: Waiting[Key] = Waiting(self._position)
        self.tallies = Tallies()

    def use(
        self,
        decide_each: DecideEach,
        decide: Decide,
        now: Steady,
        *,
        reads: frozenset[str] | None = None,
        looks: bool = True,
    ) -> None:
        """Score and decide by these policies from now on.

        Args:
            decide_each: scores.
            decide: decides a Placement.
            now: on the steady clock.
            reads: the fields that the policies read, such as `cluster.ready`; None: any may matter.
            looks: whether a decision may change though no object does, by metrics or with time.
        """
        self._reads, self._looks = reads, looks
        self._scorer.use(decide_each)
        self._placer.decide = decide
        for name in self._clusters:
            self.waiting.wake((name,), Wake.OWN, now)
        self._wake(list(self._placer), Wake.SPEC, now)

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
            self.delete_cluster(name, now)
        for each in listed:
            self.set_cluster(each, now)

    def set_cluster(self, written: ManagedCluster, now: Steady) -> None:
        """Take a cluster that is new or has changed: it gets its scores soon, all others once a minute."""
        before, after = self._clusters.get(written.metadata.name), reading.cluster(written)
        if after.deleting:
            self.delete_cluster(after.name, now)
            return
        known, self._written[after.name] = self._written.get(after.name), written
        # a label hides a claim of the same name from policies, but not from a Placement
        has_claims = known is not None and known.status.cluster_claims == written.status.cluster_claims
        if before == after and has_claims:
            return
        self._clusters[after.name], self._fleet = after, None
        choosing = self._placer.set_cluster(written)
        is_place = not has_claims or any(getattr(before, each) != getattr(after, each) for each in _PLACE)
        if before is None or is_place or self._matters(before, after):
            self._changed[after.name] = now
            self.waiting.wake((after.name,), Wake.OWN if before is None else Wake.STATUS, now)
            self._wake(choosing, Wake.SPEC if is_place else Wake.STATUS, now)

    def _matters(self, before: FleetCluster, after: FleetCluster) -> bool:
        """Return whether the policies read what of a cluster has changed."""
        changed = [each for each in _READ_BY if getattr(before, each) != getattr(after, each)]
        return self._reads is None or any(not self._reads.isdisjoint(_READ_BY[each]) for each in changed)

    def delete_cluster(self, name: str, now: Steady) -> None:
        """Take note that a cluster goes; OCM takes its scores away."""
        self._written.pop(name, None)
        self._changed.pop(name, None)
        if self._clusters.pop(name, None) is not None:
            self._fleet = None
            self.waiting.forget((name,))
            self._wake((*self._placer.delete_cluster(name), *self._placer.over()), Wake.SPEC, now)

    def replace_placements(self, listed: Sequence[ClusterPlacement], now: Steady) -> None:
        """Take all Placements."""
        for key in self._placer.known_placements(listed):
            self.delete_placement(key, now)
        for each in listed:
            self.set_placement(each, now)

    def set_placement(self, written: ClusterPlacement, now: Steady) -> None:
        """Take a Placement that is new or has changed, also by our own write."""
        key = written.metadata.namespace, written.metadata.name
        before = self._placer.work(key)
        if not self._placer.is_ours(written):
            self.delete_placement(key, now)
        elif self._placer.set_placement(written):
            self.waiting.wake(key, Wake.OWN, now)
            if self._placer.work(key) < before:
                self._wake(self._placer.over(), Wake.STATUS, now)

    def delete_placement(self, key: PlacementKey, now: Steady) -> None:
        """Take note that a Placement is gone, or is not ours any more."""
        work = self._placer.work(key)
        self._placer.delete_placement(key)
        self.waiting.forget(key)
        if work:
            self._wake(self._placer.over(), Wake.STATUS, now)

    def replace_decisions(self, listed: Sequence[PlacementDecision], now: Steady) -> None:
        """Take all decisions."""
        self._wake(self._placer.replace_decisions(listed), Wake.OWN, now)

    def set_decision(self, written: PlacementDecision, now: Steady) -> None:
        """Take a decision that is new or has changed: somebody else may have written it."""
        self._wake(self._placer.set_decision(written), Wake.OWN, now)

    def delete_decision(self, written: PlacementDecision, now: Steady) -> None:
        """Take note that a decision is gone."""
        self._wake(self._placer.delete_decision(written), Wake.OWN, now)

    def replace_sets(self, listed: Sequence[ManagedClusterSet], now: Steady) -> None:
        """Take all cluster sets."""
        self._wake(self._placer.replace_sets(listed), Wake.SPEC, now)

    def set_set(self, written: ManagedClusterSet, now: Steady) -> None:
        """Take a cluster set that is new or has changed."""
        self._wake(self._placer.set_set(written), Wake.SPEC, now)

    def delete_set(self, name: str, now: Steady) -> None:
        """Take note that a cluster set is gone."""
        self._wake(self._placer.delete_set(name), Wake.SPEC, now)

    def replace_bindings(self, listed: Sequence[ManagedClusterSetBinding], now: Steady) -> None:
        """Take all bindings of cluster sets."""
        self._wake(self._placer.replace_bindings(listed), Wake.SPEC, now)

    def set_binding(self, written: ManagedClusterSetBinding, now: Steady) -> None:
        """Take a binding of a cluster set that is new or has changed."""
        self._wake(self._placer.set_binding(written), Wake.SPEC, now)

    def delete_binding(self, written: ManagedClusterSetBinding, now: Steady) -> None:
        """Take note that a binding of a cluster set is gone."""
        self._wake(self._placer.delete_binding(written), Wake.SPEC, now)

    def _wake(self, keys: Iterable[PlacementKey], why: Wake, now: Steady) -> None:
        for key in keys:
            self.waiting.wake(key, why, now)

    def look_at_some(self, now: Steady) -> None:
        """Look at some Placements, the next ones each time: metrics may have changed."""
        if not self._looks:
            return
        if not self._to_look_at:
            self._to_look_at = [*reversed([*self._placer])]
        work = 0
        for _ in range(min(LOOKED_AT, len(self._to_look_at))):
            key = self._to_look_at.pop()
            work += self._placer.work(key) * len(self._clusters)
            if key in self._placer:
                self.waiting.wake(key, Wake.STATUS, now)
            if work > LOOKED_TESTS:
                break

    def _position(self, key: Key, now: Steady) -> Position:
        """Return where something is among what can be decided now: what is little work does not wait for the rest."""
        work = self._placer.work(key) if len(key) == 2 else 0
        return Position(key=((work * len(self._clusters) // LITTLE).bit_length(),))

    # --- what is to be done -------------------------------------------------------------------------

    def next(self, now: Steady, wall: float) -> Scores | Decided | None:
        """Return what is to be written next; None if there is nothing now.

        Who gets something says how it ended: `done`, `conflicted` or `refused`.

        Args:
            now: on the steady clock.
            wall: Unix seconds.
        """
        while (key := self.waiting.next(now)) is not None:
            if len(key) == 1:
                stale = self._scorer.stale_for(self._changed[key[0]], now)
                values = self.values(key[0], now)
                if values and not stale:
                    return Scores(key, values)
                self.waiting.settled(key, now, again_seconds=stale or EVERY_SECONDS)
                continue
            self._placer.begin(key)
            found = self.decided(key, wall)
            if found is None:
                self.waiting.settled(key, now)
                continue
            if found.writes or not found.outcome.placed:
                self.tallies.decided(found.outcome.reason.value)
            return found
        return None

    def values(self, name: str, now: Steady) -> Mapping[str, int] | None:
        """Return the scores of a cluster; None if it is not known, or there are no policies."""
        return self._scorer.values(name, self.fleet, now) if name in self._clusters else None

    def decided(self, key: PlacementKey, wall: float) -> Decided | None:
        """Return how a Placement is decided now; None if it is none of ours. wall: Unix seconds."""
        attempts = self.waiting.attempts(key)
        return self._placer.decided(key, self.fleet, self._written, now=wall, attempts=attempts)

    def selected(self) -> Iterator[list[str]]:
        """Yield the clusters of each Placement that is decided here."""
        return self._placer.selected()

    # --- how it ended -------------------------------------------------------------------------------

    def done(
        self, work: Scores | Decided, now: Steady, after: Sequence[ClusterPlacement | PlacementDecision] = ()
    ) -> None:
        """Take note that it is written. after: the objects as they were written."""
        if isinstance(work, Scores):
            self.tallies.decided(Reason.SUCCESS.value)
            self.waiting.settled(work.key, now, again_seconds=EVERY_SECONDS)
            return
        self._placer.end(work.key, after)
        if work.outcome.placed:
            self.waiting.settled(work.key, now, again_seconds=work.again_seconds)
        else:
            self.waiting.parked(work.key, now)

    def conflicted(self, work: Decided, now: Steady) -> None:
        """Take note that an object had changed: the Placement is decided again, once the watch shows how."""
        self.tallies.conflicts += 1
        self.waiting.refused(work.key, now)

    def refused(self, work: Scores | Decided, now: Steady) -> None:
        """Take note that a write failed; it is tried again after a pause."""
        self.tallies.failed_writes += 1
        self.waiting.refused(work.key, now)
