"""NodeResourcesFit: what the pod requests must be free on the node, and there must be room for one more pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource, may_be_provided
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.requests import NATIVE
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.status import Code, Rejection

TOO_MANY_PODS = "Too many pods"

Columns = Callable[[str], IntArray]
"""A column `int64[rows]` by resource."""


Amounts = tuple[tuple[str, int], ...]
"""Resource and amount in column units, native ones first, zeros left out."""
MOST_REASONS = 64
"""Resources that no node has of which each is named; of more, only the number. A pod may request thousands."""


class Wanted(NamedTuple):
    """The requests of one more pod."""

    amounts: Amounts
    """Of resources that some node offers."""
    unoffered: tuple[str, ...] = ()
    """Resources that no node offers: if there is one, the pod fits nowhere."""
    devices: frozenset[str] = frozenset()
    """Resources that a DeviceClass provides: nodes without them are left to DynamicResources."""


class NodeResourcesFit(Filter):
    """Rejects nodes without free resources; nodes too small even if empty are rejected permanently."""

    name = "NodeResourcesFit"
    default = Default(6, needed_by_kubelet=True)
    reads = Reads.REQUESTS | Reads.PODS
    events = frozenset(
        {
            ClusterEvent.POD_DELETE,
            ClusterEvent.POD_UPDATE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.DEVICE_CLASS,
        }
    )

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Compute what the pod requests; never skip: the number of pods is always limited."""
        template, counted = frame.pod.template, frame.cluster.nodes.counted
        amounts = self._amounts(template)
        if ignored := frame.cluster.ignored_resources:
            amounts = tuple(item for item in amounts if item[0] not in ignored)
        if NATIVE.issuperset(template.demand.requests):
            wanted = Wanted(amounts)
            return Ready(wanted, key=wanted)
        missing = [name for name, _ in amounts if name not in counted]
        provided = [name for name, _ in amounts if name not in NATIVE and may_be_provided(name)]
        if not missing and not provided:
            wanted = Wanted(amounts)
            return Ready(wanted, key=wanted)
        classes = class_by_resource(frame.cluster.store)
        devices = frozenset(name for name in provided if name in classes)
        wanted = Wanted(
            tuple(item for item in amounts if item[0] in counted) if missing else amounts,
            tuple(name for name in missing if name not in devices),
            devices,
        )
        return Ready(wanted, key=wanted)

    def _amounts(self, template: PodTemplate) -> Amounts:
        known: Amounts | None = template.memo.get(self.name)
        if known is None:
            requests = template.demand.requests
            if len(requests) == 2 and "cpu" in requests and "memory" in requests:  # most pods
                known = ("cpu", requests["cpu"]), ("memory", requests["memory"])
            else:
                found = [item for item in requests.items() if item[0] != "pods"]
                known = tuple(sorted(found, key=_native_first))
            template.memo[self.name] = known
        return known

    def filter(self, frame: Frame, state: Wanted) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        nodes, rows = frame.cluster.nodes, frame.rows
        if state.unoffered:
            return np.zeros(frame.size, np.bool_)
        result: BoolArray = nodes.pod_count[rows] < nodes.allocatable("pods")[rows]
        for resource, amount in state.amounts:
            result &= fits(frame, state, resource, amount)
        return result

    def filter_one(self, frame: Frame, state: Wanted, row: int) -> bool:
        """Return what `filter` returns for this row."""
        nodes = frame.cluster.nodes
        if state.unoffered or nodes.pod_count.item(row) >= nodes.allocatable("pods").item(row):
            return False
        for resource, amount in state.amounts:
            offered = nodes.allocatable(resource).item(row)
            if offered - nodes.requested(resource).item(row) < amount and (offered or resource not in state.devices):
                return False
        return True

    def rejections(self, frame: Frame, state: Wanted) -> Sequence[Rejection]:
        """Return every shortage; one that an empty node would have too makes the node's code unresolvable."""
        nodes, rows = frame.cluster.nodes, frame.rows
        return shortages(
            state,
            allocatable=lambda resource: nodes.allocatable(resource)[rows],
            requested=lambda resource: nodes.requested(resource)[rows],
            pod_count=nodes.pod_count[rows],
        )


def fits(frame: Frame, wanted: Wanted, resource: str, amount: int) -> BoolArray:
    """Return `bool[rows]`: where so much of a resource is free, or left to DynamicResources."""
    nodes, rows = frame.cluster.nodes, frame.rows
    offered = nodes.allocatable(resource)[rows]
    result: BoolArray = offered - nodes.requested(resource)[rows] >= amount
    return result | (offered == 0) if resource in wanted.devices else result


def shortages(wanted: Wanted, *, allocatable: Columns, requested: Columns, pod_count: IntArray) -> list[Rejection]:
    """Return what is insufficient for one more pod, for nodes given as columns."""
    found = [Rejection(Code.UNSCHEDULABLE, TOO_MANY_PODS, pod_count >= allocatable("pods"))]
    for resource, amount in wanted.amounts:
        offered = allocatable(resource)
        short = offered - requested(resource) < amount
        if resource in wanted.devices:
            short &= offered > 0
        if not short.any():
            continue
        hopeless = short & (amount > offered)
        found.append(Rejection(Code.UNSCHEDULABLE, _insufficient(resource), short & ~hopeless))
        found.append(Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, _insufficient(resource), hopeless))
    everywhere = np.ones(len(pod_count), np.bool_)
    for resource in wanted.unoffered[:MOST_REASONS]:
        found.append(Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, _insufficient(resource), everywhere))
    if (more := len(wanted.unoffered) - MOST_REASONS) > 0:
        reason = f"Insufficient amounts of {more} more resources, which no node offers"
        found.append(Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reason, everywhere))
    return [rejection for rejection in found if rejection.where.any()]


def _insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


def _native_first(item: tuple[str, int]) -> tuple[bool, str]:
    return item[0] not in ("cpu", "memory", "ephemeral-storage"), item[0]
