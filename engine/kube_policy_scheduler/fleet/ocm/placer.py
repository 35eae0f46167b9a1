"""What is known of a hub's Placements, and which clusters each of them is to have. It does no I/O.

Only Placements that OCM's own scheduler leaves alone and that name this scheduler are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Reason, Workload
from kube_policy_scheduler.fleet.ocm.cluster_sets import ClusterSets
from kube_policy_scheduler.fleet.ocm.decisions import (
    MISCONFIGURED,
    OBJECT,
    PLACEMENT_LABEL,
    SATISFIED,
    DecisionObject,
    condition,
    groups_of,
    groups_status,
    objects_of,
    status_of,
)
from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    DecisionGroupStatus,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    PlacementCondition,
    PlacementDecision,
    PlacementStatus,
)
from kube_policy_scheduler.fleet.ocm.selecting import Clusters, MisconfiguredError, Selected, selected
from kube_policy_scheduler.fleet.ocm.shares import Shares, requirements
from kube_policy_scheduler.fleet.placement.place import place
from kube_policy_scheduler.times import unix_seconds
from kube_policy_scheduler.wording import some

Decide: TypeAlias = Callable[[Workload, Fleet], Outcome]
PlacementKey: TypeAlias = tuple[str, str]
"""Namespace and name of a Placement."""
LEFT_ALONE = "cluster.open-cluster-management.io/experimental-scheduling-disable"
"""Annotation: with the value "true", OCM's scheduler does not decide a Placement."""
SCHEDULER = "policy-scheduler/scheduler-name"
"""Annotation of a Placement: who decides it instead. Others than we use the annotation of OCM, too."""
DECIDED = "Placement"
"""The kind of workload that policies see."""


class Decided(msgspec.Struct, frozen=True, eq=False):
    """What is to be done about a Placement."""

    key: PlacementKey
    placement: ClusterPlacement
    """As it was decided."""
    objects: tuple[DecisionObject, ...]
    """The PlacementDecisions that are not as they should be."""
    known: Mapping[str, PlacementDecision]
    """Those that there are, by name."""
    superfluous: tuple[str, ...]
    """Names of those that are to go."""
    status: PlacementStatus
    outcome: Outcome
    chosen: tuple[str, ...]
    """All clusters that it is to have."""
    again_seconds: float | None = None
    """After which it is to be decided again, as one of its tolerations ends; None: no time is known."""

    @property
    def before(self) -> list[str]:
        """Return the clusters that it has."""
        return sorted(each.cluster_name for one in self.known.values() for each in one.status.decisions or ())

    @property
    def writes(self) -> bool:
        """Return whether there is anything to be written."""
        return bool(self.objects or self.superfluous) or self.status != self.placement.status


class Placer:
    """Knows Placements, their decisions, and the cluster sets that namespaces have."""

    def __init__(self, schedulers: Collection[str]) -> None:
        """Know nothing yet; without policies, Placements are decided by what they say. schedulers: our names."""
        self._schedulers = frozenset(schedulers)
        self.decide: Decide = place
        self._placements: dict[PlacementKey, ClusterPlacement] = {}
        self._spaces: dict[str, dict[PlacementKey, None]] = {}
        """The Placements of each namespace."""
        self._decisions: dict[PlacementKey, dict[str, PlacementDecision]] = {}
        """By Placement and name."""
        self._filed: dict[tuple[str, str], PlacementKey] = {}
        """The Placement of each decision by its namespace and name: labels and owners may change."""
        self._named: dict[tuple[str, str], PlacementDecision] = {}
        """All decisions by namespace and name, also those that are of no Placement of ours."""
        self._gone: dict[PlacementKey, set[str]] = {}
        """By Placement: uids of decisions that went since it was last decided, perhaps after we wrote them."""
        self._sets = ClusterSets()
        self._shares = Shares()
        self._over: dict[PlacementKey, None] = {}
        """Placements that ask for more than their share."""

    def __iter__(self) -> Iterator[PlacementKey]:
        """Yield the Placements that are decided here."""
        return iter(self._placements)

    def __contains__(self, key: object) -> bool:
        """Return whether a Placement is decided here."""
        return key in self._placements

    # --- what is there: each returns the Placements that are to be looked at -------------------------

    def known_placements(self, listed: Sequence[ClusterPlacement]) -> Iterator[PlacementKey]:
        """Yield the Placements that are decided here and are not among those listed."""
        names = {_key(each) for each in listed}
        yield from [key for key in self._placements if key not in names]

    def set_placement(self, written: ClusterPlacement) -> bool:
        """Take a Placement; return whether it has changed, so that it is to be decided."""
        key, known = _key(written), self._placements.get(_key(written))
        if not self.is_ours(written):
            self.delete_placement(key)
            return False
        if known is not None and known.metadata.uid == written.metadata.uid and _is_older(written, known):
            return False
        self._placements[key] = written
        self._spaces.setdefault(key[0], {})[key] = None
        if known is None or known.spec != written.spec:
            self._shares.put(key, requirements(written))
        return known is None or _facts(known) != _facts(written)

    def is_ours(self, written: ClusterPlacement) -> bool:
        """Return whether a Placement is decided here."""
        notes = written.metadata.annotations or {}
        asks = notes.get(LEFT_ALONE) == "true" and notes.get(SCHEDULER) in self._schedulers
        return asks and written.metadata.deletion_timestamp is None

    def delete_placement(self, key: PlacementKey) -> None:
        """Take note that a Placement is gone, or is not ours any more."""
        self._gone.pop(key, None)
        self._over.pop(key, None)
        if self._placements.pop(key, None) is not None:
            self._shares.put(key, 0)
            del self._spaces[key[0]][key]
            if not self._spaces[key[0]]:
                del self._spaces[key[0]]

    def begin(self, key: PlacementKey) -> None:
        """Take note that a decision about a Placement is written from now on."""
        self._gone.pop(key, None)

    def end(self, key: PlacementKey, after: Iterable[ClusterPlacement | PlacementDecision]) -> None:
        """Take the objects as they were written, but for those that the watch showed to go meanwhile."""
        gone = self._gone.pop(key, set())
        for each in after:
            if isinstance(each, PlacementDecision):
                if each.metadata.uid not in gone:
                    self.set_decision(each)
            elif key in self._placements:
                self.set_placement(each)

    def replace_decisions(self, listed: Sequence[PlacementDecision]) -> Iterator[PlacementKey]:
        """Take all decisions."""
        there = {each.metadata.uid for each in listed}
        for key, known in self._decisions.items():
            if key in self._placements:
                self._gone.setdefault(key, set()).update({each.metadata.uid for each in known.values()} - there)
        self._decisions.clear()
        self._filed.clear()
        self._named.clear()
        for each in listed:
            self.set_decision(each)
        yield from self._placements

    def set_decision(self, written: PlacementDecision) -> Iterable[PlacementKey]:
        """Take a decision; return those of our Placements that have other decisions than before."""
        name, key = written.metadata.name, _placement_of(written)
        before = self._filed.get((written.metadata.namespace, name))
        known = self._decisions[before][name] if before is not None else None
        if known is not None and known.metadata.uid == written.metadata.uid and _is_older(written, known):
            return ()
        if known is not None and key is not None and before == key:
            is_same = _said(known) == _said(written)
            self._decisions[key][name] = self._named[written.metadata.namespace, name] = written
            return (key,) if key in self._placements and not is_same else ()
        is_new = (written.metadata.namespace, name) not in self._named
        left = self.delete_decision(known) if known is not None else self._needing(written) if is_new else ()
        self._named[written.metadata.namespace, name] = written
        if key is None:
            return left
        self._decisions.setdefault(key, {})[name] = written
        self._filed[written.metadata.namespace, name] = key
        return tuple(dict.fromkeys((*left, key))) if key in self._placements else left

    def delete_decision(self, written: PlacementDecision) -> tuple[PlacementKey, ...]:
        """Take note that a decision is gone; return those of our Placements that it is of, or that need its name."""
        self._named.pop((written.metadata.namespace, written.metadata.name), None)
        key = self._filed.pop((written.metadata.namespace, written.metadata.name), None)
        needing = tuple(each for each in self._needing(written) if each != key)
        if key is None:
            return needing
        del self._decisions[key][written.metadata.name]
        if not self._decisions[key]:
            del self._decisions[key]
        if key not in self._placements:
            return needing
        self._gone.setdefault(key, set()).add(written.metadata.uid)
        return (*needing, key)

    def _needing(self, written: PlacementDecision) -> tuple[PlacementKey, ...]:
        """Return the Placement of ours whose objects have such a name, if there is one."""
        key = written.metadata.namespace, written.metadata.name.rpartition(OBJECT)[0]
        return (key,) if key in self._placements else ()

    def set_cluster(self, written: ManagedCluster) -> Iterable[PlacementKey]:
        """Take a cluster that is new or has changed; return the Placements that may choose it, or could."""
        before = self._sets.with_cluster(written.metadata.name)
        self._sets.set_cluster(written)
        return self._choosing_from(before | self._sets.with_cluster(written.metadata.name))

    def delete_cluster(self, name: str) -> Iterable[PlacementKey]:
        """Take note that a cluster is gone; return the Placements that could choose it."""
        found = self._choosing_from(self._sets.with_cluster(name))
        self._sets.delete_cluster(name)
        return found

    def _choosing_from(self, sets: frozenset[str]) -> list[PlacementKey]:
        """Return the Placements that choose from one of some cluster sets."""
        spaces = {space for space in self._spaces if not sets.isdisjoint(self._sets.bound(space))}
        return [
            key
            for space in spaces
            for key in self._spaces[space]
            if not (wanted := self._placements[key].spec.cluster_sets) or not sets.isdisjoint(wanted)
        ]

    def replace_sets(self, listed: Sequence[ManagedClusterSet]) -> Iterable[PlacementKey]:
        """Take all cluster sets."""
        self._sets.replace_sets(listed)
        return list(self)

    def set_set(self, written: ManagedClusterSet) -> Iterable[PlacementKey]:
        """Take a cluster set."""
        has_changed = self._sets.set_set(written)
        return self._choosing_from(frozenset((written.metadata.name,))) if has_changed else ()

    def delete_set(self, name: str) -> Iterable[PlacementKey]:
        """Take note that a cluster set is gone."""
        self._sets.delete_set(name)
        return self._choosing_from(frozenset((name,)))

    def replace_bindings(self, listed: Sequence[ManagedClusterSetBinding]) -> Iterable[PlacementKey]:
        """Take all bindings of cluster sets to namespaces."""
        self._sets.replace_bindings(listed)
        return list(self)

    def set_binding(self, written: ManagedClusterSetBinding) -> Iterable[PlacementKey]:
        """Take a binding."""
        return self._in(written.metadata.namespace) if self._sets.set_binding(written) else ()

    def delete_binding(self, written: ManagedClusterSetBinding) -> Iterable[PlacementKey]:
        """Take note that a binding is gone."""
        self._sets.delete_binding(written)
        return self._in(written.metadata.namespace)

    def _in(self, namespace: str) -> Iterable[PlacementKey]:
        return list(self._spaces.get(namespace, ()))

    def over(self) -> list[PlacementKey]:
        """Return the Placements that asked for more than their share; it grows when others ask for less."""
        return list(self._over)

    def work(self, key: PlacementKey) -> int:
        """Return how many requirements a Placement has, each of which is asked about each cluster."""
        return self._shares.need(key)

    # --- what is decided ----------------------------------------------------------------------------

    def decided(
        self, key: PlacementKey, fleet: Fleet, clusters: Clusters, *, now: float, attempts: int = 0
    ) -> Decided | None:
        """Return what is to be done about a Placement; None if it is none of ours.

        Args:
            key: of the Placement.
            fleet: the rows of all clusters.
            clusters: the same, as they are written.
            now: Unix seconds.
            attempts: the number of failed attempts.
        """
        placement = self._placements.get(key)
        if placement is None:
            return None
        known = self._owned(placement)
        has = {each.cluster_name: 1 for one in known.values() for each in one.status.decisions or ()}
        try:
            self._check_share(key, len(clusters))
            asked = selected(placement, clusters, bound=self._sets.bound(key[0]), sets=self._sets.members, now=now)
            workload = _workload(placement, asked, has, attempts)
            outcome, chosen = self._chosen(workload, asked, fleet, placement)
            groups = groups_of(placement, chosen, clusters)
        except MisconfiguredError as error:
            return _stays(placement, known, has, str(error), now)
        if not outcome.placed and not outcome.write:
            return _stays(placement, known, has, outcome, now)
        objects = objects_of(placement.metadata.name, groups)
        taken = next(
            (each.name for each in objects if each.name not in known and (key[0], each.name) in self._named), None
        )
        if taken is not None:
            why = _taken(self._named[key[0], taken])
            failed = Outcome(Reason.ERROR, why, has, verdicts=outcome.verdicts, policy=outcome.policy)
            return _stays(placement, known, has, failed, now)
        conditions = _conditions(asked, outcome, placement.spec.number_of_clusters, len(chosen))
        status = status_of(
            placement.status,
            selected=len(chosen),
            groups=groups_status(groups, objects),
            conditions=conditions,
            now=now,
        )
        wanted = {each.name for each in objects}
        return Decided(
            key,
            placement,
            tuple(each for each in objects if not each.is_written(known.get(each.name), placement.metadata.name)),
            known,
            tuple(name for name in known if name not in wanted),
            status,
            outcome,
            chosen,
            asked.until - now if asked.until is not None else None,
        )

    def _check_share(self, key: PlacementKey, clusters: int) -> None:
        self._over[key] = None
        self._shares.check(key, clusters)
        del self._over[key]

    def _chosen(
        self, workload: Workload, asked: Selected, fleet: Fleet, placement: ClusterPlacement
    ) -> tuple[Outcome, tuple[str, ...]]:
        """Return the decision and its clusters, at most as many as the Placement asks for."""
        if asked.unbound is not None:
            return Outcome(Reason.NO_CLUSTER_FITS, asked.unbound.message, write=True), ()
        most = placement.spec.number_of_clusters
        if most is not None and most <= 0:
            return Outcome(Reason.SUCCESS, "it asks for no cluster", write=True), ()
        outcome = self.decide(workload, fleet)
        names = [name for name in outcome.targets if name in outcome.verdicts]
        if most is not None and len(names) > most:
            names.sort(key=lambda name: (name not in workload.has, -outcome.verdicts[name].score, name))
            del names[most:]
        return outcome, tuple(sorted(names))

    def selected(self) -> Iterator[list[str]]:
        """Yield the clusters of each Placement that is decided here."""
        for placement in self._placements.values():
            decisions = self._owned(placement).values()
            yield [each.cluster_name for one in decisions for each in one.status.decisions or ()]

    def _owned(self, placement: ClusterPlacement) -> dict[str, PlacementDecision]:
        """Return the decisions of a Placement; those that another object owns are not its own."""
        return {
            name: each
            for name, each in self._decisions.get(_key(placement), {}).items()
            if all(owner.uid == placement.metadata.uid for owner in each.metadata.owner_references or ())
        }


def _stays(
    placement: ClusterPlacement,
    known: Mapping[str, PlacementDecision],
    has: Mapping[str, int],
    why: Outcome | str,
    now: float,
) -> Decided:
    """Return that nothing is changed but the conditions, which say why."""
    is_misconfigured = isinstance(why, str)
    outcome = Outcome(Reason.ERROR, why, has) if isinstance(why, str) else why
    conditions = [
        condition(SATISFIED, holds=False, reason="NotAllDecisionsScheduled", message=outcome.message),
        condition(MISCONFIGURED, holds=True, reason="Misconfigured", message=outcome.message)
        if is_misconfigured
        else _configured(),
    ]
    status = status_of(
        placement.status,
        selected=len(has),
        groups=placement.status.decision_groups or list[DecisionGroupStatus](),
        conditions=conditions,
        now=now,
    )
    return Decided(_key(placement), placement, (), known, (), status, outcome, tuple(sorted(has)))


def _configured() -> PlacementCondition:
    return condition(
        MISCONFIGURED, holds=False, reason="Succeedconfigured", message="Placement configurations check pass"
    )


def _conditions(asked: Selected, outcome: Outcome, number: int | None, count: int) -> list[PlacementCondition]:
    lacking = max(0, number - count) if number is not None else 0
    if asked.unbound is not None:
        satisfied = condition(SATISFIED, holds=False, reason=asked.unbound.reason, message=asked.unbound.message)
    elif not count and not outcome.placed:
        satisfied = condition(SATISFIED, holds=False, reason="NoManagedClusterMatched", message=outcome.message)
    elif lacking:
        text = f"{lacking} cluster decisions unscheduled"
        satisfied = condition(SATISFIED, holds=False, reason="NotAllDecisionsScheduled", message=text)
    else:
        text = "All cluster decisions scheduled"
        satisfied = condition(SATISFIED, holds=True, reason="AllDecisionsScheduled", message=text)
    return [satisfied, _configured()]


def _workload(placement: ClusterPlacement, asked: Selected, has: Mapping[str, int], attempts: int) -> Workload:
    """Return a Placement as policies see it: it runs whole in each of its clusters."""
    meta = placement.metadata
    return Workload(
        kind=DECIDED,
        name=meta.name,
        namespace=meta.namespace,
        api_version="cluster.open-cluster-management.io/v1beta1",
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        replicas=1,
        has=has,
        placement=asked.placement,
        created=unix_seconds(meta.creation_timestamp),
        attempts=attempts,
    )


def _key(placement: ClusterPlacement) -> PlacementKey:
    return placement.metadata.namespace, placement.metadata.name


def _placement_of(decision: PlacementDecision) -> PlacementKey | None:
    """Return whose decision it is: of its owner, so that a label that somebody takes away is written again."""
    owners = decision.metadata.owner_references or ()
    owner = next((each.name for each in owners if each.kind == DECIDED and each.controller), None)
    name = owner or (decision.metadata.labels or {}).get(PLACEMENT_LABEL)
    return (decision.metadata.namespace, name) if name else None


def _taken(other: PlacementDecision) -> str:
    """Return why nothing is written: an object of a name that is needed is of somebody else."""
    owners = [f"{each.kind[:63]} {each.name[:253]}" for each in other.metadata.owner_references or ()]
    whose = f"is owned by another object ({some(owners, limit=3)})" if owners else "is not of this Placement"
    return f"PlacementDecision {other.metadata.name} {whose}: delete it, or rename the Placement"


def _said(decision: PlacementDecision) -> tuple[object, ...]:
    return decision.metadata.labels, decision.metadata.owner_references, decision.status


def _facts(placement: ClusterPlacement) -> tuple[object, ...]:
    meta = placement.metadata
    return meta.uid, meta.labels, meta.annotations, placement.spec, placement.status


def _is_older(written: ClusterPlacement | PlacementDecision, known: ClusterPlacement | PlacementDecision) -> bool:
    theirs, mine = version_number(written.metadata.resource_version), version_number(known.metadata.resource_version)
    return bool(theirs) and theirs < mine
