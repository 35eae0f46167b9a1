"""Which rows of the node table changed since the last read: results kept for the others stay valid."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, IntArray, NodeTable, Rows

_REBUILD_SHARE = 4
"""With more than 1/4 of the rows changed, evaluating all at once is cheaper than gathering them."""
_NO_ROWS: IntArray = np.zeros(0, np.int64)


class ChangedRows:
    """One reader of some of the table's journals."""

    def __init__(self, nodes: NodeTable, *journals: Journal[int]) -> None:
        """Mark all changes up to now as read."""
        self.nodes = nodes
        self._journals = journals
        self._positions = [journal.end for journal in journals]

    def take(self) -> Rows | None:
        """Return the rows, or all if many changed; None if what changed is not known row by row."""
        positions = [journal.end for journal in self._journals]
        if positions == self._positions:
            return _NO_ROWS
        size, rows = self.nodes.size, set[int]()
        for journal, position in zip(self._journals, self._positions, strict=True):
            changed = journal.since(position)
            if changed is None:
                return None
            rows.update(changed)
        self._positions = positions
        if len(rows) * _REBUILD_SHARE > size:
            return ALL_ROWS
        return np.array([row for row in rows if row < size], np.int64)
