"""Rejected pods that wait some seconds before the next attempt; the pod whose backoff ends first is at the head.

Times follow kube-scheduler's back-off: 1, 2, 4, 8, 10, 10 … seconds after a pod's last attempt.
"""

from __future__ import annotations

import heapq
from itertools import count

from kube_policy_scheduler.framework.queue.pod_transitions import move
from kube_policy_scheduler.framework.queue.queued_pod import Place, PodState, QueuedPod
from kube_policy_scheduler.times import Steady

INITIAL_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 10.0


class BackoffQueue:
    """A heap by the end of the backoff. Entries whose ticket is not their pod's newest are stale."""

    def __init__(self, tickets: count[int]) -> None:
        self._tickets = tickets
        self._heap: list[tuple[float, int, QueuedPod]] = []

    def push(self, queued: QueuedPod) -> None:
        """Put a pod into backoff."""
        move(queued, PodState.BACKOFF)
        queued.ticket = next(self._tickets)
        heapq.heappush(self._heap, (backoff_end(queued), queued.ticket, queued))

    def pop_due(self, now: Steady) -> QueuedPod | None:
        """Take a pod whose backoff has ended."""
        head = self._head()
        return heapq.heappop(self._heap)[2] if head is not None and head[0] <= now else None

    def pop_early(self) -> QueuedPod | None:
        """Take the pod whose backoff ends first, before its end; None after an error, or if it must wait."""
        head = self._head()
        if head is None or head[2].errors or head[2].serves_time:
            return None
        return heapq.heappop(self._heap)[2]

    def next_due(self) -> float | None:
        """Return when the next backoff ends; None if no pod is in backoff."""
        head = self._head()
        return head[0] if head is not None else None

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {ticket for _, ticket, _ in self._heap}

    def _head(self) -> tuple[float, int, QueuedPod] | None:
        heap = self._heap
        while heap and (heap[0][2].ticket != heap[0][1] or heap[0][2].place is not Place.BACKOFF):
            heapq.heappop(heap)
        return heap[0] if heap else None


def backoff_end(queued: QueuedPod) -> float:
    """Return when a pod may be tried again."""
    times = queued.errors or queued.rejections
    if not times:
        return queued.timestamp
    seconds = min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * 2.0 ** min(times - 1, 10))
    return queued.timestamp + seconds
