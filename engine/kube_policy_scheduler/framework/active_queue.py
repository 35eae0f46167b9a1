"""Pods that can be decided now, in the order of their turns: by line, by priority, and fairly among tenants.

Pods that were rejected before and are tried again form a lane of their own within Kubernetes' line. At equal priority
both lanes take turns, and within it so do the namespaces (start-time fair queueing): a tenant whose ten thousand pods
fit nowhere takes no more than its share of the attempts. Pods that come for the first time keep Kubernetes' order.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

from kube_policy_scheduler.framework.queued_pod import Place, QueuedPod, QueuePosition, priority_sort

Heap = list[tuple[Any, int, QueuedPod]]
_FRESH, _AGAIN = 0, 1
_STALE_SLACK = 256
"""Stale entries that a heap may hold beside as many as there are live ones."""


class ActiveQueue:
    """A heap for each line and lane. Entries whose ticket is not their pod's newest are stale."""

    def __init__(self, tickets: count[int]) -> None:
        self._tickets = tickets
        self._heaps: dict[tuple[str, int], Heap] = {}
        self._last_lane = _AGAIN
        self._served: dict[int, float] = {}
        """Fair queueing's virtual time, by priority: the tag of the pod that was served last."""
        self._tags: dict[tuple[int, str], float] = {}
        """The tag that the next pod of a priority and namespace gets at least."""

    def clear(self) -> None:
        """Forget all entries."""
        self._heaps.clear()
        self._forget_tags()

    def push(self, queued: QueuedPod, turn: QueuePosition) -> None:
        """Add a pod, or give it another turn."""
        queued.place = Place.ACTIVE
        queued.ticket = next(self._tickets)
        lane, key = _FRESH, turn.key
        if not turn.line and (queued.rejections or queued.errors):
            lane, key = _AGAIN, (-queued.pod.priority, self._tag(queued), queued.timestamp)
        heap = self._heaps.setdefault((turn.line, lane), [])
        heapq.heappush(heap, (key, queued.ticket, queued))
        if len(heap) > _STALE_SLACK and len(heap) & (len(heap) - 1) == 0:  # now and then: at powers of two
            heap[:] = [entry for entry in heap if not _is_stale(entry)]
            heapq.heapify(heap)

    def __bool__(self) -> bool:
        return self._next() is not None

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {ticket for heap in self._heaps.values() for _, ticket, _ in heap}

    def pop(self) -> QueuedPod | None:
        """Take the pod whose turn it is."""
        found = self._next()
        if found is None:
            return None
        key, _, queued = heapq.heappop(self._heaps[found])
        if not found[0]:
            self._last_lane = found[1]
            if found[1] == _AGAIN:
                self._served[queued.pod.priority] = key[1]
        return queued

    def _next(self) -> tuple[str, int] | None:
        """Return the line and lane whose head is to be served."""
        heads: dict[tuple[str, int], tuple[float, float]] = {}
        for name, heap in list(self._heaps.items()):
            while heap and _is_stale(heap[0]):
                heapq.heappop(heap)
            if heap:
                heads[name] = priority_sort(heap[0][2])
            else:
                del self._heaps[name]
                if name == ("", _AGAIN):
                    self._forget_tags()
        fresh, again = heads.get(("", _FRESH)), heads.get(("", _AGAIN))
        if fresh is not None and again is not None and fresh[0] == again[0]:
            del heads[("", self._last_lane)]
        return min(heads, key=heads.__getitem__, default=None)

    def _tag(self, queued: QueuedPod) -> float:
        priority = queued.pod.priority
        share = (priority, queued.pod.namespace)
        tag = max(self._served.get(priority, 0.0), self._tags.get(share, 0.0))
        self._tags[share] = tag + 1.0
        return tag

    def _forget_tags(self) -> None:
        self._served.clear()
        self._tags.clear()


def _is_stale(entry: tuple[Any, int, QueuedPod]) -> bool:
    _, ticket, queued = entry
    return queued.ticket != ticket or queued.place is not Place.ACTIVE
