"""Counts by names that people write into their objects: there can be any number of names, so the largest are kept."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping


class BoundedCounts(Mapping[str, int]):
    """Counts by name, which only grow. Beyond a number of names, the smallest count is added to that of its others.

    So a flood of names that are counted once displaces no name that is counted often. A name that comes back begins at
    0 again, as a counter may after a restart.
    """

    def __init__(self, most: int) -> None:
        """most: how many names are kept, those for others not included."""
        self._most = most
        self._counts: dict[str, int] = {}
        """The oldest first."""
        self._others: dict[str, int] = {}
        self._others_of: dict[str, str] = {}

    def add(self, name: str, *, others: str | None) -> None:
        """Count one more.

        Args:
            name: by which it is counted.
            others: by which it is counted once there are too many names; None: this name is always kept.
        """
        if others is None:
            self._others[name] = self._others.get(name, 0) + 1
            return
        self._counts[name] = self._counts.get(name, 0) + 1
        self._others_of[name] = others
        if len(self._counts) > self._most:
            smallest = min((each for each in self._counts if each != name), key=self._counts.__getitem__)
            into = self._others_of.pop(smallest)
            self._others[into] = self._others.get(into, 0) + self._counts.pop(smallest)

    def __getitem__(self, name: str) -> int:
        return self._others.get(name, 0) + self._counts[name] if name in self._counts else self._others[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._others, *self._counts)))

    def __len__(self) -> int:
        return len(self._others.keys() | self._counts.keys())


def largest(counts: Mapping[str, int], most: int, *, others: str) -> dict[str, int]:
    """Return the largest of some counts, and the sum of what is left as that of `others`."""
    if len(counts) <= most:
        return dict(counts)
    found = dict(heapq.nlargest(most, counts.items(), key=lambda each: (each[1], each[0])))
    found[others] = found.get(others, 0) + sum(counts.values()) - sum(found.values())
    return found
