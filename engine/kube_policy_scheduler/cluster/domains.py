"""Totals of pods per topology domain (zone, rack, hostname), brought up to date by replaying few changes.

A *domain* is a value of one node label. Domains are numbered as in the label's column; two slots follow them:
one that stays 0, for nodes without the label, and one that collects what does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.counter_kinds import Change, Counter
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, LabelColumn, NodeTable

_REPLAY_LIMIT = 64
"""Changes replayed one by one; beyond it adding up all nodes is cheaper."""


class Topology(msgspec.Struct, frozen=True, eq=False):
    """The domains of one label over a node table."""

    key: str
    """The label's key."""
    state: object
    """Of the label's column, from which this was made."""
    size: int
    """Number of domains."""
    index: NDArray[np.intp]
    """`intp[nodes]`: the domain of each node; `size` where the node lacks the label."""
    source: NDArray[np.intp]
    """`intp[nodes]`: where the pods of each node are added up if all count; `aside` for nodes without the label."""
    empty: int | None
    """The domain of the value "", None if no node has it."""

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
    """Return the domains of a label, kept until that label changes; those of labels that no node has are one."""
    column = nodes.label(key)
    return nodes.derive_from(column, ("topology", nodes.known_label(key)), lambda: _topology(key, column))


def _topology(key: str, column: LabelColumn) -> Topology:
    used = np.zeros(len(column.values) + 1, np.bool_)  # the last place is for nodes without the label, code -1
    used[column.codes] = True
    codes = used[:-1].nonzero()[0]
    size = len(codes)
    domain = np.full(len(used), size, np.intp)
    domain[codes] = np.arange(size)
    index = domain.take(column.codes)
    source = np.where(index == size, size + 1, index)
    empty = column.index.get("")
    return Topology(key, column.state, size, index, source, None if empty is None else int(domain[empty]))


def label_states(nodes: NodeTable, keys: Iterable[str]) -> list[object]:
    """Return the same objects as before while these labels of all nodes are the same."""
    return [nodes.label(key).state for key in keys]


class DomainTotals(Measured):
    """Weighted sums of counters per domain, over the nodes that count."""

    __slots__ = ("_at", "_own_source", "_positions", "_source", "_weights", "match_count", "topology", "totals")
    borrowed = frozenset({"_source"})

    def __init__(
        self,
        topology: Topology,
        sources: Iterable[tuple[Counter, int]],
        *,
        counting: BoolArray | None = None,
        unlabelled: int | None = None,
    ) -> None:
        """Add up `sources`, counters with their weights, over the nodes in `counting` (None: all).

        Nodes without the label count for the domain `unlabelled`, or do not count.
        """
        self.topology = topology
        self.totals: IntArray = np.zeros(topology.slots, np.int64)
        """`int64[slots]`; read-only for others, valid after `sync`."""
        self.match_count = 0
        """How many counted pods are in any domain, without weights; a pod counts once for every counter."""
        source = topology.source
        if unlabelled is not None:
            source = np.where(topology.index == topology.nothing, unlabelled, source)
        if counting is not None and not counting.all():
            source = np.where(counting, source, topology.aside)
        self._source = source
        self._own_source = None if source is topology.source else source
        self._weights: dict[Counter, int] = {}
        self._positions: dict[Counter, int] = {}
        """The version of each counter that is in the totals."""
        self._at = -1
        """How much all counters had changed when they were last read."""
        for counter, weight in sources:
            self._weights[counter] = self._weights.get(counter, 0) + weight

    def counts(self, row: int) -> bool:
        """Return whether pods on a node count."""
        return bool(self._source[row] != self.topology.aside)

    def present(self) -> BoolArray:
        """Return `bool[domains]`: those with a node that counts."""
        result = np.zeros(self.topology.slots, np.bool_)
        result[self._source] = True
        return result[: self.topology.size]

    def sync(self) -> bool:
        """Catch up with the counters; return False if one of them is gone, so that this must be rebuilt."""
        owner = next(iter(self._weights)).owner if self._weights else None
        if owner is None or owner.changes == self._at:
            return True
        if not self._positions:
            return self._rebuild()
        for counter, position in self._positions.items():
            counter.used = True
            if not counter.live:
                self._positions = {}
                return False
            if counter.version != position:
                changes = counter.changed_since(position)
                if changes is None or len(changes) > _REPLAY_LIMIT:
                    return self._rebuild()
                self._replay(changes, self._weights[counter])
                self._positions[counter] = counter.version
        self._at = owner.changes
        return True

    def follow(self, sources: Mapping[Counter, int]) -> bool:
        """Add up these counters from now on; return as `sync` does. Cheap if most are unchanged."""
        if not self._positions or not self.sync():
            self._weights = dict(sources)
            return self._rebuild()
        gone = self._weights.keys() - sources.keys()
        if any(counter.total or not counter.live for counter in gone) or any(
            self._weights[counter] != sources[counter] for counter in self._weights.keys() & sources.keys()
        ):
            self._weights = dict(sources)
            return self._rebuild()
        for counter in gone:
            del self._weights[counter], self._positions[counter]
        for counter in sources.keys() - self._weights.keys():
            self._weights[counter] = sources[counter]
            self._add(counter)
        return True

    def _replay(self, changes: Sequence[Change], weight: int) -> None:
        places, totals, aside = self._source, self.totals, self.topology.aside
        for row, amount, pods in changes:
            place = places[row]
            if place != aside:
                totals[place] += amount * weight
                self.match_count += pods

    def _rebuild(self) -> bool:
        self.totals = np.zeros(self.topology.slots, np.int64)
        self.match_count = 0
        self._positions = {}
        if not all(counter.live for counter in self._weights):
            return False
        for counter in self._weights:
            counter.used = True
            self._add(counter)
            self._at = counter.owner.changes
        return True

    def _add(self, counter: Counter) -> None:
        aside = self.topology.aside
        self.match_count += counter.add_to(self.totals, self._source, weight=self._weights[counter], aside=aside)
        self._positions[counter] = counter.version
