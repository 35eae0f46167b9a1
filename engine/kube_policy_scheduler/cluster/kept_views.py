"""What is kept from one decision to the next: every result that is computed again where it is not there any more.

A view has results of one kind by key; the one that was used least recently goes first. Views that share `KeptBytes`
share a bound in bytes, and the oldest results of all of them make room. So whoever fills one, by what a tenant writes,
takes no more than all of them may take together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Mapping
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from kube_policy_scheduler.cluster.footprint import Measured, Shared, footprint

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

MIN_KEPT_BYTES, KEPT_BYTES_PER_NODE = 192 * 2**20, 1536
"""So much may be kept if nothing else is said: with 18 to 29 bytes a node for a template with its ranked totals, about
50 templates, and more in small clusters."""
_RECENT_ROUNDS = 4
"""What was used within the last 4 requests for each result that is kept makes no room for what may be left out: in a
round of too many results, each would be dropped before it is used again."""


def most_kept_bytes(nodes: int) -> int:
    """Return how many bytes may be kept with so many nodes, if no setting says otherwise."""
    return max(MIN_KEPT_BYTES, KEPT_BYTES_PER_NODE * nodes)


_NOTHING_SHARED: Mapping[Shared, int] = {}


class _Entry(Measured, Generic[ValueT]):
    """One result."""

    __slots__ = ("bytes", "shared", "used", "value")

    def __init__(self, value: ValueT, used: int) -> None:
        self.value = value
        self.used = used
        """The number of the last request for it."""
        self.bytes = 0
        """Without those of what it shares."""
        self.shared: Mapping[Shared, int] = _NOTHING_SHARED


class KeptBytes:
    """How many bytes some views take together. What several results share is counted once."""

    def __init__(self, most: int | None = None) -> None:
        """Start without views.

        most: bytes; the result that was used last always stays, even if it alone takes more. None: as many as
        `most_kept_bytes` says.
        """
        self.given = most
        """May be set later."""
        self.nodes = 0
        self.most = most_kept_bytes(0) if most is None else most
        self.taken = 0
        self.requests = 0
        self._views: WeakSet[KeptView[Any, Any]] = WeakSet()
        self._named: dict[str, KeptView[Any, Any]] = {}
        self._shared: dict[Shared, list[int]] = {}
        """By thing: the results that have it, and its bytes when it was measured."""

    def view(self, name: str, make: Callable[[KeptBytes], KeptView[KeyT, ValueT]]) -> KeptView[KeyT, ValueT]:
        """Return the view with a name, made on first use."""
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = make(self)
        return cast("KeptView[KeyT, ValueT]", found)

    def join(self, view: KeptView[Any, Any]) -> None:
        """Count what a view keeps."""
        self._views.add(view)

    def follow_nodes(self, nodes: int) -> None:
        """Take over how many nodes there are."""
        self.nodes = nodes
        self.most = most_kept_bytes(nodes) if self.given is None else self.given

    def has_room(self, more: int) -> bool:
        """Return whether so many bytes more may be kept; what was not used for a while makes room."""
        while self.taken + more > self.most:
            results = sum(map(len, self._views))
            if not self._drop_oldest(before=self.requests - _RECENT_ROUNDS * results):
                return False
        return True

    def make_room(self) -> None:
        """Drop the results that were used least recently while all take too much; the last one stays."""
        while self.taken > self.most:
            if not self._drop_oldest(before=self.requests):
                return

    def _drop_oldest(self, *, before: int) -> bool:
        """Drop the result that was used least recently, if that was before this request; return whether it was."""
        oldest = min([view for view in self._views if len(view)], key=KeptView.oldest, default=None)
        if oldest is None or oldest.oldest() >= before:
            return False
        oldest.drop_oldest()
        return True

    def hold(self, entry: _Entry[Any], own: int, shared: dict[Shared, int]) -> None:
        """Count a result."""
        entry.bytes, entry.shared = own, shared or _NOTHING_SHARED
        self.taken += own
        for thing, size in shared.items():
            counted = self._shared.setdefault(thing, [0, 0])
            counted[0] += 1
            self.taken += size - counted[1]
            counted[1] = size

    def release(self, entry: _Entry[Any]) -> None:
        """Count it no longer."""
        self.taken -= entry.bytes
        for thing in entry.shared:
            counted = self._shared[thing]
            counted[0] -= 1
            if not counted[0]:
                self.taken -= counted[1]
                del self._shared[thing]


def _nothing(key: Any, value: Any) -> int:
    return 0


class KeptView(Measured, Generic[KeyT, ValueT]):
    """Results of one kind. Beyond a number of them the least recently used one goes."""

    __slots__ = ("__weakref__", "_dropped", "_entries", "_most", "_size_of", "kept_bytes", "position")

    def __init__(
        self,
        kept_bytes: KeptBytes | None = None,
        *,
        most: int,
        size_of: Callable[[KeyT, ValueT], int] = _nothing,
        dropped: Callable[[KeyT, ValueT], object] | None = None,
    ) -> None:
        """Start without results.

        Args:
            kept_bytes: bounds their bytes; None: they are few and small, or their owner counts with them.
            most: results.
            size_of: returns bytes of one beside those that `footprint` finds, when it is added.
            dropped: is called with each that goes.
        """
        self.kept_bytes = kept_bytes
        self._most = most
        self._size_of = size_of
        self._dropped = dropped
        self._entries: OrderedDict[KeyT, _Entry[ValueT]] = OrderedDict()
        """The least recently used first."""
        self.position: Hashable = None
        """Where the results were computed, see `follow`."""
        if kept_bytes is not None:
            kept_bytes.join(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def items(self) -> ItemsView[KeyT, ValueT]:
        """Return all results, the least recently used first."""
        return {key: entry.value for key, entry in self._entries.items()}.items()

    def follow(self, position: Hashable) -> None:
        """Drop all results if they were computed at another position: of the ledger, or of what they follow from."""
        if position != self.position:
            self.clear()
            self.position = position

    def get(self, key: KeyT) -> ValueT | None:
        """Return a result, None if it is not there. It counts as used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        if self.kept_bytes is not None:
            self.kept_bytes.requests = entry.used = self.kept_bytes.requests + 1
        return entry.value

    def set(self, key: KeyT, value: ValueT) -> None:
        """Add or replace a result; others go until the bounds hold."""
        self.pop(key)
        entry = self._entries[key] = _Entry(value, 0)
        if len(self._entries) > self._most:
            self.drop_oldest()
        if self.kept_bytes is not None:
            self.kept_bytes.requests = entry.used = self.kept_bytes.requests + 1
            self._measure(key, entry)

    def measure(self, key: KeyT) -> None:
        """Measure a result again that grew or shrank, if it is still there."""
        entry = self._entries.get(key)
        if entry is not None and self.kept_bytes is not None:
            self.kept_bytes.release(entry)
            self._measure(key, entry)

    def _measure(self, key: KeyT, entry: _Entry[ValueT]) -> None:
        assert self.kept_bytes is not None
        own, shared = footprint(entry.value)
        self.kept_bytes.hold(entry, own + self._size_of(key, entry.value), shared)
        self.kept_bytes.make_room()

    def pop(self, key: KeyT) -> ValueT | None:
        """Remove a result and return it, None if it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if self.kept_bytes is not None:
            self.kept_bytes.release(entry)
        if self._dropped is not None:
            self._dropped(key, entry.value)
        return entry.value

    def oldest(self) -> int:
        """Return the number of the last request for the result that was used least recently; there must be one."""
        return next(iter(self._entries.values())).used

    def drop_oldest(self) -> None:
        """Drop the result that was used least recently; there must be one."""
        self.pop(next(iter(self._entries)))

    def keep_only(self, is_kept: Callable[[KeyT], bool]) -> None:
        """Drop all other results."""
        for key in [key for key in self._entries if not is_kept(key)]:
            self.pop(key)

    def clear(self) -> None:
        """Drop all results."""
        for key in tuple(self._entries):
            self.pop(key)
