"""InterPodAffinity: near some pods, away from others; the terms of the pod and those of placed pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import (
    NO_TERMS,
    AffinityTerm,
    AffinityTerms,
    CarriedTerm,
    IncomingTerms,
    PodTerm,
    WeightedTerms,
    affinity_terms,
)
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter import Counter
from kube_policy_scheduler.cluster.counters import CarriedTowards
from kube_policy_scheduler.cluster.domains import DomainTotals, topology
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    Default,
    FilterPlugin,
    PreFilterResult,
    Ready,
    Scope,
    ScorePlugin,
    Skip,
)
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.status import Code, Refusal, Status

FAR = "node(s) didn't match pod affinity rules"
NEAR = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"


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


class InterPodAffinity(FilterPlugin, ScorePlugin, msgspec.Struct, frozen=True):
    """Refuses nodes by required terms, and scores them by preferred ones."""

    hard_pod_affinity_weight: int = 1
    """The weight of a placed pod's required affinity term in the score of a pod that matches it."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether pods without preferred terms of their own are not scored."""

    name = "InterPodAffinity"
    default = Default(12, weight=2)
    scope = Scope.CLUSTER
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
        if frame.pod.template.spec.affinity is None and not frame.cluster.counters.carried:
            return SKIP
        terms = affinity_terms(frame.pod.template)
        if terms.problem:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (f"parsing pod: {terms.problem}",))
        if terms is NO_TERMS and not frame.cluster.counters.carried:
            return SKIP
        carried = frame.cluster.counters.carried_towards(frame.template)
        if not carried.by and not terms.required and not terms.required_anti:
            return SKIP
        kept: _Required | None = frame.template.memo.get((self.name, "required"))
        if kept is None or not kept.serves(frame.cluster, carried):
            kept = _Required(frame, carried)
            frame.cluster.counters.keep(frame.template, (self.name, "required"), kept)
        sides = kept.sides()
        if not sides.existing and not terms.required and not terms.required_anti:
            return SKIP
        return Ready(sides)

    def filter(self, frame: Frame, state: Sides) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        result: BoolArray | None = None
        for side in (*state.affinity, *state.anti_affinity, *state.existing):
            passing = side.passing(frame.rows)
            result = passing if result is None else result & passing
        return np.ones(frame.size, np.bool_) if result is None else result

    def refusals(self, frame: Frame, state: Sides) -> Sequence[Refusal]:
        """Return why nodes are refused: by the first of the three rules that does so."""
        left = np.ones(frame.size, np.bool_)
        found = []
        for code, reason, sides in (
            (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, FAR, state.affinity),
            (Code.UNSCHEDULABLE, NEAR, state.anti_affinity),
            (Code.UNSCHEDULABLE, UNWANTED, state.existing),
        ):
            refused = np.zeros(frame.size, np.bool_)
            for side in sides:
                refused |= ~side.passing(frame.rows)
            found.append(Refusal(code, reason, refused & left))
            left &= ~refused
        return found

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Find the pods by domain; skip if no preferred term, of the pod or of placed ones, matches anything."""
        if frame.pod.template.spec.affinity is None and not frame.cluster.counters.carried:
            return SKIP
        terms = affinity_terms(frame.pod.template)
        if terms is NO_TERMS and not frame.cluster.counters.carried:
            return SKIP
        carried = frame.cluster.counters.carried_towards(frame.template)
        if not terms.preferred and (not carried.by or self.ignore_preferred_terms_of_existing_pods):
            return SKIP
        kept: _Preferred | None = frame.template.memo.get((self.name, "preferred"))
        if kept is None or not kept.serves(frame.cluster, carried, self.hard_pod_affinity_weight):
            kept = _Preferred(frame, carried, self.hard_pod_affinity_weight)
            frame.cluster.counters.keep(frame.template, (self.name, "preferred"), kept)
        return Ready(kept) if any(totals.match_count for totals in kept.totals) else SKIP

    def score(self, frame: Frame, state: _Preferred) -> IntArray:
        """Return `int64[rows]`: the weights of all terms that match pods in a node's domains."""
        result: IntArray | None = None
        for totals in state.totals:
            domain = totals.topology.index if isinstance(frame.rows, slice) else totals.topology.index[frame.rows]
            mine = totals.totals.take(domain)
            result = mine if result is None else result + mine
        assert result is not None
        return result

    def normalize(self, frame: Frame, state: _Preferred, raw: IntArray | FloatArray) -> IntArray:
        """Return `int64[rows]`: 100 for the highest, 0 for the lowest; 0 for all if they are equal."""
        lowest, highest = (raw.min(), raw.max()) if len(raw) else (0, 0)
        if lowest == highest:
            return np.zeros(len(raw), np.int64)
        result: IntArray = (float(MAX_SCORE) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)
        return result


class _Carried:
    """The terms of placed pods that matter to one template over one state of the node table, per topology key."""

    def __init__(self, nodes: NodeTable, weight: Callable[[CarriedTerm], int | None]) -> None:
        """weight: the weight of a term, None if it does not matter."""
        self._nodes = nodes
        self._weight = weight
        self._version = -1
        self._label_keys_version = nodes.label_keys_version
        self.totals: dict[str, DomainTotals] = {}

    def serves(self, own: Iterable[DomainTotals]) -> bool:
        """Return whether the nodes are the same to these totals and to the template's own."""
        return self._label_keys_version == self._nodes.label_keys_version and all(
            totals.topology.state is self._nodes.label(totals.topology.key).state
            for totals in (*own, *self.totals.values())
        )

    def follow(self, carried: CarriedTowards) -> bool:
        """Catch up; return False if this must be rebuilt."""
        if carried.version == self._version:
            return all(totals.sync() for totals in self.totals.values())
        sources: dict[str, dict[Counter, int]] = {key: {} for key in self.totals}
        for carriers in carried.by:
            key = self._nodes.known_label(carriers.term.term.topology_key)
            weight = self._weight(carriers.term)
            if key is not None and weight is not None:
                sources.setdefault(key, {})[carriers] = weight
        self._version = carried.version
        for key in sources.keys() - self.totals.keys():
            self.totals[key] = DomainTotals(topology(self._nodes, key), ())
        return all(self.totals[key].follow(found) for key, found in sources.items())


class _Required:
    """The required terms that matter to one template over one state of the node table."""

    def __init__(self, frame: Frame, carried: CarriedTowards) -> None:
        self._cluster = frame.cluster
        nodes, counters = frame.cluster.nodes, frame.cluster.counters
        terms = affinity_terms(frame.pod.template)
        wanted = IncomingTerms(tuple(dict.fromkeys(term.pods for term in terms.required)))
        self._namespace = frame.template.namespace
        self._namespace_labels = counters.namespaces.get(self._namespace)
        self._matches_itself = wanted.matches(frame.template, counters.namespaces)
        self._affinity: list[DomainTotals] = []
        if terms.required:
            counter = counters.counter(wanted, terminating=True, asks=frame.template)
            # of the labels that no node has one is enough: no node is near anything by it
            keys = {nodes.known_label(term.topology_key): term.topology_key for term in terms.required}
            self._affinity = [DomainTotals(topology(nodes, key), [(counter, 1)]) for key in keys.values()]
        apart = AffinityTerms(preferred=tuple(AffinityTerm(t.pods, t.topology_key, 1) for t in terms.required_anti))
        self._anti_affinity = _by_key(frame, apart)
        self._existing = _Carried(nodes, lambda term: 1 if term.kind == "required_anti" else None)
        if not all(totals.sync() for totals in (*self._affinity, *self._anti_affinity)):
            raise RuntimeError("a counter is gone that was asked for just now")
        self._existing.follow(carried)

    @property
    def bytes(self) -> int:
        """Return about how many bytes this takes."""
        return _bytes((*self._affinity, *self._anti_affinity, *self._existing.totals.values()))

    def serves(self, cluster: Cluster, carried: CarriedTowards) -> bool:
        """Return whether this is still valid."""
        own = (*self._affinity, *self._anti_affinity)
        return (
            self._cluster is cluster
            and self._existing.serves(own)
            and self._namespace_labels is cluster.counters.namespaces.get(self._namespace)
            and self._existing.follow(carried)
            and all(totals.sync() for totals in own)
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


def _bytes(found: Iterable[DomainTotals]) -> int:
    return sum(totals.bytes for totals in found)


def _unless_any(found: Iterable[DomainTotals]) -> list[_Side]:
    return [_Side(totals.totals <= 0, totals.topology.index) for totals in found if totals.match_count]


class _Preferred:
    """The terms that score a template's pods over one state of the node table."""

    def __init__(self, frame: Frame, carried: CarriedTowards, hard_weight: int) -> None:
        self._cluster = frame.cluster
        self._hard_weight = hard_weight
        self._own = _by_key(frame, affinity_terms(frame.template))
        self._existing = _Carried(frame.cluster.nodes, lambda term: _carried_weight(term, hard_weight))
        if not all(totals.sync() for totals in self._own):
            raise RuntimeError("a counter is gone that was asked for just now")
        self._existing.follow(carried)

    @property
    def totals(self) -> list[DomainTotals]:
        """Return per topology key the score of each domain: by the template's own terms, and by those of others."""
        return [*self._own, *self._existing.totals.values()]

    @property
    def bytes(self) -> int:
        """Return about how many bytes this takes."""
        return _bytes(self.totals)

    def serves(self, cluster: Cluster, carried: CarriedTowards, hard_weight: int) -> bool:
        """Return whether this is still valid."""
        return (
            self._cluster is cluster
            and self._existing.serves(self._own)
            and self._hard_weight == hard_weight
            and self._existing.follow(carried)
            and all(totals.sync() for totals in self._own)
        )


def _carried_weight(term: CarriedTerm, hard_weight: int) -> int | None:
    """Return what one placed pod with this term adds to the score of its domain; None: it is not scored."""
    match term.kind:
        case "preferred":
            return term.term.weight
        case "required" if hard_weight > 0:
            return term.term.weight * hard_weight
    return None


def _by_key(frame: Frame, terms: AffinityTerms) -> list[DomainTotals]:
    """Return the preferred terms as one total per topology key; labels that no node has are left out.

    All terms of a key are one set of pods, counted by weight: a pod may have thousands of terms.
    """
    nodes, counters = frame.cluster.nodes, frame.cluster.counters
    keys: dict[str, dict[PodTerm, int]] = {}
    for term in terms.preferred:
        key = nodes.known_label(term.topology_key)
        if key is not None:
            weights = keys.setdefault(key, {})
            weights[term.pods] = weights.get(term.pods, 0) + term.weight
    found = []
    for key, weights in keys.items():
        if len(weights) == 1:  # the same set for all templates with that term
            [(pods, weight)] = weights.items()
            counter, factor = counters.counter(IncomingTerms((pods,)), terminating=True, asks=frame.template), weight
        else:
            terms_of_key = WeightedTerms(tuple(weights.items()))
            counter, factor = counters.counter(terms_of_key, terminating=True, asks=frame.template), 1
        found.append(DomainTotals(topology(nodes, key), [(counter, factor)]))
    return found
