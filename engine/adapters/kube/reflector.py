"""List and watch of one resource, kept going whatever happens. Knows no scheduling: a handler is told what changed.

The rules: list in pages, watch from the list's resource version, take the version from every event and bookmark.
A watch that ends in order goes on at once where it stopped; after an error there is a growing pause; after
410 Gone, or a line that is no event, the list is read again and only the differences are delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, NoReturn, assert_never

from engine.adapters.kube.backoff import Backoff
from engine.adapters.kube.changes import Added, Change, Handler, Phase, Status
from engine.adapters.kube.connection import Stream
from engine.adapters.kube.decoding import (
    Bookmark,
    LineBuffer,
    Malformed,
    MalformedEvent,
    ObjectDecoder,
    Page,
    WatchEvent,
    WatchFailure,
)
from engine.adapters.kube.errors import (
    AnswerTimeout,
    ApiError,
    CredentialsError,
    Forbidden,
    Gone,
    KubeError,
    MalformedAnswer,
    NotFound,
    Unauthorized,
    Unreachable,
    error_from_status,
)
from engine.adapters.kube.mirrored import Mirrored, key_of
from engine.adapters.kube.pages import PAGE_OBJECTS, pages
from engine.adapters.kube.resources import Resource, T
from engine.adapters.kube.transport import Transport

logger = logging.getLogger(__name__)

SLICE_OBJECTS = 500  # of a list, handed over before others get a turn: some 20 ms
WATCH_SECONDS = (300.0, 600.0)  # the server ends a watch after a time drawn from here, so that they do not coincide
WATCH_GRACE_SECONDS = 30.0  # a watch that outlives its time by this hangs
SILENCE_SECONDS = 150.0  # bookmarks come about once a minute; a silent watch is opened anew, at the same version
HEALTHY_SECONDS = 5.0  # a watch that lives this long, or delivers anything, ends a row of failures


@dataclass(slots=True)
class Counts:
    """What a reflector did since it began."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    malformed: int = 0


class Reflector(Generic[T]):
    """Mirrors one resource into a handler. Keeps no objects itself, only what tells two states of one apart."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[T],
        handler: Handler[T] | None = None,
        *,
        field_selector: str = "",
        optional: bool = False,
        random: Random,
        silence_seconds: float = SILENCE_SECONDS,
        watch_seconds: tuple[float, float] = WATCH_SECONDS,
        backoff: Backoff | None = None,
        on_malformed: Callable[[Malformed], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            resource: what is mirrored.
            handler: is told; None: the first list is read, and waits for `attach`.
            field_selector: of the objects that are mirrored.
            optional: absence and lack of permission count as synced with no objects.
            random: spreads pauses and the ends of watches.
            silence_seconds: after which a watch is opened anew.
            watch_seconds: shortest and longest time of a watch.
            backoff: pauses after errors.
            on_malformed: told of objects that were passed over.
        """
        self.resource = resource
        self.status = Status(Phase.STARTING)
        self.counts = Counts()
        self.synced = asyncio.Event()
        self.last_contact = 0.0  # event loop's time at which the view was last known to be current
        self._transport = transport
        self._handler: Handler[T] | None = None
        self._attached = asyncio.Event()
        if handler is not None:
            self.attach(handler)
        self._field_selector = field_selector
        self._optional = optional
        self._random = random
        self._silence_seconds = silence_seconds
        self._watch_seconds = watch_seconds
        self._on_malformed = on_malformed
        self._decoder = ObjectDecoder(resource.type)
        self._told: Mirrored[T] = Mirrored(resource.type)
        self._backoff = backoff or Backoff(random=random)
        self._slow_backoff = Backoff(initial_seconds=5.0, limit_seconds=60.0, random=random)
        self._version = ""  # resource version to watch from; "" asks for a list first
        self._deliver_whole = True
        self._went_stale = False  # the version was refused since a watch last went well
        self._stream: Stream | None = None  # the watch that is open
        self._reopens_wanted = 0  # how often the watch was to be opened anew
        self._reopens_done = 0  # as many of them as were wanted when the watch that is open was asked for

    @property
    def position(self) -> int:
        """The resource version up to which the handler was told everything; 0 where it has no number."""
        return int(self._version) if self._version.isdecimal() else 0

    def attach(self, handler: Handler[T]) -> None:
        """Tell this one from now on."""
        self._handler = handler
        self._attached.set()

    async def _listener(self) -> Handler[T]:
        await self._attached.wait()
        assert self._handler is not None
        return self._handler

    async def run(self) -> NoReturn:
        """Mirror for ever; the only endless loop. Ends by cancellation alone."""
        while True:
            await self._transport.pause(await self.step())

    async def step(self) -> float:
        """List if needed, then watch until the watch ends; return how many seconds to pause before the next step."""
        try:
            if not self._version:
                await self._list()
            return await self._watch()
        except KubeError as error:
            return self._pause_after(error)
        except Exception:
            # A fault in ours or in the handler: its view may be half changed, so it gets all objects anew.
            logger.exception("reflector of %s failed, it starts over", self.resource)
            self._version, self._deliver_whole = "", True
            self.status = Status(Phase.RETRYING, "internal error, see the log")
            return self._backoff.next_seconds()

    def reopen(self) -> None:
        """Open the watch anew where it is: one that hangs or is late unnoticed then tells what it owes."""
        self._reopens_wanted += 1
        if self.status.phase is Phase.WATCHING:
            self.status = Status(Phase.RETRYING, "the watch is opened anew")
        if self._stream is not None:
            self._stream.close()

    @property
    def owes(self) -> bool:
        """Whether the watch was to be opened anew, and could not be so far."""
        return self._reopens_done < self._reopens_wanted

    # --- list ---------------------------------------------------------------------------------------

    async def _list(self) -> None:
        is_first = self._deliver_whole and not self.counts.lists
        take = self._list_bit_by_bit if is_first else self._list_whole
        try:
            self._version = await take(PAGE_OBJECTS)
        except Gone:  # a continue token grew too old between two pages
            self._version = await take(None)
        self.counts.lists += 1
        self._deliver_whole = False
        self.last_contact = asyncio.get_running_loop().time()
        self.status = Status(Phase.WATCHING)
        self.synced.set()

    async def _list_bit_by_bit(self, limit: int | None) -> str:
        """Hand over each page while the next is on its way: who knows nothing yet waits for the last in any case."""
        self._told.clear()
        at_hand: list[Page[T]] = []
        version, is_begun = "", False
        async with aclosing(self._pages(limit)) as listed:
            async for page in listed:
                version = page.metadata.resource_version
                at_hand.append(page)
                if self._handler is None and page.metadata.continue_:
                    continue
                handler = await self._listener()
                for each in at_hand:
                    found = self._index(each)
                    self._told.add(found)
                    objects = list(found.values())
                    if not is_begun:
                        handler.replaced(objects[:SLICE_OBJECTS])
                        objects, is_begun = objects[SLICE_OBJECTS:], True
                    await self._deliver_in_slices([Added(obj) for obj in objects])
                at_hand.clear()
        return version

    async def _list_whole(self, limit: int | None) -> str:
        """Read all of it before anything is handed over: who knows something must not miss the rest meanwhile."""
        found: dict[str, T] = {}
        malformed: list[Malformed] = []
        version = ""
        async with aclosing(self._pages(limit)) as listed:
            async for page in listed:
                found |= self._index(page)
                malformed += page.malformed
                version = page.metadata.resource_version
        handler = await self._listener()
        if self._deliver_whole:
            self._told.clear()
            self._told.add(found)
            handler.replaced(list(found.values()))
        else:
            changes = self._told.replace(found, unreadable=[broken.metadata for broken in malformed])
            await self._deliver_in_slices(changes)
        return version

    def _pages(self, limit: int | None) -> AsyncGenerator[Page[T]]:
        return pages(self._transport, self.resource, self._decoder, limit=limit, field_selector=self._field_selector)

    def _index(self, page: Page[T]) -> dict[str, T]:
        for broken in page.malformed:
            self._report(broken)
        return {key_of(obj.metadata): obj for obj in page.objects}

    # --- watch --------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        loop = asyncio.get_running_loop()
        seconds = self._random.uniform(*self._watch_seconds)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        if self._field_selector:
            query["fieldSelector"] = self._field_selector
        wanted = self._reopens_wanted
        stream = await self._transport.open_stream(
            self.resource.collection(query=query), resource=self.resource.plural, idle_seconds=self._silence_seconds
        )
        self._reopens_done = wanted
        if self.owes:  # since this one was asked for
            stream.close()
            return 0.0
        self._stream = stream
        self.counts.watches += 1
        began, events_before = loop.time(), self.counts.events
        self.status = Status(Phase.WATCHING)
        self.last_contact = began
        try:
            async with asyncio.timeout(seconds + WATCH_GRACE_SECONDS):
                await self._follow(stream)
        except TimeoutError as error:
            raise AnswerTimeout("the watch outlived its time") from error
        finally:
            self._stream = None
            stream.close()
            is_healthy = self.counts.events > events_before or loop.time() - began >= HEALTHY_SECONDS
            if is_healthy:
                self._backoff.reset()
                self._slow_backoff.reset()
                self._went_stale = False
        return 0.0 if is_healthy or self.owes else self._backoff.next_seconds()

    async def _follow(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        lines = LineBuffer()
        while chunk := await stream.read():
            complete = lines.feed(chunk)
            if not complete:
                continue
            self.last_contact = loop.time()
            try:
                events = self._decoder.events(complete)
            except MalformedAnswer:
                self._version = ""  # what the line said is unknown: only a list tells
                raise
            changes: list[Change[T]] = []
            try:
                for event in events:
                    self._take(event, changes)
            finally:
                self._deliver(changes)

    def _take(self, event: WatchEvent[T] | Bookmark | WatchFailure | MalformedEvent, changes: list[Change[T]]) -> None:
        """Note one event and add what the handler is to be told."""
        match event:
            case WatchEvent(type="BOOKMARK", object=obj):
                self._advance(obj.metadata.resource_version)
            case WatchEvent(type="DELETED", object=obj):
                if (deleted := self._told.gone(obj.metadata, obj)) is not None:
                    changes.append(deleted)
                self._advance(obj.metadata.resource_version)
            case WatchEvent(type="ADDED" | "MODIFIED", object=obj):
                changes.append(self._told.changed(obj))
                self._advance(obj.metadata.resource_version)
            case WatchEvent():
                logger.warning("watch event of unknown type %r on %s", event.type, self.resource)
            case Bookmark(resource_version=version):
                self._advance(version)
            case MalformedEvent(type=kind, object=broken):
                self._report(broken)
                if kind == "DELETED" and (deleted := self._told.gone(broken.metadata)) is not None:
                    changes.append(deleted)
                self._advance(broken.metadata.resource_version)
            case WatchFailure(status=status):
                raise error_from_status(status)
            case _:
                assert_never(event)

    def _advance(self, version: str) -> None:
        self.counts.events += 1
        if version:
            self._version = version

    async def _deliver_in_slices(self, changes: list[Change[T]]) -> None:
        """Let others have a turn in between: 100,000 pods at once would leave probes without an answer for seconds."""
        for start in range(0, len(changes), SLICE_OBJECTS):
            await asyncio.sleep(0)
            self._deliver(changes[start : start + SLICE_OBJECTS])

    def _deliver(self, changes: list[Change[T]]) -> None:
        if changes and self._handler is not None:
            self._handler.changed(changes)

    # --- when it goes wrong -------------------------------------------------------------------------

    def _pause_after(self, error: KubeError) -> float:
        problem = f"{self.resource}: {error}"
        wish = error.retry_after_seconds if isinstance(error, ApiError) else None
        match error:
            case Gone():
                self._version = ""
                first = not self._went_stale
                self._went_stale = True
                logger.info("%s: resource version too old, listing again", self.resource)
                return 0.0 if first else self._backoff.next_seconds(at_least=wish)
            case NotFound() | Forbidden():
                phase = Phase.ABSENT if isinstance(error, NotFound) else Phase.FORBIDDEN
                if self.status.phase is not phase:
                    logger.log(logging.INFO if self._optional else logging.ERROR, "cannot list or watch %s", problem)
                self._set_aside(phase, problem)
                return self._slow_backoff.next_seconds(at_least=wish)
            case Unreachable() | Unauthorized() | CredentialsError():  # logged once for all where they arise
                logger.debug("%s", problem)
            case ApiError():
                if self.status.problem != problem:
                    logger.warning("%s", problem)
            case _:
                logger.debug("%s", problem)
        self.status = Status(Phase.RETRYING if self.synced.is_set() else Phase.STARTING, problem)
        return self._backoff.next_seconds(at_least=wish)

    def _set_aside(self, phase: Phase, problem: str) -> None:
        """Note that the resource cannot be had; objects already delivered stay, for they may still be right."""
        self.status = Status(phase, problem)
        self._version = ""
        if self._optional and not self.synced.is_set():
            if self._handler is not None:
                self._handler.replaced([])
            self._deliver_whole = False
            self.synced.set()

    def _report(self, broken: Malformed) -> None:
        self.counts.malformed += 1
        logger.warning("passed over a malformed object of %s: %s", self.resource, broken)
        if self._on_malformed is not None:
            self._on_malformed(broken)
