"""What happens in a cluster that may make a rejected pod schedulable. Names follow kube-scheduler's cluster events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

from kube_policy_scheduler.cluster import objects


class ClusterEvent(Enum):
    """A change that may help rejected pods; the value is kube-scheduler's label if it has one."""

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
    """Room came free: of a pod that ended, or that a nominated pod kept."""
    POD_STATE = "AssignedPodUpdatePodState"
    RESOURCE_CLAIM = "ResourceClaimChange"
    RESOURCE_SLICE = "ResourceSliceChange"
    """Devices came, changed or went, or DeviceTaintRules about them."""
    DEVICE_CLASS = "DeviceClassChange"
    STORAGE = "StorageChange"
    NAMESPACE = "NamespaceUpdate"
    WORKLOAD = "WorkloadChange"
    SIGNALS = "SignalsRefreshed"
    CLOCK = "ClockTick"
    GROUP = "GroupChange"
    POLICY = "PolicyReload"
    TIMEOUT = "UnschedulableTimeout"
    OWN_UPDATE = "UnscheduledPodUpdate"
    """The pod itself was changed; nobody else hears of it."""
    RESERVATION = "ReservationChange"
    """The pod that room was reserved for waits no longer, starts elsewhere, or has to wait longer (`backfill`)."""
    TAKEN = "Taken"
    """Room, devices or a volume were taken: decisions may be others now, but no rejected pod is helped."""


STORAGE_KINDS: tuple[type, ...] = (
    objects.PersistentVolumeClaim,
    objects.PersistentVolume,
    objects.StorageClass,
    objects.CSINode,
    objects.CSIDriver,
    objects.CSIStorageCapacity,
    objects.VolumeAttachment,
)

_OF_KIND: Mapping[type, ClusterEvent] = {
    objects.Namespace: ClusterEvent.NAMESPACE,
    objects.ResourceClaim: ClusterEvent.RESOURCE_CLAIM,
    objects.ResourceSlice: ClusterEvent.RESOURCE_SLICE,
    objects.DeviceTaintRule: ClusterEvent.RESOURCE_SLICE,
    objects.DeviceClass: ClusterEvent.DEVICE_CLASS,
    objects.NodeResourceTopology: ClusterEvent.NODE_TOPOLOGY,
} | dict.fromkeys(STORAGE_KINDS, ClusterEvent.STORAGE)


def object_event(kind: type) -> ClusterEvent:
    """Return the event of an object of a kind, other than nodes and pods, that came, changed or went."""
    return _OF_KIND.get(kind, ClusterEvent.WORKLOAD)


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
    "identity": ClusterEvent.NODE_INFO,
    "images": ClusterEvent.NODE_IMAGES,
}


@lru_cache(maxsize=1 << 8)
def node_events(changes: frozenset[str]) -> tuple[ClusterEvent, ...]:
    """Return the events of a node update (`changes` from `NodeTable.set`), by name."""
    found = {_NODE_CHANGES[change] for change in changes if change in _NODE_CHANGES}
    return tuple(sorted(found, key=lambda event: event.value))
