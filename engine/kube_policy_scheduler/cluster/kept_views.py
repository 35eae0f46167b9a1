"""What is kept from one decision to the next, within a bound: results, each computed again where it is not there any
more, and what was noted of the past, which is forgotten then.

A view has results of one kind by key; those that were not used for a long time go first. Views that share `KeptBytes`
share a limit in bytes, and the oldest results of all of them make room. So a tenant whose objects fill one view takes
no more memory than the limit of all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Mapping
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

from kube_policy_scheduler.cluster.footprint import Measured, Shared, footprint

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
MadeT = TypeVar("MadeT")

MIN_KEPT_BYTES, KEPT_BYTES_PER_NODE = 192 * 2**20, 1536
"""So much may be kept if nothing else is said: with 18 to 29 bytes a node for a template with its ranked totals, about
50 templates, and more in small clusters."""
_RECENT_ROUNDS = 4
"""What was used within the last 4 requests for each result that is kept makes no room for what may be left out: in a
round of too many results, each would be dropped before it is used again."""


def most_kept_bytes(nodes: int) -> int:
    """Return how many bytes may be kept with so many nodes, if no setting says otherwise."""
    return max(MIN_KEPT_BYTES, KEPT_BYTES_PER_NODE * nodes)


class _Entry(Measured, msgspec.Struct, Generic[ValueT]):
    """One result."""

    value: ValueT
    used: int
    """The number of the last request for it."""
    placed: int
    """What that was when it came to its place in the order."""
    bytes: int = 0
    """Without those of what it shares."""
    shared: Mapping[Shared, int] | None = None


class _Counted(msgspec.Struct):
    """Something that results share."""

    holders: int = 0
    bytes: int = 0
    """When it was measured."""
    whole: Mapping[Shared, int] | None = None
    """What a result shares that is this thing, itself included."""


class _Requests:
    """Counts the requests for results."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = 0


class KeptBytes(_Requests):
    """How many bytes some views take together. What several results share is counted once.

    It does not keep the views. Pods lead to it, which the garbage collector does not look into: if a pod also led to a
    view whose results lead to the cluster, the cluster would stay for ever.
    """

    def __init__(self, most: int | None = None) -> None:
        """Start without views.

        most: bytes; the result that was used last always stays, even if it alone takes more. None: as many as
        `most_kept_bytes` says.
        """
        super().__init__()
        self.given = most
        """May be set later."""
        self.nodes = 0
        self.most = most_kept_bytes(0) if most is None else most
        self.taken = 0
        self._views: WeakSet[KeptView[Any, Any]] = WeakSet()
        self._shared: dict[Shared, _Counted] = {}

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

    def _make_room(self) -> None:
        """Drop the results that were used least recently while all take too much; the last one stays."""
        while self.taken > self.most:
            if not self._drop_oldest(before=self.requests):
                return

    def _drop_oldest(self, *, before: int) -> bool:
        """Drop the result that was used least recently, if that was before this request; return whether it was."""
        oldest = min([view.oldest() for view in self._views if len(view)], key=_used, default=None)
        if oldest is None or _used(oldest) >= before:
            return False
        view, key, _ = oldest
        view.pop(key)
        return True

    def hold(self, entry: _Entry[Any], own: int, shared: Mapping[Shared, int] | None = None) -> None:
        """Count a result, and make room for it."""
        entry.bytes = own
        self.taken += own
        if shared:
            entry.shared = shared
            self._share(shared)
            if isinstance(entry.value, Shared):
                self._shared[entry.value].whole = shared
        if self.taken > self.most:
            self._make_room()

    def _share(self, shared: Mapping[Shared, int]) -> None:
        for thing, size in shared.items():
            counted = self._shared.get(thing)
            if counted is None:
                counted = self._shared[thing] = _Counted()
            counted.holders += 1
            self.taken += size - counted.bytes
            counted.bytes = size

    def hold_one_more(self, entry: _Entry[Any], own: int) -> bool:
        """Count a result that others have, too, as it was measured for them; return whether there is one."""
        counted = self._shared.get(entry.value) if isinstance(entry.value, Shared) else None
        if counted is None or counted.whole is None or not counted.whole.keys() <= self._shared.keys():
            return False
        entry.bytes, entry.shared = own, counted.whole
        self.taken += own
        for thing in counted.whole:
            self._shared[thing].holders += 1
        if self.taken > self.most:
            self._make_room()
        return True

    def release(self, entry: _Entry[Any]) -> None:
        """Count it no longer."""
        self.taken -= entry.bytes
        for thing in entry.shared or ():
            counted = self._shared[thing]
            counted.holders -= 1
            if not counted.holders:
                self.taken -= counted.bytes
                del self._shared[thing]

    def holds(self, thing: Shared) -> bool:
        """Return whether some result has it."""
        return thing in self._shared


def _used(found: tuple[object, object, _Entry[Any]]) -> int:
    return found[2].used


class Stamped(Measured, msgspec.Struct, Generic[ValueT], frozen=True):
    """A result that holds as long as its stamp stays the same."""

    borrowed = frozenset({"stamp"})
    stamp: Hashable
    value: ValueT


class KeptView(Measured, Generic[KeyT, ValueT]):
    """Results of one kind. Beyond a number of them one goes that was not used for a long time."""

    __slots__ = ("__weakref__", "_dropped", "_entries", "_most", "_requests", "_size_of", "kept_bytes", "position")

    def __init__(
        self,
        kept_bytes: KeptBytes | None = None,
        *,
        most: int,
        size_of: Callable[[KeyT, ValueT], int] | None = None,
        dropped: Callable[[KeyT, ValueT], object] | None = None,
    ) -> None:
        """Start without results.

        Args:
            kept_bytes: bounds their bytes; None: they are few and small, or their owner counts with them.
            most: results.
            size_of: returns bytes of one when it is added, besides those of `Measured` ones; None: they are measured.
            dropped: is called with each that goes.
        """
        self.kept_bytes = kept_bytes
        self._requests = _Requests() if kept_bytes is None else kept_bytes
        self._most = most
        self._size_of = size_of
        self._dropped = dropped
        self._entries: OrderedDict[KeyT, _Entry[ValueT]] = OrderedDict()
        """In the order of `placed`: the least recently used first, but for those that were used since."""
        self.position: Hashable = None
        """Where the results were computed, see `follow`."""
        if kept_bytes is not None:
            kept_bytes.join(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def items(self) -> ItemsView[KeyT, ValueT]:
        """Return all results."""
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
        requests = self._requests
        requests.requests = entry.used = requests.requests + 1
        return entry.value

    def set(self, key: KeyT, value: ValueT) -> None:
        """Add or replace a result; others go until the bounds hold."""
        entries, requests = self._entries, self._requests
        if key in entries:
            self.pop(key)
        elif len(entries) >= self._most:
            self.pop(self.oldest()[1])
        now = requests.requests = requests.requests + 1
        entry = entries[key] = _Entry(value, now, now)
        kept, size_of = self.kept_bytes, self._size_of
        if kept is not None and not kept.hold_one_more(entry, 0 if size_of is None else size_of(key, value)):
            self._measure(key, entry)

    def current(self: KeptView[KeyT, Stamped[MadeT]], key: KeyT, stamp: Hashable, make: Callable[[], MadeT]) -> MadeT:
        """Return the result of `make`, kept until it is asked for with another stamp."""
        known = self.get(key)
        if known is None or known.stamp != stamp:
            known = Stamped(stamp, make())
            self.set(key, known)
        return known.value

    def measure(self, key: KeyT) -> None:
        """Measure a result again that grew or shrank, if it is still there."""
        entry = self._entries.get(key)
        if entry is not None and self.kept_bytes is not None:
            self.kept_bytes.release(entry)
            self._measure(key, entry)

    def _measure(self, key: KeyT, entry: _Entry[ValueT]) -> None:
        assert self.kept_bytes is not None
        size_of, value = self._size_of, entry.value
        if size_of is None:
            self.kept_bytes.hold(entry, *footprint(value))
        elif isinstance(value, Measured):
            own, shared = footprint(value)
            self.kept_bytes.hold(entry, own + size_of(key, value), shared)
        else:
            self.kept_bytes.hold(entry, size_of(key, value))

    def pop(self, key: KeyT) -> ValueT | None:
        """Remove a result and return it, None if it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        kept = self.kept_bytes
        if kept is not None:
            if entry.shared is None:
                kept.taken -= entry.bytes
            else:
                kept.release(entry)
        if self._dropped is not None:
            self._dropped(key, entry.value)
        return entry.value

    def oldest(self) -> tuple[KeptView[KeyT, ValueT], KeyT, _Entry[ValueT]]:
        """Return this view with a result that was used long ago, the last one only if it is alone; there must be one.

        Requests do not move results, as they are many: those that were used since they came to their place move now.
        """
        entries, last = self._entries, self._requests.requests
        while True:
            key, entry = next(iter(entries.items()))
            if entry.used == entry.placed and (entry.used != last or len(entries) == 1):
                return self, key, entry
            entry.placed = entry.used
            entries.move_to_end(key)

    def keep_only(self, is_kept: Callable[[KeyT], bool]) -> None:
        """Drop all other results."""
        for key in [key for key in self._entries if not is_kept(key)]:
            self.pop(key)

    def clear(self) -> None:
        """Drop all results."""
        for key in tuple(self._entries):
            self.pop(key)
