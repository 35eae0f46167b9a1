"""One total per row, with the highest of each block of rows: a search for the best one visits few of them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol

import numpy as np

from kube_policy_scheduler.cluster.domains import Topology
from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.framework.kernels.accelerator import Accelerator

_ROWS = 128
"""Rows of one block. Each changed row costs a look at its block, each decision one at all maxima."""
_FEWEST_ROWS = 16
"""With fewer nodes in a domain, on average, blocks by domain save nothing."""
_MOST_MOVED = 16
"""With more rows in another domain, or gone, it is cheaper to rebuild all blocks: with 130,000 nodes it takes 5 ms."""
_MOST_PLACES = 2
"""Times the rows, besides one block for each domain."""
_MOST_TOPOLOGIES = 16
_IN_ORDER: IntArray = np.zeros(0, np.int64)


class BlockMaxima(Measured):
    """Totals of all rows; -inf where a row is excluded."""

    def __init__(self, totals: FloatArray, accelerator: Accelerator | None = None, *, rows: int = _ROWS) -> None:
        """Start with `totals`, `float64[rows]`; `rows` are those of one block, a power of two."""
        self._accelerator = accelerator or Accelerator()
        self._rows = rows
        self._size = 0
        self._totals: FloatArray
        self._maxima: FloatArray
        self._counts: IntArray
        self._set_all(totals)

    @classmethod
    def room(cls, size: int, accelerator: Accelerator) -> BlockMaxima:
        """Return totals for so many rows that `combine` writes."""
        self = cls.__new__(cls)
        self._accelerator = accelerator
        self._rows = _ROWS
        self._stale = set()
        self._size = size
        blocks = size // _ROWS + 1
        self._totals, self._maxima = np.empty(blocks * _ROWS), np.empty(blocks)
        self._counts = np.empty(blocks, np.int64)
        return self

    def copy(self) -> BlockMaxima:
        """Return the same totals in columns of their own: a quarter of the time to find all maxima again."""
        result = copy(self)
        totals, maxima, counts = self.columns()
        result._totals, result._maxima, result._counts = totals.copy(), maxima.copy(), counts.copy()
        result._stale = set()
        return result

    def combine(
        self,
        first: tuple[BoolArray, FloatArray],
        second: tuple[BoolArray, FloatArray],
        *,
        ok: BoolArray,
    ) -> int:
        """Set the totals to the sums of two totals where both are included; return how many rows are: `ok` is written.

        first, second: which rows are included, `bool[rows]`, and the totals, `float64[rows]`.
        """
        self._stale.clear()
        kernels = self._accelerator.kernels
        assert kernels is not None
        return kernels.combine(*first, *second, ok, self._totals, self._maxima, self._counts)

    @property
    def highest(self) -> float:
        """Return the highest total; -inf if no row has one."""
        self._renew()
        return self._maxima.item(self._maxima.argmax())

    def of_blocks(self) -> FloatArray:
        """Return `float64[blocks]`: the highest total of each."""
        self._renew()
        return self._maxima

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
        kernels = self._accelerator.kernels
        if kernels is not None:
            kernels.write(rows, totals, self._totals, self._maxima, self._counts)
        else:
            self._totals[rows] = totals
            self._stale.update((rows // self._rows).tolist())
        if size < self._size:
            self._totals[size : self._size] = -np.inf
            self._stale.update(range(size // self._rows, (self._size - 1) // self._rows + 1))
        self._size = size

    @property
    def written(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return `columns` for compiled loops that write to them."""
        return self._totals, self._maxima, self._counts

    @property
    def places(self) -> IntArray:
        """Return where they write the total of each row, `int64[rows]`; of length 0: in the order of rows."""
        return _IN_ORDER

    def write_one(self, row: int, total: float) -> None:
        """Set the total of a row; its block is only searched if no other row has what was the highest total there."""
        # items are read and written one by one: `+=` on an array takes longer
        totals = self._totals
        before, block = totals.item(row), row // self._rows
        totals[row] = total
        if before == total or block in self._stale:
            return
        highest, counts = self._maxima.item(block), self._counts
        if total > highest:
            self._maxima[block], counts[block] = total, 1
        elif total == highest:
            counts[block] = counts.item(block) + 1
        elif not (before < highest and total < highest):  # also where one of them is NaN
            if total < highest and (count := counts.item(block)) > 1:
                counts[block] = count - 1
            else:
                self._stale.add(block)

    def _renew(self) -> None:
        """Find the maxima of blocks that were written to; decisions that look at all rows need none."""
        if not self._stale:
            return
        if len(self._stale) == 1:
            block = self._stale.pop()
            rows = self._totals[block * self._rows : (block + 1) * self._rows]
            highest = self._maxima[block] = rows.item(rows.argmax())
            self._counts[block] = np.count_nonzero(rows == highest)
            return
        blocks = np.array(list(self._stale), np.int64)
        self._stale.clear()
        by_block = self.by_block()[blocks]
        maxima = by_block.max(axis=1)
        self._maxima[blocks] = maxima
        self._counts[blocks] = (by_block == maxima[:, None]).sum(axis=1)

    def best(self) -> Tied:
        """Return the rows with the highest total."""
        highest = self.highest
        return Tied(self, (self._maxima == highest).nonzero()[0], highest)

    def columns(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return what compiled loops search, read-only.

        They are `float64[blocks * rows of one]`: the totals, -inf beyond the last row; `float64[blocks]`: the highest
        of each block; and `int64[blocks]`: how many rows there have it.
        """
        if self._stale:
            self._renew()
        return self._totals, self._maxima, self._counts

    def _set_all(self, totals: FloatArray) -> None:
        self._size = len(totals)
        self._stale: set[int] = set()
        blocks = len(totals) // self._rows + 1
        self._totals = np.full(blocks * self._rows, -np.inf)
        self._totals[: len(totals)] = totals
        by_block = self.by_block()
        self._maxima = by_block.max(axis=1)
        self._counts = (by_block == self._maxima[:, None]).sum(axis=1)

    def by_block(self) -> FloatArray:
        """Return `float64[blocks, rows of one]`: the totals; -inf beyond the last row."""
        return self._totals.reshape(-1, self._rows)


class Tied:
    """Rows that have the highest total, found block by block on demand."""

    def __init__(self, maxima: BlockMaxima, blocks: IntArray, total: float) -> None:
        self._maxima = maxima
        self.total = total
        """The highest total."""
        self.blocks = blocks
        """The blocks with such a row."""

    def __len__(self) -> int:
        counts = self._maxima._counts
        return counts.item(self.blocks.item()) if len(self.blocks) == 1 else int(counts[self.blocks].sum())

    def rows(self) -> IntArray:
        """Return all of them."""
        found: IntArray
        if len(self.blocks) == 1:
            first = self.blocks.item() * self._maxima._rows
            found = (self._maxima._totals[first : first + self._maxima._rows] == self.total).nonzero()[0]
            found += first
            return found
        block, place = (self._maxima.by_block()[self.blocks] == self.total).nonzero()
        found = self.blocks[block] * self._maxima._rows + place
        return found

    def among(self, rows: IntArray) -> IntArray:
        """Return those of the given rows that are."""
        found: IntArray = rows[self._maxima._totals[rows] == self.total]
        return found


class TiedRows(Protocol):
    """Rows that have the highest total."""

    total: float
    """That total."""
    blocks: IntArray
    """The blocks with such a row."""

    def __len__(self) -> int:
        """Return how many they are."""
        ...

    def rows(self) -> IntArray:
        """Return all of them."""
        ...

    def among(self, rows: IntArray) -> IntArray:
        """Return those of the given rows that are."""
        ...


class DomainBlocks:
    """Rows in blocks that lie in one domain each."""

    def __init__(self, domains: Topology, *, block: int) -> None:
        """Put the rows of each domain, and those without one, into blocks of so many rows."""
        counts = np.bincount(domains.index, minlength=domains.slots)
        padded = -(-counts // block) * block
        order = domains.index.argsort(kind="stable")
        before = np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.repeat(np.cumsum(padded) - padded, counts)
        places = starts + np.arange(len(order)) - before
        self.slots = domains.slots
        self.block = block
        """Rows of one block."""
        self.domain: IntArray = np.repeat(np.arange(domains.slots), padded // block)
        """`int64[blocks]`: the domain of each block."""
        self.place: IntArray = np.empty(len(order), np.int64)
        """`int64[rows]`: the place of each row."""
        self.place[order] = places
        self.row: IntArray = np.full(int(padded.sum()), -1, np.int64)
        """`int64[places]`: the row at each place, -1 where there is none."""
        self.row[places] = order
        self._index = domains.index
        self.moves: Journal[int] = Journal()
        """Places with another row than before; the same journal as that of the blocks that these were made from."""
        self.position = 0
        """The position in it that these blocks are of."""

    def followed(self, domains: Topology) -> DomainBlocks | None:
        """Return these blocks with the domains of rows as they are now; None if it is cheaper to rebuild all.

        To be called once: then the result takes the place of this object.
        """
        before, now = self._index, domains.index
        both = min(len(before), len(now))
        moved = (before[:both] != now[:both]).nonzero()[0].tolist()
        gone, come = [*moved, *range(both, len(before))], [*moved, *range(both, len(now))]
        if domains.slots != self.slots or len(gone) + len(come) > _MOST_MOVED:
            return None
        place, row, of_blocks = np.empty(len(now), np.int64), self.row.copy(), self.domain
        place[:both] = self.place[:both]
        touched = self.place[gone].tolist()
        row[touched] = -1
        for each in come:
            domain = now.item(each)
            blocks = (of_blocks == domain).nonzero()[0]
            free = (row.reshape(-1, self.block)[blocks] < 0).ravel().nonzero()[0]
            if len(free):
                found = blocks.item(free[0] // self.block) * self.block + int(free[0] % self.block)
            else:
                found, of_blocks = len(row), np.append(of_blocks, domain)
                row = np.concatenate((row, np.full(self.block, -1)))
            row[found], place[each] = each, found
            touched.append(found)
        if len(row) > _MOST_PLACES * len(now) + self.slots * self.block:
            return None
        self.moves.note_many(touched)
        result = copy(self)
        result.domain, result.place, result.row = of_blocks, place, row
        result._index, result.position = now, self.moves.end
        return result


def domain_blocks(nodes: NodeTable, domains: Topology) -> DomainBlocks | None:
    """Return the rows by domain, kept until the label changes; None if the domains are too small for it."""
    column = nodes.label(domains.key)
    newest: dict[str, DomainBlocks] = nodes.attach("domain blocks", dict)
    return nodes.derive_from(column, ("domain blocks", domains.key), lambda: _domain_blocks(domains, newest))


def _domain_blocks(domains: Topology, newest: dict[str, DomainBlocks]) -> DomainBlocks | None:
    rows = len(domains.index) // max(1, domains.size)
    before = newest.pop(domains.key, None)
    if rows < _FEWEST_ROWS:
        return None
    block = min(_ROWS, 1 << (rows.bit_length() - 1))
    found = before.followed(domains) if before is not None and before.block == block else None
    if len(newest) >= _MOST_TOPOLOGIES:
        newest.clear()
    newest[domains.key] = found = found if found is not None else DomainBlocks(domains, block=block)
    return found


class DomainMaxima(Measured):
    """Totals of all rows, to which a score by domain is added when the highest is sought; -inf for excluded rows."""

    def __init__(self, totals: FloatArray, blocks: DomainBlocks, accelerator: Accelerator | None = None) -> None:
        """Start with `totals`, `float64[rows]`."""
        placed = np.full(len(blocks.row), -np.inf)
        placed[blocks.place] = totals
        self._blocks = blocks
        self._maxima = BlockMaxima(placed, accelerator, rows=blocks.block)

    @property
    def written(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return `BlockMaxima.written`."""
        return self._maxima.written

    @property
    def places(self) -> IntArray:
        """Return `BlockMaxima.places`."""
        return self._blocks.place

    def follow(self, blocks: DomainBlocks) -> Sequence[int] | None:
        """Lay the totals out as other blocks; return the rows to write then, None if these blocks are unrelated."""
        if blocks is self._blocks:
            return ()
        known = blocks.moves is self._blocks.moves
        moves = blocks.moves.since(self._blocks.position) if known else None
        if moves is None:
            return None
        places = np.array(moves, np.int64)
        rows, size = blocks.row[places], len(blocks.row)
        empty = places[rows < 0]
        self._maxima.write(empty, np.full(len(empty), -np.inf), size=size)
        self._blocks = blocks
        found: list[int] = rows[rows >= 0].tolist()
        return found

    def write(self, rows: IntArray, totals: FloatArray, *, size: int) -> None:
        """Set the totals of some rows; blocks hold their number, see `follow`."""
        self._maxima.write(self._blocks.place[rows], totals, size=len(self._blocks.row))

    def write_one(self, row: int, total: float) -> None:
        """Set the total of a row."""
        self._maxima.write_one(self._blocks.place.item(row), total)

    def feasible(self) -> BoolArray:
        """Return `bool[slots]`: the domains with a row that is not excluded."""
        result = np.zeros(self._blocks.slots, np.bool_)
        result[self._blocks.domain[self._maxima.of_blocks()[: len(self._blocks.domain)] > -np.inf]] = True
        return result

    def best(self, scores: FloatArray) -> TiedRows:
        """Return the rows with the highest total; `scores`, `float64[slots]`, are added by domain.

        Rounding keeps the order of sums with the same number, so the highest row of a block stays its highest.
        """
        of_blocks = scores[self._blocks.domain]
        sums = self._maxima.of_blocks()[: len(of_blocks)] + of_blocks
        total = float(sums.max())
        return _TiedInDomains(self._maxima, self._blocks, scores, np.flatnonzero(sums == total), total)


class _TiedInDomains:
    def __init__(
        self, maxima: BlockMaxima, layout: DomainBlocks, scores: FloatArray, blocks: IntArray, total: float
    ) -> None:
        self._maxima = maxima
        self._layout = layout
        self._scores = scores
        self.total = total
        self.blocks = blocks
        self._ties: BoolArray | None = None

    def _tying(self) -> BoolArray:
        """Return `bool[blocks, rows of one]`: which rows of the blocks tie.

        They are more than those that have the highest total of their block where rounding makes sums equal.
        """
        if self._ties is None:
            sums = self._maxima.by_block()[self.blocks] + self._scores[self._layout.domain[self.blocks]][:, None]
            self._ties = sums == self.total
        return self._ties

    def __len__(self) -> int:
        return int(np.count_nonzero(self._tying()))

    def rows(self) -> IntArray:
        block, place = self._tying().nonzero()
        found: IntArray = self._layout.row[self.blocks[block] * self._layout.block + place]
        return found

    def among(self, rows: IntArray) -> IntArray:
        places = self._layout.place[rows]
        sums = self._maxima.totals(places) + self._scores[self._layout.domain[places // self._layout.block]]
        found: IntArray = rows[sums == self.total]
        return found
