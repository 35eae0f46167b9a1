"""Which container images are on which rows of the node table, kept up to date node by node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kube_policy_scheduler.cluster.objects import ContainerImage
from kube_policy_scheduler.cluster.static_columns import IntArray

_DENSE_SHARE = 64
"""An image on more than one row in this many has a column of bits: a set of row numbers would take more memory."""
_FIRST_CAPACITY = 64
_MOST_NEW = 4_096
"""Rows whose images wait to be taken in: some milliseconds."""


class Image:
    """One image, under one of its names."""

    __slots__ = ("_bits", "_rows", "array", "count", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        """As the first node reported it; kept until no node has the image."""
        self.count = 0
        """Rows that have it."""
        self._rows: set[int] = set()
        self._bits: bytearray | None = None
        """A bit for each row, the lowest of a byte first, instead of `_rows` once there are many: 16 kB for 130,000."""
        self.array: IntArray | None = None
        """What `row_array` returned, while that holds."""

    def has(self, row: int) -> bool:
        """Return whether a row has it."""
        if self._bits is not None:
            return row >> 3 < len(self._bits) and self._bits[row >> 3] >> (row & 7) & 1 == 1
        return row in self._rows

    def row_array(self) -> IntArray:
        """Return `int64[holders]`: the rows that have it."""
        if self.array is None:
            if self._bits is not None:
                bits = np.frombuffer(bytes(self._bits), np.uint8)
                self.array = np.unpackbits(bits, bitorder="little").nonzero()[0]
            else:
                self.array = np.fromiter(self._rows, np.int64, len(self._rows))
        return self.array

    def add(self, rows: IntArray, *, capacity: int) -> None:
        """Note that different rows have it; capacity: of the node table."""
        self.array = None
        if self._bits is None:
            self._rows.update(rows.tolist())
            self.count = len(self._rows)
            if self.count * _DENSE_SHARE > capacity > _DENSE_SHARE:
                self._bits = bytearray(_bytes_for(capacity))
                self._set(np.fromiter(self._rows, np.int64, self.count))
                self._rows = set()
            return
        if int(rows.max()) >> 3 >= len(self._bits):
            self._bits.extend(bytes(_bytes_for(capacity) - len(self._bits)))
        if len(rows) == 1:
            self.count += not self.has(row := rows.item())
            self._bits[row >> 3] |= 1 << (row & 7)
            return
        self.count += self._set(rows)

    def _set(self, rows: IntArray) -> int:
        """Set the bits of different rows; return how many were not set."""
        assert self._bits is not None
        bits = np.frombuffer(self._bits, np.uint8)
        places, ones = rows >> 3, _ONES[rows & 7]
        known = np.count_nonzero(bits[places] & ones)
        np.bitwise_or.at(bits, places, ones)
        return len(rows) - int(known)

    def discard(self, row: int) -> None:
        """Note that a row does not have it."""
        if not self.has(row):
            return
        self.count -= 1
        self.array = None
        if self._bits is not None:
            self._bits[row >> 3] &= ~(1 << (row & 7))
        else:
            self._rows.discard(row)


_ONES = np.left_shift(np.uint8(1), np.arange(8, dtype=np.uint8))


def _bytes_for(rows: int) -> int:
    return (rows + 7) >> 3


class ImageTable:
    """All images by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Image] = {}
        self._capacity = _FIRST_CAPACITY
        self._new: list[tuple[int, Sequence[ContainerImage]]] = []
        """What was added since the last read, by row: of a first list, it is taken in image by image."""

    def get(self, name: str) -> Image | None:
        """Return an image that some node has."""
        if self._new:
            self._settle()
        return self._by_name.get(name)

    def add(self, row: int, images: Sequence[ContainerImage]) -> None:
        """Count images as present on a row."""
        if row >= self._capacity:
            self._capacity = max(row + 1, 2 * self._capacity)
        if images:
            self._new.append((row, images))
            if len(self._new) >= _MOST_NEW:
                self._settle()

    def _settle(self) -> None:
        """Take in what was added. The first row that has a name says how large the image is."""
        new, self._new = self._new, []
        rows_with: dict[int, tuple[Sequence[ContainerImage], list[int]]] = {}
        for row, images in new:  # many rows may have the same list
            rows_with.setdefault(id(images), (images, []))[1].append(row)
        rows_of: dict[int, tuple[ContainerImage, list[IntArray]]] = {}
        repeats = len({row for row, _ in new}) < len(new)
        for images, having in rows_with.values():
            rows = np.array(having)
            repeats = repeats or len(set(map(id, images))) < len(images)  # a node may list an image twice
            for each in images:
                rows_of.setdefault(id(each), (each, []))[1].append(rows)
        for each, found in rows_of.values():
            rows = np.concatenate(found)
            if repeats:
                rows = np.unique(rows)
            for name in each.names or ():
                image = self._by_name.get(name)
                if image is None:
                    image = self._by_name[name] = Image(each.size_bytes)
                image.add(rows, capacity=self._capacity)

    def discard(self, row: int, names: Iterable[str]) -> None:
        """Count images as no longer present on a row."""
        self._settle()
        for name in names:
            image = self._by_name.get(name)
            if image is None:
                continue  # the node was changed in place after it was added
            image.discard(row)
            if not image.count:
                del self._by_name[name]

    def move(self, source: int, target: int, names: Iterable[str]) -> None:
        """Follow the node with these images from one row to another."""
        self._settle()
        for name in names:
            image = self._by_name[name]
            image.discard(source)
            image.add(np.array([target]), capacity=self._capacity)
