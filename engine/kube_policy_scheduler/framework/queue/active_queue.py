"""Pods that can be decided now: `slots` says which line is next, and this which pod of the line is the first one.

A policy's `order by` makes a line of its own; the pods without one are a line, too. Keys that change while pods wait
grow in a straight line for a while, so pods of one slope stay in order; the heads of the slopes are compared at each
pop, and a pod is pushed again when its slope ends. In a strict line, pods that were rejected keep their place, and
those behind them wait. With `backfill`, those behind are tried, and the first that waits is known to them.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Any

from kube_policy_scheduler.framework.queue.fair_line import FairLine
from kube_policy_scheduler.framework.queue.pod_transitions import move
from kube_policy_scheduler.framework.queue.queued_pod import LAST, Place, PodState, QueuedPod, QueuePosition
from kube_policy_scheduler.framework.queue.slots import UNORDERED, Slot, Slots
from kube_policy_scheduler.times import Steady

Heap = list[tuple[Any, int, QueuedPod]]
_HeapName = tuple[str, bool, tuple[float, ...]]
"""Line, whether it is for pods that block others, and slopes: within one heap the order stays while time passes."""
_STALE_SLACK = 256
"""Stale entries that a heap may hold in addition to an equal number of live entries."""
MOST_SLOPES = 64
"""Heaps of one line. If pods have more slopes, the rest is sorted again every few seconds."""
_RESORT_SECONDS = 5.0


class ActiveQueue:
    """A heap for each line with an order, and slope. Entries whose ticket is not their pod's newest are stale."""

    def __init__(self, tickets: count[int]) -> None:
        self._tickets = tickets
        self._heaps: dict[_HeapName, Heap] = {}
        self._ends: list[tuple[float, int, QueuedPod]] = []
        """When the positions of pods expire, the earliest first."""
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
        self._heaps.clear()
        self._fair.clear()
        self._ends.clear()
        self._blocking.clear()
        self.waited.clear()
        self._strict.clear()
        self.backfills.clear()
        self._slots.clear()

    def push(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Add a pod, or give it a new position."""
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
        key, slopes, until = position.key, (position.slopes if any(position.slopes) else ()), position.until
        name = (position.line, blocks, slopes)
        if slopes and name not in self._heaps and len(self._heaps) > MOST_SLOPES:
            key = (_at(key[0], slopes, self._now), *key[1:])
            name, until = (position.line, blocks, ()), min(until, self._now + _RESORT_SECONDS)
        self._push(self._heaps.setdefault(name, []), (key, number, queued))
        if until < math.inf:
            self._push(self._ends, (until, number, queued))

    def _push(self, heap: list[tuple[Any, int, QueuedPod]], entry: tuple[Any, int, QueuedPod]) -> None:
        heapq.heappush(heap, entry)
        size = len(heap)
        if not size & (size - 1) and size > _STALE_SLACK:  # occasionally: at powers of two
            heap[:] = [entry for entry in heap if not self._is_stale(entry)]
            heapq.heapify(heap)

    def __bool__(self) -> bool:
        return self._next() is not None

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        fair = (line.tickets() for line in self._fair.values())
        heaps = {ticket for heap in self._heaps.values() for _, ticket, _ in heap}
        return heaps.union(self._slots.tickets(), *fair)

    def has_slot(self, queued: QueuedPod) -> bool:
        """Return whether a pod brings its line a slot, as each active one does and no other."""
        return self._slots.has(queued)

    def pop_ended(self, now: Steady) -> QueuedPod | None:
        """Return a pod whose position has expired, so that it is pushed or blocks again; None if there is none."""
        self._now = max(self._now, now)
        while self._ends and self._ends[0][0] <= now:
            entry = heapq.heappop(self._ends)
            if not self._is_stale(entry):
                return entry[2]
        return None

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
            queued = heapq.heappop(self._heaps[first])[2]
        assert queued is not None
        self._slots.use(slot, queued)
        return queued

    def blocked(self) -> dict[str, QueuedPod]:
        """Return by uid the pods that wait behind another one of their strict line, with that one."""
        found: dict[str, QueuedPod] = {}
        for line, names in self._heads().items():
            is_blocked = line in self._strict and line not in self.backfills
            first = min(names, key=self._key_now) if is_blocked else None
            if first is not None and first[1]:
                blocker = self._heaps[first][0][2]
                waiting = (entry for name in names if not name[1] for entry in self._heaps[name])
                found |= {entry[2].pod.uid: blocker for entry in waiting if not self._is_stale(entry)}
        return found

    def first_waiting(self, position: QueuePosition) -> QueuedPod | None:
        """Return the first pod that waits of a strict line, if it comes before a position; None: there is none."""
        names = [name for name in self._heads().get(position.line, ()) if name[1]]
        if not names:
            return None
        first = min(names, key=self._key_now)
        own = (
            (_at(position.key[0], position.slopes, self._now), *position.key[1:])
            if any(position.slopes)
            else position.key
        )
        return self._heaps[first][0][2] if self._key_now(first) <= own else None

    def _heads(self) -> dict[str, list[_HeapName]]:
        """Return the heaps of each line, none of them empty or with a stale head."""
        heads: dict[str, list[_HeapName]] = {}
        for name, heap in list(self._heaps.items()):
            while heap and self._is_stale(heap[0]):
                heapq.heappop(heap)
            if heap:
                heads.setdefault(name[0], []).append(name)
            else:
                del self._heaps[name]
        return heads

    def _next(self) -> tuple[Slot, _HeapName | FairLine | None] | None:
        """Return the slot that is used next, and whose head uses it; None: its holder."""
        firsts: dict[str, _HeapName | FairLine] = {}
        heads: dict[str, QueuedPod] = {}
        for line, names in self._heads().items():
            if line in self.backfills:
                names = [name for name in names if not name[1]]
                if not names:
                    continue
            name = min(names, key=self._key_now) if len(names) > 1 else names[0]
            if not name[1]:
                firsts[line], heads[line] = name, self._heaps[name][0][2]
        for line, fair in self._fair.items():
            head = fair.head()
            if head is not None:
                firsts[line], heads[line] = fair, head[2]
        slot = self._slots.next(heads)
        return (slot, firsts.get(slot.line)) if slot is not None else None

    def _key_now(self, name: _HeapName) -> Any:
        """Return the key of a heap's head at the current time."""
        key = self._heaps[name][0][0]
        return (_at(key[0], name[2], self._now), *key[1:]) if name[2] else key

    def _is_stale(self, entry: tuple[Any, int, QueuedPod]) -> bool:
        _, number, queued = entry
        if queued.place is Place.ACTIVE:
            return queued.ticket != number
        waits = queued.place in (Place.BACKOFF, Place.UNSCHEDULABLE)
        return not waits or self._blocking.get(queued.pod.uid) != number


def _at(bases: tuple[Any, ...], slopes: tuple[float, ...], now: Steady) -> tuple[Any, ...]:
    """Return the parts of a key at a moment."""
    return tuple(base + slope * now if slope else base for base, slope in zip(bases, slopes, strict=True))
