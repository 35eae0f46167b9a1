"""What continuous rebalancing remembers as a text, so that it outlives the replica: bounded, and checked when read."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from kube_policy_scheduler.tooling.rebalancing.ledger import JUDGED, KeptLedger, KeptWorkload

MOST_BYTES = 200 << 10
"""Of the text: some 100 bytes for each workload. All annotations of an object may have 256 KiB."""
_MOST_EVICTED = 1000

_decode = msgspec.json.Decoder(KeptLedger).decode


def encode_ledger(kept: KeptLedger, *, most_bytes: int = MOST_BYTES) -> str:
    """Return the text; the workloads that were moved first are left out where there is no room."""
    encode = msgspec.json.encode
    head = msgspec.structs.replace(kept, workloads={}, evicted=kept.evicted[-_MOST_EVICTED:])
    room, workloads = most_bytes - len(encode(head)), dict[str, Any]()
    for name, workload in reversed(kept.workloads.items()):
        room -= len(encode(name)) + len(encode(workload)) + 2
        if room < 0:
            break
        workloads[name] = workload
    return encode(msgspec.structs.replace(head, workloads=dict(reversed(workloads.items())))).decode()


def decode_ledger(text: str) -> KeptLedger:
    """Read such a text.

    Raises:
        ValueError: it is none; says why.
    """
    kept = _decode(text)
    numbers = [*kept.evicted, *(each for one in kept.workloads.values() for each in _times(one))]
    if not all(0.0 <= each < math.inf for each in numbers):
        raise ValueError("times must be numbers of 0 or more")
    if len(kept.hits) > JUDGED:
        raise ValueError(f"expected at most {JUDGED} hits, got {len(kept.hits)}")
    return kept


def _times(workload: KeptWorkload) -> list[float]:
    return [workload.rests_until, *workload.left.values()]
