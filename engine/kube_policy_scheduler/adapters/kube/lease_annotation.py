"""A text in an annotation of a Lease, where it outlives the replica that wrote it.

A Lease of its own: the one that elects the leader is written every two seconds. It is written over the version that was
read, so that a replica that believes to lead writes nothing over what another leader has written since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.times import rfc3339

MOST_BYTES = 200 << 10
"""Of the text: all annotations of an object may have 256 KiB."""


class _Lease(msgspec.Struct):
    metadata: ObjectMeta


_decode_lease = decoder_of(_Lease)


class LeaseAnnotation:
    """Reads and writes it. All raise KubeError."""

    def __init__(
        self, transport: Transport, *, annotation: str, namespace: str, name: str, identity: str, fence: Fence
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            annotation: its key.
            namespace: of the Lease.
            name: of the Lease.
            identity: of this replica.
            fence: of writes.
        """
        self._transport, self._annotation = transport, annotation
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        self._namespace, self.name, self._identity = namespace, name, identity
        self._fence = fence
        self._version: str | None = None
        """Of the Lease as it was read or written last; None: it is not known, "": there is no Lease."""

    @property
    def is_known(self) -> bool:
        """Whether it was read, and no write since has failed: nothing but a write of another replica is newer."""
        return self._version is not None

    async def read(self) -> str | None:
        """Return what is stored; None: nothing.

        Raises:
            MalformedAnswer: the answer is no Lease.
        """
        self._version = None
        try:
            metadata = self._take(await self._request("GET", f"{self._collection}/{self.name}"))
        except NotFound:
            self._version = ""
            return None
        return (metadata.annotations or {}).get(self._annotation)

    async def write(self, text: str, *, at: float) -> None:
        """Store over what was read. at: the time, Unix seconds.

        Raises:
            Conflict: another replica has written since; read first.
        """
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self._namespace,
            "annotations": {self._annotation: text},
        }
        spec = {"holderIdentity": self._identity, "renewTime": rfc3339(at, "microseconds")}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        version, self._version = self._version, None  # not known before the answer
        if version is None:
            raise Conflict(f"lease {self._namespace}/{self.name} was not read", status=409, reason="Conflict")
        if version:
            metadata["resourceVersion"] = version
            self._take(await self._request("PUT", f"{self._collection}/{self.name}", body))
        else:
            self._take(await self._request("POST", self._collection, body))

    def _take(self, answer: bytes) -> ObjectMeta:
        try:
            metadata = _decode_lease(answer).metadata
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedAnswer(f"lease {self._namespace}/{self.name}: {error}") from error
        self._version = metadata.resource_version
        return metadata

    async def _request(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        given = msgspec.json.encode(body) if body is not None else b""
        fence = self._fence if body is not None else None
        return await self._transport.request(verb, path, body=given, resource="leases", fence=fence)
