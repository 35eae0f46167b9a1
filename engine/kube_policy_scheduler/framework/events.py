"""What happens in a cluster that may make a rejected pod schedulable, and which plugins care.

Names and table follow kube-scheduler's cluster events and queueing hints (coarser: by kind of event, not by
content). Policy clauses say themselves what may help them; a plugin that nobody knows is woken by everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache


class ClusterEvent(Enum):
    """A change that wakes rejected pods; the value is kube-scheduler's label where it has one."""

    NODE_ADD = "NodeAdd"
    NODE_DELETE = "NodeDelete"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABEL = "NodeUpdateNodeLabel"
    NODE_TAINT = "NodeUpdateNodeTaint"
    NODE_CONDITION = "NodeUpdateNodeCondition"
    NODE_ANNOTATION = "NodeUpdateNodeAnnotation"
    NODE_FEATURE = "NodeUpdateNodeDeclaredFeature"
    NODE_IMAGES = "NodeUpdateNodeImages"
    POD_ADD = "AssignedPodAdd"
    POD_UPDATE = "AssignedPodUpdate"
    POD_DELETE = "AssignedPodDelete"
    RESOURCE_CLAIM = "ResourceClaimChange"
    RESOURCE_SLICE = "ResourceSliceChange"
    DEVICE_CLASS = "DeviceClassChange"
    STORAGE = "StorageChange"
    NAMESPACE = "NamespaceUpdate"
    WORKLOAD = "WorkloadChange"
    SIGNALS = "SignalsRefreshed"
    CLOCK = "ClockTick"
    GROUP = "GroupChange"
    POLICY = "PolicyReload"
    TIMEOUT = "UnschedulableTimeout"


_NODE_CHANGES = {
    "added": ClusterEvent.NODE_ADD,
    "labels": ClusterEvent.NODE_LABEL,
    "taints": ClusterEvent.NODE_TAINT,
    "unschedulable": ClusterEvent.NODE_TAINT,
    "allocatable": ClusterEvent.NODE_ALLOCATABLE,
    "conditions": ClusterEvent.NODE_CONDITION,
    "annotations": ClusterEvent.NODE_ANNOTATION,
    "features": ClusterEvent.NODE_FEATURE,
    "images": ClusterEvent.NODE_IMAGES,
}


@lru_cache(maxsize=1 << 8)
def node_events(changes: frozenset[str]) -> frozenset[ClusterEvent]:
    """Return the events that a node update stands for (`changes` from `NodeTable.set`)."""
    return frozenset(_NODE_CHANGES[change] for change in changes if change in _NODE_CHANGES)


_E = ClusterEvent
WAKES: dict[str, frozenset[ClusterEvent]] = {
    "NodeResourcesFit": frozenset({_E.POD_DELETE, _E.POD_UPDATE, _E.NODE_ADD, _E.NODE_ALLOCATABLE, _E.DEVICE_CLASS}),
    "DeviceShares": frozenset({_E.POD_DELETE, _E.POD_UPDATE, _E.NODE_ADD, _E.NODE_ALLOCATABLE}),
    "NodePorts": frozenset({_E.POD_DELETE, _E.NODE_ADD}),
    "NodeAffinity": frozenset({_E.NODE_ADD, _E.NODE_LABEL}),
    "TaintToleration": frozenset({_E.NODE_ADD, _E.NODE_TAINT}),
    "NodeUnschedulable": frozenset({_E.NODE_ADD, _E.NODE_TAINT}),
    "NodeName": frozenset({_E.NODE_ADD}),
    "PodTopologySpread": frozenset(
        {_E.POD_ADD, _E.POD_UPDATE, _E.POD_DELETE, _E.NODE_ADD, _E.NODE_DELETE, _E.NODE_LABEL, _E.NODE_TAINT}
    ),
    "InterPodAffinity": frozenset({_E.POD_ADD, _E.POD_UPDATE, _E.POD_DELETE, _E.NODE_ADD, _E.NODE_LABEL, _E.NAMESPACE}),
    "VolumeRestrictions": frozenset({_E.POD_DELETE, _E.NODE_ADD, _E.STORAGE}),
    "NodeVolumeLimits": frozenset({_E.POD_DELETE, _E.STORAGE}),
    "VolumeBinding": frozenset({_E.STORAGE, _E.NODE_ADD, _E.NODE_LABEL}),
    "VolumeZone": frozenset({_E.STORAGE, _E.NODE_ADD, _E.NODE_LABEL}),
    "NodeDeclaredFeatures": frozenset({_E.NODE_ADD, _E.NODE_FEATURE}),
    "DynamicResources": frozenset(
        {_E.NODE_ADD, _E.NODE_LABEL, _E.NODE_ALLOCATABLE, _E.RESOURCE_CLAIM, _E.RESOURCE_SLICE, _E.DEVICE_CLASS}
    ),
    "": frozenset({_E.NODE_ADD, _E.NODE_LABEL, _E.STORAGE}),  # PreFilter named the only nodes that can be meant
}


ALWAYS = frozenset({_E.TIMEOUT, _E.POLICY})
"""Events that may help any pod."""


def cares(rejectors: frozenset[str], clauses: Mapping[str, frozenset[ClusterEvent]]) -> frozenset[ClusterEvent] | None:
    """Return the events that may help a pod that these plugins and clauses rejected; None: any event may.

    Args:
        rejectors: names of plugins of Kubernetes, and of clauses.
        clauses: the events that may help against clauses, by name.
    """
    found: frozenset[ClusterEvent] = frozenset()
    for name in rejectors:
        own = clauses.get(name)
        events = own if own is not None else WAKES.get(name)
        if events is None:
            return None
        found |= events
    return found if rejectors else None
