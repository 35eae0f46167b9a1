"""Rows of the node table in groups by a hash of the name: a choice among many equal nodes visits few of them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.static_columns import IntArray, ValueColumn

Hashes = NDArray[np.uint64]
_Table: TypeAlias = NDArray[np.int64]
_BITS = 64
_ROWS_IN_A_GROUP = 128
"""At most, on average: with more rows the number of groups doubles."""
_SPARE_ROOM = 8
"""For rows that are yet to come."""
_MANY_NEW = 1_000
"""With more new rows, all rows are grouped again."""
_HASHING = blake2b(digest_size=8)


class HashedRows:
    """The hash of each name by row, and the rows by the first bits of their hash.

    Which group a name is in depends on the name and on the number of rows only, not on their order.
    """

    def __init__(self) -> None:
        self._hashes = ValueColumn((), np.uint64)
        self._group_of = ValueColumn((), np.int64)
        self._new: list[int] = []
        """Hashes of rows that were appended since the last read."""
        self._bits = 0
        """There are `2 ** bits` groups."""
        self._members: _Table = np.zeros((1, _ROWS_IN_A_GROUP), np.int64)
        """`int64[groups, room]`: the rows of each group, in no order."""
        self._sizes: IntArray = np.zeros(1, np.int64)
        """`int64[groups]`: how many they are."""
        self._group_hashes: Hashes = _hashes_of_groups(1)
        self._columns: tuple[Hashes, IntArray, Hashes, _Table, IntArray] | None = None
        """The result of `columns`, until the rows change."""

    @property
    def hashes(self) -> Hashes:
        """Return `uint64[rows]`: the hash of each name."""
        self._settle()
        return self._hashes.values

    @property
    def group_hashes(self) -> Hashes:
        """Return `uint64[groups]`: a hash of each group's number."""
        self._settle()
        return self._group_hashes

    @property
    def groups(self) -> IntArray:
        """Return `int64[rows]`: the group of each row."""
        self._settle()
        return self._group_of.values

    def rows(self, group: int) -> IntArray:
        """Return the rows of a group, in no order: a view."""
        self._settle()
        return self._members[group, : self._sizes.item(group)]

    def columns(self) -> tuple[Hashes, IntArray, Hashes, _Table, IntArray]:
        """Return what compiled loops read.

        They are `hashes`, `groups`, `group_hashes`, and the rows by group: `int64[groups, room]`, and their numbers,
        `int64[groups]`.
        """
        if self._new or self._columns is None:
            self._settle()
            hashes, groups = self._hashes.values, self._group_of.values
            self._columns = hashes, groups, self._group_hashes, self._members, self._sizes
        return self._columns

    def extend(self, names: Iterable[str]) -> None:
        """Add rows after the last one."""
        self._new += map(hash_of, names)

    def _settle(self) -> None:
        """Take in the rows that were appended: of a first list, all at once."""
        if not self._new:
            return
        new, self._new, self._columns = self._new, [], None
        known = self._hashes.values
        if len(new) > _MANY_NEW:
            whole = np.concatenate((known, np.array(new, np.uint64)))
            self._hashes = ValueColumn((), np.uint64)
            self._hashes.extend(whole)
            self._group(len(whole))
            return
        for value in new:
            row = len(self._hashes.values)
            self._hashes.write(row, value)
            self._group_of.write(row, value >> (_BITS - self._bits))
            if not self._resize():
                self._put(row, self._group_of.values.item(row))

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        last = len(self.hashes) - 1
        self._columns = None
        self._take(row)
        if row != last:
            self._put(row, self._take(last))
        self._hashes.remove(row)
        self._group_of.remove(row)
        self._resize()

    def _put(self, row: int, group: int) -> None:
        size = self._sizes.item(group)
        if size == self._members.shape[1]:
            self._members = np.concatenate((self._members, np.zeros_like(self._members)), axis=1)
        self._members[group, size] = row
        self._sizes[group] = size + 1

    def _take(self, row: int) -> int:
        """Take a row out of its group, and return that."""
        group: int = self._group_of.values.item(row)
        members, last = self._members[group], self._sizes.item(group) - 1
        members[members[: last + 1].tolist().index(row)] = members[last]
        self._sizes[group] = last
        return group

    def _resize(self) -> bool:
        """Group all rows again if their number requires other groups; return whether it did."""
        size = len(self._hashes.values)
        if _bits(size) == self._bits:
            return False
        self._group(size)
        return True

    def _group(self, size: int) -> None:
        bits = self._bits = _bits(size)
        self._group_hashes = _hashes_of_groups(2**bits)
        groups = (self._hashes.values >> np.uint64(_BITS - bits)).astype(np.int64) if bits else np.zeros(size, np.int64)
        self._group_of = ValueColumn((), np.int64)
        self._group_of.extend(groups)
        order = np.argsort(groups)
        self._sizes = np.bincount(groups, minlength=2**bits)
        places = np.arange(size) - np.repeat(self._sizes.cumsum() - self._sizes, self._sizes)
        self._members = np.zeros((2**bits, int(self._sizes.max(initial=0)) + _SPARE_ROOM), np.int64)
        self._members[groups[order], places] = order


def _bits(size: int) -> int:
    return max(0, (max(size - 1, 0) // _ROWS_IN_A_GROUP).bit_length())


def hash_of(text: str) -> int:
    """Return 64 bits that follow from a text."""
    hashing = _HASHING.copy()  # faster than a new one
    hashing.update(text.encode())
    return int.from_bytes(hashing.digest())


def _hashes_of_groups(count: int) -> Hashes:
    return np.fromiter((hash_of(f"group {number}") for number in range(count)), np.uint64, count)
