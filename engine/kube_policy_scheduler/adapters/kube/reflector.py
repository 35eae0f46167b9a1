"""List and watch of one resource, kept going whatever happens. Knows no scheduling: a handler receives the changes.

The rules: list in pages, watch from the list's resource version, take the version from every event and bookmark.
A watch that ends in order goes on at once where it stopped; after an error there is a growing pause; after
410 Gone, or a line that is no event, the list is read again and only the differences are delivered. The pause stays
short: after a while decisions are made without a view that cannot be had, and a pause does not show that it cannot.
Only the API server may ask for a longer one (Retry-After).

After an error, and whenever somebody asks (`prove`), the view counts as current only once it is known to be: the API
server is asked for the version of the collection (a list of one object is a consistent read), and the watch must
reach it. Where nothing happens a watch says nothing, and bookmarks come once a minute; but the API server sends one
shortly before a watch's time is over, so that a watch of few seconds brings one within two. Where that does not help
either, or there are few objects that are listed soon, a list does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from random import Random
from typing import Any, Generic, NoReturn, assert_never

import msgspec

from kube_policy_scheduler.adapters.kube.changes import Change, Deleted, Handler, Phase, Status, Updates
from kube_policy_scheduler.adapters.kube.connection import Stream
from kube_policy_scheduler.adapters.kube.decoding import (
    Bookmark,
    LineBuffer,
    Malformed,
    MalformedEvent,
    ObjectDecoder,
    Page,
    WatchEvent,
    WatchFailure,
    list_version,
    pieces_of_lines,
)
from kube_policy_scheduler.adapters.kube.discovery import served
from kube_policy_scheduler.adapters.kube.errors import (
    AnswerTimeout,
    ApiError,
    CredentialsError,
    Forbidden,
    Gone,
    KubeError,
    MalformedAnswer,
    NotFound,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
    error_from_status,
)
from kube_policy_scheduler.adapters.kube.known_objects import KnownObjects, key_of
from kube_policy_scheduler.adapters.kube.pages import PAGE_BYTES, PAGE_OBJECTS, pages
from kube_policy_scheduler.adapters.kube.recency import NEVER
from kube_policy_scheduler.adapters.kube.resources import Resource, T
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.kube.view_state import Step, ViewState
from kube_policy_scheduler.adapters.process.backoff import Backoff
from kube_policy_scheduler.cluster.objects import ListedPods
from kube_policy_scheduler.cluster.resource_versions import version_number

logger = logging.getLogger(__name__)

FIRST_LIST_OBJECTS = 500  # of a first list, handed over before others get a turn: some 20 ms
FIRST_LIST_COLUMNS = 2_000  # the same for pods on nodes that come as columns, as many as a page has: some 10 ms
LATER_PAGE_BYTES = PAGE_BYTES // 4  # of a later list: decoded in 5 ms
EVENTS_BYTES = 64 << 10
"""Of a watch, decoded and handed over at once. With some 40 pods a piece, what is decoded no longer fits the caches of
the processor, and each event takes up to half as long again."""
KEPT_SECONDS = 1.0
"""Pages of a first list that came before their handler are kept for so long, and then go one after the other: it takes
as long to free one as to decode half of it, and the first decisions do not wait for that."""
FREED_EVERY_SECONDS = 0.05
LIST_OBJECTS = 32  # of a later list, the same: decisions go on meanwhile, and an object may take half a millisecond
WATCH_SECONDS = (300.0, 600.0)  # the server ends a watch after a time drawn from here, so that they do not coincide
WATCH_GRACE_SECONDS = 30.0  # a watch that outlives its time by this hangs
SILENCE_SECONDS = 150.0  # bookmarks come about once a minute; a silent watch is reopened, at the same version
HEALTHY_SECONDS = 5.0  # a watch that lives this long, or delivers anything, ends a row of failures
GAP_SECONDS = 2.0  # for this long after it was current, a view is good enough while a watch is restarted as a routine
QUIET_SECONDS = 0.3  # a watch that says nothing for so long will not show that the view is current before its end
FIRST_QUIET_SECONDS = 0.02  # the same for the watch after the first list; the server sends at once what it owes
QUESTION_TIMEOUT_SECONDS = 3.0  # of the question how new a collection is; it is asked again, with twice the patience
LONGEST_QUESTION_SECONDS = 30.0
FEW_OBJECTS = 500  # are listed at once where a watch says nothing
SHORT_WATCH_SECONDS = 3  # the API server sends a bookmark two seconds before the end of a watch
SHORT_WATCHES = 2  # so many in a row that do not bring the view forward lead to a list
LONGEST_PAUSE_SECONDS = 3.0  # between two tries of what decisions wait for (10 s: daemon.watching.freshness)
OPTIONAL_PAUSE_SECONDS = 60.0  # where something optional is absent or forbidden: nothing waits for it
OPTIONAL_PATIENCE_SECONDS = 60.0
"""For so long a start waits for the first list of something optional that fails, though the API server answers."""
BRIEF_REFUSAL_SECONDS = 10.0  # an API server that has just started may not know its roles and resources yet


class Counts(msgspec.Struct):
    """What a reflector did since it began."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    malformed: int = 0


class Selector(msgspec.Struct, frozen=True):
    """Which objects of a resource are mirrored."""

    fields: str = ""
    labels: str = ""


class FirstList(msgspec.Struct, frozen=True):
    """How the first list of a resource is asked for and handed over."""

    after: asyncio.Event | None = None
    """What must happen before it is handed over, such as the end of another first list."""
    watch_after_seconds: float = 0.0
    """From asking for it to the watch after it, less than `GAP_SECONDS`."""
    compare: bool = False
    """Whether the handler takes pods also as `ListedPod`; a long list is faster with it."""
    permits: asyncio.Semaphore | None = None
    """Limits how many lists are asked for at a time; None: they are not limited."""


class Patience(msgspec.Struct, frozen=True):
    """How long a reflector waits before it tries something else."""

    optional_seconds: float = OPTIONAL_PATIENCE_SECONDS
    """For this long the first list of something optional may fail again and again."""
    silence_seconds: float = SILENCE_SECONDS
    """After which a watch is reopened."""
    watch_seconds: tuple[float, float] = WATCH_SECONDS
    """Shortest and longest time of a watch."""
    few_objects: int = FEW_OBJECTS
    """As many are listed rather than waited for."""
    backoff: Backoff | None = None
    """Pauses after errors; None: the usual ones."""


EVERYTHING, AT_ONCE, USUAL_PATIENCE = Selector(), FirstList(), Patience()


class Reflector(Generic[T]):
    """Mirrors one resource into a handler. Keeps no objects itself, only what tells two states of one apart."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[T],
        handler: Handler[T] | None = None,
        *,
        selector: Selector = EVERYTHING,
        optional: bool = False,
        first_list: FirstList = AT_ONCE,
        patience: Patience = USUAL_PATIENCE,
        random: Random,
        on_malformed: Callable[[Malformed], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            resource: what is mirrored.
            handler: receives the changes; None: the first list is read, and waits for `attach`.
            selector: of the objects that are mirrored.
            optional: absence and lack of permission count as synced with no objects, and so does a first list that
                fails again and again in another way.
            first_list: how it is asked for and handed over.
            patience: before something else is tried.
            random: spreads pauses and the ends of watches.
            on_malformed: receives objects that were passed over.
        """
        self.resource = resource
        self.counts = Counts()
        self.synced = asyncio.Event()
        self.last_contact = 0.0  # event loop's time at which anything was last heard
        self.is_optional = optional
        self.on_status: list[Callable[[], None]] = []
        """Called when it has another status."""
        self._transport = transport
        self._handler: Handler[T] | None = None
        self._attached = asyncio.Event()
        if handler is not None:
            self.attach(handler)
        self._first_list = first_list
        self._selector = selector
        self._random = random
        self._patience = patience
        self._on_malformed = on_malformed
        self._decoder = ObjectDecoder(resource.type)
        self._known: KnownObjects[T] = KnownObjects(resource.type)
        self._backoff = patience.backoff or Backoff(limit_seconds=LONGEST_PAUSE_SECONDS, random=random)
        longest = OPTIONAL_PAUSE_SECONDS if optional else LONGEST_PAUSE_SECONDS
        self._slow_backoff = Backoff(initial_seconds=1.0, limit_seconds=longest, random=random)
        self._version = ""  # resource version to watch from; "" asks for a list first
        self._last_change = ""  # the same, bookmarks left out
        self._is_confused = False  # a change was perhaps taken in half: each object is handed over again
        self._undelivered: dict[str, Deleted[T]] = {}  # by key: ends that the handler may not have taken in
        self._went_stale = False  # the version was refused since a watch last went well
        self._refused_at: float | None = None  # when a row of 403 and 404 began
        self._tried_since: float | None = None  # when tries at the first list began that the server answered, or not
        self._asks_version = resource.version_differs
        self._is_unavailable = False  # absent or forbidden, for longer than a server takes to start
        self._on_unavailable: Callable[[str], None] | None = None
        self._state = ViewState(self._tell_status)
        self._recency = self._state.recency
        self._proof_wanted = asyncio.Event()
        self._catches_up = asyncio.Event()
        """Set while it is CATCHING_UP."""
        self._list_seconds = 0.0  # that the last list took
        self._short_watches = 0  # in a row, the next one included, that are to bring the view forward
        self._follows_first_list = False  # by the first watch, and no connection was cut since

    @property
    def status(self) -> Status:
        """What it is doing, and since when."""
        return self._state.status

    @property
    def losses(self) -> int:
        """How often the view has ceased to be current."""
        return self._state.losses

    @property
    def late_since(self) -> float | None:
        """Event loop's time at which the last time began in which it is not known to be current; None while it is."""
        return self._state.late_since

    @property
    def position(self) -> int:
        """The resource version up to which the handler has received everything; 0 if it is not a number."""
        return version_number(self._version)

    @property
    def last_change(self) -> int:
        """The resource version of the last object that the handler received, or of a list; 0 if it is not a number."""
        return version_number(self._last_change)

    @property
    def is_current(self) -> bool:
        """Whether the handler is known to have received everything: the one answer for all that decides by it.

        An optional resource that cannot be had counts as one without objects, hence as current.
        """
        if self.status.phase is Phase.WATCHING or (self.is_optional and self._is_unavailable):
            return True
        if self.status.phase is not Phase.CONNECTING or not self._recency.is_met:
            return False
        return _now() - self._recency.as_of <= GAP_SECONDS

    @property
    def as_of(self) -> float:
        """Event loop's time: everything that had happened by then is certainly in the view."""
        return self._recency.as_of

    @property
    def keeps_promise(self) -> bool:
        """Whether the view has been as new as the last `prove` asked for."""
        return self._recency.keeps_promise

    def prove(self, version: int | None = None, *, at: float | None = None) -> None:
        """Let the view count as current only once it is known to have everything that has happened by now.

        Args:
            version: where somebody vouches for it, that of a view that has everything; None: the API server is asked.
            at: event loop's time; what has happened by then is enough. None: now.
        """
        now = _now()
        self._state.promise(now if at is None else at, now, version=version, position=self.position)
        self._proof_wanted.set()

    def doubt(self) -> None:
        """Let the view count as current only once it is known to be: a connection to the API server was cut.

        A watch that was open then says nothing, whether it goes on or not.
        """
        now = _now()
        self._follows_first_list = False
        self._state.require(now, now)
        self._proof_wanted.set()

    def _take_step(self, step: Step, problem: str = "", *, known: float | None = None) -> None:
        self._state.take(step, _now(), problem=problem, known=known, position=self.position)

    def _tell_status(self) -> None:
        phase = self.status.phase
        if phase is Phase.CATCHING_UP:
            self._catches_up.set()
        else:
            self._catches_up.clear()
        if phase is Phase.WATCHING:
            self._short_watches = 0
        for tell in self.on_status:
            tell()

    def attach(self, handler: Handler[T], on_unavailable: Callable[[str], None] | None = None) -> None:
        """Send all changes to this handler from now on, and first the list that was read meanwhile.

        A start reads the first lists while it still imports what handles them, so the handler can come later.
        on_unavailable: called with the reason why the resource cannot be read, and with "" once it can.
        """
        self._handler = handler
        self._on_unavailable = on_unavailable
        if on_unavailable is not None and self._is_unavailable:
            on_unavailable(self.status.problem)
        self._attached.set()

    @property
    def is_attached(self) -> bool:
        """Whether it has a handler."""
        return self._attached.is_set()

    async def _listener(self) -> Handler[T]:
        await self._attached.wait()
        assert self._handler is not None
        return self._handler

    async def run(self) -> NoReturn:
        """Mirror for ever; the only endless loop. Ends by cancellation alone."""
        self._take_step(Step.BEGIN)
        while True:
            await self._transport.pause(await self.step())

    async def step(self) -> float:
        """List if needed, then watch until the watch ends; return how many seconds to pause before the next step."""
        try:
            if not self._version:
                is_first = not self.synced.is_set()
                await self._list()
                if is_first:
                    await self._put_off_watch()
            return await self._watch()
        except KubeError as error:
            return self._pause_after(error)
        except Exception:
            # A bug here or in the handler: its view may be half changed, so it gets all objects again.
            logger.exception("unexpected error in the reflector of %s; restarting it", self.resource)
            self._version, self._is_confused = "", True
            self._fail(Step.FAIL, "internal error, see the log")
            return self._backoff.next_seconds()

    # --- list ---------------------------------------------------------------------------------------

    async def _list(self) -> None:
        self._take_step(Step.LIST)
        self._follows_first_list = self.counts.watches == 0
        self._tried_since = self._tried_since if self._tried_since is not None else _now()
        if self._asks_version:
            self.resource = await served(self._transport, self.resource)
            self._asks_version = False
        asked = _now()
        take = self._list_again if self.synced.is_set() else self._list_bit_by_bit
        try:
            self._version = await take(PAGE_OBJECTS)
        except Gone:  # a continue token grew too old between two pages
            asked = _now()
            self._version = await take(None)
        self._last_change = self._version
        self.counts.lists += 1
        self._is_confused = False
        self._undelivered.clear()
        self.last_contact = _now()
        self._list_seconds = self.last_contact - asked
        self._short_watches = 0
        if self._is_unavailable and self._on_unavailable is not None:
            self._on_unavailable("")
        self._is_unavailable, self._tried_since = False, None
        self._take_step(Step.LISTED, known=asked)
        self.synced.set()

    async def _put_off_watch(self) -> None:
        """Wait a moment, unless somebody needs more certainty: until then the list says as much as a watch would."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._recency.as_of + self._first_list.watch_after_seconds):
                await self._proof_wanted.wait()

    async def _list_bit_by_bit(self, limit: int | None) -> str:
        """Hand over each page while the next is on its way: who knows nothing yet waits for the last in any case."""
        self._known.clear()
        at_hand: list[Page[T]] = []
        version, is_begun = "", False
        async with aclosing(self._pages(limit)) as listed:
            async for page in listed:
                version = page.metadata.resource_version
                at_hand.append(page)
                if self._handler is None and page.metadata.continue_:
                    continue
                handler = await self._listener()
                if self._first_list.after is not None:
                    await self._first_list.after.wait()
                for each in at_hand:
                    objects = self._distinct(each)
                    self._known.add(objects)
                    if not is_begun:
                        handler.replaced(objects[:FIRST_LIST_OBJECTS])
                        objects, is_begun = objects[FIRST_LIST_OBJECTS:], True
                    await self._deliver_in_slices(Updates(objects), _at_once(objects))
                if len(at_hand) > 1:
                    asyncio.get_running_loop().call_later(KEPT_SECONDS, _free_in_turns, at_hand)
                at_hand = []
        return version

    async def _list_again(self, limit: int | None) -> str:
        """Read all of it: first what is known in another state, as it comes, then what is gone, then what is new.

        After an outage each object may have changed: all of them at once would take memory twice. After an internal
        error, what is known is handed over in any state.
        """
        new: dict[str, T] = {}
        version = ""
        self._known.list_begins()
        await self._listener()
        await self._deliver_in_slices(list(self._undelivered.values()))
        async with aclosing(self._pages(limit)) as listed:
            async for page in listed:
                found = self._index(page)
                version = page.metadata.resource_version
                self._known.keep(broken.metadata for broken in page.malformed)
                changed, unknown = self._known.listed(found)
                new |= unknown
                if self._is_confused:
                    changed = {key: obj for key, obj in found.items() if key not in unknown}
                await self._deliver_in_slices(Updates(list(changed.values())))
        for missed in self._known.missed():
            await asyncio.sleep(0)
            await self._deliver_in_slices(missed)
        added = list(new.values())
        self._known.add(added)
        await self._deliver_in_slices(Updates(added))
        return version

    def _pages(self, limit: int | None) -> AsyncGenerator[Page[T]]:
        page_bytes = LATER_PAGE_BYTES if self.synced.is_set() else PAGE_BYTES
        return pages(
            self._transport,
            self.resource,
            self._decoder,
            limit=limit,
            page_bytes=page_bytes,
            field_selector=self._selector.fields,
            label_selector=self._selector.labels,
            compare=self._first_list.compare,
            permits=self._first_list.permits,
        )

    def _distinct(self, page: Page[T]) -> Sequence[T]:
        """Return the objects of a page; of several states of one, the last, in the place of the first."""
        pods: Any = page.objects
        if isinstance(pods, ListedPods) and len(set(pods.uids)) == len(pods) and all(pods.uids):
            return page.objects
        return list(self._index(page).values())

    def _index(self, page: Page[T]) -> dict[str, T]:
        for broken in page.malformed:
            self._report(broken)
        return {(meta := obj.metadata).uid or key_of(meta): obj for obj in page.objects}

    # --- watch --------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        loop = asyncio.get_running_loop()
        self._take_step(Step.CONNECT)
        is_short = self._short_watches > 0
        seconds = SHORT_WATCH_SECONDS if is_short else self._random.uniform(*self._patience.watch_seconds)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        if self._selector.fields:
            query["fieldSelector"] = self._selector.fields
        if self._selector.labels:
            query["labelSelector"] = self._selector.labels
        stream = await self._transport.open_stream(
            self.resource.collection(query=query),
            resource=self.resource.label,
            idle_seconds=self._patience.silence_seconds,
        )
        self.counts.watches += 1
        began, events_before, version_before = loop.time(), self.counts.events, self._version
        self.last_contact = began
        self._refused_at = None
        self._state.require(began - GAP_SECONDS, began)
        # also after failures to open it: nothing was heard, so nothing was missed unseen
        believed = self._recency.required if self._follows_first_list else NEVER
        self._follows_first_list = False
        self._take_step(Step.OPEN)
        catching_up = asyncio.create_task(self._catch_up(stream, is_short=is_short, believed=believed))
        catching_up.add_done_callback(lambda _: stream.close())  # also where it broke: without it nothing is proved
        try:
            async with asyncio.timeout(seconds + WATCH_GRACE_SECONDS):
                await self._follow(stream)
        except TimeoutError as error:
            raise AnswerTimeout("the watch exceeded its timeout") from error
        finally:
            catching_up.cancel()
            stream.close()
            is_healthy = self.counts.events > events_before or loop.time() - began >= HEALTHY_SECONDS
            if is_healthy:
                self._backoff.reset()
                self._slow_backoff.reset()
                self._went_stale = False
        ended, was_current = loop.time(), self.status.phase is Phase.WATCHING
        # one that ends before its time, or long after, may have been cut off before
        is_routine = was_current and (self.is_optional or abs(ended - began - seconds) <= GAP_SECONDS)
        if was_current and not is_routine:
            self._state.require(ended, ended)
        self._take_step(Step.CLOSE, known=ended if is_routine else None)
        if is_short and not was_current:
            self._short_watches = 1 if self._version != version_before else self._short_watches + 1
            if self._short_watches > SHORT_WATCHES:
                self._version = ""
        if is_healthy or is_short or self._short_watches or not self._version:
            return 0.0
        self._fail(Step.FAIL, "the watch closed immediately")
        return self._backoff.next_seconds()

    async def _follow(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        lines = LineBuffer()
        while chunk := await stream.read():
            self.last_contact = loop.time()
            for piece in pieces_of_lines(lines.feed(chunk), EVENTS_BYTES):
                self._take_lines(piece)

    def _take_lines(self, lines: bytes) -> None:
        try:
            events = self._decoder.events(lines)
        except MalformedAnswer:
            self._version = ""  # what the line said is unknown: only a list tells
            raise
        changes: list[Change[T]] = []
        try:
            for event in events:
                self._take(event, changes)
        finally:
            self._deliver(changes)
        self._state.reached(self.position, _now())

    async def _catch_up(self, stream: Stream, *, is_short: bool, believed: float) -> None:
        """While a watch is open: whenever the view is not as new as it must be, find out what it lacks, and get it.

        A first list that took long is too old when its watch opens. Other schedulers begin all the same. Here the
        watch must have said nothing for a moment after the answer to a question, and nobody must need more certainty.
        Nor must a connection have been cut since the list began: what others do during an outage is to be seen.

        believed: event loop's time; as long as the view need not be newer, and `prove` was not called, such a moment is
        enough.
        """
        pause = (FIRST_QUIET_SECONDS if believed > NEVER else QUIET_SECONDS) / 3
        failures = 0
        while True:
            await self._catches_up.wait()
            quiet = _now() - max(self.last_contact, self._recency.asked)
            if self._recency.target is None:
                failures = 0 if await self._ask_how_new(stream, failures) else failures + 1
            elif self._recency.required <= believed and self._recency.keeps_promise and quiet >= FIRST_QUIET_SECONDS:
                self._state.believe(_now())
            elif not is_short and quiet >= QUIET_SECONDS:
                # a list that takes long is too old again when its watch is open
                if len(self._known) <= self._patience.few_objects and self._list_seconds <= GAP_SECONDS / 2:
                    self._version = ""
                else:
                    self._short_watches = max(1, self._short_watches)
                stream.close()
                return
            else:
                await asyncio.sleep(pause)

    async def _ask_how_new(self, stream: Stream, failures: int) -> bool:
        """Ask for the version that the collection has now, with more patience after failures; return whether it came.

        Where it cannot be had, as the collection may not be listed any more, the watch is closed: a list tells.
        """
        asked = _now()
        path = self.resource.collection(query={"limit": "1"})
        patience = min(QUESTION_TIMEOUT_SECONDS * 2.0**failures, LONGEST_QUESTION_SECONDS)
        try:
            body = await self._transport.request("GET", path, resource=self.resource.label, timeout_seconds=patience)
            version = version_number(list_version(body))
        except KubeError as error:
            logger.debug("%s: failed to check how current the cache is: %s", self.resource, error)
            if not isinstance(error, Forbidden | NotFound | Gone):
                await self._transport.pause(self._backoff.next_seconds())
                return False
            version = 0
        if not version or not self.position:  # versions that cannot be compared
            self._version = ""
            stream.close()
            return False
        self._state.answered(asked, version, position=self.position, now=_now())
        return True

    def _take(self, event: WatchEvent[T] | Bookmark | WatchFailure | MalformedEvent, changes: list[Change[T]]) -> None:
        """Note one event and add what the handler is to be told."""
        if isinstance(event, WatchEvent):
            obj, kind = event.object, event.type
            if kind == "MODIFIED" or kind == "ADDED":
                changes.append(self._known.changed(obj))
            elif kind == "DELETED":
                if (deleted := self._known.gone(obj.metadata, obj)) is not None:
                    changes.append(deleted)
            elif kind != "BOOKMARK":
                logger.warning("watch event of unknown type %r on %s", kind, self.resource)
                return
            self._advance(obj.metadata.resource_version, is_change=kind != "BOOKMARK")
            return
        match event:
            case Bookmark(resource_version=version):
                self._advance(version, is_change=False)
            case MalformedEvent(type=kind, object=broken):
                self._report(broken)
                if kind == "DELETED" and (deleted := self._known.gone(broken.metadata)) is not None:
                    changes.append(deleted)
                self._advance(broken.metadata.resource_version)
            case WatchFailure(status=status):
                raise error_from_status(status)
            case _:
                assert_never(event)

    def _advance(self, version: str, *, is_change: bool = True) -> None:
        self.counts.events += 1
        if version:
            self._version = version
            if is_change:
                self._last_change = version

    async def _deliver_in_slices(self, changes: Sequence[Change[T]], objects: int = LIST_OBJECTS) -> None:
        """Let others have a turn in between: 100,000 pods at once would leave probes without an answer for seconds."""
        for start in range(0, len(changes), objects):
            await asyncio.sleep(0)
            self._deliver(changes[start : start + objects])

    def _deliver(self, changes: Sequence[Change[T]]) -> None:
        if not changes or self._handler is None:
            return
        try:
            self._handler.changed(changes)
        except Exception:
            # They are not known any more, so that no list shows that they are gone.
            self._undelivered |= {key_of(each.last.metadata): each for each in changes if isinstance(each, Deleted)}
            raise

    # --- when it goes wrong -------------------------------------------------------------------------

    def _pause_after(self, error: KubeError) -> float:
        problem = f"{self.resource}: {error}"
        wish = error.retry_after_seconds if isinstance(error, ApiError) else None
        match error:
            case NotFound() | Forbidden() if not self._note_rejection():
                level = logging.INFO if self.is_optional else logging.ERROR
                # what a start finds absent is told for all together (`daemon.watching.first_lists`)
                is_told = self.is_optional and isinstance(error, NotFound) and not self.synced.is_set()
                if not self._is_unavailable and not is_told:
                    logger.log(level, "failed to list or watch %s", problem)
                self._set_aside(Step.MISS if isinstance(error, NotFound) else Step.FORBID, problem)
                return self._slow_backoff.next_seconds(at_least=wish)
            case ApiError() | UnknownOutcome() if self._is_given_up(error):
                if not self._is_unavailable:
                    fields = {"resource": str(self.resource), "why": str(error)}
                    logger.warning("going on without an optional API; it is tried again", extra=fields)
                self._set_aside(Step.MISS, problem)
                return self._slow_backoff.next_seconds(at_least=wish)
            case Gone():
                self._version = ""
                first = not self._went_stale
                self._went_stale = True
                logger.info("%s: resource version too old; relisting", self.resource)
                self._fail(Step.FAIL, problem)
                return 0.0 if first else self._backoff.next_seconds(at_least=wish)
            case Unreachable() | Unauthorized() | CredentialsError():  # logged once for all where they arise
                self._tried_since = None  # nobody has said anything about this resource
                logger.debug("%s", problem)
            case ApiError():
                level = logging.INFO if isinstance(error, NotFound | Forbidden) else logging.WARNING
                if self.status.problem != problem:
                    logger.log(level, "%s", problem)
            case _:
                logger.debug("%s", problem)
        self._fail(Step.FAIL, problem)
        return self._backoff.next_seconds(at_least=wish)

    def _fail(self, step: Step, problem: str) -> None:
        """Note that nothing is heard any more: what happens from now on must be shown by what comes next."""
        self._take_step(step, problem)
        now = _now()
        self._state.require(now, now)

    def _note_rejection(self) -> bool:
        """Note since when the resource is rejected; return whether that is so short that it may be temporary."""
        now = _now()
        if not self.counts.lists:
            return False
        self._refused_at = self._refused_at if self._refused_at is not None else now
        return now - self._refused_at < BRIEF_REFUSAL_SECONDS

    def _is_given_up(self, error: KubeError) -> bool:
        """Return whether decisions are made without what could not be read yet, though the API server answers."""
        if not self.is_optional or (self.synced.is_set() and not self._is_unavailable):
            return False
        if self._tried_since is None or isinstance(error, Unauthorized | TooManyRequests):
            return False
        return _now() - self._tried_since >= self._patience.optional_seconds

    def _set_aside(self, step: Step, problem: str) -> None:
        """Note that the resource is not available; delivered objects stay, because they may still be right."""
        self._fail(step, problem)
        self._version = ""
        self._is_unavailable = True
        self._asks_version = self.resource.version_differs  # an upgrade may bring it in another
        if self._on_unavailable is not None:
            self._on_unavailable(problem)
        if self.is_optional and not self.synced.is_set():
            if self._handler is not None:
                self._handler.replaced([])
            self.synced.set()

    def _report(self, broken: Malformed) -> None:
        self.counts.malformed += 1
        logger.warning("ignored a malformed object of %s: %s", self.resource, broken)
        if self._on_malformed is not None:
            self._on_malformed(broken)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _at_once(objects: Any) -> int:
    is_placed = isinstance(objects, ListedPods) and all(objects.node_names)  # those that wait take twice as long
    return FIRST_LIST_COLUMNS if is_placed else FIRST_LIST_OBJECTS


async def wait_synced(reflectors: Iterable[Reflector[Any]], *, timeout_seconds: float) -> list[Reflector[Any]]:
    """Wait until all have delivered their first list; return those that have not within timeout_seconds."""
    waits = {asyncio.ensure_future(reflector.synced.wait()): reflector for reflector in reflectors}
    if not waits:
        return []
    _, pending = await asyncio.wait(waits, timeout=timeout_seconds)
    for task in pending:
        task.cancel()
    return [reflector for task, reflector in waits.items() if task in pending]


def _free_in_turns(pages: list[Page[Any]]) -> None:
    pages.pop()
    if pages:
        asyncio.get_running_loop().call_later(FREED_EVERY_SECONDS, _free_in_turns, pages)
