"""Pods that are tried to be gone: what would be free without them, taken back at the end.

A claim gives up its devices once all pods that use it are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.claimed_devices import claim_keys
from kube_policy_scheduler.cluster.object_store import object_key
from kube_policy_scheduler.cluster.pods import PodInfo


class Departures:
    """The pods that are tried to be gone from their nodes; for callers within `Ledger.silent`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gone: dict[str, tuple[PodInfo, str]] = {}
        """By uid: the pods with their nodes, in the order in which they were taken away."""
        self._aside: dict[str, None] = {}
        """The claims that have no devices without them, by key."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._gone

    def __len__(self) -> int:
        return len(self._gone)

    def node_of(self, uid: str) -> str:
        """Return the node that a pod was taken away from; "": it was not."""
        there = self._gone.get(uid)
        return there[1] if there is not None else ""

    def take(self, pods: Iterable[PodInfo]) -> None:
        """Take pods away; those without a node stay without."""
        for pod in pods:
            node_name = self._cluster.node_of(pod.uid)
            if node_name is not None:
                self._gone[pod.uid] = pod, node_name
                self._cluster.displace(pod.uid)
                for key in self._keys(pod):
                    if key not in self._aside and self._users(key) <= self._gone.keys():
                        self._set_aside(key)

    def put_back(self, pods: Iterable[PodInfo]) -> None:
        """Have those of some pods that were taken away run where they were."""
        for pod in pods:
            there = self._gone.pop(pod.uid, None)
            if there is not None:
                self._cluster.place(*there)
                for key in self._keys(pod):
                    if key in self._aside:
                        del self._aside[key]
                        self._cluster.resource_claims.take_back(key)

    @contextmanager
    def holding_back(self, resources: Collection[str], *, after: int) -> Iterator[None]:
        """Have pods that are gone free nothing of some resources for as long as the context is open.

        after: how many of those that went first free all of what they hold.
        """
        nodes = self._cluster.nodes
        gone = islice(self._gone.values(), after, None)
        held = [(nodes.rows[name], pod.demand) for pod, name in gone if name in nodes.rows]
        for row, demand in held:
            nodes.hold_back(row, demand, resources, sign=1)
        try:
            yield
        finally:
            for row, demand in held:
                nodes.hold_back(row, demand, resources, sign=-1)

    def put_all_back(self) -> None:
        """Undo all of it."""
        self.put_back([pod for pod, _ in reversed(self._gone.values())])
        for key in self._aside:
            self._cluster.resource_claims.take_back(key)
        self._aside.clear()

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
