"""Devices that would be free without some pods: a claim gives them up once all pods that use it are gone."""

from __future__ import annotations

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.claimed_devices import claim_keys
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo


class FreedDevices:
    """Pods that are tried to be gone, and the devices that are free without them until `put_back`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gone: set[str] = set()
        self._aside: dict[str, None] = {}

    def leave(self, pod: PodInfo) -> None:
        """Free the devices that no pod uses any more without this one."""
        self._gone.add(pod.uid)
        for key in self._keys(pod):
            if key not in self._aside and self._users(key) <= self._gone:
                self._set_aside(key)

    def come_back(self, pod: PodInfo) -> None:
        """Have a pod that left use its devices again."""
        self._gone.discard(pod.uid)
        for key in self._keys(pod):
            if key in self._aside:
                del self._aside[key]
                self._cluster.resource_claims.take_back(key)

    def free_abandoned(self) -> bool:
        """Free the devices of claims whose pods are all gone, as their controller will; return whether there are any.

        It looks at all claims.
        """
        claims, placed = self._cluster.resource_claims, self._cluster.pods
        for claim in list(claims.all()):
            key = object_key(claim.metadata)
            if claim.status.allocation is not None and key not in self._aside:
                users = self._users(key)
                if users and not any(uid in placed for uid in users):
                    self._set_aside(key)
        return bool(self._aside)

    def put_back(self) -> None:
        """Undo all of it."""
        for key in self._aside:
            self._cluster.resource_claims.take_back(key)
        self._aside.clear()
        self._gone.clear()

    def _set_aside(self, key: str) -> None:
        self._aside[key] = None
        self._cluster.resource_claims.set_aside(key)

    def _keys(self, pod: PodInfo) -> list[str]:
        made: objects.ResourceClaim | None = self._cluster.resource_claims.for_extended_resources(pod.uid)
        return [*claim_keys(pod), *([object_key(made.metadata)] if made is not None else ())]

    def _users(self, key: str) -> set[str]:
        """Return the uids of the pods that use the devices of a claim, or are about to."""
        claims = self._cluster.resource_claims
        claim = claims.get(key)
        if claim is None:
            return set()
        return {user.uid for user in claim.status.reserved_for or ()} | claims.pods_in_flight(claim.metadata.uid)
