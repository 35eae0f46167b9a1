"""How many more replicas of a workload fit into a cluster, and who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kube_policy_scheduler.fleet.model import Component, FleetCluster, ResourceGrade, Workload
from kube_policy_scheduler.fleet.placement.question import Question

UNLIMITED = 2**31 - 1
"""Replicas: as many as a workload can ask for."""
MOST_STEPS = 20_000
"""Looks at a node for the pods of one workload: more sets of components do not count."""
PODS_PER_NODE = 110
"""Of a node of a resource grade: Kubernetes' default."""
BEST = "capacity"
"""The source that counts alone: it knows the nodes of the cluster, their rules and their pods."""


def room(question: Question, cluster: FleetCluster) -> tuple[int, str]:
    """Return the replicas that fit beside those that the cluster has, and the source that says so.

    The least of all that others say and of what follows from the cluster's status counts. For a workload without
    replicas it is 0, and for one whose components are placed together it is a number of whole sets.
    """
    workload = question.workload
    if workload.replicas == 0 and not workload.components:
        return 0, ""
    said = workload.room.get(cluster.name, {})
    if BEST in said:
        return max(0, min(said[BEST], UNLIMITED)), BEST
    own, source = sets_of(workload, cluster) if question.in_sets else replicas_of(workload, cluster)
    for other, count in said.items():
        if count < own:
            own, source = max(0, count), other
    return min(own, UNLIMITED), source


def units(resource: str, billionths: int) -> int:
    """Return an amount in the units in which room is counted: thousandths of a CPU, else whole units, rounded up."""
    return -(-billionths // (10**6 if resource == "cpu" else 10**9))


def free_pods(cluster: FleetCluster) -> int:
    """Return how many more pods the cluster can have; it does not say how many on which node."""
    return max(0, units("pods", cluster.free("pods") or 0))


def replicas_of(workload: Workload, cluster: FleetCluster) -> tuple[int, str]:
    """Return the replicas for which there is room by the cluster's own status, and by which part of it."""
    pods = free_pods(cluster) if cluster.summarized else 0
    if pods == 0 or workload.requests is None:
        return pods, "summary"
    needs = {name: units(name, amount) for name, amount in workload.requests.items() if amount > 0}
    if cluster.grades:
        return min(pods, sum(grade.count * _on_a_node(needs, grade.least) for grade in cluster.grades)), "models"
    for name, need in needs.items():
        free = cluster.free(name)
        pods = min(pods, max(0, units(name, free)) // need) if free is not None else 0
    return pods, "summary"


def _on_a_node(needs: Mapping[str, int], least: Mapping[str, int]) -> int:
    return min([PODS_PER_NODE, *(units(name, least.get(name, 0)) // need for name, need in needs.items())])


def sets_of(workload: Workload, cluster: FleetCluster) -> tuple[int, str]:
    """Return for how many whole sets of the components there is room, and by which part of the status."""
    sets = free_pods(cluster) if cluster.summarized else 0
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
