"""Which of several best nodes a pod gets, and which devices of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.devices.node_devices import Ask, Chosen, DeviceTable, choose, fullest, in_order
from kube_policy_scheduler.cluster.hashed_rows import Hashes, hash_of
from kube_policy_scheduler.cluster.name_order import name_order
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray, NodeTable
from kube_policy_scheduler.framework.devices.device_order import DeviceFrame, DeviceRule, SharedDevices
from kube_policy_scheduler.framework.frame import DeviceOrder, Frame
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator, Kernels
from kube_policy_scheduler.framework.kernels.block_maxima import BlockMaxima, TiedRows
from kube_policy_scheduler.framework.kernels.resource_bounds import BoundedTotals
from kube_policy_scheduler.framework.plugins.device_shares import wanted
from kube_policy_scheduler.framework.plugins.fragmentation import fragmentation

_FEW_BLOCKS = 32
"""With rows that tie in no more blocks, looking at all of these is cheaper than trying groups."""
_TIES_A_GROUP = 4
"""With more rows that tie in each group, on average, its first group nearly always has one of them."""
_GROUPS_TRIED = 32
"""Groups looked at for a row that ties; with none in them few do, and all blocks are looked at."""


class Ties(Enum):
    """How one of several best nodes is chosen; the value is the word in a policy."""

    HASH = "hash"
    """By a seeded hash of pod and node."""
    NAME = "name"
    """The smallest name, as text."""


def best(totals: FloatArray) -> IntArray:
    """Return the positions of the highest total."""
    positions: IntArray = (totals == totals.max()).nonzero()[0]
    return positions


class Choice(msgspec.Struct, frozen=True):
    """One of the rows with the highest total."""

    row: int
    total: float
    ties: int
    """How many have that total."""


class TieBreak:
    """The order in which a pod prefers nodes that are equally good: by hashes of the pod's uid and of their names.

    Names are in groups by the first bits of their hash, about 128 in each (`HashedRows`). The pod takes the first group
    in its order of groups that has one of the nodes, and of those the first node in its order of names. So the choice
    depends on nothing but the seed, the pod, the names of the nodes that tie, and the number of nodes.

    Both orders are those of the hashes multiplied with an odd number of the pod, modulo 2**64 (Dietzfelbinger 1997: it
    is universal in the high bits, which decide a comparison). Odd numbers come in pairs x and -x, which turn any order
    around: no node is before another for more than half of the pods.
    """

    def __init__(self, nodes: NodeTable, *, uid: str, seed: int) -> None:
        self._by_hash = nodes.by_hash
        self._uid, self._seed = uid, seed

    def first(self, tied: IntArray) -> int:
        """Return the preferred row."""
        if len(tied) == 1:
            return int(tied[0])
        factor = _odd(self._uid, seed=self._seed)
        hashes = self._by_hash.group_hashes
        if len(hashes) > 1:
            places = (hashes * factor)[self._by_hash.groups[tied]]
            tied = tied[places == places[places.argmin()]]
        return self._by_name(tied, factor)

    def first_of_best(self, maxima: BlockMaxima, accelerator: Accelerator) -> Choice:
        """Return the preferred one of the rows with the highest total."""
        kernels = accelerator.kernels
        chosen = self.choose(maxima, kernels) if kernels is not None else None
        if chosen is not None:
            return chosen
        tied = maxima.best()
        return Choice(self.first_of_many(tied), tied.total, len(tied))

    def choose(self, maxima: BlockMaxima | BoundedTotals, kernels: Kernels) -> Choice | None:
        """Return `first_of_many` of the rows with the highest total, by compiled loops; None: they can't tell."""
        factor = seeded_hash(self._uid, seed=self._seed) | 1
        row, total, ties = kernels.choose(maxima.columns(), self._by_hash.columns(), factor, _FEW_BLOCKS)
        return Choice(row, total, ties) if row >= 0 else None  # rows without a number, or without any node

    def first_of_all(self, totals: FloatArray, kernels: Kernels) -> Choice | None:
        """Return `first` of the rows with the highest total, by a compiled loop; None: there are none.

        totals: `float64[nodes]`, -inf where a node is not feasible.
        """
        highest = totals.max()
        return self.first_of_top(totals, highest, int(np.count_nonzero(totals == highest)), kernels)

    def first_of_top(self, totals: FloatArray, highest: float, ties: int, kernels: Kernels) -> Choice | None:
        """Return the same where the highest total is known, and how many rows have it."""
        blocks = totals, np.array([highest]), np.array([ties])
        factor = seeded_hash(self._uid, seed=self._seed) | 1
        groups = len(self._by_hash.group_hashes)
        tried = 0 if ties > _TIES_A_GROUP * groups else 1  # blocks that tie: there is one
        row, total, count = kernels.choose(blocks, self._by_hash.columns(), factor, tried)
        return Choice(row, total, count) if row >= 0 else None  # as in `choose`

    def first_of_many(self, tied: TiedRows) -> int:
        """Return the same as `first` of all their rows, without looking at all rows."""
        if len(tied.blocks) > _FEW_BLOCKS and len(self._by_hash.group_hashes) > 1:
            factor = _odd(self._uid, seed=self._seed)
            for group in self._first_groups(self._by_hash.group_hashes * factor):
                found = tied.among(self._by_hash.rows(group))
                if len(found):
                    return self._by_name(found, factor)
        return self.first(tied.rows())

    def _first_groups(self, order: Hashes) -> Iterator[int]:
        yield int(order.argmin())  # with many rows that tie, it has one
        if len(order) > _GROUPS_TRIED:
            groups = order.argpartition(_GROUPS_TRIED)[:_GROUPS_TRIED]
            yield from groups[order[groups].argsort()][1:].tolist()

    def _by_name(self, tied: IntArray, factor: np.uint64) -> int:
        return int(tied[(self._by_hash.hashes[tied] * factor).argmin()])


def _odd(text: str, *, seed: int) -> np.uint64:
    return np.uint64(seeded_hash(text, seed=seed) | 1)


def smallest_name(tied: IntArray, nodes: NodeTable) -> int:
    """Return the row whose node has the smallest name."""
    if len(tied) == 1:
        return int(tied[0])
    return int(tied[name_order(nodes)[tied].argmin()])


def seeded_hash(text: str, *, seed: int) -> int:
    """Return 64 bits that follow from a text and a seed."""
    return hash_of(f"{seed}/{text}")


def choose_devices(frame: Frame, row: int, order: DeviceOrder | None, *, seed: int) -> Mapping[str, Chosen]:
    """Return the shared devices by resource that the pod gets on a node; of several equal ones the first.

    order: the policy's; None: the fullest.
    """
    found = {
        table.resource: _chosen(frame, row, order, table=table, ask=ask, seed=seed) for table, ask in wanted(frame)
    }
    return {resource: chosen for resource, chosen in found.items() if chosen is not None}


def _chosen(
    frame: Frame, row: int, order: DeviceOrder | None, *, table: DeviceTable, ask: Ask, seed: int
) -> Chosen | None:
    free = table.free[row]
    if order is not None and order.keys is not None:
        keys = order.keys(DeviceFrame(SharedDevices(free, int(table.count[row]))))
        return in_order(free, ask, sorted(range(len(keys)), key=keys.__getitem__))
    match DeviceRule(order.rule) if order is not None else DeviceRule.FULLEST:
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
