"""Clauses as plugins: `require`, `filter`, `score`, `limit`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from kube_policy_scheduler.builtins.metrics import missing_nodes, queries, readings_of
from kube_policy_scheduler.builtins.pods import MemberSet, domains_in_reach, domains_with_room, facts_of, held
from kube_policy_scheduler.builtins.rules import Fits, ScoreReader
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.pod_counters import PodCounters
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.requests import scoring_request
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.cluster.signals import About
from kube_policy_scheduler.framework.evaluate.nominations import nominated_anywhere, nominated_for
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import (
    SKIP,
    FilterPlugin,
    Plugin,
    PreFilterResult,
    Readings,
    Reads,
    Ready,
    ScorePlugin,
    Skip,
    WhereItFits,
    declare,
)
from kube_policy_scheduler.framework.plugins.image_locality import ImageLocality
from kube_policy_scheduler.framework.status import Code, Rejection, Status
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Test, values_of
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import (
    CompiledClause,
    CompiledGrouping,
    CompiledQuota,
    CompiledScore,
    CompiledTest,
)
from kube_policy_scheduler.lang.compiling.expressions import Evaluate
from kube_policy_scheduler.lang.environment import Members
from kube_policy_scheduler.lang.types import Depends

_READY = Ready()


class PolicyClause(Plugin):
    """A plugin that is a clause of a policy."""

    clause: CompiledClause
    events: frozenset[ClusterEvent] = frozenset()
    """Of one that may reject pods: the events that may help."""


_READS: Mapping[Depends, Reads] = {
    Depends.POD: Reads.POD,
    Depends.OWN: Reads.POD,
    Depends.CLOCK: Reads.CLOCK,
    Depends.CLUSTER: Reads.ELSEWHERE | Reads.LABELS,  # pods count in the namespace of the pod
    Depends.NODES: Reads.ELSEWHERE,
    Depends.ROW: Reads.PODS,
    Depends.OFFER: Reads.PODS,
    Depends.NUMA: Reads.PODS,
    Depends.SIGNAL: Reads.METRICS,
    Depends.FEASIBLE: Reads.FEASIBLE,
    Depends.IMAGES: Reads.SPEC | Reads.IMAGES,
}


def reads_of(clause: CompiledClause) -> Reads:
    """Return what the answers of a clause follow from."""
    found, depends = Reads.NOTHING, clause.depends
    for dependence, reads in _READS.items():
        if depends & dependence:
            found |= reads
    if depends & Depends.TEMPLATE:
        found |= _read_of_template(clause)
    if depends & Depends.SIGNAL:
        read = queries(clause.inputs)
        if not read or any(query.about is not About.NODES for query in read):
            found |= Reads.ELSEWHERE
    return found


@cache
def _code(depends: Depends) -> Code:
    """Return whether evicting pods could help where a clause rejects."""
    helps = depends & (Depends.ROW | Depends.CLUSTER)
    return Code.UNSCHEDULABLE if helps else Code.UNSCHEDULABLE_AND_UNRESOLVABLE


_E = ClusterEvent
_PODS = frozenset({_E.POD_ADD, _E.POD_UPDATE, _E.POD_DELETE})
_STATES = _PODS | {_E.POD_STATE}
_NODE_FACTS = frozenset(
    {
        _E.NODE_ADD,
        _E.NODE_ALLOCATABLE,
        _E.NODE_LABEL,
        _E.NODE_TAINT,
        _E.NODE_CONDITION,
        _E.NODE_ANNOTATION,
        _E.NODE_FEATURE,
        _E.NODE_INFO,
        _E.NODE_IMAGES,
    }
)
_BY_DEPENDENCE: tuple[tuple[Depends, frozenset[ClusterEvent]], ...] = (
    (Depends.NODE, _NODE_FACTS),
    (Depends.RUN, _STATES),
    (Depends.ROW, _PODS | {_E.NODE_ADD, _E.NODE_ALLOCATABLE}),
    (Depends.OFFER, frozenset({_E.NODE_ADD, _E.NODE_ALLOCATABLE})),
    (Depends.NUMA, frozenset({_E.NODE_ADD, _E.NODE_TOPOLOGY})),
    (Depends.NODES | Depends.IMAGES, _NODE_FACTS | {_E.NODE_DELETE}),
    (
        Depends.CLUSTER,
        _PODS
        | {_E.NODE_ADD, _E.NODE_DELETE, _E.NODE_LABEL, _E.NAMESPACE, _E.WORKLOAD, _E.STORAGE}
        | {_E.RESOURCE_CLAIM, _E.RESOURCE_SLICE, _E.DEVICE_CLASS},
    ),
    (Depends.FEASIBLE, _PODS | _NODE_FACTS | {_E.NODE_DELETE}),
    (Depends.SIGNAL, frozenset({_E.SIGNALS, _E.NODE_ADD})),
    (Depends.CLOCK, frozenset({_E.CLOCK})),
)


def events_of(clause: CompiledClause) -> frozenset[ClusterEvent]:
    """Return the events that may change the clause's answer; a change of the pod itself is none of them."""
    counts = isinstance(clause, CompiledQuota | CompiledGrouping)
    return _events(clause.depends | Depends.CLUSTER if counts else clause.depends)


@cache
def _events(depends: Depends) -> frozenset[ClusterEvent]:
    found: frozenset[ClusterEvent] = frozenset()
    for dependence, events in _BY_DEPENDENCE:
        if depends & dependence:
            found |= events
    return found


class _Fact(NamedTuple):
    """Something that a clause reads of a pod's template."""

    reads: Reads
    of: Callable[[Frame], Hashable]
    """Returns it as a value."""


def _requests(frame: Frame) -> Hashable:
    demand = frame.template.demand
    return demand.nonzero_cpu_millis, demand.nonzero_memory_bytes, *sorted(demand.requests.items())


def _scored_requests(frame: Frame) -> Hashable:
    memo = frame.template.memo
    known: Hashable = memo.get(_SCORED)
    if known is None:
        requests = sorted(scoring_request(frame.template.spec).items())
        known = memo[_SCORED] = _requests(frame), tuple(requests)
    return known


_SCORED = ("clauses", "scored requests")
_FIELDS: Mapping[str, _Fact] = {
    "pod.priority": _Fact(Reads.SPEC, lambda frame: frame.template.priority),
    "pod.request": _Fact(Reads.REQUESTS, _requests),
}
_BUILTINS: Mapping[str, _Fact] = {
    "fits": _Fact(Reads.REQUESTS, _requests),
    "balanced": _Fact(Reads.REQUESTS, _requests),
    "least_allocated": _Fact(Reads.REQUESTS, _scored_requests),
    "most_allocated": _Fact(Reads.REQUESTS, _scored_requests),
    "image_locality": _Fact(Reads.SPEC, lambda frame: ImageLocality().pre_score(frame).key),
}


def _facts_of(clause: CompiledClause) -> tuple[_Fact, ...] | None:
    """Return what the clause reads of a template; None if that is more than is known here."""
    found: dict[Hashable, _Fact] = {}
    for value in (value for root in values_of(clause.checked) for value in typed.below(root)):
        match value:
            case typed.Read(field=field, key=key) if field.depends & Depends.TEMPLATE:
                fact = _label(key) if field.path == "pod.label" and key is not None else _FIELDS.get(field.path)
                found_by: Hashable = (field.path, key) if field.path == "pod.label" else field.path
            case typed.Apply(builtin=builtin) if builtin.depends & Depends.TEMPLATE:
                fact, found_by = _BUILTINS.get(builtin.name), builtin.name
            case typed.Aggregate() | typed.NodeAggregate() | typed.ListAggregate() | typed.Variable():
                return None
            case _:
                continue
        if fact is None:
            return None
        found[found_by] = fact
    return tuple(found.values()) or None


def _label(key: str) -> _Fact:
    return _Fact(Reads.LABELS, lambda frame: frame.template.labels.get(key))


def _read_of_template(clause: CompiledClause) -> Reads:
    """Return what of a template a clause reads."""
    facts = _facts_of(clause)
    if facts is None:
        return Reads.SPEC | Reads.REQUESTS | Reads.LABELS
    found = Reads.NOTHING
    for fact in facts:
        found |= fact.reads
    return found


def _readiness(clause: CompiledClause) -> Callable[[Frame], Ready]:
    """Return what PreFilter and PreScore say: for which templates the answers are the same."""
    facts = _facts_of(clause) if clause.depends & (Depends.TEMPLATE | Depends.IMAGES) else None
    if facts is not None:
        read = [fact.of for fact in facts]
        return lambda frame: Ready(key=tuple([of(frame) for of in read]))
    if clause.depends & Depends.IMAGES:
        return lambda frame: Ready(key=(frame.template, ImageLocality().pre_score(frame).key))
    return lambda frame: _READY


_IMPLIED = frozenset(("cpu", "memory", "pods"))
"""Resources of which every node has enough that passes NodeResourcesFit."""


def _where_it_fits(clause: CompiledTest) -> WhereItFits:
    """Return what is left of a filter where NodeResourcesFit lets the pod pass; None: all of it."""
    checked = clause.checked
    if not isinstance(checked, Test) or checked.condition is not None:
        return None
    if _is_implied(checked.value):
        return ()
    left = [operand.holds for operand in clause.operands if not _is_implied(operand.tree)]
    return tuple(left) if len(left) < len(clause.operands) else None


def _is_implied(value: typed.Typed) -> bool:
    return (
        isinstance(value, typed.Apply)
        and isinstance(value.kernel, Fits)
        and _IMPLIED.issuperset(value.kernel.resources)
    )


def _resource_score(clause: CompiledScore) -> ScorePlugin | None:
    checked = clause.checked
    if not isinstance(checked, Test) or checked.condition is not None or not isinstance(checked.value, typed.Apply):
        return None
    return checked.value.kernel.plugin if isinstance(checked.value.kernel, ScoreReader) else None


class FilterClause(PolicyClause, FilterPlugin):
    """`filter`: nodes pass where it holds; where it has no answer they do not, for a reason of its own."""

    clause: CompiledTest

    def __init__(self, clause: CompiledTest) -> None:
        self.clause = clause
        self.name = clause.name
        self.events = events_of(clause)
        declare(self, reads_of(clause))
        self._code = _code(clause.depends)
        self._queries = queries(clause.inputs)
        self._ready = _readiness(clause)
        self.where_it_fits = _where_it_fits(clause)
        self.filter_one = _filter_one(clause.of_row) if clause.of_row is not None else None

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Have no objection."""
        return self._ready(frame)

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        result: BoolArray = full(self.clause.evaluate(frame), frame.size)
        return result

    def readings(self, frame: Frame) -> Readings:
        """Return what it reads of metrics."""
        return readings_of(self._queries, frame)

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return where the clause does not hold, and where it has no answer.

        Of conditions joined with `and`, each that fails is a reason of its own, as each short resource is one for
        kube-scheduler; a node where one fails for good is not worth evicting pods for.
        """
        if self.clause.reasons:
            operands = zip(self.clause.operands, self.clause.reasons, strict=True)
            return [Rejection(_code(one.tree.info.depends), reason, ~one.holds(frame)) for one, reason in operands]
        rejected = ~self.filter(frame, state)
        if self.clause.missing is None:
            return [Rejection(self._code, self.clause.reason, rejected)]
        missing: BoolArray = full(self.clause.missing(frame), frame.size)
        return [
            Rejection(self._code, f"node(s) had no value for policy clause {self.name}", missing),
            Rejection(self._code, self.clause.reason, rejected & ~missing),
        ]

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: PodCounters | None) -> str | None:
        """Return why the clause rejects the pod on every new node, None if it may accept one.

        A metric of nodes: a new node has no load, so it may be accepted; but not if no node at all has a value.
        """
        clause = self.clause
        for one in clause.everywhere:
            if not one.holds(frame):
                return f"policy clause {self.name} rejects the pod on any node"
        if clause.new_nodes_fail and clause.nodes and not self.filter(frame, None).all():
            return f"policy clause {self.name} accepts no new node"
        if clause.nodes and clause.depends & Depends.SIGNAL and frame.size and not self.filter(frame, None).any():
            nodes = frame.cluster.nodes
            for query in queries(clause.inputs):
                is_of_nodes = query.about is About.NODES
                if is_of_nodes and missing_nodes(query, nodes, signals=frame.signals, now=frame.now) == nodes.size:
                    return f"policy clause {self.name} has no value for any node"
        return None


class RequireClause(PolicyClause, FilterPlugin):
    """`require`: rejects the pod as a whole where it does not hold."""

    clause: CompiledTest

    def __init__(self, clause: CompiledTest) -> None:
        self.clause = clause
        self.name = clause.name
        self.events = events_of(clause)
        declare(self, reads_of(clause) | (Reads.ELSEWHERE if clause.depends & Depends.SIGNAL else Reads.NOTHING))

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Reject the pod, or have nothing more to say."""
        if self.clause.evaluate(frame):
            return SKIP
        return Status(_code(self.clause.depends), self.name, (self.clause.reason,))

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Let all nodes pass."""
        return np.ones(frame.size, np.bool_)

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return nothing: the pod was rejected as a whole, or not at all."""
        return []

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: PodCounters | None) -> str | None:
        """Return why the clause rejects the pod whatever nodes there are, None if it does not."""
        if all(one.holds(frame) for one in self.clause.everywhere):
            return None
        return f"policy clause {self.name} rejects the pod on any node"


_HALF_A_BILLIONTH = 0.5e-9
"""Kubernetes counts in billionths, so what is above a bound by less than half of one fits: 0.1 + 0.2 is above 0.3 only
as floating-point numbers."""
_COMPARED_IN_A_TURN = 2_048
"""Templates that limits count for the first time, 10 ms: a policy may have 512 limits, and each pod keys of its own."""


class LimitClause(PolicyClause, FilterPlugin):
    """`limit`: rejects the pod while those of its key hold too much. Assumed pods count, so Reserve has no part.

    Pods count until they are gone, also while they are deleted, and on nodes that are not there any more. Nominated
    pods that come before this one count, too: others may have been evicted so that the limit has room for them.
    """

    clause: CompiledQuota

    reads = Reads.POD | Reads.ELSEWHERE

    def __init__(self, clause: CompiledQuota) -> None:
        self.clause = clause
        self.name = clause.name
        self.events = events_of(clause)
        reads_no_more = not clause.depends & ~(Depends.TEMPLATE | Depends.POD | Depends.OWN | Depends.CLOCK)
        self._leaves_alike = reads_no_more and not clause.own

    def leaving_key(self, pod: PodInfo) -> Hashable | None:
        """Return how much a placed pod holds of the limit, if nothing else is read: its template, its requests."""
        return (pod.template, id(pod.demand)) if self._leaves_alike else None

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Reject the pod, or have nothing more to say.

        Raises:
            OutOfTurn: pods of its key were counted for the first time, as those of other limits were in this turn.
        """
        clause = self.clause
        if not is_limited(clause, frame):
            return SKIP
        counters = frame.cluster.counters_reading(facts_of(clause.own))
        before = counters.compared
        used, more, bound = self.usage(frame)
        if counters.compared > before:
            search_work(frame.cluster.store).use_turn((counters.compared - before) / _COMPARED_IN_A_TURN)
        if _is_within(used + more, bound):
            return SKIP
        return Status(Code.UNSCHEDULABLE, self.name, (clause.reason,))

    def usage(self, frame: Frame, awaiting: PodCounters | None = None) -> tuple[float, float, float]:
        """Return what pods of the key hold or are to get, what this one adds, and the bound: a missing one allows 0.

        awaiting: counts further pods as if they held something.
        """
        clause, cluster = self.clause, frame.cluster
        members = clause.members(frame)
        bound = float(clause.bound(frame))
        bound = bound if bound == bound else 0.0
        facts = facts_of(clause.own)
        everywhere = [cluster.counters_reading(facts), cluster.counters_on_unknown_nodes_reading(facts)]
        if awaiting is not None:
            everywhere.append(awaiting.reading(facts, ()))
        promised = [other for other in nominated_anywhere(frame) if members.of_pod(other, frame.now)]
        if clause.measure_members is None:
            pods = MemberSet(members)
            used = sum(each.counter(pods, terminating=True, asks=frame.template).total for each in everywhere)
            return float(used + len(promised)), 1.0, bound
        measure = clause.measure_members(frame)
        return (
            sum(held(each, members, measure, frame.template) for each in everywhere)
            + sum(worth(measure, other) for other in promised),
            worth(measure, frame.pod),
            bound,
        )

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Let all nodes pass."""
        return np.ones(frame.size, np.bool_)

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return nothing: the pod was rejected as a whole, or not at all."""
        return []

    def delays(self, frame: Frame, other: PodInfo, together: int) -> bool:
        """Return whether the limit has no room for the pods and another one that counts, beside those that run."""
        clause = self.clause
        if not _counts_for(clause, frame, other):
            return False
        used, more, bound = self.usage(frame)
        measure = clause.measure_members(frame) if clause.measure_members is not None else None
        return not _is_within(used + more * together + (1.0 if measure is None else worth(measure, other)), bound)

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: PodCounters | None) -> str | None:
        """Return why the pods must not get new nodes, None if the limit leaves enough for all of them."""
        clause = self.clause
        if clause.new_nodes_help or not is_limited(clause, frame):
            return None
        used, more, bound = self.usage(frame, awaiting)
        if _is_within(used + more * together, bound):
            return None
        if awaiting is not None:
            return f"the pods that wait for new nodes use up what is left of policy clause {self.name}"
        of_gang = (
            f" its gang of {together} more pods" if together > 1 and _is_within(used + more, bound) else " the pod"
        )
        return f"policy clause {self.name} rejects{of_gang} on any node"


def _is_within(total: float, bound: float) -> bool:
    """Return whether a sum is at most what is written."""
    return total <= bound + _HALF_A_BILLIONTH


def is_limited(clause: CompiledQuota, frame: Frame) -> bool:
    """Return whether a pod is one that a limit is for."""
    if clause.condition is not None and not clause.condition(frame):
        return False
    return not clause.selects or bool(clause.members(frame).of_pod(frame.pod, frame.now))


def _counts_for(clause: CompiledQuota, frame: Frame, other: PodInfo) -> bool:
    """Return whether another pod would count for the limit of a pod."""
    return is_limited(clause, frame) and bool(clause.members(frame).of_pod(other, frame.now))


class DomainLimitClause(PolicyClause, FilterPlugin):
    """`limit … over TOPOLOGY`, or of different nodes: rejects nodes where too much would be held with the pod."""

    clause: CompiledQuota

    def __init__(self, clause: CompiledQuota) -> None:
        self.clause = clause
        self.name = clause.name
        self.events = events_of(clause)
        alone = clause.topology is None and clause.distinct is None
        of_template = Reads.SPEC | Reads.REQUESTS | Reads.LABELS
        is_elsewhere = not alone or clause.depends & Depends.SIGNAL
        self.counts_nominated = not alone
        declare(self, reads_of(clause) | of_template | (Reads.ELSEWHERE if is_elsewhere else Reads.PODS))

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Have no objection, or nothing to say where the limit is not for the pod."""
        return Ready() if is_limited(self.clause, frame) else SKIP

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes whose domain has room; a missing bound allows nothing."""
        clause = self.clause
        measure = clause.measure_members(frame) if clause.measure_members is not None else None
        more = worth(measure, frame.pod) if measure is not None else 1.0
        bound = float(clause.bound(frame))
        most = (bound if bound == bound else 0.0) + _HALF_A_BILLIONTH
        members, on = clause.members(frame), clause.on(frame)
        coming = self._coming(frame, members) if self.counts_nominated else ()
        if clause.distinct is not None:
            (counted,) = clause.distinct
            in_reach = partial(domains_in_reach, frame, members, counted, topology=clause.topology, most=most, on=on)
            room = in_reach()
            if coming:  # the pod may come to a domain before those that are to be there
                room &= in_reach(coming=[row for row, _ in coming])
        else:
            amounts = [(row, worth(measure, other) if measure is not None else 1.0) for row, other in coming]
            room = domains_with_room(
                frame, members, measure, topology=clause.topology, more=more, most=most, on=on, coming=amounts
            )
        return room if on is None else room | ~on.rows[frame.rows]

    def _coming(self, frame: Frame, members: Members) -> list[tuple[int, PodInfo]]:
        """Return the nominated pods that count and come before the pod, with the rows that they are nominated to."""
        return [
            (row, other)
            for name in frame.cluster.nominated
            if (row := frame.cluster.nodes.rows.get(name)) is not None
            for other in nominated_for(frame, name)
            if members.of_pod(other, frame.now)
        ]

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return where the domain has no room."""
        return [Rejection(Code.UNSCHEDULABLE, self.clause.reason, ~self.filter(frame, state))]

    def delays(self, frame: Frame, other: PodInfo, together: int) -> bool:
        """Return whether another pod would count, wherever that is."""
        return _counts_for(self.clause, frame, other)

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: PodCounters | None) -> str | None:
        """Return why the clause rejects the pod on every new node, if it says `new nodes never help`."""
        clause = self.clause
        if clause.new_nodes_help or not is_limited(clause, frame) or self.filter(frame, None).all():
            return None
        return f"policy clause {self.name} accepts no new node"


class ScoreClause(PolicyClause, ScorePlugin):
    """`score`: a missing value adds 0."""

    clause: CompiledScore

    def __init__(self, clause: CompiledScore) -> None:
        self.clause = clause
        self.name = clause.name
        declare(self, reads_of(clause))
        self._queries = queries(clause.inputs)
        self._ready = _readiness(clause)
        self.resource_score = _resource_score(clause)
        self.score_one = _score_one(clause.of_row) if clause.of_row is not None else None

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Score always."""
        ready = self._ready(frame)
        if self.resource_score is not None and isinstance(prepared := self.resource_score.pre_score(frame), Ready):
            return Ready(prepared.state, key=ready.key)
        return ready

    def score(self, frame: Frame, state: Any) -> FloatArray:
        """Return `float64[rows]`."""
        values: FloatArray = self.clause.evaluate(frame)
        if not self.clause.maybe:
            return values
        missing = np.isnan(values)
        return np.where(missing, 0.0, values) if missing.any() else values

    def readings(self, frame: Frame) -> Readings:
        """Return what it reads of metrics."""
        return readings_of(self._queries, frame)

    def missing(self, frame: Frame) -> BoolArray:
        """Return `bool[rows]`: where the score has no value, so that the decision is degraded."""
        result: BoolArray = np.isnan(self.clause.evaluate(frame))
        return result


# functions, not methods: a plugin that held its own bound method would be a cycle, and would wait for the collector


def _filter_one(of_row: Evaluate) -> Callable[[Frame, Any, int], bool]:
    def filter_one(frame: Frame, state: Any, row: int) -> bool:
        return bool(of_row(frame))

    return filter_one


def _score_one(of_row: Evaluate) -> Callable[[Frame, Any, int], float]:
    def score_one(frame: Frame, state: Any, row: int) -> float:
        value: float = of_row(frame)
        return value if value == value else 0.0

    return score_one


def worth(measure: Members, pod: PodInfo) -> float:
    """Return what a pod counts for; a missing measure counts for nothing."""
    value = float(measure.of_pod(pod, 0.0))
    return value if value == value else 0.0
