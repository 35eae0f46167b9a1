"""A cache with a bound in entries and in bytes: for everything keyed by, or filled with, input of tenants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView
from typing import Generic, Protocol, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class Sized(Protocol):
    """Something with columns."""

    @property
    def bytes(self) -> int:
        """Return about how many bytes it takes, without what it shares with others."""
        ...


class BoundedCache(Generic[KeyT, ValueT]):
    """Keeps the most recently used entries. Beyond either bound the least recently used entry is evicted.

    The newest entry always stays, even if it alone is beyond the bound: its caller is about to use it.
    """

    __slots__ = ("_bytes", "_entries", "_most", "_size_of", "_sizes", "most_bytes")

    def __init__(self, *, most: int, most_bytes: int, size_of: Callable[[KeyT, ValueT], int]) -> None:
        """Make an empty cache.

        Args:
            most: entries.
            most_bytes: the sum of their sizes.
            size_of: returns the bytes of an entry; called once, when the entry is added.
        """
        self._most = most
        self.most_bytes = most_bytes
        """May change; it holds from the next entry on."""
        self._size_of = size_of
        self._entries: OrderedDict[KeyT, ValueT] = OrderedDict()
        self._sizes: dict[KeyT, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Return the sum of the sizes of all entries."""
        return self._bytes

    def items(self) -> ItemsView[KeyT, ValueT]:
        """Return all entries, the least recently used first."""
        return self._entries.items()

    def get(self, key: KeyT) -> ValueT | None:
        """Return an entry, None if it is not there. It counts as used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def set(self, key: KeyT, value: ValueT) -> None:
        """Add or replace an entry; others are evicted until the bounds hold."""
        self.pop(key)
        size = self._size_of(key, value)
        self._entries[key] = value
        self._sizes[key] = size
        self._bytes += size
        while len(self._entries) > 1 and (len(self._entries) > self._most or self._bytes > self.most_bytes):
            self.pop(next(iter(self._entries)))

    def pop(self, key: KeyT) -> ValueT | None:
        """Remove an entry and return it, None if it is not there."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= self._sizes.pop(key)
        return found

    def keep_only(self, is_kept: Callable[[KeyT], bool]) -> None:
        """Remove all other entries."""
        for key in [key for key in self._entries if not is_kept(key)]:
            self.pop(key)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._sizes.clear()
        self._bytes = 0
