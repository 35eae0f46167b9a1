"""Rows of the node table in groups by a hash of the name: a choice among many equal nodes visits few of them."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.static_columns import IntArray, ValueColumn

Hashes = NDArray[np.uint64]
_BITS = 64
_ROWS_IN_A_GROUP = 128
"""At most, on average: with more rows the number of groups doubles."""


class HashedRows:
    """The hash of each name by row, and the rows by the first bits of their hash.

    Which group a name is in depends on the name and on the number of rows only, not on their order.
    """

    def __init__(self) -> None:
        self._hashes = ValueColumn((), np.uint64)
        self._group_of = ValueColumn((), np.int64)
        self._bits = 0
        """There are `2 ** bits` groups."""
        self._groups: list[set[int]] = [set()]
        self._arrays: dict[int, IntArray] = {}
        self._group_hashes: Hashes = _hashes_of_groups(1)

    @property
    def hashes(self) -> Hashes:
        """Return `uint64[rows]`: the hash of each name."""
        return self._hashes.values

    @property
    def group_hashes(self) -> Hashes:
        """Return `uint64[groups]`: a hash of each group's number."""
        return self._group_hashes

    @property
    def groups(self) -> IntArray:
        """Return `int64[rows]`: the group of each row."""
        return self._group_of.values

    def rows(self, group: int) -> IntArray:
        """Return the rows of a group, in no order."""
        array = self._arrays.get(group)
        if array is None:
            members = self._groups[group]
            array = self._arrays[group] = np.fromiter(members, np.int64, len(members))
        return array

    def append(self, name: str) -> None:
        """Add a row after the last one."""
        row, value = len(self.hashes), hash_of(name)
        self._hashes.write(row, value)
        self._group_of.write(row, value >> (_BITS - self._bits))
        if not self._resize():
            self._change(row).add(row)

    def remove(self, row: int) -> None:
        """Drop a row; the last one moves into its place."""
        last = len(self.hashes) - 1
        self._change(row).discard(row)
        if row != last:
            there = self._change(last)
            there.discard(last)
            there.add(row)
        self._hashes.remove(row)
        self._group_of.remove(row)
        self._resize()

    def _change(self, row: int) -> set[int]:
        """Return the group of a row, which is about to change."""
        group = int(self.groups[row])
        self._arrays.pop(group, None)
        return self._groups[group]

    def _resize(self) -> bool:
        """Group all rows again if their number requires other groups; return whether it did."""
        size = len(self.hashes)
        bits = max(0, (max(size - 1, 0) // _ROWS_IN_A_GROUP).bit_length())
        if bits == self._bits:
            return False
        self._bits = bits
        self._group_hashes = _hashes_of_groups(2**bits)
        groups = (self.hashes >> np.uint64(_BITS - bits)).astype(np.int64) if bits else np.zeros(size, np.int64)
        self._group_of = ValueColumn(groups.tolist(), np.int64)
        order = np.argsort(groups)
        starts = np.searchsorted(groups[order], np.arange(2**bits + 1)).tolist()
        self._groups = [set(order[start:end].tolist()) for start, end in pairwise(starts)]
        self._arrays = {}
        return True


def hash_of(text: str) -> int:
    """Return 64 bits that follow from a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _hashes_of_groups(count: int) -> Hashes:
    return np.fromiter((hash_of(f"group {number}") for number in range(count)), np.uint64, count)
