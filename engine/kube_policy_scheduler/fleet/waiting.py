"""Which workload is decided next: as its policy orders, or by priority; and when what failed is tried again.

The workloads that one `order by` orders are a line. Of the first ones of all lines, the one with the highest priority
is next, then the one that has waited longest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import Enum
from itertools import count, islice
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from kube_policy_scheduler.lines import First, Lines
from kube_policy_scheduler.times import Steady

Key = TypeVar("Key")

RECHECK_SECONDS = 300.0
"""A workload that waits for an event is looked at again after this time."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""Pauses of what the API server refused: each twice as long as the one before."""
LONGEST_STATUS_PAUSE_SECONDS = 30.0
"""Pause between two tries of one workload for the sake of a cluster's status: that may change at any rate."""


class Position(msgspec.Struct, frozen=True):
    """Where a workload is among those that can be decided now: in its line, the smallest key first."""

    line: str = ""
    """Workloads of different lines are never compared by key."""
    key: tuple[Any, ...] = ()
    """At the time 0 of the steady clock. Of equal keys, the highest priority comes first, then who waits longest."""
    slopes: tuple[float, ...] = ()
    """The growth per second of each part of the key; empty: the key is constant."""
    until: float = inf
    """On the steady clock: the position is right before this moment."""
    is_asked: bool = False
    """Whether something must be read before it is decided: such workloads come before all others, as that takes time
    and may change where they are."""


class Wake(Enum):
    """Why a workload is looked at."""

    OWN = "it changed itself"
    SPEC = "a cluster changed"
    STATUS = "the status of a cluster changed"


class _Entry(msgspec.Struct, Generic[Key], eq=False):
    key: Key
    priority: int
    since: float
    """On the steady clock: when it began to wait for a decision."""
    due: float
    """On the steady clock: when it is to be decided."""
    ticket: int = 0
    """Of its place in the heaps; places with another one are void."""
    attempts: int = 0
    """Failed ones in a row."""
    tried: float = -inf
    """On the steady clock: when it was decided last."""
    is_out: bool = False
    """Whether it is being decided or written."""
    has_changed: bool = False
    """Whether it changed itself meanwhile."""
    wanted: Wake | None = None
    """Why else it is to be looked at again once that has ended."""


_Line: TypeAlias = tuple[bool, str]
"""Whether its workloads come behind those that something is read for, and the name of the line."""


class Waiting(Generic[Key]):
    """The workloads that are to be decided. One that is handed out is not handed out again before it is put back."""

    def __init__(self, position: Callable[[Key, Steady], Position] = lambda key, now: Position()) -> None:
        """Know none yet. position: returns where a workload is at a time; without it, priorities order all."""
        self._position = position
        self._entries: dict[Key, _Entry[Key]] = {}
        self._failing: dict[Key, None] = {}
        self._later: list[tuple[float, int, _Entry[Key]]] = []
        self._now: Lines[_Line, _Entry[Key]] = Lines(lambda ticket, entry: entry.ticket != ticket)
        """Those that can be decided now."""
        self._tickets = count(1)
        self._deciding: Key | None = None

    def __len__(self) -> int:
        """Return how many workloads there are, decided or not."""
        return len(self._entries)

    @property
    def failing(self) -> int:
        """Return how many workloads failed at their last attempt."""
        return len(self._failing)

    def queued(self) -> int:
        """Return how many workloads wait for nothing but their turn."""
        return sum(1 for _ in self._now)

    def longest_failing(self, now: Steady) -> float:
        """Return for how many seconds the oldest of the workloads that fail has waited; 0 if there is none."""
        return now - min((self._entries[key].since for key in self._failing), default=now)

    def failing_since(self, most: int) -> list[tuple[Key, float]]:
        """Return workloads that failed at their last attempt, each with the steady time since which it waits."""
        return [(key, self._entries[key].since) for key in islice(self._failing, most)]

    def failing_keys(self) -> list[Key]:
        """Return the workloads that failed at their last attempt."""
        return list(self._failing)

    def attempts(self, key: Key) -> int:
        """Return the number of failed attempts of a workload in a row."""
        entry = self._entries.get(key)
        return entry.attempts if entry is not None else 0

    def wake(self, key: Key, why: Wake, now: Steady, *, priority: int | None = None) -> None:
        """Have a workload decided: at once if it changed itself, else not more often than its pauses allow."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key, priority or 0, since=now, due=now)
        elif priority is not None:
            entry.priority = priority
        if why is Wake.OWN:
            entry.attempts = 0
            self._failing.pop(key, None)
        if entry.is_out:
            entry.has_changed |= why is Wake.OWN
            entry.wanted = why if entry.wanted is not Wake.SPEC and why is not Wake.OWN else entry.wanted
            return
        due = max(now, entry.tried + _pause(why, entry.attempts))
        # what changed itself may have another position, even if it can already be decided
        if entry.ticket == 0 or due < entry.due or why is Wake.OWN:
            self._place(entry, min(due, entry.due) if entry.ticket else due)

    def wake_failing(self, why: Wake, now: Steady) -> None:
        """Have all workloads decided that failed at their last attempt."""
        for key in self._failing:
            self.wake(key, why, now)

    def forget(self, key: Key) -> None:
        """Drop a workload."""
        entry = self._entries.pop(key, None)
        self._failing.pop(key, None)
        if entry is not None:
            entry.ticket = -1

    def next(self, now: Steady) -> Key | None:
        """Hand out the workload that is to be decided now; None if there is none."""
        self._deciding = None
        while self._later and self._later[0][0] <= now:
            _, ticket, entry = heapq.heappop(self._later)
            if entry.ticket == ticket:
                self._enter(entry, now)
        while (ended := self._now.ended(now)) is not None:
            self._enter(ended, now)
        first = self._first(now)
        if first is None:
            return None
        entry = self._now.take(first)
        entry.ticket, entry.is_out = 0, True
        self._deciding = entry.key
        return entry.key

    def begin(self) -> None:
        """Take note that all is decided that `next` handed out before."""
        self._deciding = None

    @property
    def deciding(self) -> Key | None:
        """Return what `next` handed out last, since `begin`; None if that was nothing."""
        return self._deciding

    def due(self) -> float | None:
        """Return the steady time at which the next workload is to be decided; None if none is."""
        if self._now:
            return -inf
        while self._later and self._later[0][2].ticket != self._later[0][1]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def look_again(self, now: Steady) -> None:
        """Have `next` ask for the positions of all workloads that can be decided now: what they follow from has
        changed."""
        waiting = list(self._now)
        self._now.clear()
        for entry in waiting:
            self._place(entry, now)

    def _enter(self, entry: _Entry[Key], now: Steady) -> None:
        """Let a workload be decided as soon as it is the first. If its position cannot be told, it is handed out."""
        entry.ticket, entry.is_out, self._deciding = 0, True, entry.key
        found = self._position(entry.key, now)
        entry.ticket, entry.is_out, self._deciding = next(self._tickets), False, None
        line, key = (not found.is_asked, found.line), (found.key, -entry.priority, entry.since)
        self._now.add(line, key, entry, ticket=entry.ticket, now=now, slopes=found.slopes, until=found.until)

    def _first(self, now: Steady) -> First[_Line, _Entry[Key]] | None:
        """Return the entry of the workload that is next; None: there is none."""
        firsts = self._now.firsts(now).values()
        return min(firsts, key=lambda first: (first.line[0], *first.key[1:]), default=None)

    def expected(self, key: Key) -> None:
        """Take note that a workload that is out has changed only by what is done about it."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.has_changed = False

    def settled(self, key: Key, now: Steady, *, again_seconds: float | None = None) -> None:
        """Take back a workload that has what it is to have; it waits for the next event, and so long at most."""
        self._back(key, now, failed=False, pause=again_seconds)

    def parked(self, key: Key, now: Steady) -> None:
        """Take back a workload that cannot be placed; it waits for an event, and for a while at most."""
        self._back(key, now, failed=True, pause=RECHECK_SECONDS)

    def refused(self, key: Key, now: Steady) -> None:
        """Take back a workload whose write failed; it is tried again soon."""
        entry = self._entries.get(key)
        attempts = entry.attempts if entry is not None else 0
        self._back(key, now, failed=True, pause=_growing(attempts, LONGEST_PAUSE_SECONDS))

    def _back(self, key: Key, now: Steady, *, failed: bool, pause: float | None) -> None:
        entry = self._entries.get(key)
        if entry is None or not entry.is_out:
            return
        wanted = Wake.OWN if entry.has_changed else entry.wanted
        entry.has_changed, entry.wanted = False, None
        entry.is_out, entry.tried = False, now
        entry.attempts = entry.attempts + 1 if failed else 0
        if failed:
            self._failing[key] = None
        else:
            self._failing.pop(key, None)
            entry.since = now
        if pause is not None:
            self._place(entry, now + pause)
        if wanted is not None:
            self.wake(key, wanted, now)

    def _place(self, entry: _Entry[Key], due: float) -> None:
        entry.due, entry.ticket = due, next(self._tickets)
        heapq.heappush(self._later, (due, entry.ticket, entry))


def _pause(why: Wake, attempts: int) -> float:
    match why:
        case Wake.OWN:
            return 0.0
        case Wake.SPEC:
            return FIRST_PAUSE_SECONDS if attempts else 0.0
    return _growing(attempts - 1, LONGEST_STATUS_PAUSE_SECONDS) if attempts else FIRST_PAUSE_SECONDS


def _growing(attempts: int, longest: float) -> float:
    return min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(attempts, 16))
