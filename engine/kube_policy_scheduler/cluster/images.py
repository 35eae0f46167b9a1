"""Which container images are on which rows of the node table, kept up to date node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Image:
    """One image, under one of its names."""

    size_bytes: int
    """As the first node reported it; kept until no node has the image."""
    rows: set[int] = field(default_factory=set)
    _array: NDArray[np.int64] | None = None

    def row_array(self) -> NDArray[np.int64]:
        """Return `int64[holders]`: the rows that have it."""
        if self._array is None:
            self._array = np.fromiter(self.rows, np.int64, len(self.rows))
        return self._array

    def _changed(self) -> None:
        self._array = None


class ImageTable:
    """All images by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Image] = {}

    def get(self, name: str) -> Image | None:
        """Return an image that some node has."""
        return self._by_name.get(name)

    def add(self, row: int, images: Mapping[str, int]) -> None:
        """Count images (bytes by name) as present on a row."""
        for name, size_bytes in images.items():
            image = self._by_name.get(name)
            if image is None:
                image = self._by_name[name] = Image(size_bytes)
            image.rows.add(row)
            image._changed()

    def discard(self, row: int, names: Iterable[str]) -> None:
        """Count images as no longer present on a row."""
        for name in names:
            image = self._by_name[name]
            image.rows.discard(row)
            image._changed()
            if not image.rows:
                del self._by_name[name]

    def move(self, source: int, target: int, names: Iterable[str]) -> None:
        """Follow the node with these images from one row to another."""
        for name in names:
            image = self._by_name[name]
            image.rows.discard(source)
            image.rows.add(target)
            image._changed()
