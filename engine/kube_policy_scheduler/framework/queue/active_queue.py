"""Pods that can be decided now: `slots` says which line is next, and this which pod of the line is the first one.

A policy's `order by` makes a line of its own; the pods without one are a line, too. In a strict line, pods that were
rejected keep their place, and those behind them wait. With `backfill`, those behind are tried, and the first that
waits is known to them.
"""

from __future__ import annotations

from itertools import count
from typing import TypeAlias

from kube_policy_scheduler.framework.queue.fair_line import FairLine
from kube_policy_scheduler.framework.queue.pod_transitions import move
from kube_policy_scheduler.framework.queue.queued_pod import LAST, Place, PodState, QueuedPod, QueuePosition
from kube_policy_scheduler.framework.queue.slots import UNORDERED, Slot, Slots
from kube_policy_scheduler.lines import First, Lines, at
from kube_policy_scheduler.times import Steady

_Line: TypeAlias = tuple[str, bool]
"""The name of a line, and whether it is for its pods that block others."""


class ActiveQueue:
    """The active pods. Entries whose ticket is not their pod's newest are stale."""

    def __init__(self, tickets: count[int]) -> None:
        self._tickets = tickets
        self._ordered: Lines[_Line, QueuedPod] | None = None
        """The lines with an order, but for those that follow the shares of queues; None: there is none."""
        self._blocking: dict[str, int] = {}
        """By uid: the newest entries of pods that keep their strict line waiting."""
        self.waited: set[str] = set()
        """The uids of those that wait or waited, in lines with `backfill`."""
        self._strict: set[str] = set()
        """Lines that are strict."""
        self.backfills: set[str] = set()
        """Strict lines whose pods may be tried before one that waits."""
        self._fair: dict[str, FairLine] = {}
        """Lines whose order follows the shares of queues."""
        self._slots = Slots()
        self._now = Steady(0.0)

    def clear(self) -> None:
        """Forget all entries."""
        self._ordered = None
        self._fair.clear()
        self._blocking.clear()
        self.waited.clear()
        self._strict.clear()
        self.backfills.clear()
        self._slots.clear()

    def push(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Add a pod, or give it a new position."""
        if self._fair:
            self._leave_fair(queued)
        move(queued, PodState.ACTIVE)
        queued.ticket = next(self._tickets)
        self._slots.give(queued, position.line)
        if self._blocking:
            self._blocking.pop(queued.pod.uid, None)
        if position.fair is not None:
            line = self._fair.get(position.line)
            if line is None or line.usage is not position.fair.usage:
                line = self._fair[position.line] = FairLine(position.fair, self._is_stale, before=line)
            line.push(queued, position)
        elif position.line not in (UNORDERED, LAST):
            self._add(queued, queued.ticket, position, blocks=False)

    def leave(self, queued: QueuedPod) -> None:
        """Note that a pod leaves other than by `pop`: its entry is about to be stale."""
        self._leave_fair(queued)
        self._slots.end(queued)

    def _leave_fair(self, queued: QueuedPod) -> None:
        for line in self._fair.values():
            line.leave(queued.ticket)

    def block(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Let a pod of a strict line that waits for its next attempt block those behind it."""
        number = self._blocking[queued.pod.uid] = next(self._tickets)
        if position.backfill is not None:
            self.waited.add(queued.pod.uid)
        self._add(queued, number, position, blocks=True)

    def unblock(self, uid: str) -> None:
        """Unblock the pods behind a deleted one."""
        self._blocking.pop(uid, None)
        self.waited.discard(uid)

    def _add(self, queued: QueuedPod, number: int, position: QueuePosition, *, blocks: bool) -> None:
        if position.strict:
            self._strict.add(position.line)
        if position.backfill is not None:
            self.backfills.add(position.line)
        if self._ordered is None:
            self._ordered = Lines(self._is_stale)
        self._ordered.add(
            (position.line, blocks),
            position.key,
            queued,
            ticket=number,
            now=self._now,
            slopes=position.slopes,
            until=position.until,
        )

    def __bool__(self) -> bool:
        if self._ordered is None and not self._fair:
            return bool(self._slots)
        return self._next() is not None

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        fair = (line.tickets() for line in self._fair.values())
        ordered = self._ordered.tickets() if self._ordered is not None else set[int]()
        return ordered.union(self._slots.tickets(), *fair)

    def has_slot(self, queued: QueuedPod) -> bool:
        """Return whether a pod brings its line a slot, as each active one does and no other."""
        return self._slots.has(queued)

    def pop_ended(self, now: Steady) -> QueuedPod | None:
        """Return a pod whose position has expired, so that it is pushed or blocks again; None if there is none."""
        self._now = max(self._now, now)
        return self._ordered.ended(now) if self._ordered is not None else None

    def pop(self, now: Steady) -> QueuedPod | None:
        """Take the next pod at a time."""
        self._now = now
        for line in self._fair.values():
            line.catch_up(now)
        found = self._next()
        if found is None:
            return None
        slot, first = found
        if first is None:
            queued = slot.holder
        elif isinstance(first, FairLine):
            queued = first.pop()
        else:
            assert self._ordered is not None
            queued = self._ordered.take(first)
        assert queued is not None
        self._slots.use(slot, queued)
        return queued

    def blocked(self) -> dict[str, QueuedPod]:
        """Return by uid the pods that wait behind another one of their strict line, with that one."""
        found: dict[str, QueuedPod] = {}
        if self._ordered is None:
            return found
        firsts = self._ordered.firsts(self._now)
        for (line, blocks), blocker in firsts.items():
            if not blocks or line not in self._strict or line in self.backfills:
                continue
            behind = firsts.get((line, False))
            if behind is not None and blocker.key < behind.key:
                found |= {queued.pod.uid: blocker.item for queued in self._ordered.of((line, False))}
        return found

    def first_of(self, line: str) -> QueuedPod | None:
        """Return the first waiting pod of a strict line; None: no pod waits."""
        first = self._ordered.firsts(self._now).get((line, True)) if self._ordered is not None else None
        return first.item if first is not None else None

    def first_waiting(self, position: QueuePosition) -> QueuedPod | None:
        """Return the first pod that waits of a strict line, if it comes before a position; None: there is none."""
        if self._ordered is None:
            return None
        first = self._ordered.firsts(self._now).get((position.line, True))
        own = at(position.key, position.slopes, self._now)
        return first.item if first is not None and first.key[:-1] <= own else None

    def _next(self) -> tuple[Slot, First[_Line, QueuedPod] | FairLine | None] | None:
        """Return the slot that is used next, and whose head uses it; None: its holder."""
        if self._ordered is None and not self._fair:
            slot = self._slots.next({})
            return (slot, None) if slot is not None else None
        firsts: dict[str, First[_Line, QueuedPod] | FairLine] = {}
        heads: dict[str, QueuedPod] = {}
        ordered = self._ordered.firsts(self._now) if self._ordered is not None else {}
        for (line, blocks), first in ordered.items():
            blocker = ordered.get((line, True)) if line not in self.backfills else None
            if not blocks and (blocker is None or first.key < blocker.key):
                firsts[line], heads[line] = first, first.item
        for line, fair in self._fair.items():
            head = fair.head()
            if head is not None:
                firsts[line], heads[line] = fair, head[2]
        slot = self._slots.next(heads)
        return (slot, firsts.get(slot.line)) if slot is not None else None

    def _is_stale(self, number: int, queued: QueuedPod) -> bool:
        if queued.place is Place.ACTIVE:
            return queued.ticket != number
        waits = queued.place in (Place.BACKOFF, Place.UNSCHEDULABLE)
        return not waits or self._blocking.get(queued.pod.uid) != number
