"""Which of several best nodes a pod gets, and which devices of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.devices import Ask, Chosen, DeviceTable, choose, fullest
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray, NodeTable
from kube_policy_scheduler.framework.fragmentation import fragmentation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.device_shares import wanted

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


class DeviceRule(Enum):
    """Which of the devices that a share fits on is taken; the value is what a policy says."""

    FULLEST = "fullest"
    """The one with the least room."""
    EMPTIEST = "emptiest"
    """The one with the most room."""
    FRAGMENTATION = "fragmentation"
    """The one that lowers the node's fragmentation most."""
    RANDOM = "random"
    """By a seeded hash of the pod."""


def choose_devices(frame: Frame, row: int, rule: DeviceRule, *, seed: int) -> Mapping[str, Chosen]:
    """Return the devices by resource that the pod gets on a node; of several equal ones the first."""
    found = {table.resource: _chosen(frame, row, rule, table=table, ask=ask, seed=seed) for table, ask in wanted(frame)}
    return {resource: chosen for resource, chosen in found.items() if chosen is not None}


def _chosen(frame: Frame, row: int, rule: DeviceRule, *, table: DeviceTable, ask: Ask, seed: int) -> Chosen | None:
    free = table.free[row]
    match rule:
        case DeviceRule.FULLEST:
            return fullest(free, ask)
        case DeviceRule.EMPTIEST:
            return choose(free, ask, lambda fitting: int(fitting[free[fitting].argmax()]))
        case DeviceRule.RANDOM:
            draw = seeded_hash(f"{frame.pod.uid}/device", seed=seed)
            return choose(free, ask, lambda fitting: int(fitting[draw % len(fitting)]))
        case DeviceRule.FRAGMENTATION:
            return choose(free, ask, lambda fitting: _least_fragmenting(frame, row, table.resource, fitting))


def _least_fragmenting(frame: Frame, row: int, resource: str, fitting: IntArray) -> int:
    ways = fragmentation(frame, resource).drops(frame.template, np.array([row]))[0]
    return int(fitting[ways[fitting].argmax()])
