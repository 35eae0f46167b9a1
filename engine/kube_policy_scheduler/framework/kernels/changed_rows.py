"""Which rows of the node table changed since the last read: results kept for the others stay valid."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, IntArray, NodeTable

Changed: TypeAlias = slice | Sequence[int]
"""All rows, or the numbers of some, each once. Mostly it is one row, for which an array costs more than it saves."""
_REBUILD_SHARE = 4
"""With more than 1/4 of the rows changed, evaluating all at once is cheaper than gathering them."""
_NO_ROWS: Sequence[int] = ()
_END = attrgetter("end")


class ChangedRows:
    """One reader of some of the table's journals."""

    def __init__(self, nodes: NodeTable, *journals: Journal[int]) -> None:
        """Mark all changes up to now as read."""
        self.nodes = nodes
        self._journals = journals
        self._positions = [journal.end for journal in journals]
        self._identities = nodes.identity_changes.end
        """The end of that journal at the last `_read`; it moves whenever a node goes."""
        self._taken: tuple[list[int], Changed] = (self._positions, _NO_ROWS)
        """The last answer, and the positions that it was read from."""
        self._array: tuple[Sequence[int], IntArray] = (_NO_ROWS, np.zeros(0, np.int64))

    def array(self, rows: Sequence[int]) -> IntArray:
        """Return rows as an array, read-only; of those that it was asked for last, the same one."""
        if self._array[0] is not rows:
            self._array = rows, np.array(rows, np.int64)
        return self._array[1]

    def take(self, *, beside: ChangedRows | None = None) -> Changed | None:
        """Return the rows, or all if many changed; None if what changed is not known row by row.

        beside: a reader of the same journals that was asked a moment ago. If it began where this one is, they get the
        same answer.
        """
        if beside is not None and beside._taken[0] == self._positions and beside._journals == self._journals:
            self._taken, self._positions = beside._taken, beside._positions
            return self._taken[1]
        positions = list(map(_END, self._journals))
        if positions == self._positions:
            return _NO_ROWS
        rows = self._read()
        if rows is not None:
            self._taken = (self._positions, rows)
            self._positions = positions
        return rows

    def take_beside(self, other: ChangedRows) -> bool:
        """Take what another reader of the same journals took a moment ago, if `take` would return it; return whether.

        If not, nothing is taken: what the other one took began elsewhere.
        """
        if self._positions != other._taken[0]:
            return False
        self._taken, self._positions = other._taken, other._positions
        return True

    def _read(self) -> Changed | None:
        size, rows = self.nodes.size, _NO_ROWS
        for journal, position in zip(self._journals, self._positions, strict=True):
            if journal.end == position:
                continue
            changed = journal.since(position)
            if changed is None:
                return None
            rows = [*rows, *changed] if rows else changed
        if len(rows) > 1:
            rows = list(dict.fromkeys(rows))
        if len(rows) * _REBUILD_SHARE > size:
            return ALL_ROWS
        before, self._identities = self._identities, self.nodes.identity_changes.end
        if before == self._identities:  # no node has gone
            return rows
        return rows if max(rows, default=0) < size else [row for row in rows if row < size]
