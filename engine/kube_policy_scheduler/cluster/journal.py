"""A journal of changes: readers ask for what was noted since they last asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_ENTRIES = 1 << 13
"""Entries that are kept; a reader that lags further behind has to look at everything."""


class Journal(Generic[T]):
    """Changes in order; positions only grow."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._start = 0

    @property
    def end(self) -> int:
        """Return the position after the last change."""
        return self._start + len(self._entries)

    def note(self, change: T) -> None:
        """Add a change; the oldest ones go when there are too many."""
        self._entries.append(change)
        if len(self._entries) > _MOST_ENTRIES:
            drop = _MOST_ENTRIES // 2
            del self._entries[:drop]
            self._start += drop

    def since(self, position: int) -> Sequence[T] | None:
        """Return the changes after a position; None where that is too long ago to know."""
        if position == self.end:
            return ()
        return self._entries[position - self._start :] if position >= self._start else None
