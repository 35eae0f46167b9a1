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

    __slots__ = ("_array", "_column", "_rows", "count", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        """As the first node reported it; kept until no node has the image."""
        self.count = 0
        """Rows that have it."""
        self._rows: set[int] = set()
        self._column: NDArray[np.bool_] | None = None
        """`bool[capacity]`, instead of `_rows` once there are many."""
        self._array: NDArray[np.int64] | None = None

    def has(self, row: int) -> bool:
        """Return whether a row has it."""
        if self._column is not None:
            return row < len(self._column) and bool(self._column[row])
        return row in self._rows

    def row_array(self) -> NDArray[np.int64]:
        """Return `int64[holders]`: the rows that have it."""
        if self._array is None:
            if self._column is not None:
                self._array = self._column.nonzero()[0]
            else:
                self._array = np.fromiter(self._rows, np.int64, len(self._rows))
        return self._array

    def set(self, row: int, present: bool, *, capacity: int) -> None:
        """Note whether a row has it; capacity: of the node table."""
        if self.has(row) == present:
            return
        self.count += 1 if present else -1
        self._array = None
        if self._column is None and self.count * _DENSE_SHARE > capacity > _DENSE_SHARE:
            column = np.zeros(capacity, np.bool_)
            column[list(self._rows)] = True
            self._column, self._rows = column, set()
        if self._column is None:
            (self._rows.add if present else self._rows.discard)(row)
            return
        if row >= len(self._column):
            self._column = np.concatenate((self._column, np.zeros(capacity - len(self._column), np.bool_)))
        self._column[row] = present


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
            image.set(row, True, capacity=self._capacity)

    def discard(self, row: int, names: Iterable[str]) -> None:
        """Count images as no longer present on a row."""
        for name in names:
            image = self._by_name.get(name)
            if image is None:
                continue  # the node was changed in place after it was added
            image.set(row, False, capacity=self._capacity)
            if not image.count:
                del self._by_name[name]

    def move(self, source: int, target: int, names: Iterable[str]) -> None:
        """Follow the node with these images from one row to another."""
        for name in names:
            image = self._by_name[name]
            image.set(source, False, capacity=self._capacity)
            image.set(target, True, capacity=self._capacity)
