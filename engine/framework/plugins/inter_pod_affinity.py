"""InterPodAffinity: near some pods, away from others; what a pod asks for and what placed pods ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from engine.cluster.affinity import AffinityTerm, CarriedTerm, IncomingTerms, affinity_terms
from engine.cluster.cluster import Cluster
from engine.cluster.counter import Counter
from engine.cluster.domains import DomainTotals, topology
from engine.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from engine.framework.frame import Frame
from engine.framework.plugin import SKIP, PreFilterResult, Ready, Scope, Skip
from engine.framework.plugins.base import MAX_SCORE
from engine.framework.status import Code, Refusal, Status

FAR = "node(s) didn't match pod affinity rules"
NEAR = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class _Side:
    """One rule's verdict per domain of one label."""

    allowed: BoolArray
    """`bool[slots]`, indexed by `domain`."""
    domain: NDArray[np.intp]
    """`intp[nodes]`: the domain of each node."""

    def passing(self, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: the nodes in an allowed domain."""
        return self.allowed.take(self.domain if isinstance(rows, slice) else self.domain[rows])


@dataclass(frozen=True, slots=True)
class Sides:
    """Everything that required terms say about domains; a node must be allowed by each entry."""

    affinity: Sequence[_Side]
    anti_affinity: Sequence[_Side]
    existing: Sequence[_Side]


@dataclass(frozen=True, slots=True)
class InterPodAffinity:
    """Refuses nodes by required terms, and scores them by preferred ones."""

    hard_pod_affinity_weight: int = 1
    """What a placed pod's required affinity term weighs in the score of a pod that matches it."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether pods without preferred terms of their own are not scored."""

    name: ClassVar[str] = "InterPodAffinity"
    scope: ClassVar[Scope] = Scope.CLUSTER
    normalizes: ClassVar[bool] = True

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find what is near; skip where neither the pod nor any placed pod has a required term that matters."""
        terms = affinity_terms(frame.template)
        if terms.problem:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (f"parsing pod: {terms.problem}",))
        carried = frame.cluster.counters.carried_towards(frame.template)
        if not carried and not terms.required and not terms.required_anti:
            return SKIP
        kept: _Required | None = frame.template.memo.get((self.name, "required"))
        if kept is None or not kept.serves(frame.cluster, carried):
            kept = _Required(frame, carried)
            frame.cluster.counters.keep(frame.template, (self.name, "required"), kept)
            kept.serves(frame.cluster, carried)
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
        """Find what is near; skip where no preferred term, of the pod or of placed ones, matches anything."""
        terms = affinity_terms(frame.template)
        carried = frame.cluster.counters.carried_towards(frame.template)
        if not terms.preferred and (not carried or self.ignore_preferred_terms_of_existing_pods):
            return SKIP
        kept: _Preferred | None = frame.template.memo.get((self.name, "preferred"))
        if kept is None or not kept.serves(frame.cluster, carried, self.hard_pod_affinity_weight):
            kept = _Preferred(frame, carried, self.hard_pod_affinity_weight)
            frame.cluster.counters.keep(frame.template, (self.name, "preferred"), kept)
            kept.serves(frame.cluster, carried, self.hard_pod_affinity_weight)
        return Ready(kept) if any(totals.mass for totals in kept.totals) else SKIP

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
        """Return `int64[rows]`: 100 for the highest, 0 for the lowest; 0 for all where they are equal."""
        lowest, highest = (raw.min(), raw.max()) if len(raw) else (0, 0)
        if lowest == highest:
            return np.zeros(len(raw), np.int64)
        result: IntArray = (float(MAX_SCORE) * ((raw - lowest) / float(highest - lowest))).astype(np.int64)
        return result


class _Required:
    """The required terms that matter to one template over one state of the node table."""

    def __init__(self, frame: Frame, carried: tuple[CarriedTerm, ...]) -> None:
        self._cluster = frame.cluster
        self._version = frame.cluster.nodes.version
        self._carried = carried
        terms = affinity_terms(frame.template)
        counters = frame.cluster.counters
        wanted = IncomingTerms(tuple(term.pods for term in terms.required))
        self._namespace = frame.template.namespace
        self._namespace_labels = counters.namespaces.get(self._namespace)
        self._matches_itself = wanted.matches(frame.template, counters.namespaces)
        self._affinity = _by_key(
            frame, [(t.topology_key, counters.counter(wanted, terminating=True)) for t in terms.required]
        )
        self._anti_affinity = _by_key(
            frame,
            [
                (t.topology_key, counters.counter(IncomingTerms((t.pods,)), terminating=True))
                for t in terms.required_anti
            ],
        )
        self._existing = _by_key(
            frame,
            [(c.term.topology_key, counters.carriers(c)) for c in carried if c.kind == "required_anti"],
        )

    def serves(self, cluster: Cluster, carried: tuple[CarriedTerm, ...]) -> bool:
        """Return whether this still holds."""
        return (
            self._cluster is cluster
            and self._version == cluster.nodes.version
            and self._namespace_labels is cluster.counters.namespaces.get(self._namespace)
            and self._carried == carried
            and all(totals.sync() for totals in (*self._affinity, *self._anti_affinity, *self._existing))
        )

    def sides(self) -> Sides:
        """Return the verdicts with the pods that are placed now.

        The first pods of a group that wants to be together go anywhere: where no pod at all matches, and the
        pod itself does, only the labels must be there.
        """
        first = self._matches_itself and not any(totals.mass for totals in self._affinity)
        affinity = []
        for totals in self._affinity:
            allowed = np.ones(totals.topology.slots, np.bool_) if first else totals.totals > 0
            allowed[totals.topology.nothing] = False
            affinity.append(_Side(allowed, totals.topology.index))
        return Sides(affinity, _unless_any(self._anti_affinity), _unless_any(self._existing))


def _unless_any(found: Sequence[DomainTotals]) -> list[_Side]:
    return [_Side(totals.totals <= 0, totals.topology.index) for totals in found if totals.mass]


class _Preferred:
    """The terms that score a template's pods over one state of the node table."""

    def __init__(self, frame: Frame, carried: tuple[CarriedTerm, ...], hard_weight: int) -> None:
        self._cluster = frame.cluster
        self._version = frame.cluster.nodes.version
        self._carried = carried
        self._hard_weight = hard_weight
        counters = frame.cluster.counters
        sources: list[tuple[str, Counter, int]] = []
        for term in affinity_terms(frame.template).preferred:
            pods = IncomingTerms((term.pods,))
            sources.append((term.topology_key, counters.counter(pods, terminating=True), term.weight))
        for kind, term in carried:
            weight = _carried_weight(kind, term, hard_weight)
            if weight is not None:
                sources.append((term.topology_key, counters.carriers(CarriedTerm(kind, term)), weight))
        self.totals = _weighted_by_key(frame, sources)
        """Per topology key, the score of each domain."""

    def serves(self, cluster: Cluster, carried: tuple[CarriedTerm, ...], hard_weight: int) -> bool:
        """Return whether this still holds."""
        return (
            self._cluster is cluster
            and self._version == cluster.nodes.version
            and self._hard_weight == hard_weight
            and self._carried == carried
            and all(totals.sync() for totals in self.totals)
        )


def _carried_weight(kind: str, term: AffinityTerm, hard_weight: int) -> int | None:
    """Return what one placed pod with this term adds to the score of its domain; None: it is not scored."""
    match kind:
        case "preferred":
            return term.weight
        case "required" if hard_weight > 0:
            return term.weight * hard_weight
    return None


def _by_key(frame: Frame, sources: Sequence[tuple[str, Counter]]) -> list[DomainTotals]:
    return _weighted_by_key(frame, [(key, counter, 1) for key, counter in dict.fromkeys(sources)])


def _weighted_by_key(frame: Frame, sources: Sequence[tuple[str, Counter, int]]) -> list[DomainTotals]:
    """Return one total per topology key."""
    keys: dict[str, list[tuple[Counter, int]]] = {}
    for key, counter, weight in sources:
        keys.setdefault(key, []).append((counter, weight))
    nodes = frame.cluster.nodes
    return [DomainTotals(topology(nodes, key), counters) for key, counters in keys.items()]
