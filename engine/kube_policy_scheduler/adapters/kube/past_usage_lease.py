"""Past usage of queues in an annotation of a Lease, where it outlives the replica that counted it.

A Lease of its own: the one that elects the leader is written every two seconds. It is written over the version that was
read, so that a replica that believes to lead writes nothing over what another leader has written since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.past_usage import PastUsage
from kube_policy_scheduler.times import rfc3339

ANNOTATION = "policy-scheduler/past-usage"
MOST_BYTES = 200 << 10
"""Of the annotation: all annotations of an object may have 256 KiB. A queue takes some 30 bytes, at most some 200."""
_DIGITS = 2
"""Behind the point: less has faded."""


class _Record(msgspec.Struct, frozen=True):
    at: float
    resources: tuple[str, ...]
    queues: dict[str, tuple[float, ...]]


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata


_decode_lease = msgspec.json.Decoder(_Lease).decode
_decode_record = msgspec.json.Decoder(_Record).decode


def encode_past_usage(past: PastUsage, *, most_bytes: int = MOST_BYTES) -> tuple[str, int]:
    """Return the text of an annotation, and how many queues it has no room for: those that use least."""
    encode = msgspec.json.encode
    head = {"at": round(past.at, 1), "resources": past.resources, "queues": {}}
    room, kept = most_bytes - len(encode(head)), dict[str, list[float]]()
    for name, amounts in past.queues.items():
        rounded = [round(amount, _DIGITS) for amount in amounts]
        room -= len(encode(name)) + len(encode(rounded)) + 2
        if room < 0:
            break
        kept[name] = rounded
    return encode(head | {"queues": kept}).decode(), len(past.queues) - len(kept)


def decode_past_usage(text: str) -> PastUsage:
    """Read such a text.

    Raises:
        MalformedAnswer: it is none; says why.
    """
    try:
        record = _decode_record(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise MalformedAnswer(f"annotation {ANNOTATION}: {error}") from error
    wrong = next((name for name, amounts in record.queues.items() if len(amounts) != len(record.resources)), None)
    if wrong is not None:
        raise MalformedAnswer(f"annotation {ANNOTATION}: queue {wrong!r} does not have one amount for each resource")
    numbers = (record.at, *(each for amounts in record.queues.values() for each in amounts))
    if not all(0.0 <= each < math.inf for each in numbers):
        raise MalformedAnswer(f"annotation {ANNOTATION}: times and amounts must be numbers of 0 or more")
    return PastUsage(record.at, record.resources, record.queues)


class PastUsageLease:
    """Reads and writes it. All raise KubeError."""

    def __init__(self, transport: Transport, *, namespace: str, name: str, identity: str, fence: Fence) -> None:
        """Make one.

        Args:
            transport: to the API server.
            namespace: of the Lease.
            name: of the Lease.
            identity: of this replica.
            fence: of writes.
        """
        self._transport = transport
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
        self._namespace, self.name, self._identity = namespace, name, identity
        self._fence = fence
        self._version: str | None = None
        """Of the Lease as it was read or written last; None: it is not known, "": there is no Lease."""

    @property
    def is_known(self) -> bool:
        """Whether it was read, and no write since has failed: nothing but a write of another replica is newer."""
        return self._version is not None

    async def read(self) -> PastUsage | None:
        """Return what is stored; None: nothing.

        Raises:
            MalformedAnswer: what is stored cannot be read. It may be written over.
        """
        self._version = None
        try:
            metadata = self._take(await self._request("GET", f"{self._collection}/{self.name}"))
        except NotFound:
            self._version = ""
            return None
        text = (metadata.annotations or {}).get(ANNOTATION)
        return decode_past_usage(text) if text is not None else None

    async def write(self, past: PastUsage) -> int:
        """Store over what was read; return how many queues there is no room for.

        Raises:
            Conflict: another replica has written since; read first.
        """
        text, left_out = encode_past_usage(past)
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self._namespace,
            "annotations": {ANNOTATION: text},
        }
        spec = {"holderIdentity": self._identity, "renewTime": rfc3339(past.at, "microseconds")}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        version, self._version = self._version, None  # not known before the answer
        if version is None:
            raise Conflict(f"lease {self._namespace}/{self.name} was not read", status=409, reason="Conflict")
        if version:
            metadata["resourceVersion"] = version
            self._take(await self._request("PUT", f"{self._collection}/{self.name}", body))
        else:
            self._take(await self._request("POST", self._collection, body))
        return left_out

    def _take(self, answer: bytes) -> _Metadata:
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
