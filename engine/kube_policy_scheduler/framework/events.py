"""What happens in a cluster that may make a rejected pod schedulable.

Names follow kube-scheduler's cluster events. Each filter names the events that may make a refused pod schedulable
(`FilterPlugin.events`), as kube-scheduler's queueing hints do, but by kind of event and not by content.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache


class ClusterEvent(Enum):
    """A change that wakes rejected pods; the value is kube-scheduler's label if it has one."""

    NODE_ADD = "NodeAdd"
    NODE_DELETE = "NodeDelete"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABEL = "NodeUpdateNodeLabel"
    NODE_TAINT = "NodeUpdateNodeTaint"
    NODE_CONDITION = "NodeUpdateNodeCondition"
    NODE_ANNOTATION = "NodeUpdateNodeAnnotation"
    NODE_FEATURE = "NodeUpdateNodeDeclaredFeature"
    NODE_INFO = "NodeUpdateNodeInfo"
    NODE_IMAGES = "NodeUpdateNodeImages"
    NODE_TOPOLOGY = "NodeResourceTopologyChange"
    POD_ADD = "AssignedPodAdd"
    POD_UPDATE = "AssignedPodUpdate"
    POD_DELETE = "AssignedPodDelete"
    POD_STATE = "AssignedPodUpdatePodState"
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
    "machine": ClusterEvent.NODE_INFO,
    "images": ClusterEvent.NODE_IMAGES,
}


@lru_cache(maxsize=1 << 8)
def node_events(changes: frozenset[str]) -> frozenset[ClusterEvent]:
    """Return the events of a node update (`changes` from `NodeTable.set`)."""
    return frozenset(_NODE_CHANGES[change] for change in changes if change in _NODE_CHANGES)


ALWAYS = frozenset({ClusterEvent.TIMEOUT, ClusterEvent.POLICY})
"""Events that may help any pod."""

NARROWED = ""
"""The rejector of nodes that PreFilter left out, because the pod can use other nodes only."""
NARROWED_EVENTS = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.STORAGE})


def wake_events(
    rejectors: frozenset[str], wakes: Mapping[str, frozenset[ClusterEvent]]
) -> frozenset[ClusterEvent] | None:
    """Return the events that may help a pod that these filters rejected; None: any event may.

    Args:
        rejectors: names of filters.
        wakes: by the name of a filter, the events that may help against it; one that is not there, any may.
    """
    found: frozenset[ClusterEvent] = frozenset()
    for name in rejectors:
        events = wakes.get(name)
        if events is None:
            return None
        found |= events
    return found if rejectors else None
