"""Aggregates over existing pods, from the cluster's counters: a decision scans no pods."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

import msgspec
import numpy as np

from kube_policy_scheduler.builtins.nodes import fold_nodes
from kube_policy_scheduler.cluster.counter_kinds import (
    AmountCounter,
    Counter,
    DistinctCounter,
    ExtremesCounter,
    RowAmountCounter,
)
from kube_policy_scheduler.cluster.domains import topology as topology_of
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.own_facts import NO_FACTS, OwnFacts
from kube_policy_scheduler.cluster.pod_counters import PodCounters
from kube_policy_scheduler.cluster.pod_sets import ANY, Anchor, Family, NamespaceLabels, PlainSet, Value, Weighing
from kube_policy_scheduler.cluster.pod_states import PodStates, RunningState, StateEdges
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.reductions import nothing, reduced
from kube_policy_scheduler.lang.environment import CLUSTER, Item, Members, NodeFold, OnNodes, PodsRead


@dataclass(frozen=True, slots=True)
class _OfMembers(PlainSet):
    """Pods that an expression chooses."""

    members: Members

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return member_anchors(self.members)


class MemberSet(_OfMembers):
    """The pods that an expression chooses, as the counters know sets: by template."""

    __slots__ = ()

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return bool(self.members(template))


@dataclass(frozen=True, slots=True)
class MemberValues(_OfMembers):
    """The pods that an expression chooses, each for a value: how many different ones there are is counted."""

    value: Members
    weighing: ClassVar[Weighing] = Weighing.DISTINCT

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return a number that stands for the value of pods of this template; None where they have none."""
        value = self.value(template) if self.members(template) else None
        if value is None or value != value:
            return None
        # the same for the same value, whatever came before; nothing has to be kept of values that are gone
        return int.from_bytes(blake2b(repr(value).encode(), digest_size=7).digest(), "big")


@dataclass(frozen=True, slots=True)
class MemberAmounts(_OfMembers):
    """The pods that an expression chooses, each for an amount; their sum over all nodes is kept."""

    amount: Members
    weighing: ClassVar[Weighing] = Weighing.AMOUNT

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return the amount of a pod of this template; None where it has none, or does not belong to the set."""
        if not self.members(template):
            return None
        amount = float(self.amount(template))
        return amount if amount == amount else None


class MemberRowAmounts(MemberAmounts):
    """The same; their sums on each node and in each domain are kept too."""

    __slots__ = ()
    weighing: ClassVar[Weighing] = Weighing.ROW_AMOUNT


class MemberExtremes(MemberAmounts):
    """The same; the least and the greatest on each node are kept."""

    __slots__ = ()
    weighing: ClassVar[Weighing] = Weighing.EXTREMES


def member_anchors(members: Members) -> tuple[Anchor]:
    """Return what a template must have to be among some members: the value, where they go by one."""
    by = members.by
    if by is None:
        return (ANY,)
    return (Value(Family(by, lambda template: by(Item(template, (), template.own))), members.captured[members.by_at]),)


def facts_of(reads: Iterable[tuple[str, str | None]]) -> OwnFacts:
    """Return what fields read of pods besides their templates. reads: their paths and keys."""
    paths = frozenset(reads)
    keys = frozenset(key for path, key in paths if path == "pod.annotation" and key is not None)
    return OwnFacts(("pod.name", None) in paths, keys) if paths else NO_FACTS


def _counters(frame: Frame, *members: Members) -> PodCounters:
    """Return the counters of sets of these members and their values."""
    reads = [read for each in members for read in each.own]
    return frame.cluster.counters_reading(facts_of(reads) if reads else NO_FACTS)


def _states(frame: Frame, *members: Members) -> PodStates:
    """Return the pods on nodes by their state, for sets of these members and their values."""
    return frame.cluster.pod_states(facts_of([read for each in members for read in each.own]))


class MemberStateSet(msgspec.Struct, frozen=True):
    """The pods that an expression chooses by their state too, as `cluster.pod_states` knows sets."""

    members: Members
    thresholds: StateEdges
    value: Members | None = None
    """What each counts for; None: 1."""

    @property
    def anchor(self) -> Anchor:
        """Return what a template must have to belong to the set."""
        return member_anchors(self.members)[0]

    def worth(self, template: PodTemplate, state: RunningState, now: float) -> float | None:
        """Return what a pod of the template in a state counts for, at a time in Unix seconds; None: nothing."""
        if not self.members.test(Item(template, self.members.captured, state, now)):
            return None
        if self.value is None:
            return 1.0
        worth = float(self.value.test(Item(template, self.value.captured, state, now)))
        return worth if worth == worth else None


def set_of(read: PodsRead) -> PlainSet | None:
    """Return the set whose counter an aggregate reads; None where it follows from the state of each pod."""
    members, value = read.members, read.value
    if members.state is not None or (value is not None and value.state is not None):
        return None
    if value is None:
        return MemberSet(members)
    made = {"distinct": MemberValues, "min": MemberExtremes, "max": MemberExtremes}.get(read.function, MemberRowAmounts)
    return made(members, value)


def _state_set(members: Members, value: Members | None = None) -> MemberStateSet | None:
    """Return the set whose counts follow each change; None where numbers are used in a way that allows none."""
    running, restarts = set[float](), set[float]()
    for each in (members, value):
        if each is not None and each.state is not None:
            if each.state.thresholds is None:
                return None
            running.update(each.state.thresholds)
            restarts.update(each.state.restarts)
    return MemberStateSet(members, StateEdges(tuple(sorted(running)), tuple(sorted(restarts))), value)


class CountedPods:
    """Counts and sums over nodes, and over the pods there: those assumed included, those that are being deleted not."""

    def fold_nodes(self, frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> Any:
        """Return what an aggregate over nodes gives: one value, or one for each row by its domain."""
        return fold_nodes(frame, fold, captured)

    def count(
        self, frame: Frame, members: Members, *, topology: str | None, on: OnNodes | None = None
    ) -> FloatArray | float:
        """Return how many members are in each row's domain; 0 for a node outside every domain.

        on: the nodes whose pods count; None: all.
        """
        if on is not None:
            return _by_domain(frame, np.where(on.rows, _per_node(frame, members), 0), topology)
        if members.state is not None:
            return _by_domain(frame, _by_state(frame, members), topology)
        counters = _counters(frame, members)
        return _counted(frame, counters.counter(MemberSet(members), terminating=False, asks=frame.template), topology)

    def fold_of_nodes(
        self, frame: Frame, members: Members, column: Any, *, function: str, topology: str | None, on: OnNodes | None
    ) -> FloatArray | float:
        """Return what `fold` does of a value of the node of each member: `float64[nodes]`, or a text for each node."""
        per_node = _per_node(frame, members)
        chosen = per_node > 0 if on is None else (per_node > 0) & on.rows
        groups, slots = _groups(frame, topology)
        if function not in ("sum", "avg"):
            return _of_rows(frame, reduced(function, column, chosen, groups, slots), function, topology)
        chosen &= ~np.isnan(column)
        total = reduced("sum", column * per_node, chosen, groups, slots)
        if function == "avg":
            number = reduced("sum", per_node.astype(np.float64), chosen, groups, slots)
            total = np.where(number > 0, total / np.maximum(number, 1), np.nan)
        return _of_rows(frame, total, function, topology)

    def fold(
        self,
        frame: Frame,
        members: Members,
        value: Members,
        *,
        function: str,
        topology: str | None,
        on: OnNodes | None = None,
    ) -> FloatArray | float:
        """Return sum, min, max, avg or distinct (the number of different values) over the members in each row's domain.

        Pods without a value are left out. Without any, a sum and a number are 0 and the others are missing.
        on: the nodes whose pods count; None: all.
        """
        if on is not None:
            return _fold_on(frame, members, value, on, function=function, topology=topology)
        if members.state is not None or value.state is not None:
            return self._fold_by_state(frame, members, value, function=function, topology=topology)
        counters = _counters(frame, members, value)
        if function == "distinct":
            counter = counters.counter(MemberValues(members, value), terminating=False, asks=frame.template)
            assert isinstance(counter, DistinctCounter)
            return _different_values(frame, counter, topology)
        if function in ("min", "max"):
            counter = counters.counter(MemberExtremes(members, value), terminating=False, asks=frame.template)
            assert isinstance(counter, ExtremesCounter)
            return _extreme(frame, counter.extremes(least=function == "min"), function, topology)
        pods = counters.counter(MemberRowAmounts(members, value), terminating=False, asks=frame.template)
        assert isinstance(pods, RowAmountCounter)
        total = _sums(frame, pods, topology)
        return total if function == "sum" else _mean(total, _counted(frame, pods, topology))

    def _fold_by_state(
        self, frame: Frame, members: Members, value: Members, *, function: str, topology: str | None
    ) -> FloatArray | float:
        """Return `fold` of pods, or values, that follow from the state of each pod now."""
        pods, size = _state_set(members), frame.cluster.nodes.size
        if pods is not None and value.state is not None and value.state.is_running and function in ("min", "max"):
            column = _states(frame, members, value).running(pods, now=frame.now, longest=function == "max")[:size]
            return _extreme(frame, column, function, topology)
        pods = _state_set(members, value)
        if pods is None or function == "distinct":
            return _fold_each_pod(frame, members, value, function=function, topology=topology)
        if function in ("sum", "avg"):
            number, sums = _states(frame, members, value).sums(pods, now=frame.now)
            rows = frame.rows if topology is None and not isinstance(frame.rows, slice) else slice(size)
            on_nodes = sums.values(rows).copy()
            total = on_nodes if topology is None else _by_domain(frame, on_nodes, topology)
            return total if function == "sum" else _mean(total, _by_domain(frame, number[:size], topology))
        groups = _states(frame, members, value).per_node(pods, now=frame.now)
        return _extreme_of_groups(frame, ((worth, column[:size]) for worth, column in groups), function, topology)


def _per_node(frame: Frame, members: Members) -> Any:
    """Return `int32[nodes]`: members on each node. Read-only."""
    if members.state is not None:
        return _by_state(frame, members)
    counters = _counters(frame, members)
    return counters.counter(MemberSet(members), terminating=False, asks=frame.template).per_node()


def _groups(frame: Frame, topology: str | None) -> tuple[Any, int]:
    """Return the group of each node for `reduced`, None for one group, and how many groups there are."""
    size = frame.cluster.nodes.size
    if topology is None:
        return np.arange(size), size
    if topology == CLUSTER:
        return None, 1
    domains = topology_of(frame.cluster.nodes, topology)
    return domains.index, domains.size + 1


def _of_rows(frame: Frame, found: FloatArray, function: str, topology: str | None) -> FloatArray | float:
    """Return what was found for each group as what it is for each row; nothing for nodes outside every domain."""
    if topology == CLUSTER:
        return float(found[0])
    if topology is None:
        return found[frame.rows]
    domains = topology_of(frame.cluster.nodes, topology)
    found[domains.nothing] = nothing(function)
    result: FloatArray = found[domains.index[frame.rows]]
    return result


def _fold_on(
    frame: Frame, members: Members, value: Members, on: OnNodes, *, function: str, topology: str | None
) -> FloatArray | float:
    """Return `CountedPods.fold` of the pods on some nodes."""
    if members.state is not None or value.state is not None:
        return _fold_each_pod(frame, members, value, function=function, topology=topology, on=on)
    counters, asks = _counters(frame, members, value), frame.template
    if function in ("min", "max"):
        extremes = counters.counter(MemberExtremes(members, value), terminating=False, asks=asks)
        assert isinstance(extremes, ExtremesCounter)
        column = np.where(on.rows, extremes.extremes(least=function == "min"), np.nan)
        return _extreme(frame, column, function, topology)
    kind = MemberValues if function == "distinct" else MemberRowAmounts
    counter = counters.counter(kind(members, value), terminating=False, asks=asks)
    assert isinstance(counter, DistinctCounter | RowAmountCounter)
    if topology is None:
        rows = on.rows[frame.rows]
        found = counter.different()[frame.rows] if isinstance(counter, DistinctCounter) else counter.on_rows(frame.rows)
        total: FloatArray | float = np.where(rows, found, 0.0)
    else:
        domains = topology_of(frame.cluster.nodes, topology) if topology != CLUSTER else None
        index, slots = (domains.index, domains.slots) if domains is not None else (0, 2)
        aside = domains.nothing if domains is not None else 1
        sums = counter.by_place((topology, on.name), np.where(on.rows, index, aside), slots).astype(np.float64)
        sums[aside] = 0.0
        total = sums[domains.index[frame.rows]] if domains is not None else float(sums[0])
    if function != "avg":
        return total
    return _mean(total, _by_domain(frame, np.where(on.rows, counter.per_node(), 0), topology))


def _extreme_of_groups(
    frame: Frame, groups: Iterable[tuple[float, Any]], function: str, topology: str | None
) -> FloatArray | float:
    """Return the smallest or largest of values, each with how many pods on each node have it; NaN where none has."""
    found: Any = np.full(frame.size, np.nan) if topology != CLUSTER else np.nan
    merge = np.fmin if function == "min" else np.fmax
    for worth, per_node in groups:
        found = merge(found, np.where(np.asarray(_by_domain(frame, per_node, topology)) > 0, worth, np.nan))
    return float(found) if topology == CLUSTER else found


def _folded(function: str, number: FloatArray, total: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return what a function makes of values: how many there are, their sum, the smallest and the largest."""
    if function == "sum":
        return total
    result: FloatArray = low if function == "min" else high if function == "max" else total / np.maximum(number, 1)
    return np.where(number > 0, result, np.nan)


def _by_state(frame: Frame, members: Members) -> Any:
    """Return `int32[nodes]`: members on each node, by the state of each pod now."""
    states, size = _states(frame, members), frame.cluster.nodes.size
    pods, column = _state_set(members), np.zeros(size, np.int32)
    if pods is not None:
        return next((found[:size] for _, found in states.per_node(pods, now=frame.now)), column)
    for row, there in states.on_rows():
        column[row] = sum(bool(members.of_pod(pod, frame.now)) for pod in there)
    return column


def _extreme(frame: Frame, column: FloatArray, function: str, topology: str | None) -> FloatArray | float:
    """Return the smallest or largest value of the nodes in each row's domain, NaN where none has one."""
    if topology is None:
        return column[frame.rows]
    merge = np.fmin if function == "min" else np.fmax
    if topology == CLUSTER:
        return float(merge.reduce(column, initial=np.nan))
    domains = topology_of(frame.cluster.nodes, topology)
    found = np.full(domains.slots, np.nan)
    merge.at(found, domains.index, column)
    found[domains.nothing] = np.nan
    result: FloatArray = found[domains.index[frame.rows]]
    return result


def _fold_each_pod(
    frame: Frame,
    members: Members,
    value: Members,
    *,
    function: str,
    topology: str | None,
    on: OnNodes | None = None,
) -> FloatArray | float:
    """Return `CountedPods.fold` of values that follow from the state of each pod now; looks at each pod."""
    nodes, now, rows, values = frame.cluster.nodes, frame.now, [], []
    kinds: dict[Any, int] = {}
    for row, pods in frame.cluster.pod_states().on_rows():
        for pod in pods if on is None or on.rows[row] else ():
            worth = value.of_pod(pod, now) if members.of_pod(pod, now) else None
            if worth is not None and worth == worth:
                rows.append(row)
                values.append(kinds.setdefault(worth, len(kinds)) if function == "distinct" else float(worth))
    at, given = np.array(rows, np.intp), np.array(values, np.float64)
    if topology is None:
        places, slots, asked = at, nodes.size, frame.index()
    elif topology == CLUSTER:
        places, slots, asked = np.zeros_like(at), 1, np.zeros(1, np.int64)
    else:
        domains = topology_of(nodes, topology)
        places, slots, asked = domains.index[at], domains.slots, domains.index[frame.rows]
        places, given = places[places != domains.nothing], given[places != domains.nothing]
    if function == "distinct":
        result = reduced(function, given, None, places, slots)
        return float(result[0]) if topology == CLUSTER else result[asked]
    low, high = np.full(slots, np.inf), np.full(slots, -np.inf)
    np.minimum.at(low, places, given)
    np.maximum.at(high, places, given)
    number: FloatArray = np.bincount(places, minlength=slots).astype(np.float64)
    total: Any = np.bincount(places, weights=given, minlength=slots)
    result = _folded(function, number, total, low, high)
    return float(result[0]) if topology == CLUSTER else result[asked]


def domains_with_room(
    frame: Frame,
    members: Members,
    measure: Members | None,
    *,
    topology: str | None,
    more: float,
    most: float,
    on: OnNodes | None = None,
    coming: Sequence[tuple[int, float]] = (),
) -> BoolArray:
    """Return `bool[rows]`: where the domain can hold `more` besides; nodes outside every domain are among them.

    Args:
        frame: of the pod.
        members: the pods that count, terminating ones included.
        measure: what each counts for; None: 1.
        topology: label key of the domains; None: each node is one; "*": the cluster.
        more: what is to be held besides.
        most: what a domain may hold.
        on: the nodes whose pods count; None: all.
        coming: rows that are to hold more already, and how much; those of domains alone count.
    """
    counters = _counters(frame, members, *(() if measure is None else (measure,)))
    pods = MemberSet(members) if measure is None else MemberRowAmounts(members, measure)
    counter = counters.counter(pods, terminating=True, asks=frame.template)
    if topology is None:
        on_nodes = (
            counter.on_rows(frame.rows) if isinstance(counter, RowAmountCounter) else _counted(frame, counter, None)
        )
        return np.asarray(on_nodes + more <= most, np.bool_)
    places, slots, aside, key = _places(frame, topology, on)
    by_place = counter.by_place if isinstance(counter, RowAmountCounter) else counter.pods_by_place
    held_there = by_place(key, places, slots)
    if coming:
        held_there = held_there.astype(np.float64)
        for row, amount in coming:
            held_there[places[row]] += amount
    room: BoolArray = held_there + more <= most
    room[aside] = True
    return np.ones(frame.size, np.bool_) if room[:aside].all() else room[places[frame.rows]]


def _places(frame: Frame, topology: str, on: OnNodes | None) -> tuple[Any, int, int, Hashable]:
    """Return `intp[nodes]`, the slot of each node, how many slots there are, that of nodes that do not count, a name.

    topology: label key of the domains; "*": the cluster.
    """
    if topology != CLUSTER:
        domains = topology_of(frame.cluster.nodes, topology)
        places, slots, aside = domains.index, domains.slots, domains.nothing
    else:
        places, slots, aside = np.zeros(frame.cluster.nodes.size, np.intp), 2, 1
    if on is None:
        return places, slots, aside, topology
    return np.where(on.rows, places, aside), slots, aside, (topology, on.name)


def domains_in_reach(
    frame: Frame,
    members: Members,
    counted: str | None,
    *,
    topology: str | None,
    most: float,
    on: OnNodes | None,
    coming: Sequence[int] = (),
) -> BoolArray:
    """Return `bool[rows]`: where members are already, or the outer domain can have them in one more inner domain.

    Nodes outside every domain are among them.

    Args:
        frame: of the pod.
        members: the pods that count, terminating ones included.
        counted: label key of the inner domains, of which those with members are counted; None: each node is one.
        topology: label key of the outer ones; None: each node is one; "*": the cluster.
        most: how many inner domains with members an outer one may have.
        on: the nodes whose pods count; None: all.
        coming: rows that are to have a member besides.
    """
    counters, nodes = _counters(frame, members), frame.cluster.nodes
    per_node = counters.counter(MemberSet(members), terminating=True, asks=frame.template).per_node()
    inner = np.arange(nodes.size) if counted is None else topology_of(nodes, counted).index
    if topology is None:
        outer, outside = np.arange(nodes.size), -1
    else:
        outer, _, outside, _ = _places(frame, topology, None)
    no_domain = (
        (outer == outside) if counted is None else (outer == outside) | (inner == topology_of(nodes, counted).nothing)
    )
    there = per_node > 0
    there[list(coming)] = True
    there &= ~no_domain
    if on is not None:
        there &= on.rows
    pairs = outer * (int(inner.max(initial=0)) + 1) + inner
    known = np.unique(pairs[there])
    number = np.bincount(known // (int(inner.max(initial=0)) + 1), minlength=int(outer.max(initial=0)) + 1)
    in_reach: BoolArray = no_domain | np.isin(pairs, known) | (number[outer] + 1 <= most)
    return in_reach[frame.rows]


def held(counters: PodCounters, members: Members, measure: Members, asks: PodTemplate) -> float:
    """Return the sum of a measure over the members on all nodes, terminating ones included."""
    counter = counters.counter(MemberAmounts(members, measure), terminating=True, asks=asks)
    assert isinstance(counter, AmountCounter)
    return counter.worth()


def _counted(frame: Frame, counter: Counter, topology: str | None) -> FloatArray | float:
    """Return how many pods are in each row's domain; 0 for a node outside every domain."""
    if topology is None:
        on_nodes: FloatArray = counter.per_node()[frame.rows].astype(np.float64)
        return on_nodes
    if topology == CLUSTER:
        return float(counter.total)
    domains = topology_of(frame.cluster.nodes, topology)
    totals = counter.pods_by_place(domains.key, domains.index, domains.slots).astype(np.float64)
    totals[domains.nothing] = 0.0
    result: FloatArray = totals[domains.index[frame.rows]]
    return result


def _sums(frame: Frame, counter: RowAmountCounter, topology: str | None) -> FloatArray | float:
    """Return the sums of amounts on the nodes in each row's domain; 0 for a node outside every domain."""
    if topology is None:
        return counter.on_rows(frame.rows).copy()
    if topology == CLUSTER:
        return counter.worth()
    domains = topology_of(frame.cluster.nodes, topology)
    totals = counter.by_place(domains.key, domains.index, domains.slots).copy()
    totals[domains.nothing] = 0.0
    result: FloatArray = totals[domains.index[frame.rows]]
    return result


def _mean(total: FloatArray | float, number: Any) -> FloatArray | float:
    if isinstance(total, float):
        return total / number if number else np.nan
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _by_domain(frame: Frame, per_node: Any, topology: str | None) -> FloatArray | float:
    """Return counts per node as counts per domain of each row."""
    if topology is None:
        rows: FloatArray = per_node[frame.rows].astype(np.float64)
        return rows
    if topology == CLUSTER:
        return float(per_node.sum())
    domains = topology_of(frame.cluster.nodes, topology)
    totals: FloatArray = np.bincount(domains.index, weights=per_node, minlength=domains.slots).astype(np.float64)
    totals[domains.nothing] = 0
    result: FloatArray = totals[domains.index[frame.rows]]
    return result


def _different_values(frame: Frame, counter: DistinctCounter, topology: str | None) -> FloatArray | float:
    if topology == CLUSTER:
        return float(counter.everywhere())
    if topology is None:
        on_nodes: FloatArray = counter.different()[frame.rows].astype(np.float64)
        return on_nodes
    domains = topology_of(frame.cluster.nodes, topology)
    numbers: FloatArray = counter.by_place(domains.key, domains.index, domains.slots).astype(np.float64)
    numbers[domains.nothing] = 0
    result: FloatArray = numbers[domains.index[frame.rows]]
    return result
