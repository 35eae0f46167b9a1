"""The Leases of replicas that share the work: how they are named, written, listed and deleted. Draws no conclusions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.lease import LeaseSettings, lease_request
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.times import rfc3339

LABEL = "policy-scheduler/shard-of"
KNOWS = "policy-scheduler/knows"
"""Annotation: the members that the holder hands over to."""
PODS_SEEN = "policy-scheduler/pods-seen"
"""Annotation: the resource version of the last pod event that the holder had seen when it handed over."""
LEFT = "policy-scheduler/left"
"""Annotation: the holder does nothing any more, and nothing of it is under way."""


class ShardLease(msgspec.Struct, frozen=True):
    """A replica's Lease, as it was read."""

    identity: str
    knows: frozenset[str]
    pods_seen: int
    has_left: bool
    renewed: str
    """Its holder's time, which says nothing but whether it has changed."""
    lease_seconds: float
    acquired: str
    name: str
    uid: str
    version: str


class ShardLeases:
    """Reads and writes them. All raise KubeError."""

    def __init__(self, transport: Transport, settings: LeaseSettings, *, clock: Callable[[], float]) -> None:
        """clock: for the times shown in our Lease only."""
        self._transport = transport.dedicated()
        self._settings = settings
        self._clock = clock
        holder = re.sub(r"[^a-z0-9-]+", "-", settings.identity.lower()).strip("-")
        self.name = f"{settings.name}-shard-{holder}"[:253]
        """Of our own."""

    async def create(self) -> None:
        """Create ours; it may be there already, where an answer was lost."""
        body = self._lease(version="", acquired="", knows=(self._settings.identity,), pods_seen=0, has_left=False)
        try:
            await self._request("POST", self._settings.collection, body)
        except Conflict:
            return

    async def list(self) -> dict[str, ShardLease]:
        """Return all by holder, as they were at some moment since we asked."""
        query = urlencode({"labelSelector": f"{LABEL}={self._settings.name}"})
        found = await self._request("GET", f"{self._settings.collection}?{query}")
        try:
            leases = [self._read(item) for item in found.get("items") or []]
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedAnswer(f"cannot decode a lease: {error}") from error
        return {lease.identity: lease for lease in leases}

    async def renew(
        self, *, version: str, acquired: str = "", knows: Iterable[str], pods_seen: int, has_left: bool = False
    ) -> None:
        """Write ours over the version that was read."""
        body = self._lease(version=version, acquired=acquired, knows=knows, pods_seen=pods_seen, has_left=has_left)
        await self._request("PUT", self._path(self.name), body)

    async def version(self) -> str:
        """Return the version of ours."""
        found = await self._request("GET", self._path(self.name))
        return str(found["metadata"]["resourceVersion"])

    async def delete(self, lease: ShardLease) -> bool:
        """Delete one as it was read; return whether it is gone, False where it was written to since."""
        conditions = {"resourceVersion": lease.version, "uid": lease.uid}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        try:
            await self._request("DELETE", self._path(lease.name), body)
        except NotFound:
            return True
        except Conflict:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._settings.collection}/{name}"

    def _lease(
        self, *, version: str, acquired: str, knows: Iterable[str], pods_seen: int, has_left: bool
    ) -> dict[str, Any]:
        settings = self._settings
        now = rfc3339(self._clock(), "microseconds")
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": settings.namespace,
            "labels": {LABEL: settings.name},
            "annotations": {KNOWS: ",".join(sorted(knows)), PODS_SEEN: str(pods_seen)},
        }
        if has_left:
            metadata["annotations"][LEFT] = "true"
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": settings.identity,
                "leaseDurationSeconds": max(1, round(settings.lease_seconds)),
                "acquireTime": acquired or now,
                "renewTime": now,
            },
        }

    def _read(self, item: dict[str, Any]) -> ShardLease:
        metadata, spec = item["metadata"], item["spec"]
        annotations = metadata.get("annotations") or {}
        seen = str(annotations.get(PODS_SEEN, "0"))
        return ShardLease(
            identity=str(spec["holderIdentity"]),
            knows=frozenset(filter(None, str(annotations.get(KNOWS, "")).split(","))),
            pods_seen=version_number(seen),
            has_left=LEFT in annotations,
            renewed=str(spec.get("renewTime") or ""),
            lease_seconds=float(spec.get("leaseDurationSeconds") or self._settings.lease_seconds),
            acquired=str(spec.get("acquireTime") or ""),
            name=str(metadata["name"]),
            uid=str(metadata.get("uid") or ""),
            version=str(metadata.get("resourceVersion") or ""),
        )

    async def _request(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await lease_request(self._transport, self._settings, verb=verb, path=path, body=body)
