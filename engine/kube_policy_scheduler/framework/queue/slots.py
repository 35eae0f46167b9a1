"""Whose slot is next among the lines of the queue; the order within a line is not its business.

Each active pod brings its line one slot, and the line uses it for whichever of its pods is first: so an `order by`
only exchanges the slots that its pods have without it, and moves nobody else's. A line competes with the priority of
its first pod. At equal priority, the slots of new pods come in the order in which the pods came, as in Kubernetes.
Those of retried pods are a lane of their own: both lanes alternate, and within it so do the namespaces (start-time
fair queueing), so a tenant whose ten thousand pods fit nowhere takes no more than its share of the attempts.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import count

import msgspec

from kube_policy_scheduler.framework.queue.queued_pod import LAST, QueuedPod

UNORDERED = ""
"""The line without an order of its own: each of its pods uses its own slot, as in the one behind all others."""
_STALE_SLACK = 256
"""Slots that are over which a heap may hold in addition to an equal number of others."""


class Lane(IntEnum):
    """What the slots of equal priority are ordered by; an integer, because each attempt looks lanes up."""

    NEW = 0
    RETRIED = 1


class Slot(msgspec.Struct, eq=False):
    """One attempt of a line."""

    line: str
    priority: int
    lane: Lane
    tag: float
    """Of fair queueing: the slots of a lane come by tag, then by time."""
    holder: QueuedPod | None
    """The pod for which it was given, or that waits in exchange for the one that used its slot; None: it is over."""


_Entry = tuple[float, float, int, Slot]
_KeyOf = tuple[str, int, Lane]


class _Heap(msgspec.Struct):
    """The slots of a line, a priority and a lane; at least one is not over."""

    entries: list[_Entry] = []
    left: int = 0
    """How many are not over."""


class Slots:
    """The slots of all lines."""

    def __init__(self) -> None:
        self._held: dict[str, Slot] = {}
        """By uid: the slot of each active pod."""
        self._heaps: dict[_KeyOf, _Heap] = {}
        self._priorities: dict[str, list[int]] = {}
        """By line, the priority of each of its heaps, ascending."""
        self._numbers = count()
        self._last: dict[int, Lane] = {}
        """By priority, the lane that was used last, while there are retried pods."""
        self._retried = 0
        """How many slots are those of retried pods."""
        self._served: dict[int, float] = {}
        """Fair queueing's virtual time, by priority: the tag of the slot that was used last."""
        self._tags: dict[tuple[int, str], float] = {}
        """The tag that the next slot of a priority and namespace gets at least."""

    def __bool__(self) -> bool:
        """Return whether any pod holds a slot."""
        return bool(self._held)

    def clear(self) -> None:
        """Forget all slots."""
        self._held.clear()
        self._heaps.clear()
        self._priorities.clear()
        self._retried = 0
        self._forget_tags()

    def give(self, queued: QueuedPod, line: str) -> None:
        """Give a line the slot of a pod; if the pod has one in another line, it comes along."""
        uid, priority = queued.pod.uid, queued.pod.template.priority
        had = self._held.get(uid)
        if had is not None and had.priority == priority:
            if had.line == line:
                return
            lane, tag = had.lane, had.tag
        elif queued.attempts:
            lane, tag = Lane.RETRIED, self._tag(queued)
        else:
            lane, tag = Lane.NEW, 0.0
        if had is not None:
            self.end(queued)
        slot = self._held[uid] = Slot(line, priority, lane, tag, queued)
        self._retried += lane is Lane.RETRIED
        heap = self._heaps.get((line, priority, lane))
        if heap is None:
            heap = self._heaps[line, priority, lane] = _Heap()
            insort(self._priorities.setdefault(line, []), priority)
        heap.left += 1
        heapq.heappush(heap.entries, (tag, queued.timestamp, next(self._numbers), slot))
        size = len(heap.entries)
        if not size & (size - 1) and size > _STALE_SLACK:  # occasionally: at powers of two
            heap.entries = [entry for entry in heap.entries if entry[3].holder is not None]
            heapq.heapify(heap.entries)

    def end(self, queued: QueuedPod) -> None:
        """End the slot of a pod that leaves unused, if it has one."""
        slot = self._held.pop(queued.pod.uid, None)
        if slot is not None:
            slot.holder = None
            self._leave_heap(slot)
            if slot.lane is Lane.RETRIED:
                self._retried -= 1
                if not self._retried:
                    self._forget_tags()

    def _leave_heap(self, slot: Slot) -> None:
        """Count a slot that is over; a heap goes with its last one."""
        key = slot.line, slot.priority, slot.lane
        heap = self._heaps[key]
        heap.left -= 1
        if heap.left:
            return
        del self._heaps[key]
        priorities = self._priorities[slot.line]
        del priorities[bisect_left(priorities, slot.priority)]
        if not priorities:
            del self._priorities[slot.line]

    def use(self, slot: Slot, queued: QueuedPod) -> None:
        """Let the first pod of a line go; the holder of the slot waits on with that pod's."""
        own, holder = self._held[queued.pod.uid], slot.holder
        if self._retried:
            self._last[slot.priority] = slot.lane
        if slot.lane is Lane.RETRIED:
            self._served[slot.priority] = slot.tag
        if holder is not None and holder is not queued:
            own.holder, self._held[holder.pod.uid] = holder, own
            slot.holder, self._held[queued.pod.uid] = queued, slot
        self.end(queued)

    def next(self, firsts: Mapping[str, QueuedPod]) -> Slot | None:
        """Return whose slot is next; None: nobody's.

        Args:
            firsts: the lines with an order that have a pod to go, with the first one.
        """
        at = {line: self._held[queued.pod.uid].priority for line, queued in firsts.items()} if firsts else {}
        return self._next_of(UNORDERED, at) or self._next_of(LAST, {})

    def _next_of(self, unordered: str, at: Mapping[str, int]) -> Slot | None:
        """Return whose slot is next among a line without an order and those with one, with the priorities of these."""
        waiting = self._priorities.get(unordered)
        if at:
            first = max((*at.values(), *(waiting or ())[-1:]))
            lines = [line for line, priority in at.items() if priority == first]
            if waiting and waiting[-1] == first:
                lines.append(unordered)
        elif waiting:
            first, lines = waiting[-1], [unordered]
        else:
            return None
        if not self._retried:
            return self._earliest(lines, first, Lane.NEW)
        if self._last.get(first, Lane.RETRIED) is Lane.RETRIED:
            return self._earliest(lines, first, Lane.NEW) or self._earliest(lines, first, Lane.RETRIED)
        return self._earliest(lines, first, Lane.RETRIED) or self._earliest(lines, first, Lane.NEW)

    def _earliest(self, lines: Iterable[str], priority: int, lane: Lane) -> Slot | None:
        """Return the slot of a lane that is next among these lines; None: they have none."""
        found: _Entry | None = None
        for line in lines:
            heap = self._heaps.get((line, priority, lane))
            if heap is not None:
                entries = heap.entries
                while entries[0][3].holder is None:
                    heapq.heappop(entries)
                if found is None or entries[0] < found:  # their numbers differ, so slots are not compared
                    found = entries[0]
        return found[3] if found is not None else None

    def tickets(self) -> set[int]:
        """Return the tickets of the pods that hold slots of a line without an order."""
        slots = self._held.values()
        return {each.holder.ticket for each in slots if each.line in (UNORDERED, LAST) and each.holder is not None}

    def has(self, queued: QueuedPod) -> bool:
        """Return whether a pod holds a slot."""
        return queued.pod.uid in self._held

    def _tag(self, queued: QueuedPod) -> float:
        priority = queued.pod.priority
        share, served = (priority, queued.pod.namespace), self._served.get(priority, 0.0)
        if queued.unfinished:
            return served  # it goes on with the attempt that it had its slot for
        tag = max(served, self._tags.get(share, 0.0))
        self._tags[share] = tag + 1.0
        return tag

    def _forget_tags(self) -> None:
        self._last.clear()
        self._served.clear()
        self._tags.clear()
