"""Pods that can be decided now, in queue order: by line, by priority, and fairly among tenants.

Pods that are retried after a rejection form a lane of their own within Kubernetes' line. At equal priority
both lanes take turns, and within it so do the namespaces (start-time fair queueing): a tenant whose ten thousand pods
fit nowhere takes no more than its share of the attempts. New pods keep Kubernetes' order.

A policy's `order by` makes a line of its own. Keys that change while pods wait grow in a straight line for a while, so
pods of one slope stay in order; the heads of the slopes are compared at each pop, and a pod is pushed again
when its line ends. In a strict line, pods that were rejected keep their place, and those behind them wait.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Any

import msgspec

from kube_policy_scheduler.framework.fair_line import FairLine
from kube_policy_scheduler.framework.queued_pod import Place, QueuedPod, QueuePosition, priority_sort

Heap = list[tuple[Any, int, QueuedPod]]
_FRESH, _AGAIN, _BLOCKING, _FAIR = 0, 1, 2, 3
_HeapName = tuple[str, int, tuple[float, ...]]
"""Line, lane, and slopes: within one heap the order stays as it is while time passes."""
_STALE_SLACK = 256
"""Stale entries that a heap may hold in addition to an equal number of live entries."""
MOST_SLOPES = 64
"""Heaps of one line. If pods have more slopes, the rest is sorted again every few seconds."""
_RESORT_SECONDS = 5.0


class ActiveQueue:
    """A heap for each line, lane and slope. Entries whose ticket is not their pod's newest are stale."""

    def __init__(self, tickets: count[int]) -> None:
        self._tickets = tickets
        self._heaps: dict[_HeapName, Heap] = {}
        self._ends: list[tuple[float, int, QueuedPod]] = []
        """When the positions of pods expire, the earliest first."""
        self._blocking: dict[str, int] = {}
        """By uid: the newest entries of pods that keep their strict line waiting."""
        self._strict: set[str] = set()
        """Lines that are strict."""
        self._fair: dict[str, FairLine] = {}
        """Lines whose order follows the shares of queues."""
        self._now = 0.0
        self._last_lane = _AGAIN
        self._served: dict[int, float] = {}
        """Fair queueing's virtual time, by priority: the tag of the pod that was served last."""
        self._tags: dict[tuple[int, str], float] = {}
        """The tag that the next pod of a priority and namespace gets at least."""

    def clear(self) -> None:
        """Forget all entries."""
        self._heaps.clear()
        self._fair.clear()
        self._ends.clear()
        self._blocking.clear()
        self._strict.clear()
        self._forget_tags()

    def push(self, queued: QueuedPod, turn: QueuePosition) -> None:
        """Add a pod, or give it a new position."""
        if self._fair:
            self.leave(queued)
        queued.place = Place.ACTIVE
        queued.ticket = next(self._tickets)
        if self._blocking:
            self._blocking.pop(queued.pod.uid, None)
        if turn.fair is not None:
            line = self._fair.get(turn.line)
            if line is None or line.usage is not turn.fair.usage:
                old = line.entries() if line is not None else ()
                line = self._fair[turn.line] = FairLine(turn.fair, self._is_stale)
                for key, _, other in old:
                    queue = turn.fair.usage.queue_of(other.pod.template)
                    line.push(
                        other,
                        msgspec.structs.replace(turn, key=key, fair=msgspec.structs.replace(turn.fair, queue=queue)),
                    )
            line.push(queued, turn)
            return
        lane, key = _FRESH, turn.key
        if not turn.line and (queued.rejections or queued.errors):
            lane, key = _AGAIN, (-queued.pod.priority, self._tag(queued), queued.timestamp)
        self._add(queued, queued.ticket, turn, lane, key)

    def leave(self, queued: QueuedPod) -> None:
        """Note that a pod leaves other than by `pop`: its entry is about to be stale."""
        for line in self._fair.values():
            line.leave(queued.ticket)

    def block(self, queued: QueuedPod, turn: QueuePosition) -> None:
        """Let a pod of a strict line that waits for its next attempt block those behind it."""
        number = self._blocking[queued.pod.uid] = next(self._tickets)
        self._add(queued, number, turn, _BLOCKING, turn.key)

    def unblock(self, uid: str) -> None:
        """Unblock the pods behind a deleted one."""
        self._blocking.pop(uid, None)

    def _add(self, queued: QueuedPod, number: int, turn: QueuePosition, lane: int, key: Any) -> None:
        if turn.strict:
            self._strict.add(turn.line)
        slopes, until = (turn.slopes if any(turn.slopes) else ()), turn.until
        name = (turn.line, lane, slopes)
        if slopes and name not in self._heaps and len(self._heaps) > MOST_SLOPES:
            key = (_at(key[0], slopes, self._now), *key[1:])
            name, until = (turn.line, lane, ()), min(until, self._now + _RESORT_SECONDS)
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
        return {ticket for heap in self._heaps.values() for _, ticket, _ in heap}.union(*fair)

    def pop_ended(self, now: float) -> QueuedPod | None:
        """Return a pod whose position has expired, so that it is pushed or blocks again; None if there is none."""
        self._now = max(self._now, now)
        while self._ends and self._ends[0][0] <= now:
            entry = heapq.heappop(self._ends)
            if not self._is_stale(entry):
                return entry[2]
        return None

    def pop(self, now: float | None = None) -> QueuedPod | None:
        """Take the next pod at a time, in Unix seconds."""
        if now is not None:
            self._now = now
        found = self._next()
        if found is None:
            return None
        if found[1] == _FAIR:
            return self._fair[found[0]].pop(self._now)
        key, _, queued = heapq.heappop(self._heaps[found])
        if not found[0]:
            self._last_lane = found[1]
            if found[1] == _AGAIN:
                self._served[queued.pod.priority] = key[1]
        return queued

    def blocked(self) -> dict[str, QueuedPod]:
        """Return by uid the pods that wait behind another one of their strict line, with that one."""
        found: dict[str, QueuedPod] = {}
        for line, names in self._heads().items():
            first = min(names, key=self._key_now) if line in self._strict else None
            if first is not None and first[1] == _BLOCKING:
                blocker = self._heaps[first][0][2]
                waiting = (entry for name in names if name[1] != _BLOCKING for entry in self._heaps[name])
                found |= {entry[2].pod.uid: blocker for entry in waiting if not self._is_stale(entry)}
        return found

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
                if name == ("", _AGAIN, ()):
                    self._forget_tags()
        return heads

    def _next(self) -> _HeapName | None:
        """Return the heap whose head is served next."""
        served = []
        for line, names in self._heads().items():
            if line:
                first = min(names, key=self._key_now) if len(names) > 1 else names[0]
                if first[1] != _BLOCKING:
                    served.append(first)
            else:
                served += names
        sorts = {name: priority_sort(self._heaps[name][0][2]) for name in served}
        fresh, again = sorts.get(("", _FRESH, ())), sorts.get(("", _AGAIN, ()))
        if fresh is not None and again is not None and fresh[0] == again[0]:
            del sorts["", self._last_lane, ()]
        for line, fair in self._fair.items():
            head = fair.head(self._now)
            if head is not None:
                sorts[line, _FAIR, ()] = priority_sort(head[2])
        return min(sorts, key=sorts.__getitem__, default=None)

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

    def _tag(self, queued: QueuedPod) -> float:
        priority = queued.pod.priority
        share = (priority, queued.pod.namespace)
        tag = max(self._served.get(priority, 0.0), self._tags.get(share, 0.0))
        self._tags[share] = tag + 1.0
        return tag

    def _forget_tags(self) -> None:
        self._served.clear()
        self._tags.clear()


def _at(bases: tuple[Any, ...], slopes: tuple[float, ...], now: float) -> tuple[Any, ...]:
    """Return the parts of a key at a moment."""
    return tuple(base + slope * now if slope else base for base, slope in zip(bases, slopes, strict=True))
