"""Which of the best nodes: the highest total, ties broken by a seeded hash of pod and node.

kube-scheduler promises no order among equal nodes. Here the choice is the same whenever pod, cluster, metrics
and seed are, and it spreads: two pods do not prefer the same node of a tie.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray, NodeTable

_Hashes = NDArray[np.uint64]


class Ties(Enum):
    """Which of several best nodes is taken; the value is what a policy says."""

    HASH = "hash"
    """By a seeded hash of pod and node."""
    NAME = "name"
    """The smallest name, as text."""


def best(totals: FloatArray) -> IntArray:
    """Return the positions of the highest total."""
    positions: IntArray = (totals == totals.max()).nonzero()[0]
    return positions


def tie_break(tied: IntArray, nodes: NodeTable, *, uid: str, seed: int) -> int:
    """Return one of the rows: that with the smallest mixed hash of node name, pod uid and seed.

    Mixed by a multiplication with the pod's own odd number, modulo 2**64 (Dietzfelbinger 1997: it is universal in
    the high bits, which decide a comparison). Odd numbers come in pairs x and -x, which turn any order around: no
    node is before another for more than half of the pods.
    """
    if len(tied) == 1:
        return int(tied[0])
    hashes: _Hashes = nodes.valued("tie-break", lambda info: _hash(info.name), np.uint64)
    mixed = hashes[tied] * np.uint64(seeded_hash(uid, seed=seed) | 1)
    return int(tied[mixed.argmin()])


def smallest_name(tied: IntArray, nodes: NodeTable) -> int:
    """Return the row whose node has the smallest name."""
    if len(tied) == 1:
        return int(tied[0])
    order: IntArray = nodes.derive("name-order", lambda: _places(nodes.names))
    return int(tied[order[tied].argmin()])


def _places(names: list[str]) -> IntArray:
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return places


def seeded_hash(text: str, *, seed: int) -> int:
    """Return 64 bits that follow from a text and a seed."""
    return _hash(f"{seed}/{text}")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
