"""The journal: the one way to keep what has changed lately. Each reader has a position, and asks what came after it.

It is bounded: the oldest changes are dropped, and a reader that lags behind them reads everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from kube_policy_scheduler.cluster.footprint import Measured

T = TypeVar("T")

_MOST_ENTRIES = 1 << 13
"""Entries that are kept; a reader that lags further behind must read everything."""


class Journal(Measured, Generic[T]):
    """Changes in order; positions only grow."""

    __slots__ = ("_entries", "_most", "_start", "end")

    def __init__(self, *, most: int = _MOST_ENTRIES) -> None:
        """Keep at most this number of changes."""
        self._entries: list[T] = []
        self._start = 0
        self._most = most
        self.end = 0
        """The position after the last change."""

    def note(self, change: T) -> None:
        """Add a change; the oldest ones are dropped if there are too many."""
        self._entries.append(change)
        self.end += 1
        if len(self._entries) > self._most:
            self._drop_oldest()

    def note_many(self, changes: Sequence[T]) -> None:
        """Add changes."""
        self._entries += changes
        self.end += len(changes)
        if len(self._entries) > self._most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        drop = len(self._entries) - self._most // 2
        del self._entries[:drop]
        self._start += drop

    def note_all(self) -> None:
        """Note that everything may have changed: no reader knows the changes up to now one by one."""
        self.end += 1
        self._start = self.end
        self._entries.clear()

    def clear(self) -> None:
        """Keep no change; who has read them all has missed nothing."""
        self._start = self.end
        self._entries.clear()

    def since(self, position: int) -> Sequence[T] | None:
        """Return the changes after a position; None if that is too long ago to know."""
        if position == self.end:
            return ()
        return self._entries[position - self._start :] if position >= self._start else None
