"""Watch streams: a selection's present and future as lines of JSON, in small chunks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass

import orjson

from kube_policy_scheduler.embedded import causes, errors, requests
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.store import Change, Compacted, Store
from kube_policy_scheduler.embedded.views import View

CHUNK_BYTES = 48 * 1024
"""A chunk is sent when it has grown to this; clients that split long chunks into lines do so in quadratic time."""
_BATCH = 512
"""Changes looked at between two turns of the event loop."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
DEFAULT_TIMEOUT_SECONDS = 1800
_LAST_BOOKMARK_SECONDS = 2
"""A watch with a time limit gets a bookmark this long before its end, as from the API server's cache."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options in the query of a watch request."""

    revision: int | None
    """Start behind this version; None: first show what there is."""
    initial_end: bool
    bookmarks: bool
    timeout_seconds: float

    @classmethod
    def of(cls, query: Mapping[str, str], *, current: int) -> WatchOptions:
        """Read the query.

        Raises:
            ApiError: 400 or 422 for options that contradict each other.
        """
        given = requests.resource_version(query.get("resourceVersion", ""))
        bookmarks = requests.flag(query, "allowWatchBookmarks")
        timeout = requests.integer(query, "timeoutSeconds", 0) or DEFAULT_TIMEOUT_SECONDS
        rule = query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in query:
            initial = requests.flag(query, "sendInitialEvents")
            if rule != "NotOlderThan":
                text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
                raise _invalid(causes.forbidden("resourceVersionMatch", text))
            if not bookmarks:
                raise _invalid(causes.forbidden("sendInitialEvents", "sendInitialEvents requires allowWatchBookmarks"))
            start = None if initial else (given or current)
            return cls(start, initial, bookmarks, timeout)
        if rule:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise _invalid(causes.forbidden("resourceVersionMatch", text), *_match_rule(rule))
        return cls(given or None, False, bookmarks, timeout)


def _match_rule(rule: str) -> list[errors.Cause]:
    return causes.one_of("resourceVersionMatch", rule, ("NotOlderThan",))


def _invalid(*problems: errors.Cause) -> errors.ApiError:
    return errors.invalid_options("ListOptions", problems)


class Watch:
    """One watch of one client."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        *,
        resource: Resource,
        view: View,
        options: WatchOptions,
        bookmark_seconds: float,
    ) -> None:
        self._store = store
        self._collection = store.collection(resource.storage_key)
        self._selection = selection
        self._resource = resource
        self._view = view
        self._options = options
        self._bookmark_seconds = bookmark_seconds
        self._shown = store.revision if options.revision is None else options.revision
        self._cursor = 0
        self._oldest: int | None = None
        """Where the watch is to begin before what is kept of the history: what it could begin at."""
        try:
            self._cursor = self._collection.cursor(self._shown)
        except Compacted as error:
            self._oldest = error.oldest

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield chunks of whole lines until the watch's time is over or its client too slow.

        A version that is too old does not fail the request: the answer is 200 and one event, as the API server has it.
        """
        if self._oldest is not None:
            yield _expired_line(self._shown, oldest=self._oldest)
            return
        loop = asyncio.get_running_loop()
        options = self._options
        end = loop.time() + options.timeout_seconds
        changed = asyncio.Event()
        self._collection.wake(changed.set)
        try:
            if options.revision is None:
                for chunk in self._initial():
                    yield chunk
            if options.initial_end:
                yield _bookmark(self._resource, self._shown, ended=True)
            next_bookmark = _next_bookmark(loop.time(), end, self._bookmark_seconds)
            while True:
                changed.clear()
                try:
                    changes = self._collection.changes_from(self._cursor, limit=_BATCH)
                except Compacted as error:
                    yield _expired_line(self._shown, oldest=error.oldest)
                    return
                self._cursor += len(changes)
                for chunk in _chunks(self._lines(changes)):
                    yield chunk
                now = loop.time()
                if now >= end:
                    return
                if options.bookmarks and now >= next_bookmark and self._cursor == self._collection.end():
                    self._shown = self._store.revision
                    yield _bookmark(self._resource, self._shown)
                    next_bookmark = _next_bookmark(now, end, self._bookmark_seconds)
                if changes:
                    await asyncio.sleep(0)
                    continue
                wake_at = min(end, next_bookmark) if options.bookmarks else end
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(wake_at - now, 0)):
                        await changed.wait()
        finally:
            self._collection.forget(changed.set)

    def _initial(self) -> Iterator[bytes]:
        selected = self._selection
        entries = [entry for entry in self._collection.scan(selected.namespace) if selected.matches(entry)]
        return _chunks(_line(b"ADDED", self._view.watched(entry.body)) for entry in entries)

    def _lines(self, changes: list[Change]) -> Iterator[bytes]:
        for change in changes:
            self._shown = change.resource_version
            seen = self._selection.seen(change)
            if seen is not None:
                kind, entry = seen
                yield _line(kind.encode(), self._view.watched(entry.body_at(self._shown)))


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to chunks of about `CHUNK_BYTES`."""
    pending: list[bytes] = []
    size = 0
    for line in lines:
        if pending and size + len(line) > CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
        pending.append(line)
        size += len(line)
    if pending:
        yield b"".join(pending)


def _next_bookmark(now: float, end: float, period_seconds: float) -> float:
    due = now + period_seconds
    last = end - _LAST_BOOKMARK_SECONDS
    return last if now < last < due else due


def _expired_line(asked: int, *, oldest: int) -> bytes:
    """Return the event that ends a watch whose position is no longer kept."""
    return _line(b"ERROR", orjson.dumps(errors.too_old(asked, oldest).status()))


def _line(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind, body)


def _bookmark(resource: Resource, revision: int, *, ended: bool = False) -> bytes:
    meta: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if ended:
        meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    mark: dict[str, object] = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if resource.kind == "Pod":
        mark |= {"spec": {"containers": None}, "status": {}}
    elif resource.has_status:
        mark |= {"spec": {}, "status": {}}
    return _line(b"BOOKMARK", orjson.dumps(mark))
