"""Past usage of queues in an annotation of a Lease, where it outlives the replica that counted it."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.lease_annotation import MOST_BYTES, LeaseAnnotation
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.quotas.past_usage import PastUsage
from kube_policy_scheduler.times import Steady

ANNOTATION = "policy-scheduler/past-usage"
_DIGITS = 2
"""Behind the point: less has faded."""


class _Record(msgspec.Struct, frozen=True):
    at: float
    resources: tuple[str, ...]
    queues: dict[str, tuple[float, ...]]


def encode_past_usage(past: PastUsage, *, ahead: float = 0.0, most_bytes: int = MOST_BYTES) -> tuple[str, int]:
    """Return the text of an annotation, and how many queues it has no room for: those that use least.

    ahead: by how many seconds the wall clock, which other replicas know, is ahead of the steady one.
    """
    encode = msgspec.json.encode
    head = {"at": round(past.at + ahead, 1), "resources": past.resources, "queues": {}}
    room, kept = most_bytes - len(encode(head)), dict[str, list[float]]()
    for name, amounts in past.queues.items():
        rounded = [round(amount, _DIGITS) for amount in amounts]
        room -= len(encode(name)) + len(encode(rounded)) + 2
        if room < 0:
            break
        kept[name] = rounded
    return encode(head | {"queues": kept}).decode(), len(past.queues) - len(kept)


def decode_past_usage(text: str, *, ahead: float = 0.0) -> PastUsage:
    """Read the text of an annotation.

    ahead: by how many seconds the wall clock, which other replicas know, is ahead of the steady one.

    Raises:
        MalformedAnswer: it is none; says why.
    """
    try:
        record = msgspec.json.decode(text, type=_Record)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise MalformedAnswer(f"annotation {ANNOTATION}: {error}") from error
    wrong = next((name for name, amounts in record.queues.items() if len(amounts) != len(record.resources)), None)
    if wrong is not None:
        raise MalformedAnswer(f"annotation {ANNOTATION}: queue {wrong!r} does not have one amount for each resource")
    numbers = (record.at, *(each for amounts in record.queues.values() for each in amounts))
    if not all(0.0 <= each < math.inf for each in numbers):
        raise MalformedAnswer(f"annotation {ANNOTATION}: times and amounts must be numbers of 0 or more")
    return PastUsage(Steady(record.at - ahead), record.resources, record.queues)


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
        self._lease = LeaseAnnotation(
            transport, annotation=ANNOTATION, namespace=namespace, name=name, identity=identity, fence=fence
        )
        self.name = name

    @property
    def is_known(self) -> bool:
        """Whether it was read, and no write since has failed: nothing but a write of another replica is newer."""
        return self._lease.is_known

    async def read(self, *, ahead: Callable[[], float]) -> PastUsage | None:
        """Return what is stored; None: nothing.

        ahead: returns what it is for `decode_past_usage`, once the answer is there: a clock may be set meanwhile.

        Raises:
            MalformedAnswer: what is stored cannot be read. It may be written over.
        """
        text = await self._lease.read()
        return decode_past_usage(text, ahead=ahead()) if text is not None else None

    async def write(self, past: PastUsage, *, ahead: float) -> int:
        """Store over what was read; return how many queues there is no room for. ahead: as for `encode_past_usage`.

        Raises:
            Conflict: another replica has written since; read first.
        """
        text, left_out = encode_past_usage(past, ahead=ahead)
        await self._lease.write(text, at=past.at + ahead)
        return left_out
