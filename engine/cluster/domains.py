"""Totals of pods per topology domain (zone, rack, hostname), brought up to date by replaying few changes.

A *domain* is a value of one node label. Domains are numbered as in the label's column; two slots follow them:
one that stays 0, for nodes without the label, and one that collects what does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cluster.counter import Counter
from engine.cluster.nodes import BoolArray, IntArray, NodeTable

_REPLAY_LIMIT = 64
"""Changes replayed one by one; beyond it adding up all nodes is cheaper."""


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """The domains of one label over a node table."""

    size: int
    """Number of domains."""
    index: NDArray[np.intp]
    """`intp[nodes]`: the domain of each node; `size` where the node lacks the label."""
    source: NDArray[np.intp]
    """`intp[nodes]`: where the pods of each node are added up if all count; `aside` for nodes without the label."""
    values: Sequence[str]
    """The label's value by domain."""

    @property
    def nothing(self) -> int:
        """Return the slot that stays 0."""
        return self.size

    @property
    def aside(self) -> int:
        """Return the slot that collects what does not count."""
        return self.size + 1

    @property
    def slots(self) -> int:
        """Return the length of arrays over domains."""
        return self.size + 2


def topology(nodes: NodeTable, key: str) -> Topology:
    """Return the domains of a label, kept until something static changes."""
    return nodes.derive(("topology", key), lambda: _topology(nodes, key))


def _topology(nodes: NodeTable, key: str) -> Topology:
    column = nodes.label(key)
    codes = sorted(column.index.values())  # the values that some node has
    size = len(codes)
    domain = np.full(len(column.values) + 1, size, np.intp)
    domain[codes] = np.arange(size)
    index = domain.take(column.codes)
    source = np.where(index == size, size + 1, index)
    return Topology(size, index, source, tuple(column.values[code] for code in codes))


class DomainTotals:
    """Weighted sums of counters per domain, over the nodes that count."""

    __slots__ = ("_counters", "_positions", "_source", "_weights", "mass", "topology", "totals")

    def __init__(
        self,
        topology: Topology,
        sources: Sequence[tuple[Counter, int]],
        *,
        counting: BoolArray | None = None,
        unlabelled: int | None = None,
    ) -> None:
        """Add up `sources`, counters with their weights, over the nodes in `counting` (None: all).

        Nodes without the label count for the domain `unlabelled`, or not at all.
        """
        self.topology = topology
        self.totals: IntArray = np.zeros(topology.slots, np.int64)
        """`int64[slots]`; read-only for others, valid after `sync`."""
        self.mass = 0
        """How many counted pods are in any domain, without weights; a pod counts once for every counter."""
        self._counters = tuple(counter for counter, _ in sources)
        self._weights = tuple(weight for _, weight in sources)
        source = topology.source
        if unlabelled is not None:
            source = np.where(topology.index == topology.nothing, unlabelled, source)
        if counting is not None and not counting.all():
            source = np.where(counting, source, topology.aside)
        self._source = source
        self._positions: list[int] = []

    def counts(self, row: int) -> bool:
        """Return whether pods on a node count."""
        return bool(self._source[row] != self.topology.aside)

    def present(self) -> BoolArray:
        """Return `bool[domains]`: those with a node that counts."""
        result = np.zeros(self.topology.slots, np.bool_)
        result[self._source] = True
        return result[: self.topology.size]

    def sync(self) -> bool:
        """Catch up with the counters; return False where one of them is gone, so that this must be made anew."""
        if not self._positions:
            return self._rebuild()
        for position, counter in enumerate(self._counters):
            counter.used = True
            if not counter.live:
                return False
            if counter.version != self._positions[position]:
                changes = counter.changed_since(self._positions[position])
                if changes is None or len(changes) > _REPLAY_LIMIT:
                    return self._rebuild()
                self._replay(changes, self._weights[position])
                self._positions[position] = counter.version
        return True

    def _replay(self, changes: Sequence[int], weight: int) -> None:
        source, totals, aside = self._source, self.totals, self.topology.aside
        for change in changes:
            row, sign = (change, 1) if change >= 0 else (~change, -1)
            domain = source[row]
            if domain != aside:
                totals[domain] += sign * weight
                self.mass += sign

    def _rebuild(self) -> bool:
        topology = self.topology
        self.totals = np.zeros(topology.slots, np.int64)
        self.mass = 0
        for counter, weight in zip(self._counters, self._weights, strict=True):
            counter.used = True
            if not counter.live:
                return False
            sums = np.bincount(self._source, weights=counter.per_node(), minlength=topology.slots).astype(np.int64)
            sums[topology.aside] = 0
            self.totals += sums * weight
            self.mass += int(sums.sum())
        self._positions = [counter.version for counter in self._counters]
        return True
