"""The rows of the node table in the order of the nodes' names, kept while nodes come and go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from itertools import islice

import numpy as np

from kube_policy_scheduler.cluster.nodes import IntArray, NodeTable

_MOST_PATCHED = 2_048
"""Changed rows: 15 ms. With more, sorting all names takes hardly longer."""


_SORTED_AT_ONCE, _MERGED_AT_ONCE = 1 << 13, 1 << 12
"""Names in a step: 5 ms."""


class NameOrder:
    """The place of each row's name among all names, sorted as text."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._version = -1
        self._names: list[str] = []
        self._sorted: list[str] = []
        self._places: IntArray = np.zeros(0, np.int64)

    def places(self) -> IntArray:
        """Return `int64[nodes]`: the places of the rows. Read-only, valid until a node comes or goes."""
        journal, names = self._nodes.identity_changes, self._nodes.names
        if self._version == journal.end:
            return self._places
        changed = journal.since(self._version) if self._version >= 0 else None
        if changed is None or len(changed) > _MOST_PATCHED or abs(len(names) - len(self._names)) > len(changed):
            self._sort(names)
        else:
            self._patch(names, set(changed))
        self._names, self._version = names, journal.end
        return self._places

    def in_steps(self) -> Iterator[None]:
        """Sort the names in steps, unless that was done; a caller that needs the order meanwhile sorts all at once."""
        version, names = self._nodes.identity_changes.end, self._nodes.names
        parts = []
        for start in range(0, len(names), _SORTED_AT_ONCE):
            part = range(start, min(start + _SORTED_AT_ONCE, len(names)))
            parts.append(sorted(part, key=names.__getitem__))
            yield
        merged, order = merge(*parts, key=names.__getitem__), list[int]()
        while some := list(islice(merged, _MERGED_AT_ONCE)):
            order += some
            yield
        if self._version < 0:
            self._use(order, names)
            self._names, self._version = names, version

    def _sort(self, names: list[str]) -> None:
        self._use(sorted(range(len(names)), key=names.__getitem__), names)

    def _use(self, order: list[int], names: list[str]) -> None:
        self._sorted = [names[row] for row in order]
        self._places = np.empty(len(names), np.int64)
        self._places[order] = np.arange(len(names))

    def _patch(self, names: list[str], changed: set[int]) -> None:
        before = self._names
        changed.update(range(len(names), len(before)), range(len(before), len(names)))
        old = {before[row] for row in changed if row < len(before)}
        new = {names[row] for row in changed if row < len(names)}
        places = self._places[: len(names)]
        if len(places) < len(names):
            places = np.concatenate((places, np.zeros(len(names) - len(places), np.int64)))
        gone = sorted(bisect_left(self._sorted, name) for name in old - new)
        kept = _without(self._sorted, gone)
        places -= _up_to(gone, len(before))[places]
        come = sorted(new - old)
        at = [bisect_left(kept, name) for name in come]  # so many of the kept names are before each
        places += _up_to(at, len(before))[places]
        self._sorted = _with(kept, at, come)
        for row in changed:
            if row < len(names):
                places[row] = bisect_left(self._sorted, names[row])
        self._places = places


def _up_to(places: list[int], most: int) -> IntArray:
    """Return `int64[most + 1]`: how many of some places are at most 0, 1, 2, …"""
    return np.cumsum(np.bincount(np.array(places, np.int64), minlength=most + 1))


def _without(names: list[str], places: list[int]) -> list[str]:
    """Return names without those at places, which are in ascending order."""
    found: list[str] = []
    start = 0
    for place in places:
        found += names[start:place]
        start = place + 1
    return found + names[start:]


def _with(names: list[str], places: list[int], more: list[str]) -> list[str]:
    """Return names with more of them before those at places, which are in ascending order."""
    found: list[str] = []
    start = 0
    for place, name in zip(places, more, strict=True):
        found += names[start:place]
        found.append(name)
        start = place
    return found + names[start:]


def name_order(nodes: NodeTable) -> IntArray:
    """Return `int64[nodes]`: the place of each row's name among all names. Read-only."""
    return _order_of(nodes).places()


def name_order_in_steps(nodes: NodeTable) -> Iterator[None]:
    """Prepare `name_order` in steps, between which anything may happen."""
    return _order_of(nodes).in_steps()


def _order_of(nodes: NodeTable) -> NameOrder:
    return nodes.attach("name-order", lambda: NameOrder(nodes))
