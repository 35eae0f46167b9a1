"""Aggregates over existing pods, from the cluster's counters: a decision scans no pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from kube_policy_scheduler.builtins.nodes import fold_nodes
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.counter import DistinctCounter
from kube_policy_scheduler.cluster.domains import topology as topology_of
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, NodeTable
from kube_policy_scheduler.cluster.pod_sets import ANY, Anchor, Family, NamespaceLabels, PlainSet, Value, Weighing
from kube_policy_scheduler.cluster.pod_states import PodState
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.reductions import reduced
from kube_policy_scheduler.lang.environment import CLUSTER, Item, Members, NodeFold


@dataclass(frozen=True, slots=True)
class MemberSet(PlainSet):
    """The pods that an expression chooses, as the counters know sets: by template."""

    members: Members

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return member_anchors(self.members)

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        return bool(self.members(template))


@dataclass(frozen=True, slots=True)
class MemberValues(PlainSet):
    """The pods that an expression chooses, each for a value: how many different ones there are is counted."""

    members: Members
    value: Members
    weighing: ClassVar[Weighing] = Weighing.DISTINCT

    def anchors(self) -> Iterable[Anchor]:
        """Return what a template must have at least one of to belong to the set."""
        return member_anchors(self.members)

    def weight(self, template: PodTemplate, namespaces: NamespaceLabels) -> float | None:
        """Return a number that stands for the value of pods of this template; None where they have none."""
        value = self.value(template) if self.members(template) else None
        if value is None or value != value:
            return None
        # the same for the same value, whatever came before; nothing has to be kept of values that are gone
        return int.from_bytes(blake2b(repr(value).encode(), digest_size=7).digest(), "big")


def member_anchors(members: Members) -> tuple[Anchor]:
    """Return what a template must have to be among some members: the value, where they go by one."""
    by = members.by
    if by is None:
        return (ANY,)
    return (Value(Family(members.expression, lambda template: by(Item(template))), members.captured[0]),)


@dataclass(frozen=True, slots=True)
class MemberStateSet:
    """The pods that an expression chooses by their state too, as `cluster.pod_states` knows sets."""

    members: Members
    thresholds: tuple[float, ...]
    value: Members | None = None
    """What each counts for; None: 1."""

    def worth(self, template: PodTemplate, state: PodState, now: float) -> float | None:
        """Return what a pod of the template in a state counts for, at a time in Unix seconds; None: nothing."""
        if not self.members.test(Item(template, self.members.captured, state, now)):
            return None
        if self.value is None:
            return 1.0
        worth = float(self.value.test(Item(template, self.value.captured, state, now)))
        return worth if worth == worth else None


def _state_set(members: Members, value: Members | None = None) -> MemberStateSet | None:
    """Return the set whose counts follow each change; None where running times are used in a way that allows none."""
    edges: set[float] = set()
    for each in (members, value):
        if each is not None and each.state is not None:
            if each.state.thresholds is None:
                return None
            edges.update(each.state.thresholds)
    return MemberStateSet(members, tuple(sorted(edges)), value)


class CountedPods:
    """Counts and sums over nodes, and over the pods there: those assumed included, those that are being deleted not."""

    def fold_nodes(self, frame: Frame, fold: NodeFold, captured: tuple[Any, ...]) -> Any:
        """Return what an aggregate over nodes gives: one value, or one for each row by its domain."""
        return fold_nodes(frame, fold, captured)

    def per_node(self, frame: Frame, members: Members) -> Any:
        """Return `int32[nodes]`: members on each node."""
        if members.state is not None:
            return _by_state(frame, members)
        return frame.cluster.counters.counter(MemberSet(members), terminating=False).per_node()

    def count(self, frame: Frame, members: Members, *, topology: str | None) -> FloatArray | float:
        """Return how many members are in each row's domain; 0 for a node outside every domain."""
        return _by_domain(frame, self.per_node(frame, members), topology)

    def fold(
        self, frame: Frame, members: Members, value: Members, *, function: str, topology: str | None
    ) -> FloatArray | float:
        """Return sum, min, max, avg or distinct (the number of different values) over the members in each row's domain.

        Pods without a value are left out. Without any, a sum and a number are 0 and the others are missing.
        """
        if members.state is not None or value.state is not None:
            return self._fold_by_state(frame, members, value, function=function, topology=topology)
        if function == "distinct":
            return _different_values(frame, MemberValues(members, value), topology)
        return self._fold_groups(frame, _by_value(frame, members, value), function, topology)

    def _fold_by_state(
        self, frame: Frame, members: Members, value: Members, *, function: str, topology: str | None
    ) -> FloatArray | float:
        """Return `fold` of pods, or values, that follow from the state of each pod now."""
        pods, size = _state_set(members), frame.cluster.nodes.size
        if pods is not None and value.state is not None and value.state.is_running and function in ("min", "max"):
            states = frame.cluster.pod_states()
            column = states.running(pods, now=frame.now, longest=function == "max")[:size]
            return _extreme(frame, column, function, topology)
        pods = _state_set(members, value)
        if pods is None or function == "distinct":
            return _fold_each_pod(frame, members, value, function=function, topology=topology)
        groups = frame.cluster.pod_states().per_node(pods, now=frame.now)
        return self._fold_groups(frame, ((worth, column[:size]) for worth, column in groups), function, topology)

    def _fold_groups(
        self, frame: Frame, groups: Iterable[tuple[float, Any]], function: str, topology: str | None
    ) -> FloatArray | float:
        """Return `fold` of values, each with how many pods on each node have it."""
        size = frame.size if topology != CLUSTER else 1
        total, number = np.zeros(size), np.zeros(size)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        for worth, per_node in groups:
            counts = np.asarray(_by_domain(frame, per_node, topology))
            total += counts * worth
            number += counts
            low = np.where(counts > 0, np.minimum(low, worth), low)
            high = np.where(counts > 0, np.maximum(high, worth), high)
        result = _folded(function, number, total, low, high)
        return float(result[0]) if topology == CLUSTER else result


def _folded(function: str, number: FloatArray, total: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return what a function makes of values: how many there are, their sum, the smallest and the largest."""
    if function == "sum":
        return total
    result: FloatArray = low if function == "min" else high if function == "max" else total / np.maximum(number, 1)
    return np.where(number > 0, result, np.nan)


def _by_state(frame: Frame, members: Members) -> Any:
    """Return `int32[nodes]`: members on each node, by the state of each pod now."""
    states, size = frame.cluster.pod_states(), frame.cluster.nodes.size
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
    frame: Frame, members: Members, value: Members, *, function: str, topology: str | None
) -> FloatArray | float:
    """Return `CountedPods.fold` of values that follow from the state of each pod now; looks at each pod."""
    nodes, now, rows, values = frame.cluster.nodes, frame.now, [], []
    kinds: dict[Any, int] = {}
    for row, pods in frame.cluster.pod_states().on_rows():
        for pod in pods:
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


def outside_domains(frame: Frame, topology: str | None) -> BoolArray:
    """Return `bool[rows]`: which nodes are in no domain."""
    if topology is None:
        return np.zeros(frame.size, np.bool_)
    domains = topology_of(frame.cluster.nodes, topology)
    outside: BoolArray = domains.index[frame.rows] == domains.nothing
    return outside


def held_in_domains(frame: Frame, members: Members, measure: Members | None, *, topology: str | None) -> FloatArray:
    """Return `float64[rows]`: the members in each row's domain, or the sum of a measure; terminating ones included."""
    if measure is None:
        per_node = frame.cluster.counters.counter(MemberSet(members), terminating=True).per_node()
        return np.asarray(_by_domain(frame, per_node, topology), np.float64)
    return np.asarray(_by_domain(frame, _held_on_nodes(frame.cluster, members, measure), topology), np.float64)


class _Held:
    """What the pods of a set hold on each node, added up once, then kept up to date by the node table's journal."""

    def __init__(self, cluster: Cluster, members: Members, measure: Members) -> None:
        self.version = cluster.nodes.version
        self._members, self._measure = members, measure
        self._position = cluster.nodes.dynamic_changes.end
        self.per_node: FloatArray = np.zeros(cluster.nodes.size)
        self._fill(cluster, range(cluster.nodes.size))

    def refresh(self, cluster: Cluster) -> bool:
        """Add up again on the nodes that pods came to or left; False where too much has changed."""
        changed = cluster.nodes.dynamic_changes.since(self._position)
        if changed is None or any(row >= cluster.nodes.size for row in changed):
            return False
        self._position = cluster.nodes.dynamic_changes.end
        self._fill(cluster, set(changed))
        return True

    def _fill(self, cluster: Cluster, rows: Iterable[int]) -> None:
        known: dict[PodTemplate, float] = {}
        for row in rows:
            held = 0.0
            for pod in cluster.pods_on(cluster.nodes.names[row]).values():
                worth = known.get(pod.template)
                if worth is None:
                    worth = float(self._measure(pod.template)) if self._members(pod.template) else 0.0
                    worth = known[pod.template] = worth if worth == worth else 0.0
                held += worth
            self.per_node[row] = held


_HELD: WeakKeyDictionary[NodeTable, dict[tuple[Members, Members], _Held]] = WeakKeyDictionary()
_MOST_HELD = 64
"""Sets remembered: one for each key that a limit of sums in domains was asked about."""


def _held_on_nodes(cluster: Cluster, members: Members, measure: Members) -> FloatArray:
    """Return `float64[nodes]`: the sum of a measure over the members on each node."""
    known = _HELD.setdefault(cluster.nodes, {})
    found = known.pop((members, measure), None)
    if found is None or found.version != cluster.nodes.version or not found.refresh(cluster):
        found = _Held(cluster, members, measure)
    known[members, measure] = found  # the last one asked about is the last one to go
    while len(known) > _MOST_HELD:
        del known[next(iter(known))]
    return found.per_node


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


def _different_values(frame: Frame, pods: MemberValues, topology: str | None) -> FloatArray | float:
    counter = frame.cluster.counters.counter(pods, terminating=False)
    assert isinstance(counter, DistinctCounter)
    if topology == CLUSTER:
        return float(counter.everywhere())
    if topology is None:
        on_nodes: FloatArray = counter.different()[frame.rows].astype(np.float64)
        return on_nodes
    domains = topology_of(frame.cluster.nodes, topology)
    numbers: FloatArray = counter.by_place(domains.index, domains.slots).astype(np.float64)
    numbers[domains.nothing] = 0
    result: FloatArray = numbers[domains.index[frame.rows]]
    return result


def _by_value(frame: Frame, members: Members, value: Members) -> Iterable[tuple[float, Any]]:
    """Yield each distinct value of the members with how many of them are on each node, `float64[nodes]`."""
    size = frame.cluster.nodes.size
    groups: dict[float, Any] = {}
    for template, rows in frame.cluster.counters.placements(terminating=False):
        if members(template):
            worth = float(value(template))
            if worth == worth:
                column = groups.get(worth)
                if column is None:
                    column = groups[worth] = np.zeros(size)
                for row, count in rows.items():
                    column[row] += count
    return groups.items()
