"""Which container images are on which rows of the node table, kept up to date node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

_DENSE_SHARE = 64
"""An image on more than one row in so many has a column: a set of row numbers would take more memory."""
_FIRST_CAPACITY = 64


class Image:
    """One image, under one of its names."""

    __slots__ = ("_rows", "array", "column", "count", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        """As the first node reported it; kept until no node has the image."""
        self.count = 0
        """Rows that have it."""
        self._rows: set[int] = set()
        self.column: bytearray | None = None
        """1 for each row that has it, instead of `_rows` once there are many."""
        self.array: NDArray[np.int64] | None = None
        """What `row_array` returned, while that holds."""

    def has(self, row: int) -> bool:
        """Return whether a row has it."""
        if self.column is not None:
            return row < len(self.column) and self.column[row] == 1
        return row in self._rows

    def row_array(self) -> NDArray[np.int64]:
        """Return `int64[holders]`: the rows that have it."""
        if self.array is None:
            if self.column is not None:
                self.array = np.frombuffer(bytes(self.column), np.bool_).nonzero()[0]
            else:
                self.array = np.fromiter(self._rows, np.int64, len(self._rows))
        return self.array

    def add(self, row: int, *, capacity: int) -> None:
        """Note that a row has it; capacity: of the node table."""
        if self.has(row):
            return
        self.count += 1
        self.array = None
        column = self.column
        if column is not None:
            if row >= len(column):
                column.extend(bytes(capacity - len(column)))
            column[row] = 1
            return
        self._rows.add(row)
        if self.count * _DENSE_SHARE > capacity > _DENSE_SHARE:
            self.column = bytearray(capacity)
            for each in self._rows:
                self.column[each] = 1
            self._rows = set()

    def discard(self, row: int) -> None:
        """Note that a row does not have it."""
        if not self.has(row):
            return
        self.count -= 1
        self.array = None
        if self.column is not None:
            self.column[row] = 0
        else:
            self._rows.discard(row)


class ImageTable:
    """All images by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Image] = {}
        self._capacity = _FIRST_CAPACITY

    def get(self, name: str) -> Image | None:
        """Return an image that some node has."""
        return self._by_name.get(name)

    def add(self, row: int, images: Mapping[str, int]) -> None:
        """Count images (bytes by name) as present on a row."""
        if row >= self._capacity:
            self._capacity = max(row + 1, 2 * self._capacity)
        for name, size_bytes in images.items():
            image = self._by_name.get(name)
            if image is None:
                image = self._by_name[name] = Image(size_bytes)
            column = image.column
            if column is None or row >= len(column):
                image.add(row, capacity=self._capacity)
            elif not column[row]:  # the same as `add`, which takes three times as long
                column[row] = 1
                image.count += 1
                image.array = None

    def discard(self, row: int, names: Iterable[str]) -> None:
        """Count images as no longer present on a row."""
        for name in names:
            image = self._by_name.get(name)
            if image is None:
                continue  # the node was changed in place after it was added
            image.discard(row)
            if not image.count:
                del self._by_name[name]

    def move(self, source: int, target: int, names: Iterable[str]) -> None:
        """Follow the node with these images from one row to another."""
        for name in names:
            image = self._by_name[name]
            image.discard(source)
            image.add(target, capacity=self._capacity)
