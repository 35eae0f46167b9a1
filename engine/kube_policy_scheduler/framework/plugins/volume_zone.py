"""VolumeZone: a volume labelled with zones or regions can be used only there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable
from kube_policy_scheduler.cluster.object_store import key_of, storage_class
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.volumes.claims import WAIT_FOR_FIRST_CONSUMER, too_many_volumes
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, FilterPlugin, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.status import Code, Rejection, Status

WRONG_ZONE = "node(s) had no available volume zone"
_MANY = "__"
"""Separates the zones in a label that names several."""
_KEYS: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Zone and region labels of volumes, each with the node label that replaces it."""


class VolumeTopology(NamedTuple):
    """The nodes that one label of a volume allows."""

    key: str
    values: frozenset[str]


class VolumeZone(FilterPlugin, msgspec.Struct, frozen=True):
    """Rejects nodes outside the zones and regions of the pod's bound volumes."""

    name = "VolumeZone"
    default = Default(10)
    reads = Reads.SPEC | Reads.VOLUMES | Reads.ELSEWHERE
    events = frozenset({ClusterEvent.STORAGE, ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL})

    def may_filter(self, template: PodTemplate) -> bool:
        """Return False: pods without volumes are skipped."""
        return False

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find the volumes' labels; skip pods whose volumes have none."""
        if not frame.pod.volumes:
            return SKIP
        if problem := too_many_volumes(frame.pod):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        found: list[VolumeTopology] = []
        for volume in frame.pod.volumes:
            if (source := volume.persistent_volume_claim) is not None:
                bound = _bound_volume(frame, source.claim_name)
                if isinstance(bound, str):
                    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (bound,))
                if bound is not None:
                    found += _topologies(bound)
        return Ready(tuple(found)) if found else SKIP

    def filter(self, frame: Frame, state: Sequence[VolumeTopology]) -> BoolArray:
        """Return `bool[rows]`: nodes in the right zones, and nodes without any of the labels."""
        nodes = frame.cluster.nodes
        labelled: BoolArray = nodes.derive("has-zone-label", lambda: _labelled(nodes))[frame.rows]
        right = np.ones(frame.size, np.bool_)
        for key, values in state:
            column = nodes.label(key)
            here = column.test(values.__contains__, frame.rows)
            if _KEYS[key] != key:
                other = nodes.label(_KEYS[key]).test(values.__contains__, frame.rows)
                here = np.where(column.codes[frame.rows] < 0, other, here)
            right &= here
        return right | ~labelled

    def rejections(self, frame: Frame, state: Sequence[VolumeTopology]) -> Sequence[Rejection]:
        """Return the one reason of this rule, if it applies."""
        return [Rejection(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, WRONG_ZONE, ~self.filter(frame, state))]


def _labelled(nodes: NodeTable) -> BoolArray:
    result = np.zeros(nodes.size, np.bool_)
    for key in _KEYS:
        result |= nodes.label(key).codes >= 0
    return result


def _bound_volume(frame: Frame, claim_name: str) -> objects.PersistentVolume | str | None:
    """Return the volume of a claim, None if it has none yet and needs none, or why that is unknown."""
    cluster = frame.cluster
    if not claim_name:
        return "PersistentVolumeClaim had no name"
    claim = cluster.get(objects.PersistentVolumeClaim, key_of(frame.pod.namespace, claim_name))
    if claim is None:
        return f'persistentvolumeclaim "{claim_name}" not found'
    if claim.spec.volume_name:
        volume = cluster.get(objects.PersistentVolume, claim.spec.volume_name)
        return volume if volume is not None else f'persistentvolume "{claim.spec.volume_name}" not found'
    name = storage_class(claim)
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    found = cluster.get(objects.StorageClass, name)
    if found is None:
        return f'storageclass.storage.k8s.io "{name}" not found'
    if found.volume_binding_mode is None:
        return f'VolumeBindingMode not set for StorageClass "{name}"'
    return None if found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else "PersistentVolume had no name"


def _topologies(volume: objects.PersistentVolume) -> list[VolumeTopology]:
    labels = volume.metadata.labels or {}
    found = []
    for key in _KEYS:
        if (value := labels.get(key)) is not None:
            zones = [zone.strip() for zone in value.split(_MANY)]
            if all(zones):  # a label with an empty zone in it is ignored
                found.append(VolumeTopology(key, frozenset(zones)))
    return found
