"""Writes that may wait: sent in the background, newest per key, without standing in the way of bindings.

Nothing is lost while there is room. An item is sent at once if nobody more important is busy, else after
`max_defer_seconds` at the latest. What fails is tried again after growing pauses of its own, also what is refused: a
webhook or an admission policy that says no today (400, 403, 422) may be mended in a minute, and says nothing of other
objects. Only after an hour, the time for which an event lives, it is given up. Namespaces take turns, and what fails or
hangs in one gets only some of the requests, and few of them a second. What is tried for the first time has turns of its
own: it does not wait for what has failed before in its namespace. Only while the server cannot be reached does
everything wait. What is behind a closed fence stays until it opens, or is dropped at the end: the next leader says
it. When `capacity` is reached, the namespace with most items loses one, that which fails first. What is refused, given
up or lost is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Fenced,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnknownOutcome,
    Unreachable,
)
from kube_policy_scheduler.adapters.process.backoff import Backoff

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")

DEFER_POLL_SECONDS = 0.05
FENCE_SECONDS = (0.2, 5.0)
"""First and longest pause of what is behind a closed fence."""
RETRY_SECONDS = (0.5, 30.0)
"""First and longest pause of an item that failed."""
DOWN_SECONDS = (0.2, 15.0)
"""First and longest pause of everything while the server cannot be reached."""
FAILING_PER_SECOND = 20.0
"""Requests of lanes whose last write failed, all together: a server in trouble is not asked more often."""
MOST_FAILING_FIRST = 2
"""First tries of a namespace at a time, once the last one failed: one that hangs does not hold up the next. Of what
failed before, one at a time is tried again."""
GIVE_UP_SECONDS = 3600.0
"""An item is given up after it was refused for this long."""
BEING_TERMINATED = "being terminated"
"""Part of the API server's message about a namespace in which nothing can be created any more."""
MOST_FORBIDDEN = 5
"""Tries of what nobody insists on and is answered with 403, as a server may that has just started; some ten seconds."""
MOST_FAULTS = 3
"""Attempts of an item that ends in an unexpected error."""
MOST_LOOKS = 64
"""Lanes looked at for one that may send, at a time."""
WARN_EVERY_SECONDS = 60.0
"""Between two log lines about items that begin to fail, whichever they are and whatever the reasons."""
REMIND_EVERY_SECONDS = 600.0
"""The same where none begins to fail, and some go on."""
TELL_REFUSED_SECONDS = 600.0
"""For this long the status page tells why something was refused."""


class OutboxCounts(msgspec.Struct):
    """What happened to the items."""

    sent: int = 0
    merged: int = 0
    """Replaced by a newer one before they were sent."""
    refused: int = 0
    """Given up after refusals."""
    dropped: int = 0
    retried: int = 0
    withheld: int = 0


class Backlog(msgspec.Struct, frozen=True):
    """What an outbox still has to send."""

    items: int
    failing: int
    """Of these, what has failed and waits for another try."""
    oldest_seconds: float
    """How long the oldest has waited; 0.0 where there is none."""
    counts: OutboxCounts
    """What happened to the others."""
    refused: str = ""
    """The object of the last one that the server refused, and why; empty where that is long ago."""
    refusals: int = 0
    """How often the server refused one, by a webhook, an admission policy, missing permissions or as invalid."""


class _Entry(msgspec.Struct, Generic[Key, Item], eq=False):
    key: Key
    item: Item | None
    """None where it was discarded while it was being sent."""
    queued_at: float
    lanes: _Lanes[Key, Item]
    newer: Item | None = None
    """What came while it was being sent."""
    has_failed: bool = False
    refusals: int = 0
    refused_since: float = 0.0
    """Event loop's time of the first refusal."""
    pauses: Backoff | None = None
    """Since it failed."""
    due: float = 0.0
    """Event loop's time at which its pause is over."""

    @property
    def lane(self) -> _Lane[Key, Item]:
        return self.lanes.again if self.has_failed else self.lanes.first


class _Lane(msgspec.Struct, Generic[Key, Item], eq=False):
    """The items of one namespace that are tried for the first time, or those that are tried again."""

    namespace: str
    is_again: bool
    is_failing: bool
    """Whether the last write that came to an end failed."""
    waiting: OrderedDict[Key, _Entry[Key, Item]] = msgspec.field(default_factory=OrderedDict)
    in_flight: int = 0
    taken: int = 0
    filed: int | None = None
    """Where it has its turns now; None: nowhere."""

    def next_entry(self) -> _Entry[Key, Item]:
        """Return the item whose turn it is.

        While first tries fail, every second one is the newest: it does not wait for hundreds that may hang as the last.
        """
        is_newest = self.is_failing and not self.is_again and self.taken % 2 == 1
        return next(reversed(self.waiting.values()) if is_newest else iter(self.waiting.values()))

    @property
    def turns(self) -> int:
        """Return where it has its turns, see `_turns`."""
        return _FAILING if self.is_failing else _AGAIN if self.is_again else _FIRST


class _Lanes(msgspec.Struct, Generic[Key, Item], eq=False):
    """The items about objects of one namespace."""

    namespace: str
    first: _Lane[Key, Item]
    again: _Lane[Key, Item]
    resting: dict[Key, _Entry[Key, Item]] = msgspec.field(default_factory=dict)
    """Failed, and waiting for their pauses to end."""

    @classmethod
    def of(cls, namespace: str) -> _Lanes[Key, Item]:
        return cls(namespace, first=_Lane(namespace, False, False), again=_Lane(namespace, True, True))

    def __len__(self) -> int:
        return len(self.first.waiting) + len(self.again.waiting) + len(self.resting)

    def are_idle(self) -> bool:
        return not len(self) and not self.first.in_flight and not self.again.in_flight


_FIRST, _AGAIN, _FAILING = range(3)
"""Whose turn it is: see `Outbox._turns`."""


class _Taken(msgspec.Struct, Generic[Key, Item], frozen=True):
    """An item that was taken to be sent, out of a lane that may change meanwhile."""

    entry: _Entry[Key, Item]
    lane: _Lane[Key, Item]
    is_suspect: bool
    """Whether it counts as one that may hang."""


class OutboxLimits(msgspec.Struct, frozen=True):
    """How much an outbox does at a time, and how much waits in it."""

    concurrency: int = 8
    """Requests at a time."""
    capacity: int = 50_000
    """Items that wait at most."""
    max_defer_seconds: float = 15.0
    """How long an item waits at most for others who are busy."""


USUAL_LIMITS = OutboxLimits()


Begin: TypeAlias = Callable[[Key, Item, Callable[[KubeError | None], None]], bool]
"""Sends an item without a task, where nothing stands in its way; returns whether. It tells how it ended, None: well."""


class Outbox(Generic[Key, Item]):
    """A queue by key. Two sends of one key never overlap, and the newest comes last."""

    def __init__(
        self,
        send: Callable[[Key, Item], Awaitable[object]],
        *,
        name: str,
        about: Callable[[Key, Item], tuple[str, str]],
        random: Random,
        limits: OutboxLimits = USUAL_LIMITS,
        defer_while: Callable[[], bool] = lambda: False,
        merge: Callable[[Item, Item], Item] = lambda old, new: new,
        insists: Callable[[Item], bool] = lambda item: True,
        on_lost: Callable[[Item, str], None] = lambda item, why: None,
    ) -> None:
        """Set up; `run` sends.

        Args:
            send: sends one item; raises KubeError.
            name: what the items are, for the log.
            about: namespace and name of the object that an item is about.
            random: spreads retries.
            limits: of what is sent at a time, and of what waits.
            defer_while: whether others are busy now.
            merge: makes one item of a waiting one and a newer one.
            insists: whether an item that is refused is tried for `GIVE_UP_SECONDS`. If False, it is tried
                once, or a few times after a 403, because the sender waits for the answer.
            on_lost: called with what was given up, or dropped for want of room, and why.
        """
        self.counts = OutboxCounts()
        self._send = send
        self._begin: Begin[Key, Item] | None = None
        self._name = name
        self._about = about
        self._random = random
        self._concurrency = limits.concurrency
        self._most_per_lane = max(1, limits.concurrency - max(1, limits.concurrency // 4))
        """Requests of one lane, and of all together that fail or are tried again: the others have the rest."""
        self._capacity = limits.capacity
        self._max_defer_seconds = limits.max_defer_seconds
        self._defer_while = defer_while
        self._merge = merge
        self._insists = insists
        self._on_lost = on_lost
        self._down = self._backoff(DOWN_SECONDS)
        self._entries: OrderedDict[Key, _Entry[Key, Item]] = OrderedDict()  # a dict is slow to empty from the front
        self._lanes: dict[str, _Lanes[Key, Item]] = {}
        """By namespace."""
        self._turns: tuple[OrderedDict[tuple[str, bool], _Lane[Key, Item]], ...] = tuple(
            OrderedDict() for _ in (_FIRST, _AGAIN, _FAILING)
        )
        """Lanes with items that wait, in the order of their turns: first tries that do well, later ones that do well,
        and those that fail."""
        self._heaviest: _Lanes[Key, Item] | None = None
        self._rests: list[tuple[float, int, _Entry[Key, Item]]] = []
        """A heap by the ends of pauses; those of items that rest no more are passed over."""
        self._tickets = count()
        self._in_flight = self._suspects_in_flight = 0
        """Requests, and those of them that fail or are tried again."""
        self._runs = 0
        """How often `run` began."""
        self._sends: asyncio.TaskGroup | None = None
        """The tasks of the run under way."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running one, once there was an item: to ask which one runs is a call of the kernel."""
        self._stirred = asyncio.Event()
        self._is_polling = False
        """Whether `run` waits for others who are busy: what comes meanwhile is looked at with what waits already."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._paused_until = self._next_failing_at = 0.0
        self._warned_at = -inf
        self._is_draining = self._is_failing = self._is_dropping = False
        self._last_refusal, self._refused_at, self._refusals = "", -inf, 0

    def send_without_task(self, begin: Begin[Key, Item]) -> None:
        """Send items by this where it can, and by `send` where it cannot."""
        self._begin = begin

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    @property
    def backlog(self) -> Backlog:
        """What is still to be sent; asks each namespace that has something."""
        oldest = next(iter(self._entries.values()), None)
        seconds = self._now() - oldest.queued_at if oldest is not None else 0.0
        failing = sum(len(lanes.resting) for lanes in self._lanes.values())
        is_recent = self._now() - self._refused_at < TELL_REFUSED_SECONDS
        refused = self._last_refusal if is_recent else ""
        return Backlog(len(self._entries), failing, seconds, self.counts, refused, self._refusals)

    def put(self, key: Key, item: Item) -> None:
        """Queue item; one that waits under the same key is merged with it, and keeps its place."""
        known = self._entries.get(key)
        if known is None:
            if len(self._entries) >= self._capacity:
                self._drop()
            namespace, _ = self._about(key, item)
            lanes = self._lanes.get(namespace)
            if lanes is None:
                lanes = self._lanes[namespace] = _Lanes.of(namespace)
            self._entries[key] = entry = _Entry(key, item, self._now(), lanes)
            self._wait(entry, stirs=not self._is_polling or self._is_draining or not self._defer_while())
            return
        is_waiting = not self._is_under_way(known)
        older = known.item if is_waiting else known.newer
        if older is not None:
            self.counts.merged += 1
            item = self._merge(older, item)
        if is_waiting:
            known.item = item
        else:
            known.newer = item

    def _now(self) -> float:
        """Return the event loop's time."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        return loop.time()

    def discard(self, key: Key) -> None:
        """Forget what waits under key; what is being sent already is not stopped, and not tried again."""
        known = self._entries.get(key)
        if known is None:
            return
        if not self._is_under_way(known):
            self._forget(known)
        else:
            known.item = known.newer = None

    async def run(self) -> NoReturn:
        """Send for ever; end by cancellation. It may be run again then."""
        loop = asyncio.get_running_loop()
        self._recover()
        self._runs += 1
        async with asyncio.TaskGroup() as sends:
            self._sends = sends
            while True:
                self._stirred.clear()
                self._is_polling = False
                now = loop.time()
                while (turn := self._take_next(now)) is not None:
                    if not self._begin_turn(turn):
                        sends.create_task(self._deliver_in_turn(turn))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_look(now)):
                        await self._stirred.wait()

    def _recover(self) -> None:
        """Put back what was being sent when the last run ended."""
        self._in_flight = self._suspects_in_flight = 0
        for lanes in self._lanes.values():
            lanes.first.in_flight = lanes.again.in_flight = 0
        for entry in list(self._entries.values()):
            if self._is_under_way(entry):
                self._again(entry)

    async def drain(self, *, timeout_seconds: float) -> bool:
        """Send all that waits without deferring, what failed once more; return whether all of it went out in time.

        `run` must be running.
        """
        self._is_draining = True
        for lanes in list(self._lanes.values()):
            for entry in list(lanes.resting.values()):
                self._wait(entry)
        self._stirred.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._drained.wait()
        except TimeoutError:
            return False
        finally:
            self._is_draining = False
        return not self._entries

    # --- whose turn it is ----------------------------------------------------------------------------

    def _take_next(self, now: float) -> _Taken[Key, Item] | None:
        """Take an item to send now out of its place, None where there is none."""
        while self._rests and (self._rests[0][0] <= now or self._has_moved(*self._rests[0])):
            due, ticket, entry = heapq.heappop(self._rests)
            if not self._has_moved(due, ticket, entry):
                self._wait(entry)
        if now < self._paused_until or self._in_flight >= self._concurrency or not any(self._turns):
            return None
        found = self._take(_FIRST, now)
        if found is None and self._suspects_in_flight < self._most_per_lane:
            found = self._take(_AGAIN, now)
            if found is None and now >= self._next_failing_at:
                found = self._take(_FAILING, now)
                if found is not None:
                    self._next_failing_at = now + 1.0 / FAILING_PER_SECOND
        return found

    def _has_moved(self, due: float, _: int, entry: _Entry[Key, Item]) -> bool:
        """Return whether an item has left the pause of which the heap tells."""
        return entry.due != due or entry.lanes.resting.get(entry.key) is not entry

    def _is_under_way(self, entry: _Entry[Key, Item]) -> bool:
        return entry.key not in entry.lane.waiting and entry.key not in entry.lanes.resting

    def _take(self, kind: int, now: float) -> _Taken[Key, Item] | None:
        """Take the first item of the next lane that may send."""
        turns = self._turns[kind]
        for _ in range(min(len(turns), MOST_LOOKS)):
            place, lane = next(iter(turns.items()))
            turns.move_to_end(place)
            entry = lane.next_entry()
            if lane.in_flight < self._most_of(lane) and not self._defers(entry, now):
                del lane.waiting[entry.key]
                lane.taken += 1
                lane.in_flight += 1
                self._in_flight += 1
                self._suspects_in_flight += kind != _FIRST
                if not lane.waiting:
                    self._file(lane)
                return _Taken(entry, lane, kind != _FIRST)
        return None

    def _most_of(self, lane: _Lane[Key, Item]) -> int:
        """Return how many requests of a lane there may be at a time."""
        if not lane.is_failing:
            return self._most_per_lane
        return 1 if lane.is_again else min(MOST_FAILING_FIRST, self._most_per_lane)

    def _defers(self, entry: _Entry[Key, Item], now: float) -> bool:
        is_young = now - entry.queued_at < self._max_defer_seconds
        return is_young and not self._is_draining and self._defer_while()

    def _next_look(self, now: float) -> float | None:
        """Return the event loop's time until which there is nothing to send, if nothing happens; None: for ever."""
        ends = [self._rests[0][0]] if self._rests else []
        if any(self._turns) and self._in_flight < self._concurrency:
            if now < self._paused_until:
                ends.append(self._paused_until)
            elif self._turns[_FAILING] and now < self._next_failing_at:
                ends.append(self._next_failing_at)
            if self._defer_while():
                ends.append(now + DEFER_POLL_SECONDS)
                self._is_polling = True
        return min(ends, default=None)

    # --- where an item is ----------------------------------------------------------------------------

    def _wait(self, entry: _Entry[Key, Item], *, first: bool = False, stirs: bool = True) -> None:
        """Let an item wait for its turn. stirs: whether it may be sent before `run` looks anyway."""
        lane = entry.lane
        entry.lanes.resting.pop(entry.key, None)
        lane.waiting[entry.key] = entry
        if first:
            lane.waiting.move_to_end(entry.key, last=False)
        if lane.filed is None:
            self._file(lane)
        self._drained.clear()
        if stirs:
            self._stirred.set()

    def _rest(self, entry: _Entry[Key, Item], seconds: tuple[float, float], *, wish: float | None = None) -> None:
        entry.pauses = entry.pauses or self._backoff(seconds)
        entry.due = self._now() + entry.pauses.next_seconds(at_least=wish)
        entry.lanes.resting[entry.key] = entry
        heapq.heappush(self._rests, (entry.due, next(self._tickets), entry))

    def _forget(self, entry: _Entry[Key, Item]) -> None:
        del self._entries[entry.key]
        entry.lane.waiting.pop(entry.key, None)
        entry.lanes.resting.pop(entry.key, None)
        self._file(entry.lane)
        self._settle()

    def _file(self, lane: _Lane[Key, Item]) -> None:
        """Let a lane have its turns where it belongs; the lanes of a namespace without items are forgotten."""
        belongs = lane.turns if lane.waiting else None
        if belongs != lane.filed:
            place = lane.namespace, lane.is_again
            if lane.filed is not None:
                del self._turns[lane.filed][place]
            if belongs is not None:
                self._turns[belongs][place] = lane
            lane.filed = belongs
        if belongs is None and self._lanes[lane.namespace].are_idle():
            del self._lanes[lane.namespace]

    def _drop(self) -> None:
        """Make room for one: the namespace with most items gives it, of what fails before what waits."""
        lanes = self._heaviest
        if lanes is None or len(lanes) * len(self._lanes) < len(self._entries):
            lanes = self._heaviest = max(self._lanes.values(), key=len)
        if not len(lanes):
            return  # all are being sent
        entry = next(iter((lanes.resting or lanes.again.waiting or lanes.first.waiting).values()))
        self._forget(entry)
        self.counts.dropped += 1
        self._tell_lost(entry, f"more than {self._capacity} writes wait")
        if not self._is_dropping:
            self._is_dropping = True
            logger.error("%s: more than %d are waiting; dropping the oldest", self._name, self._capacity)

    def _settle(self) -> None:
        if any(self._turns):
            self._stirred.set()
        elif not self._in_flight:
            self._is_dropping = False
            self._drained.set()

    # --- sending -------------------------------------------------------------------------------------

    async def _deliver_in_turn(self, turn: _Taken[Key, Item]) -> None:
        """Send an item that was taken, and others after it while all goes well: a task for each would cost more.

        As soon as one can be sent without a task, the others are.
        """
        clock, following = asyncio.get_running_loop().time, turn
        while True:
            is_well = await self._deliver(following)
            if not is_well:  # it may have ended without any request, as behind a closed fence, and so may thousands
                await asyncio.sleep(0)
            found = self._take_next(clock())
            if not is_well or found is None:
                self._stirred.set()
            if found is None or self._begin_turn(found):
                return
            following = found

    async def _deliver(self, turn: _Taken[Key, Item]) -> bool:
        """Send an item that was taken; return whether all is as it was but for its place, which is free."""
        entry = turn.entry
        if entry.item is None:  # discarded since it was taken
            return self._conclude(turn, None, was_sent=False)
        try:
            await self._send(entry.key, entry.item)
        except Exception as error:
            return self._conclude(turn, error)
        except BaseException:  # put back by the next run
            self._leave(turn, is_well=False)
            raise
        return self._conclude(turn, None)

    def _begin_turn(self, turn: _Taken[Key, Item]) -> bool:
        """Send an item that was taken without a task, where that is possible; return whether."""
        entry = turn.entry
        if self._begin is None or entry.item is None:
            return False
        return self._begin(entry.key, entry.item, partial(self._end_turn, turn, self._runs))

    def _end_turn(self, turn: _Taken[Key, Item], run: int, error: KubeError | None) -> None:
        """Go on after an item that was sent without a task, with others while all goes well."""
        if run != self._runs or self._sends is None:
            return  # the run has ended, and what was under way is put back by the next one
        if not self._conclude(turn, error):
            return
        found = self._take_next(self._now())
        if found is None:
            self._stirred.set()
        elif not self._begin_turn(found):
            self._sends.create_task(self._deliver_in_turn(found))

    def _conclude(self, turn: _Taken[Key, Item], error: Exception | None, *, was_sent: bool = True) -> bool:
        """Note what became of an item; return whether all is as it was but for its place, which is free."""
        entry, lane, is_well = turn.entry, turn.lane, False
        try:
            match error:
                case None if not was_sent:
                    self._done(entry)
                case None:
                    self.counts.sent += 1
                    is_well = not turn.is_suspect and not self._is_failing and not lane.is_failing
                    lane.is_failing = False
                    self._succeeded()
                    self._done(entry)
                case Unreachable() | CredentialsError():
                    self._server_is_down(error)
                    self._again(entry)
                case UnknownOutcome() | TooManyRequests() | ServerError() | Unauthorized() | Conflict():
                    self.counts.retried += 1
                    lane.is_failing = True
                    self._warn(entry, error)
                    wish = error.retry_after_seconds if isinstance(error, ApiError) else None
                    self._failed(entry, wish=wish)
                case Fenced() if self._is_draining:
                    self.counts.withheld += 1
                    self._done(entry)
                case Fenced():
                    self._again(entry, pause=FENCE_SECONDS)
                case NotFound():  # the object, or its namespace, is gone
                    self._give_up(entry, error)
                case KubeError():
                    lane.is_failing = True
                    self._refused(entry, error)
                case _:
                    logger.error("%s: unexpected error", self._name, exc_info=error)
                    entry.refusals += 1
                    if entry.refusals < MOST_FAULTS:
                        self.counts.retried += 1
                        self._failed(entry)
                    else:
                        self._give_up(entry, error)
        finally:
            self._leave(turn, is_well=is_well)
        return is_well

    def _leave(self, turn: _Taken[Key, Item], *, is_well: bool) -> None:
        """Free the place of an item that is not under way any more."""
        turn.lane.in_flight -= 1
        self._in_flight -= 1
        self._suspects_in_flight -= turn.is_suspect
        self._file(turn.lane)
        if not is_well:
            self._stirred.set()
        if not any(self._turns):
            self._settle()

    def _done(self, entry: _Entry[Key, Item]) -> None:
        """Forget what was sent, or will never be; what came meanwhile waits as if it were new."""
        del self._entries[entry.key]
        if entry.newer is not None:
            again = _Entry(entry.key, entry.newer, self._now(), entry.lanes)
            self._entries[entry.key] = again
            self._wait(again)

    def _again(
        self,
        entry: _Entry[Key, Item],
        *,
        pause: tuple[float, float] | None = None,
        wish: float | None = None,
    ) -> None:
        """Put back what was not sent, with what came meanwhile; without a pause it is the next of its lane."""
        both = entry.newer if entry.item is None else entry.item
        if entry.item is not None and entry.newer is not None:
            both = self._merge(entry.item, entry.newer)
        entry.item, entry.newer = both, None
        if both is None:
            del self._entries[entry.key]
        elif pause is None:
            self._wait(entry, first=True)
        else:
            self._rest(entry, pause, wish=wish)

    def _failed(self, entry: _Entry[Key, Item], *, wish: float | None = None) -> None:
        """Let what failed rest; it is tried again in the turns of what failed before."""
        entry.has_failed = True
        self._again(entry, pause=RETRY_SECONDS, wish=wish)

    def _refused(self, entry: _Entry[Key, Item], error: KubeError) -> None:
        """Let what was refused rest; give it up once it was for too long, or where nobody insists."""
        now = self._now()
        if entry.item is not None:
            self._refusals += 1
            self._last_refusal, self._refused_at = f"{self._named(entry)}: {error}", now
        entry.refusals += 1
        entry.refused_since = entry.refused_since if entry.refusals > 1 else now
        if BEING_TERMINATED in str(error):
            is_over = True
        elif entry.item is None or self._insists(entry.item):
            is_over = now - entry.refused_since >= GIVE_UP_SECONDS
        else:
            is_over = entry.refusals >= (MOST_FORBIDDEN if isinstance(error, Forbidden) else 1)
        self._warn(entry, error)
        if is_over:
            self._give_up(entry, error)
        else:
            self.counts.retried += 1
            self._failed(entry)

    def _give_up(self, entry: _Entry[Key, Item], error: Exception) -> None:
        self.counts.refused += 1
        if entry.item is not None:
            logger.info("%s of %s: given up: %s", self._name, self._named(entry), error)
        self._done(entry)
        self._tell_lost(entry, str(error))

    def _named(self, entry: _Entry[Key, Item]) -> str:
        assert entry.item is not None
        namespace, name = self._about(entry.key, entry.item)
        return f"{namespace}/{name}" if namespace else name

    def _tell_lost(self, entry: _Entry[Key, Item], why: str) -> None:
        if entry.item is None:  # discarded
            return
        try:
            self._on_lost(entry.item, why)
        except Exception:
            logger.exception("%s: unexpected error about what was lost", self._name)

    def _server_is_down(self, error: KubeError) -> None:
        self.counts.retried += 1
        if not self._is_failing:
            self._is_failing = True
            logger.warning("%s: %s; %d waiting", self._name, error, len(self._entries))
        now = self._now()
        if now >= self._paused_until:  # else one of those sent together has settled the pause
            self._paused_until = now + self._down.next_seconds()

    def _succeeded(self) -> None:
        if self._is_failing:
            self._is_failing = False
            self._down.reset()
            logger.info("%s: sending again; %d waiting", self._name, len(self._entries))

    def _warn(self, entry: _Entry[Key, Item], error: KubeError) -> None:
        """Log that an item fails, unless another was named a short time ago, whatever its reason was."""
        every = WARN_EVERY_SECONDS if entry.pauses is None else REMIND_EVERY_SECONDS
        now = self._now()
        if entry.item is None or now - self._warned_at < every:
            return
        self._warned_at = now
        others = sum(len(lanes.resting) for lanes in self._lanes.values())
        also = f" ({others} others fail, too)" if others else ""
        logger.warning(
            "%s of %s: %s; retrying with backoff%s; other objects are not affected",
            self._name,
            self._named(entry),
            error,
            also,
        )

    def _backoff(self, seconds: tuple[float, float]) -> Backoff:
        first, longest = seconds
        return Backoff(initial_seconds=first, limit_seconds=longest, random=self._random)


class FromOutbox:
    """What is sent from one outbox, and how far that has come."""

    _outbox: Outbox[Any, Any]

    @property
    def counts(self) -> OutboxCounts:
        """What happened to the items so far."""
        return self._outbox.counts

    @property
    def backlog(self) -> Backlog:
        """What is still to be sent."""
        return self._outbox.backlog

    def __len__(self) -> int:
        return len(self._outbox)
