"""The claims behind a pod's volumes: their names, whether they are the pod's own, and their state."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim whose binding to its volume is finished."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim for which to provision a volume near that node."""
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


MOST_VOLUMES = 1_000
"""Of one pod that storage rules look at: more than a kubelet mounts. kube-scheduler has no limit, and takes minutes for
the decision of one pod with very many."""


def too_many_volumes(pod: PodInfo) -> str:
    """Return why a pod has too many volumes for a decision, "" if it has not."""
    number = len(pod.volumes)
    if number <= MOST_VOLUMES:
        return ""
    return f"pod has {number} volumes of claims and disks, expected at most {MOST_VOLUMES}: use fewer"


class ClaimUse(msgspec.Struct, frozen=True):
    """A volume of a pod that is backed by a claim."""

    name: str
    """The claim's name; it is in the pod's namespace."""
    ephemeral: bool
    """Whether the claim was made for the pod, and is deleted with it."""


def claim_uses(pod: PodInfo) -> Iterator[ClaimUse]:
    """Return the pod's claims, in the order of its volumes; of too many, the first."""
    for volume in pod.volumes[:MOST_VOLUMES]:
        if volume.persistent_volume_claim is not None:
            yield ClaimUse(volume.persistent_volume_claim.claim_name, False)
        elif volume.ephemeral is not None:
            yield ClaimUse(f"{pod.name}-{volume.name}", True)


def made_for(claim: objects.PersistentVolumeClaim, pod: PodInfo) -> bool:
    """Return whether a claim is the pod's own; another one of the same name must not be used for it."""
    owner = next((o for o in claim.metadata.owner_references or () if o.controller), None)
    return owner is not None and owner.uid == pod.uid and claim.metadata.namespace == pod.namespace


def not_made_for(claim: objects.PersistentVolumeClaim, pod: PodInfo) -> str:
    """Return kube-scheduler's text for a claim that is not the pod's own."""
    meta = claim.metadata
    return f"PVC {meta.namespace}/{meta.name} was not created for pod {pod.key} (pod is not owner)"


def fully_bound(claim: objects.PersistentVolumeClaim) -> bool:
    """Return whether a claim has its volume and the binding is finished."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


def requested_storage(claim: objects.PersistentVolumeClaim) -> objects.Quantity | None:
    """Return the storage that a claim requests, as written; None if it requests none."""
    resources = claim.spec.resources
    return (resources.requests or {}).get("storage") if resources is not None else None
