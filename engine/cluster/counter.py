"""How many pods of one set are on each node, and what changed of late. Knows nothing of who counts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cluster.affinity import NamespaceLabels
from engine.cluster.pods import PodTemplate

CountArray = NDArray[np.int32]

_JOURNAL_LIMIT = 512
"""Changes remembered by a counter; who lags further behind adds up all nodes again (some 20 µs at 5,000)."""


class PodSet(Hashable, Protocol):
    """A set of pods that can be counted: membership follows from the template and its namespace's labels."""

    @property
    def reads_namespaces(self) -> bool:
        """Return whether membership depends on the labels of namespaces."""
        ...

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        ...


class CountKey(NamedTuple):
    """What a counter counts."""

    pods: PodSet
    terminating: bool
    """Whether pods that are being deleted count (pod affinity) or not (spreading)."""


class NodeRows(Protocol):
    """What knows how many rows the node table has."""

    size: int


class Counter:
    """How many pods of one set are on each node."""

    __slots__ = ("_column", "_journal", "_journal_start", "_owner", "key", "live", "used")

    def __init__(self, key: CountKey, *, owner: NodeRows, column: CountArray) -> None:
        self.key = key
        self.live = True
        """False once it is no longer kept up to date: ask for it again."""
        self.used = True
        """Set by who reads a counter without asking for it again, so that it is not dropped."""
        self._owner = owner
        self._column = column
        self._journal: list[int] = []
        self._journal_start = 0

    def per_node(self) -> CountArray:
        """Return `int32[nodes]`."""
        return self._column[: self._owner.size]

    @property
    def version(self) -> int:
        """Return a number that grows with every change, except that rows move (see `NodeTable.version`)."""
        return self._journal_start + len(self._journal)

    def changed_since(self, version: int) -> Sequence[int] | None:
        """Return the changes after a version: `row` for a pod more there, `~row` for one less.

        None means that it is too long ago to know.
        """
        return self._journal[version - self._journal_start :] if version >= self._journal_start else None

    def bump(self, row: int, step: int) -> None:
        """Count one pod more (`step` 1) or less (-1) on a node."""
        self._column[row] += step
        self._journal.append(row if step > 0 else ~row)
        if len(self._journal) > _JOURNAL_LIMIT:
            drop = _JOURNAL_LIMIT // 2
            del self._journal[:drop]
            self._journal_start += drop

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        self._column[target], self._column[source] = self._column[source], 0

    def extend(self, more: int) -> None:
        """Make room for more rows."""
        self._column = np.concatenate((self._column, np.zeros(more, np.int32)))
