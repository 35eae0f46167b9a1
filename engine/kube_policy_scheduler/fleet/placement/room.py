"""How many more replicas of a workload fit into a cluster, and who says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.fleet.model import NOTHING, Component, FleetCluster, ResourceGrade, Workload, units
from kube_policy_scheduler.fleet.placement.question import Question

UNLIMITED = 2**31 - 1
"""Replicas: as many as a workload can ask for."""
MOST_STEPS = 20_000
"""Looks at a node for the pods of one workload: more sets of components do not count."""
PODS_PER_NODE = 110
"""Of a node of a resource grade: Kubernetes' default."""
BEST = "capacity"
"""The source that counts alone: it knows the nodes of the cluster, their rules and their pods."""
RoomOf: TypeAlias = Callable[[FleetCluster], tuple[int, str]]
"""From a cluster to a number of replicas, at most `UNLIMITED`, and who says so."""


def rooms(question: Question) -> RoomOf:
    """Return what says how many replicas fit into a cluster beside those that it has, and the source that says so.

    The least of all that others say and of what follows from the cluster's status counts. For a workload without
    replicas it is 0, and for one whose components are placed together it is a number of whole sets.
    """
    workload = question.workload
    if workload.replicas == 0 and not workload.components:
        return lambda cluster: (0, "")
    by_status = partial(sets_of, workload) if question.in_sets else replicas_of(workload.requests)
    if not workload.room:
        return by_status

    def with_others(cluster: FleetCluster) -> tuple[int, str]:
        said = workload.room.get(cluster.name, NOTHING)
        if BEST in said:
            return max(0, min(said[BEST], UNLIMITED)), BEST
        own, source = by_status(cluster)
        for other, count in said.items():
            if count < own:
                own, source = max(0, count), other
        return own, source

    return with_others


def replicas_of(requests: Mapping[str, int] | None) -> RoomOf:
    """Return what says for how many replicas with such requests there is room by the status of a cluster alone.

    requests: billionths by resource; None: nobody says what a replica requests.
    """
    needs = [(name, units(name, amount)) for name, amount in (requests or NOTHING).items() if amount > 0]

    def by_status(cluster: FleetCluster) -> tuple[int, str]:
        spare = cluster.spare
        found = min(spare.get("pods", 0), UNLIMITED) if cluster.summarized else 0
        if found == 0 or requests is None:
            return found, "summary"
        if cluster.grades:
            return min(found, sum(grade.count * _on_a_node(needs, grade.least) for grade in cluster.grades)), "models"
        for name, need in needs:
            fits = spare.get(name, 0) // need
            if fits < found:
                found = fits
        return found, "summary"

    return by_status


def _on_a_node(needs: Sequence[tuple[str, int]], least: Mapping[str, int]) -> int:
    return min([PODS_PER_NODE, *(units(name, least.get(name, 0)) // need for name, need in needs)])


def sets_of(workload: Workload, cluster: FleetCluster) -> tuple[int, str]:
    """Return for how many whole sets of the components there is room, and by which part of the status."""
    sets = min(cluster.spare.get("pods", 0), UNLIMITED) if cluster.summarized else 0
    pods = sum(each.replicas for each in workload.components)
    if sets == 0 or pods == 0:
        return sets, "summary"
    sets //= pods
    needs: dict[str, int] = {}
    for each in workload.components:
        for name, amount in each.requests.items():
            needs[name] = needs.get(name, 0) + amount * each.replicas
    for name, need in needs.items():
        if need > 0:
            sets = min(sets, max(0, cluster.free(name) or 0) // need)
    if not cluster.grades:
        return sets, "summary"
    return sets_on_nodes(workload.components, cluster.grades, sets), "models"


class _Nodes(msgspec.Struct):
    """Nodes with the same room, one behind the other."""

    count: int
    free: dict[str, int]
    """By resource, in its unit; with pods."""


def sets_on_nodes(components: Sequence[Component], grades: Sequence[ResourceGrade], most: int) -> int:
    """Return how many whole sets of components fit on nodes, at most `most`: each pod goes to the first that has room.

    A set that is begun and does not fit ends it, and so do `MOST_STEPS`.
    """
    nodes = [
        _Nodes(
            grade.count, {name: units(name, amount) for name, amount in grade.least.items()} | {"pods": PODS_PER_NODE}
        )
        for grade in grades
        if grade.count
    ]
    needs = [
        (
            {name: units(name, amount) for name, amount in each.requests.items() if amount > 0} | {"pods": 1},
            each.replicas,
        )
        for each in components
    ]
    steps = 0
    for done in range(most):
        for need, replicas in needs:
            left, at = replicas, 0
            while left > 0 and at < len(nodes) and steps < MOST_STEPS:
                left = _fill(nodes, at, need, left)
                at, steps = at + 1, steps + 1
            if left > 0:
                return done
    return most


def _fill(nodes: list[_Nodes], at: int, need: Mapping[str, int], replicas: int) -> int:
    """Put replicas on the first of some nodes, as many as it holds; return how many are left."""
    each = nodes[at]
    fits = min(each.free.get(name, 0) // amount for name, amount in need.items())
    if fits <= 0:
        return replicas
    whole, rest = divmod(replicas, fits)
    if whole >= each.count:
        each.free = _less(each.free, need, fits)
        return replicas - fits * each.count
    parts = [_Nodes(whole, _less(each.free, need, fits)), _Nodes(1 if rest else 0, _less(each.free, need, rest))]
    parts.append(_Nodes(each.count - whole - parts[1].count, each.free))
    nodes[at : at + 1] = [part for part in parts if part.count]
    return 0


def _less(free: Mapping[str, int], need: Mapping[str, int], replicas: int) -> dict[str, int]:
    return {name: amount - replicas * need.get(name, 0) for name, amount in free.items()}
