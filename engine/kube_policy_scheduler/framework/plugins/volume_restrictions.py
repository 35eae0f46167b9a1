"""VolumeRestrictions: disks that only one pod on a node, and claims that only one pod in the cluster, can use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pod_counters import PodCounters
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.volumes.claims import too_many_volumes
from kube_policy_scheduler.cluster.volumes.disks import DiskKey, DiskUse, disk_uses
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, FilterPlugin, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.quota import comes_before
from kube_policy_scheduler.framework.status import Code, Rejection, Status

NO_DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class Restricted(msgspec.Struct, frozen=True):
    """Conflicts of a pod's volumes."""

    rows: frozenset[int]
    """Rows with a pod that has one of the pod's disks, where the two cannot share it."""
    claims_in_use: bool
    """Whether another pod anywhere has, or is about to get, a claim that is for one pod only."""


class VolumeRestrictions(FilterPlugin, msgspec.Struct, frozen=True):
    """Rejects nodes whose pods use what the pod needs exclusively."""

    name = "VolumeRestrictions"
    default = Default(7, needed_by_kubelet=True)
    reads = Reads.SPEC | Reads.VOLUMES | Reads.ELSEWHERE
    events = frozenset({ClusterEvent.POD_DELETE, ClusterEvent.NODE_ADD, ClusterEvent.NODE_DELETE, ClusterEvent.STORAGE})

    def may_filter(self, template: PodTemplate) -> bool:
        """Return False: pods without volumes are skipped."""
        return False

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Find conflicts; skip pods without possible conflicts."""
        pod = frame.pod
        if not pod.volumes:
            return SKIP
        if problem := too_many_volumes(pod):
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (problem,))
        single = set()
        for volume in pod.volumes:
            if (source := volume.persistent_volume_claim) is None:
                continue
            claim = frame.cluster.get(objects.PersistentVolumeClaim, key_of(pod.namespace, source.claim_name))
            if claim is None:
                return Status(
                    Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
                    self.name,
                    (f'persistentvolumeclaim "{source.claim_name}" not found',),
                )
            if _READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
                single.add(source.claim_name)
        in_use = _uses(frame, single) > 0 or _are_kept(frame, single)
        disks = disk_uses(pod.volumes)
        if not disks and not in_use:
            return SKIP
        return Ready(Restricted(_conflicts(frame, disks), in_use))

    def filter(self, frame: Frame, state: Restricted) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        if state.claims_in_use:
            return np.zeros(frame.size, np.bool_)
        return ~_mask(frame, state.rows)

    def rejections(self, frame: Frame, state: Restricted) -> Sequence[Rejection]:
        """Return why nodes are rejected: for a disk first, else for a claim."""
        disks = _mask(frame, state.rows)
        claims = ~disks if state.claims_in_use else np.zeros(frame.size, np.bool_)
        return [Rejection(Code.UNSCHEDULABLE, NO_DISK, disks), Rejection(Code.UNSCHEDULABLE, IN_USE, claims)]

    def rejects_new_nodes(self, frame: Frame, together: int, awaiting: PodCounters | None) -> str | None:
        """Return why no new node takes the pod: another pod has a claim that is for one pod only."""
        prepared = self.pre_filter(frame)
        return IN_USE if isinstance(prepared, Ready) and prepared.state.claims_in_use else None


def _mask(frame: Frame, rows: frozenset[int]) -> BoolArray:
    result = np.zeros(frame.cluster.nodes.size, np.bool_)
    result[list(rows)] = True
    return result[frame.rows]


def _conflicts(frame: Frame, disks: Mapping[DiskKey, DiskUse]) -> frozenset[int]:
    """Return the rows whose pods have a disk that the pod cannot share with them."""
    cluster = frame.cluster
    return frozenset(
        cluster.nodes.rows[cluster.node_of(uid) or ""]
        for key, wanted in disks.items()
        for uid, used in cluster.disk_users.get(key, {}).items()
        if wanted.conflicts(used)
    )


def _uses(frame: Frame, claims: set[str]) -> int:
    """Return how many of the pod's claims for one pod only are in use, as kube-scheduler counts it.

    Its PreFilter counts claims by namespace and name; its dry run then subtracts or adds every volume of the
    pods that it moves whose claim has one of the names, in any namespace (`updateWithPod`).
    """
    if not claims:
        return 0
    cluster = frame.cluster
    moved = [
        (change, Counter(claim for claim in _claim_names(change.pod.volumes) if claim in claims))
        for change in cluster.dry_run_changes
        if change.node_name in cluster.nodes
    ]
    users = {claim: set(cluster.claim_users.get(key_of(frame.pod.namespace, claim), ())) for claim in claims}
    for (pod, _, step), named in reversed(moved):
        if pod.namespace == frame.pod.namespace:
            for claim in named:
                (users[claim].discard if step > 0 else users[claim].add)(pod.uid)
    uses = sum(bool(there) for there in users.values())
    return uses + sum(change.step * named.total() for change, named in moved)


def _are_kept(frame: Frame, claims: set[str]) -> bool:
    """Return whether a nominated pod that comes before this one wants one of its claims for one pod only.

    Others were evicted so that it gets the claim, wherever it goes. kube-scheduler looks at nominated pods on their
    node only, and there not at these claims, so that any pod may take them meanwhile. Of two that are nominated, and
    each of which comes before the other, the older one has the claim, or both would wait for ever.
    """
    cluster, pod = frame.cluster, frame.pod
    if not claims or not cluster.nominated:
        return False
    is_nominated = cluster.is_nominated(pod.uid)
    for there in cluster.nominated.values():
        for other in there.values():
            if (
                other.uid == pod.uid
                or other.uid in cluster.pods
                or other.namespace != pod.namespace
                or claims.isdisjoint(_claim_names(other.volumes))
                or not comes_before(cluster, other, pod, together=frame.together)
            ):
                continue
            is_older = (other.created, other.uid) < (pod.created, pod.uid)
            if is_older or not is_nominated or not comes_before(cluster, pod, other):
                return True
    return False


def _claim_names(volumes: Sequence[objects.Volume]) -> list[str]:
    return [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim is not None]
