"""Which of the best nodes: the highest total, ties broken by a seeded hash of pod and node.

kube-scheduler promises no order among equal nodes. Here the choice is the same whenever pod, cluster, metrics
and seed are, and it spreads: two pods do not prefer the same node of a tie.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from engine.cluster.nodes import FloatArray, IntArray, NodeTable

_Hashes = NDArray[np.uint64]


def best(totals: FloatArray) -> IntArray:
    """Return the positions of the highest total."""
    return np.flatnonzero(totals == totals.max())


def tie_break(tied: IntArray, nodes: NodeTable, *, uid: str, seed: int) -> int:
    """Return one of the rows: that with the smallest mixed hash of node name, pod uid and seed."""
    if len(tied) == 1:
        return int(tied[0])
    hashes: _Hashes = nodes.derive("tie-break", lambda: _name_hashes(nodes))[tied]
    mixed = _mix(hashes ^ np.uint64(_hash(f"{seed}/{uid}")))
    return int(tied[int(np.argmin(mixed))])


def _name_hashes(nodes: NodeTable) -> _Hashes:
    return np.fromiter((_hash(name) for name in nodes.names), np.uint64, nodes.size)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mix(values: _Hashes) -> _Hashes:
    """Return the finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit moves every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
