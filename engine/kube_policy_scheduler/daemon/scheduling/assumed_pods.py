"""Pods that have a node, and whose binding the watch has not shown yet: on which node, since when, holding what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.dynamic_resources.reservation import ClaimReservation
from kube_policy_scheduler.framework.dynamic_resources.reservation import undo as undo_claims
from kube_policy_scheduler.framework.permit import Claim
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
    claims: tuple[Claim, ...]
    basis: Basis
    devices: ClaimReservation | None = None

    def unreserve(self, cluster: Cluster) -> None:
        """Take back what was reserved in memory; nothing of it was written."""
        if self.volumes is not None:
            undo_volumes(self.volumes, cluster)
        if self.devices is not None:
            undo_claims(self.devices, cluster)


class AssumedPods(dict[str, str]):
    """Node by uid, the pod that was assumed first at the beginning."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        super().__init__()
        self._clock = clock
        self._since: dict[str, float] = {}

    def __setitem__(self, uid: str, node_name: str) -> None:
        """Assume a pod on a node."""
        super().__setitem__(uid, node_name)
        self._since.setdefault(uid, self._clock())

    def pop(self, uid: str, *default: Any) -> Any:
        """Forget a pod; return its node."""
        self._since.pop(uid, None)
        return super().pop(uid, *default)

    def seconds(self, uid: str) -> float:
        """Return for how long a pod has been assumed."""
        return self._clock() - self._since[uid]

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest has been assumed; 0.0 where there is none."""
        return max(0.0, self.seconds(next(iter(self)))) if self else 0.0

    def clock_was_set(self, seconds: float) -> None:
        """Take note that the clock was set by so many seconds."""
        self._since = {uid: since + seconds for uid, since in self._since.items()}
