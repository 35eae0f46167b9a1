"""Which pods to evict so that a running pod can grow in place: its resize is deferred because its node is full.

Semantics of the feature InPlacePodVerticalScalingSchedulerPreemption, alpha in Kubernetes 1.37 (KEP-5836): only the
node of the pod is looked at, and only resources count; priorities, budgets and preemption policies are those of any
preemption. Decides only; evicts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, why_never
from kube_policy_scheduler.framework.preempt.victims import Budgets, by_importance
from kube_policy_scheduler.framework.profile import Profile

RESIZE_PENDING = "PodResizePending"
DEFERRED = "Deferred"
DISABLED = "node had resize preemption disabled"


class Room(Enum):
    """What a deferred resize waits for."""

    FITS = "fits"
    """The node has room: the kubelet has not looked again yet."""
    FREED = "freed"
    """Pods that are terminating free enough."""
    EVICT = "evict"
    """The victims must be evicted."""
    NONE = "none"
    """No eviction that is allowed frees enough."""


class ResizePlan(msgspec.Struct, frozen=True):
    """What can be done for a deferred resize."""

    room: Room
    victims: tuple[PodInfo, ...] = ()
    """Most important first."""
    why: str = ""
    """Why no eviction helps."""


def is_deferred(pod: PodInfo) -> bool:
    """Return whether the kubelet has deferred a resize of a pod, because its node lacks room."""
    return any(
        each.type == RESIZE_PENDING and each.status == "True" and each.reason == DEFERRED for each in pod.conditions
    )


def plan_resize(frame: Frame, profile: Profile) -> ResizePlan:
    """Return what can be done so that the pod of a frame, which runs on a node, can grow there.

    The node counts the pod with the largest of its spec, its allocated and its actual resources already, so what it
    lacks is what is requested on the node above what the node offers.
    """
    pod, cluster = frame.pod, frame.cluster
    row = cluster.nodes.rows.get(pod.node_name)
    if row is None:
        return ResizePlan(Room.NONE, why=f"node {pod.node_name} is unknown")
    nodes = cluster.nodes
    lacking = {
        name: lack
        for name in pod.demand.requests
        if (lack := nodes.requested(name).item(row) - nodes.allocatable(name).item(row)) > 0
    }
    if not lacking:
        return ResizePlan(Room.FITS)
    there = [other for other in cluster.pods_on(pod.node_name).values() if other.uid != pod.uid]
    lacking = _less(lacking, [other for other in there if other.terminating])
    if not lacking:
        return ResizePlan(Room.FREED)
    is_disabled = bool(nodes.infos[row].node.spec.disables_resize_preemption)
    if why := DISABLED if is_disabled else why_never(frame, profile):
        return ResizePlan(Room.NONE, why=why)
    rules = EvictionRules(frame, profile)
    pool = by_importance((other for other in there if not other.terminating and rules.allow(other)), frame.now)
    if _less(lacking, pool):
        return ResizePlan(Room.NONE, why=f"lower-priority pods on node {pod.node_name} hold too little")
    units = rules.units(pool)
    violating = {other.uid for other in Budgets(cluster).split([each for unit in units for each in unit.pods])[0]}
    # as in any preemption: those whose eviction hurts most are kept first
    evicted = sorted(units, key=lambda unit: all(each.uid not in violating for each in unit.core or unit.pods))
    here = {other.uid for other in pool}
    for unit in list(evicted):
        without = [other for other in evicted if other is not unit]
        goes_with_others = any(other.pods == unit.core for other in without)
        if not goes_with_others and not _less(
            lacking, [pod for other in without for pod in other.pods if pod.uid in here]
        ):
            evicted = without
    return ResizePlan(Room.EVICT, tuple(by_importance((pod for unit in evicted for pod in unit.pods), frame.now)))


def _less(lacking: Mapping[str, int], pods: list[PodInfo]) -> dict[str, int]:
    """Return what is still lacking once some pods are gone."""
    left = {name: lack - sum(pod.demand.requests.get(name, 0) for pod in pods) for name, lack in lacking.items()}
    return {name: lack for name, lack in left.items() if lack > 0}
