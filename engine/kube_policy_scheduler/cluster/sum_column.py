"""Columns of sums of amounts that people write: exact for any input. Knows nothing of its users.

`8Ei` is a legal request, and two of them are more than int64 holds: added up carelessly they leave a node with all its
room free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.quantities.quantity import MAX_INT64

_Column = NDArray[np.int64]
_Rows = NDArray[np.intp]


class SumColumn:
    """One sum per row. What is shown is at most `most`; sums beyond it are kept exactly, outside the column."""

    __slots__ = ("_beyond", "_most", "whole")

    def __init__(self, whole: _Column, *, most: int = MAX_INT64) -> None:
        """Keep the sums in a column of zeros; show at most this much."""
        self.whole = whole
        """`int64[capacity]`"""
        self._most = most
        self._beyond: dict[int, int] = {}
        """Sums that the column cannot show, by row."""

    def add(self, row: int, amount: int) -> None:
        """Add an amount, which may be negative."""
        beyond, most = self._beyond, self._most
        total = amount + (beyond.pop(row) if beyond and row in beyond else self.whole.item(row))
        if not -most <= total <= most:
            beyond[row] = total
            total = most if total > 0 else -most
        self.whole[row] = total

    def add_many(self, rows: _Rows, kinds: _Rows, amounts: list[int], *, sign: int) -> None:
        """Add `amounts[kinds[i]]` to `rows[i]` for each i (`sign` 1), or subtract it (-1); rows may be the same."""
        if not any(amounts):
            return
        if self._beyond or min(amounts) < 0 or int(self.whole[rows].max()) + max(amounts) * len(rows) > self._most:
            for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
                self.add(row, sign * amounts[kind])
        else:
            np.add.at(self.whole, rows, np.array([sign * amount for amount in amounts], np.int64)[kinds])

    def beyond(self) -> list[int]:
        """Return the rows whose sum differs from the shown value."""
        return list(self._beyond)

    def clear(self, row: int) -> None:
        """Set a row's sum to 0."""
        self._beyond.pop(row, None)
        self.whole[row] = 0

    def move(self, source: int, target: int) -> None:
        """Follow a row to another place; 0 is left behind."""
        self.clear(target)
        self.whole[target], self.whole[source] = self.whole[source], 0
        if source in self._beyond:
            self._beyond[target] = self._beyond.pop(source)

    def extend(self, whole: _Column) -> None:
        """Go on in a larger column, in which the sums stand already."""
        self.whole = whole


def plus(column: _Column, amount: int) -> _Column:
    """Return a column plus an amount of at least 0, at most the largest int64."""
    result: _Column = np.minimum(column, MAX_INT64 - amount) + amount
    return result


def exact_sum(column: _Column) -> int:
    """Return the sum of a column, which may exceed int64."""
    return sum(column.tolist())
