"""InterPodAffinity: near some pods, away from others; the terms of the pod and those of placed pods."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import (
    NO_TERMS,
    AskedSet,
    affinity_terms,
    asked_sets,
)
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter_kinds import Counter
from kube_policy_scheduler.cluster.domains import DomainTotals, topology
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, FloatArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pod_counters import CarriedTowards
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    ComparesDomains,
    Default,
    FilterPlugin,
    PreFilterResult,
    Reads,
    Ready,
    ScorePlugin,
    Skip,
)
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.status import Code, Rejection, Status

FAR = "node(s) didn't match pod affinity rules"
NEAR = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"
_SPARSE = 8
"""If at most 1/8 of the nodes have more than the lowest score, which becomes 0, only these are divided."""
_PREFERRED = frozenset({"preferred"})
_SCORING = frozenset({"preferred", "required"})


class _Side(msgspec.Struct, frozen=True):
    """One rule's verdict per domain of one label."""

    allowed: BoolArray
    """`bool[slots]`, indexed by `domain`."""
    domain: NDArray[np.intp]
    """`intp[nodes]`: the domain of each node."""

    def passing(self, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: the nodes in an allowed domain."""
        return self.allowed.take(self.domain if isinstance(rows, slice) else self.domain[rows])


class Sides(msgspec.Struct, frozen=True):
    """The required terms by domain; a node must be allowed by each entry."""

    affinity: Sequence[_Side]
    anti_affinity: Sequence[_Side]
    existing: Sequence[_Side]


class InterPodAffinity(FilterPlugin, ScorePlugin, ComparesDomains, msgspec.Struct, frozen=True):
    """Rejects nodes by required terms, and scores them by preferred ones."""

    hard_pod_affinity_weight: int = 1
    """The weight of a placed pod's required affinity term in the score of a pod that matches it."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether pods without preferred terms of their own are not scored."""

    name = "InterPodAffinity"
    default = Default(12, weight=2)
    reads = Reads.SPEC | Reads.LABELS | Reads.ELSEWHERE
    events = frozenset(
        {
            ClusterEvent.POD_ADD,
            ClusterEvent.POD_UPDATE,
            ClusterEvent.POD_DELETE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_DELETE,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NAMESPACE,
        }
    )
    normalizes = True

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find the pods by domain; skip if neither the pod nor any placed pod has a required term that matters."""
        if frame.pod.template.spec.affinity is None and not frame.cluster.counters.has_carried:
            return SKIP
        terms = affinity_terms(frame.pod.template)
        if terms.problem:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (f"parsing pod: {terms.problem}",))
        if terms is NO_TERMS and not frame.cluster.counters.has_carried:
            return SKIP
        carried = frame.cluster.counters.carried_towards(frame.template)
        if "required_anti" not in carried.kinds and not terms.required and not terms.required_anti:
            return SKIP
        frame.cluster.counters.catch_up(frame.template)
        kept: _Required | None = frame.template.memo.get((self.name, "required"))
        if kept is None or not kept.serves(frame.cluster, carried):
            kept = _Required(frame, carried)
            frame.cluster.counters.keep(frame.template, (self.name, "required"), kept)
        sides = kept.sides()
        if not sides.existing and not terms.required and not terms.required_anti:
            return SKIP
        return Ready(sides)

    @property
    def _scoring_kinds(self) -> frozenset[str]:
        """Return the kinds of placed pods' terms that score a pod which they select."""
        return _SCORING if self.hard_pod_affinity_weight > 0 else _PREFERRED

    def filter(self, frame: Frame, state: Sides) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        result: BoolArray | None = None
        for side in (*state.affinity, *state.anti_affinity, *state.existing):
            passing = side.passing(frame.rows)
            result = passing if result is None else result & passing
        return np.ones(frame.size, np.bool_) if result is None else result

    def rejections(self, frame: Frame, state: Sides) -> Sequence[Rejection]:
        """Return why nodes are rejected: by the first of the three rules that does so."""
        left = np.ones(frame.size, np.bool_)
        found = []
        for code, reason, sides in (
            (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, FAR, state.affinity),
            (Code.UNSCHEDULABLE, NEAR, state.anti_affinity),
            (Code.UNSCHEDULABLE, UNWANTED, state.existing),
        ):
            rejected = np.zeros(frame.size, np.bool_)
            for side in sides:
                rejected |= ~side.passing(frame.rows)
            found.append(Rejection(code, reason, rejected & left))
            left &= ~rejected
        return found

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Find the pods by domain; skip if no preferred term, of the pod or of placed ones, matches anything."""
        if frame.pod.template.spec.affinity is None and not frame.cluster.counters.has_carried:
            return SKIP
        terms = affinity_terms(frame.pod.template)
        if terms is NO_TERMS and not frame.cluster.counters.has_carried:
            return SKIP
        carried = frame.cluster.counters.carried_towards(frame.template)
        if not terms.preferred and (
            self.ignore_preferred_terms_of_existing_pods or carried.kinds.isdisjoint(self._scoring_kinds)
        ):
            return SKIP
        frame.cluster.counters.catch_up(frame.template)
        kept: _Preferred | None = frame.template.memo.get((self.name, "preferred"))
        if kept is None or not kept.serves(frame.cluster, carried, self.hard_pod_affinity_weight):
            kept = _Preferred(frame, carried, self.hard_pod_affinity_weight)
            frame.cluster.counters.keep(frame.template, (self.name, "preferred"), kept)
        return Ready(kept) if any(totals.match_count for totals in kept.totals) else SKIP

    def score(self, frame: Frame, state: _Preferred) -> IntArray:
        """Return `int64[rows]`: the weights of all terms that match pods in a node's domains."""
        result: IntArray | None = None
        for totals in state.totals:
            domain = totals.topology.index
            if not isinstance(frame.rows, slice):
                domain = domain.take(frame.rows)
            mine = totals.totals.take(domain)
            result = mine if result is None else result + mine
        assert result is not None
        return result

    def by_domain(self, state: _Preferred) -> tuple[IntArray, IntArray] | None:
        """Return `int64[nodes]` and `int64[domains]`, if all terms have the same topology key."""
        if len(state.totals) != 1:
            return None
        (totals,) = state.totals
        return totals.topology.index, totals.totals

    def normalize(self, frame: Frame, state: _Preferred, raw: IntArray | FloatArray) -> IntArray:
        """Return `int64[rows]`: 100 for the highest, 0 for the lowest; 0 for all if they are equal."""
        lowest, highest = (raw.min(), raw.max()) if len(raw) else (0, 0)
        if lowest == highest:
            return np.zeros(len(raw), np.int64)
        result: IntArray = np.zeros(len(raw), np.int64)
        above = raw != lowest
        rows = above.nonzero()[0] if np.count_nonzero(above) * _SPARSE <= len(raw) else ALL_ROWS
        result[rows] = (float(MAX_SCORE) * ((raw[rows] - lowest) / float(highest - lowest))).astype(np.int64)
        return result


class _Weighed(Measured):
    """Terms that matter to one template over one state of the node table, added up by topology key.

    They are the terms of placed pods, and what the template itself asks for.
    """

    def __init__(
        self,
        nodes: NodeTable,
        factors: Mapping[str, int],
        *,
        own: Mapping[str, Mapping[Counter, int]] = MappingProxyType({}),
    ) -> None:
        """Start without any totals; `follow` makes them.

        Args:
            nodes: the node table.
            factors: what to multiply the weights of placed pods' terms with, by kind; others do not matter.
            own: the counters of what the template asks for, with their weights, by topology key.
        """
        self._nodes = nodes
        self._factors = factors
        self._own = own
        self._version = -1
        self._nodes_version = nodes.version
        self._label_keys_version = nodes.label_keys_version
        self.totals: dict[str, DomainTotals] = {}

    def serves(self, others: Iterable[DomainTotals] = ()) -> bool:
        """Return whether the nodes are the same to these totals and to others."""
        if self._nodes_version == self._nodes.version:
            return True
        if self._label_keys_version != self._nodes.label_keys_version or any(
            totals.topology.state is not self._nodes.label(totals.topology.key).state
            for totals in (*others, *self.totals.values())
        ):
            return False
        self._nodes_version = self._nodes.version
        return True

    def follow(self, carried: CarriedTowards) -> bool:
        """Catch up; return False if this must be rebuilt."""
        if carried.version == self._version:
            return _are_synced(self.totals.values())
        sources: dict[str, dict[Counter, int]] = {key: {} for key in self.totals}
        for key, counters in self._own.items():
            sources[key] = dict(counters)
        for carriers, weights in carried.by.items():
            for (kind, topology_key), weight in weights.items():
                factor = self._factors.get(kind, 0)
                known = self._nodes.known_label(topology_key) if factor else None
                if known is not None:
                    of_key = sources.setdefault(known, {})
                    of_key[carriers] = of_key.get(carriers, 0) + weight * factor
        self._version = carried.version
        for key in sources.keys() - self.totals.keys():
            self.totals[key] = DomainTotals(topology(self._nodes, key), ())
        return all(self.totals[key].follow(found) for key, found in sources.items())


class _Required(Measured):
    """The required terms that matter to one template over one state of the node table."""

    def __init__(self, frame: Frame, carried: CarriedTowards) -> None:
        self._cluster = weakref.ref(frame.cluster)  # which keeps the template, and with it this
        nodes, counters = frame.cluster.nodes, frame.cluster.counters
        sets = asked_sets(frame.pod.template)
        self._namespace = frame.template.namespace
        self._namespace_labels = counters.namespaces.get(self._namespace)
        self._matches_itself = sets.wanted.matches(frame.template, counters.namespaces)
        self._affinity: list[DomainTotals] = []
        if sets.near_by:
            counter = counters.counter(sets.wanted, terminating=True, asks=frame.template)
            # of the labels that no node has one is enough: no node is near anything by it
            keys = {nodes.known_label(key): key for key in sets.near_by}
            self._affinity = [DomainTotals(topology(nodes, key), [(counter, 1)]) for key in keys.values()]
        self._anti_affinity = [
            DomainTotals(topology(nodes, key), counters.items())
            for key, counters in _counters_by_key(frame, sets.apart).items()
        ]
        self._own = (*self._affinity, *self._anti_affinity)
        self._existing = _Weighed(nodes, {"required_anti": 1})
        if not _are_synced(self._own) or not self._existing.follow(carried):
            raise RuntimeError("a counter is gone that was asked for just now")

    def serves(self, cluster: Cluster, carried: CarriedTowards) -> bool:
        """Return whether this is still valid."""
        return (
            self._cluster() is cluster
            and self._existing.serves(self._own)
            and self._namespace_labels is cluster.counters.namespaces.get(self._namespace)
            and self._existing.follow(carried)
            and _are_synced(self._own)
        )

    def sides(self) -> Sides:
        """Return the verdicts for the current pods.

        The first pods of a group that wants to be together go anywhere: where no pod at all matches, and the
        pod itself does, only the labels must be there.
        """
        first = self._matches_itself and not any(totals.match_count for totals in self._affinity)
        affinity = []
        for totals in self._affinity:
            allowed = np.ones(totals.topology.slots, np.bool_) if first else totals.totals > 0
            allowed[totals.topology.nothing] = False
            affinity.append(_Side(allowed, totals.topology.index))
        return Sides(affinity, _unless_any(self._anti_affinity), _unless_any(self._existing.totals.values()))


def _unless_any(found: Iterable[DomainTotals]) -> list[_Side]:
    return [_Side(totals.totals <= 0, totals.topology.index) for totals in found if totals.match_count]


class _Preferred(Measured):
    """The terms that score a template's pods over one state of the node table."""

    def __init__(self, frame: Frame, carried: CarriedTowards, hard_weight: int) -> None:
        self._cluster = weakref.ref(frame.cluster)  # which keeps the template, and with it this
        self._hard_weight = hard_weight
        factors = {"preferred": 1, "required": hard_weight}
        own = _counters_by_key(frame, asked_sets(frame.template).preferred)
        self._weighed = _Weighed(frame.cluster.nodes, factors, own=own)
        if not self._weighed.follow(carried):
            raise RuntimeError("a counter is gone that was asked for just now")

    @property
    def totals(self) -> Collection[DomainTotals]:
        """Return per topology key the score of each domain: by the template's own terms, and by those of others."""
        return self._weighed.totals.values()

    def serves(self, cluster: Cluster, carried: CarriedTowards, hard_weight: int) -> bool:
        """Return whether this is still valid."""
        return (
            self._cluster() is cluster
            and self._weighed.serves()
            and self._hard_weight == hard_weight
            and self._weighed.follow(carried)
        )


def _counters_by_key(frame: Frame, sets: Mapping[str, AskedSet]) -> dict[str, dict[Counter, int]]:
    """Return the counter of each set, with its weight, by topology key; labels that no node has are left out."""
    nodes, counters = frame.cluster.nodes, frame.cluster.counters
    return {
        key: {counters.counter(pods, terminating=True, asks=frame.template): weight}
        for key, (pods, weight) in sets.items()
        if nodes.known_label(key) is not None
    }


def _are_synced(found: Iterable[DomainTotals]) -> bool:
    """Let totals catch up; return False if one of them must be rebuilt."""
    return all(map(DomainTotals.sync, found))
