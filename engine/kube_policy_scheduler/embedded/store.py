"""Versioned objects with a bounded history, kept as bytes. Pure: knows no kind, no clock and no client.

A collection keeps every object as encoded JSON, besides the few values that selectors compare with, so that
50,000 pods cost their bytes and little more, and a list is a join. Watchers hold a position in the shared
history instead of a queue each: one that is too slow falls off its end and costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
import orjson

Json: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
_NO_LABELS: Mapping[str, str] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One version of one object."""

    key: Key
    uid: str
    resource_version: int
    body: bytes
    """The whole object as JSON; `apiVersion`, `kind` and `metadata` come first."""
    labels: Mapping[str, str]
    row: tuple[str, ...]
    """Values of the selectable fields, in the order the resource declares them."""

    def decode(self) -> Json:
        """Return the object as a fresh dictionary."""
        decoded: Json = orjson.loads(self.body)
        return decoded

    def body_at(self, resource_version: int) -> bytes:
        """Return the body with another resourceVersion, as the end of a selection is reported."""
        mine = b'"resourceVersion":"%d"' % self.resource_version
        return self.body.replace(mine, b'"resourceVersion":"%d"' % resource_version, 1)


class Change(msgspec.Struct, frozen=True, gc=False):
    """One step of a collection's history. A deletion's `entry` is the last state, at the deletion's version."""

    type: str
    resource_version: int
    entry: Entry
    previous: Entry | None


class Compacted(Exception):
    """The requested history is no longer kept; `oldest` is the first version that still is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history before {oldest} is gone")
        self.oldest = oldest


class Collection:
    """All objects of one storage key, and what happened to them lately."""

    def __init__(
        self, store: Store, row: Callable[[Mapping[str, Any]], tuple[str, ...]], *, history_limit: int
    ) -> None:
        self._store = store
        self._row = row
        self._history_limit = history_limit
        self._entries: dict[Key, Entry] = {}
        self._keys: list[Key] = []
        self._keys_sorted = True
        self._changes: list[Change] = []
        self._first = 0
        self._compacted = 0
        self._version = 0
        self._wakers: set[Callable[[], None]] = set()
        self._observers: list[Callable[[Change], None]] = []

    @property
    def version(self) -> int:
        """A number that grows with every change, recorded or not."""
        return self._version

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """Return the object's latest version, if it exists."""
        return self._entries.get(key)

    def put(self, obj: Json, *, record: bool = True) -> Entry:
        """Create or replace an object at the next resource version; `obj` is stamped with it.

        With `record` false the step leaves no history and wakes no watch: for loading before any watch.
        """
        revision = self._version = self._store.next_revision()
        entry = self._entry(obj, revision)
        previous = self._entries.get(entry.key)
        self._entries[entry.key] = entry
        if previous is None:
            self._insert(entry.key, bulk=not record)
        if record:
            self._record(Change(ADDED if previous is None else MODIFIED, revision, entry, previous))
        else:
            self._compacted = revision
        return entry

    def remove(self, key: Key, *, last: Json | None = None) -> Entry:
        """Delete an object and return its last state, stamped with the deletion's version.

        `last` is that state if it is not simply the stored one.
        """
        revision = self._version = self._store.next_revision()
        previous = self._entries.pop(key)
        del self._keys[bisect_left(self._sorted_keys(), key)]
        entry = self._entry(last or previous.decode(), revision)
        self._record(Change(DELETED, revision, entry, previous))
        return entry

    def scan(self, namespace: str | None = None, *, after: Key | None = None) -> Iterator[Entry]:
        """Yield the latest versions in key order, of one namespace or all, from behind a key on."""
        keys = self._sorted_keys()
        start = 0 if namespace is None else bisect_left(keys, (namespace, ""))
        if after is not None:
            start = max(start, bisect_right(keys, after))
        stop = len(keys) if namespace is None else bisect_left(keys, (namespace + "\0", ""))
        entries = self._entries
        for at in range(start, stop):
            yield entries[keys[at]]

    def scan_at(self, revision: int, namespace: str | None = None, *, after: Key | None = None) -> Iterator[Entry]:
        """Yield what `scan` would have yielded at an earlier resource version.

        Raises:
            Compacted: the history does not reach back that far.
        """
        since = self._position(revision)
        if since == len(self._changes):
            yield from self.scan(namespace, after=after)
            return
        undone: dict[Key, Entry | None] = {}
        for change in reversed(self._changes[since:]):
            undone[change.entry.key] = change.previous
        merged = {entry.key: entry for entry in self.scan(namespace, after=after)}
        for key, entry in undone.items():
            if (namespace is not None and key[0] != namespace) or (after is not None and key <= after):
                continue
            if entry is None:
                merged.pop(key, None)
            else:
                merged[key] = entry
        for key in sorted(merged):
            yield merged[key]

    def cursor(self, revision: int) -> int:
        """Return the history position just behind a resource version, for `changes_from`.

        Raises:
            Compacted: the history does not reach back that far.
        """
        return self._first + self._position(revision)

    def end(self) -> int:
        """Return the history position behind the latest change."""
        return self._first + len(self._changes)

    def changes_from(self, cursor: int, *, limit: int) -> list[Change]:
        """Return up to `limit` changes from a history position on.

        Raises:
            Compacted: the position has fallen off the history's end.
        """
        at = cursor - self._first
        if at < 0:
            raise Compacted(self._compacted)
        return self._changes[at : at + limit]

    def wake(self, waker: Callable[[], None]) -> None:
        """Call `waker` after every change until `forget`."""
        self._wakers.add(waker)

    def forget(self, waker: Callable[[], None]) -> None:
        """Undo `wake`."""
        self._wakers.discard(waker)

    def observe(self, observer: Callable[[Change], None]) -> None:
        """Call `observer` with every change, in order, before `put` or `remove` returns."""
        self._observers.append(observer)

    def compact(self) -> None:
        """Forget all history, as etcd's compaction does: older watches get 410."""
        self._first += len(self._changes)
        self._changes.clear()
        self._compacted = self._store.revision
        self._wake_all()

    def _position(self, revision: int) -> int:
        if revision < self._compacted:
            raise Compacted(self._compacted)
        return bisect_right(self._changes, revision, key=lambda change: change.resource_version)

    def _entry(self, obj: Json, revision: int) -> Entry:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        name, uid = meta["name"], meta.get("uid", "")
        head = {"name": name, "namespace": namespace} if namespace else {"name": name}
        head |= {"uid": uid, "resourceVersion": str(revision)}
        for key in head:
            meta.pop(key, None)
        obj["metadata"] = meta = {**head, **meta}
        ordered = {"apiVersion": obj.pop("apiVersion"), "kind": obj.pop("kind"), "metadata": meta, **obj}
        obj |= ordered
        return Entry(
            key=(namespace, name),
            uid=uid,
            resource_version=revision,
            body=orjson.dumps(ordered),
            labels=meta.get("labels") or _NO_LABELS,
            row=self._row(ordered),
        )

    def _insert(self, key: Key, *, bulk: bool) -> None:
        if bulk:
            self._keys.append(key)
            self._keys_sorted = False
        else:
            insort(self._sorted_keys(), key)

    def _sorted_keys(self) -> list[Key]:
        if not self._keys_sorted:
            self._keys.sort()
            self._keys_sorted = True
        return self._keys

    def _record(self, change: Change) -> None:
        changes = self._changes
        changes.append(change)
        if len(changes) > self._history_limit + self._history_limit // 4:
            drop = len(changes) - self._history_limit
            self._compacted = changes[drop - 1].resource_version
            self._first += drop
            del changes[:drop]
        for observer in self._observers:
            observer(change)
        self._wake_all()

    def _wake_all(self) -> None:
        for waker in self._wakers:
            waker()


class Store:
    """Collections that share one sequence of resource versions, as in etcd."""

    def __init__(self, *, history_limit: int = 20_000) -> None:
        self._history_limit = history_limit
        self._revision = 0
        self._collections: dict[str, Collection] = {}

    @property
    def revision(self) -> int:
        """The latest resource version."""
        return self._revision

    def next_revision(self) -> int:
        """Advance to the next resource version and return it."""
        self._revision += 1
        return self._revision

    def define(self, storage_key: str, row: Callable[[Mapping[str, Any]], tuple[str, ...]]) -> None:
        """Create the collection of a storage key; `row` gives the values its selectors compare with."""
        self._collections[storage_key] = Collection(self, row, history_limit=self._history_limit)

    def collection(self, storage_key: str) -> Collection:
        """Return a collection that was defined."""
        return self._collections[storage_key]

    def collections(self) -> Mapping[str, Collection]:
        """Return all collections by storage key."""
        return self._collections
