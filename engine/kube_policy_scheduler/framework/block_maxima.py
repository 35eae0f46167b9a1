"""One total per row, with the highest of each block of rows: a search for the best one visits few of them."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from kube_policy_scheduler.framework.accelerator import Kernels

_ROWS = 128
"""Rows of one block. Each changed row costs a look at its block, each decision one at all maxima."""


class BlockMaxima:
    """Totals of all rows; -inf where a row is excluded."""

    def __init__(self, totals: FloatArray) -> None:
        """Start with `totals`, `float64[rows]`."""
        self._size = 0
        self._totals: FloatArray
        self._maxima: FloatArray
        self._counts: IntArray
        self._set_all(totals)

    @classmethod
    def combined(
        cls,
        kernels: Kernels,
        first: tuple[BoolArray, FloatArray],
        second: tuple[BoolArray, FloatArray],
        *,
        ok: BoolArray,
    ) -> tuple[BlockMaxima, int]:
        """Return the sums of two totals where both are included, and how many rows are: `ok` is written.

        first, second: which rows are included, `bool[rows]`, and the totals, `float64[rows]`.
        """
        self = cls.__new__(cls)
        self._stale = set()
        blocks = len(ok) // _ROWS + 1
        self._size = len(ok)
        self._totals, self._maxima = np.empty(blocks * _ROWS), np.empty(blocks)
        self._counts = np.empty(blocks, np.int64)
        return self, kernels.combine(*first, *second, ok, self._totals, self._maxima, self._counts)

    @property
    def highest(self) -> float:
        """Return the highest total; -inf if no row has one."""
        self._renew()
        return float(self._maxima.max())

    def totals(self, rows: Rows) -> FloatArray:
        """Return the totals of some rows, `float64[rows]`; a view if they are all."""
        return self._totals[: self._size] if isinstance(rows, slice) else self._totals[rows]

    def total(self, row: int) -> float:
        """Return the total of a row."""
        return self._totals.item(row)

    def write(self, rows: IntArray, totals: FloatArray, *, size: int) -> None:
        """Set the totals of some rows; there are `size` rows from now on."""
        if size > len(self._totals):
            grown = self._totals[: self._size]
            grown = np.concatenate((grown, np.full(size - len(grown), -np.inf)))
            grown[rows] = totals
            self._set_all(grown)
            return
        self._totals[rows] = totals
        self._stale.update((rows // _ROWS).tolist())
        if size < self._size:
            self._totals[size : self._size] = -np.inf
            self._stale.update(range(size // _ROWS, (self._size - 1) // _ROWS + 1))
        self._size = size

    def write_one(self, row: int, total: float) -> None:
        """Set the total of a row."""
        self._totals[row] = total
        self._stale.add(row // _ROWS)

    def _renew(self) -> None:
        """Find the maxima of blocks that were written to; decisions that look at all rows need none."""
        if not self._stale:
            return
        if len(self._stale) == 1:
            block = self._stale.pop()
            rows = self._by_block()[block]
            highest = self._maxima[block] = rows.max()
            self._counts[block] = np.count_nonzero(rows == highest)
            return
        blocks = np.array(list(self._stale), np.int64)
        self._stale.clear()
        by_block = self._by_block()[blocks]
        maxima = by_block.max(axis=1)
        self._maxima[blocks] = maxima
        self._counts[blocks] = (by_block == maxima[:, None]).sum(axis=1)

    def tied(self, total: float) -> Tied:
        """Return the rows with the highest total."""
        self._renew()
        return Tied(self, np.flatnonzero(self._maxima == total), total)

    def _set_all(self, totals: FloatArray) -> None:
        self._size = len(totals)
        self._stale: set[int] = set()
        blocks = len(totals) // _ROWS + 1
        self._totals = np.full(blocks * _ROWS, -np.inf)
        self._totals[: len(totals)] = totals
        by_block = self._by_block()
        self._maxima = by_block.max(axis=1)
        self._counts = (by_block == self._maxima[:, None]).sum(axis=1)

    def _by_block(self) -> FloatArray:
        return self._totals.reshape(-1, _ROWS)


class Tied:
    """Rows that have the highest total, found block by block on demand."""

    def __init__(self, maxima: BlockMaxima, blocks: IntArray, total: float) -> None:
        self._maxima = maxima
        self._total = total
        self.blocks = blocks
        """The blocks with such a row."""

    def __len__(self) -> int:
        return int(self._maxima._counts[self.blocks].sum())

    def rows(self) -> IntArray:
        """Return all of them."""
        block, place = (self._maxima._by_block()[self.blocks] == self._total).nonzero()
        found: IntArray = self.blocks[block] * _ROWS + place
        return found

    def among(self, rows: IntArray) -> IntArray:
        """Return those of the given rows that are."""
        found: IntArray = rows[self._maxima._totals[rows] == self._total]
        return found
