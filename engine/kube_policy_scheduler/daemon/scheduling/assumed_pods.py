"""Pods that have a node, and whose binding the watch has not shown yet: on which node, since when, holding what."""

from __future__ import annotations

from dataclasses import dataclass

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.claim_reservation import ClaimReservation
from kube_policy_scheduler.framework.claim_reservation import undo as undo_claims
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.queue import QueuedPod
from kube_policy_scheduler.framework.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.volume_reservation import undo as undo_volumes


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision rests on, as far as others can change it; equal ones mean that nobody has."""

    losses: int
    """How often the view of the cluster had ceased to be current."""
    mark: int | None
    """Of the node (`EventHandlers.mark`)."""
    broken_gangs: int
    """How often a member of a gang gave its place back; 0 for a pod that is in none."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedPod:
    """A pod that counts on its node and is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    volumes: VolumeReservation | None
    requirements: tuple[GangRequirement, ...]
    basis: Basis
    devices: ClaimReservation | None = None

    def unreserve(self, cluster: Cluster) -> None:
        """Take back what was reserved in memory; nothing of it was written."""
        if self.volumes is not None:
            undo_volumes(self.volumes, cluster)
        if self.devices is not None:
            undo_claims(self.devices, cluster)
