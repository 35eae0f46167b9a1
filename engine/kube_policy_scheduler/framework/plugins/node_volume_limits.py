"""NodeVolumeLimits: a node can attach a limited number of volumes of one CSI driver, and must have the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.volumes.attached_volumes import VolumeId, csi_volumes
from kube_policy_scheduler.cluster.volumes.claims import not_made_for, too_many_volumes
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, FilterPlugin, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.status import Code, Rejection, Status
from kube_policy_scheduler.kubernetes_rules import Feature

TOO_MANY = "node(s) exceed max volume count"
NOT_INSTALLED = "{} CSI driver is not installed on the node"


class NewVolumes(msgspec.Struct, frozen=True):
    """The CSI volumes of an incoming pod."""

    by_driver: Mapping[str, Sequence[VolumeId]]
    rejection: tuple[Code, str] | None = None
    """Why no node can be evaluated, such as a claim that does not exist."""
    needed: Sequence[tuple[str, bool]] = ()
    """The drivers without which a node is rejected, in the order of their names; True: all volumes are migrated."""


class NodeVolumeLimits(FilterPlugin, msgspec.Struct, frozen=True):
    """Rejects nodes that would have more volumes attached than their CSINode allows, or that lack the driver.

    The driver must be there if its CSIDriver says so (gate VolumeLimitScaling).
    """

    name = "NodeVolumeLimits"
    default = Default(8, needed_by_kubelet=True)
    reads = Reads.SPEC | Reads.VOLUMES | Reads.ELSEWHERE
    events = frozenset({ClusterEvent.POD_DELETE, ClusterEvent.STORAGE, ClusterEvent.NODE_ADD})

    def may_filter(self, template: PodTemplate) -> bool:
        """Return False: pods without volumes are skipped."""
        return False

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find the pod's CSI volumes; skip pods without them."""
        pod = frame.pod
        if not pod.volumes:
            return SKIP
        if problem := too_many_volumes(pod):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        found = csi_volumes(pod, frame.cluster.store)
        if found.missing:
            text = f'looking up PVC {pod.namespace}/{found.missing}: persistentvolumeclaim "{found.missing}" not found'
            return Ready(NewVolumes({}, (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)))
        if found.stranger is not None:
            return Ready(NewVolumes({}, (Code.ERROR, not_made_for(found.stranger, pod))))
        by_driver: dict[str, list[VolumeId]] = defaultdict(list)
        for volume in found.volumes:
            by_driver[volume.driver].append(volume)
        if not by_driver:
            return SKIP
        if Feature.VOLUME_LIMIT_SCALING not in frame.cluster.rules:
            return Ready(NewVolumes(by_driver))
        needed = [
            (driver, found.migrated.issuperset(volumes))
            for driver, volumes in sorted(by_driver.items())
            if _must_be_installed(driver, frame.cluster)
        ]
        return Ready(NewVolumes(by_driver, needed=needed))

    def filter(self, frame: Frame, state: NewVolumes) -> BoolArray:
        """Return `bool[rows]`: nodes where the pod's volumes fit in addition to the attached ones.

        A volume that a pod on the node uses, or that a VolumeAttachment names there, does not count again.
        kube-scheduler does not compare attachments with the pod's volumes: one that is still attached after its pod
        ended counts twice there, and the pod that wants it back waits until it is detached.
        """
        if state.rejection is not None:
            return np.zeros(frame.size, np.bool_)
        result = _have_room(frame, state)
        for driver, is_migrated in state.needed:
            result &= ~frame.cluster.attached.without(driver, is_migrated=is_migrated)[frame.rows]
        return result

    def rejections(self, frame: Frame, state: NewVolumes) -> Sequence[Rejection]:
        """Return why nodes are rejected: by the first driver that they lack, else by their limits."""
        if state.rejection is not None:
            code, reason = state.rejection
            return [Rejection(code, reason, np.ones(frame.size, np.bool_))]
        found, left = [], np.ones(frame.size, np.bool_)
        for driver, is_migrated in state.needed:
            lacks = frame.cluster.attached.without(driver, is_migrated=is_migrated)[frame.rows]
            found.append(Rejection(Code.UNSCHEDULABLE, NOT_INSTALLED.format(driver), lacks & left))
            left &= ~lacks
        return [*found, Rejection(Code.UNSCHEDULABLE, TOO_MANY, left & ~_have_room(frame, state))]


def _must_be_installed(driver: str, cluster: Cluster) -> bool:
    found = cluster.get(objects.CSIDriver, driver)
    return found is not None and bool(found.spec.prevent_pod_scheduling_if_missing)


def _have_room(frame: Frame, state: NewVolumes) -> BoolArray:
    """Return `bool[rows]`: nodes with room for the pod's volumes in addition to the attached ones."""
    attached, rows = frame.cluster.attached, frame.rows
    result = np.ones(frame.size, np.bool_)
    for driver, volumes in state.by_driver.items():
        limit = attached.limit(driver)
        if limit is None:
            continue
        # subtracting avoids overflow where there is no limit
        left = limit[rows] - attached.used(driver)[rows]
        there = [found for volume in volumes if (found := attached.rows_with(volume))]
        if not there:
            result &= left >= len(volumes)
            continue
        more = np.full(frame.cluster.nodes.size, len(volumes), np.int64)
        for found in there:
            more[found] -= 1
        more = more[rows]
        result &= (more == 0) | (left >= more)
    return result
