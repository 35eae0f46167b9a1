"""Pods of one `order by queue.share`: a heap for each queue, and a tournament of their first pods.

The share of a queue changes with each pod that gets a node, and is the same for all pods of the queue. So the order
within a queue stays as it is, and only the heaps below queues whose usage changed take part in the tournament again.
What they have in common, the shares of the queues above them, is computed once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kube_policy_scheduler.cluster.queue_usage import Amounts, QueueUsage, Share, Touched
from kube_policy_scheduler.framework.queued_pod import FairTurn, QueuedPod, QueuePosition

Entry = tuple[Any, int, QueuedPod]
_NO_QUEUE = ""
"""The name of the heap of pods that belong to no queue."""
_MOST_SHARES = 16
"""Shares that are kept of one queue: one for each request of the first pods below it."""


class FairLine:
    """The active pods of one line."""

    def __init__(self, turn: FairTurn, is_stale: Callable[[Entry], bool]) -> None:
        self.usage: QueueUsage = turn.usage
        self._place = turn.place
        self._is_stale = is_stale
        self._heaps: dict[str, list[Entry]] = {}
        self._below: dict[str, set[str]] = {}
        """By queue: the heaps of it and of the queues below it."""
        self._paths: dict[str, tuple[str, ...]] = {}
        self._tournament: list[tuple[Any, int, int, str]] = []
        """Keys with the present shares, numbers of the first pods, stamps, and heaps; stale if the stamp is older."""
        self._stamps: dict[str, int] = {}
        self._stamp = 0
        self._shares: dict[str, dict[Amounts, float]] = {}
        """By queue and by what the next pod requests, since its usage changed."""
        self._touched: Touched = self.usage.follow()

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {number for heap in self._heaps.values() for _, number, _ in heap}

    def entries(self) -> list[Entry]:
        """Return the entries that are not stale."""
        return [entry for heap in self._heaps.values() for entry in heap if not self._is_stale(entry)]

    def push(self, queued: QueuedPod, turn: QueuePosition) -> None:
        """Add a pod."""
        assert turn.fair is not None
        queue = turn.fair.queue
        name = queue.name if queue is not None else _NO_QUEUE
        heap = self._heaps.get(name)
        if heap is None:
            heap = self._heaps[name] = []
            path = tuple(each.name for each in queue.path()) if queue is not None else ()
            self._paths[name] = path = path[::-1][self.usage.common_levels :]
            for each in path:
                self._below.setdefault(each, set()).add(name)
        heapq.heappush(heap, (turn.key, queued.ticket, queued))
        if heap[0][1] == queued.ticket:
            self._enter(name)
        elif len(heap) > 256 and len(heap) & (len(heap) - 1) == 0:  # occasionally: at powers of two
            heap[:] = [entry for entry in heap if not self._is_stale(entry)]
            heapq.heapify(heap)

    def head(self, now: float) -> Entry | None:
        """Return the entry of the pod that is next."""
        self._catch_up(now)
        tournament = self._tournament
        while tournament:
            _, number, stamp, name = tournament[0]
            heap = self._heaps.get(name)
            if heap is None or self._stamps.get(name) != stamp:
                heapq.heappop(tournament)
                continue
            while heap and self._is_stale(heap[0]):
                heapq.heappop(heap)
            if not heap:
                self._leave(name)
            elif heap[0][1] != number:
                self._enter(name)
            else:
                return heap[0]
        return None

    def pop(self, now: float) -> QueuedPod | None:
        """Take the pod that is next."""
        entry = self.head(now)
        if entry is None:
            return None
        name = self._tournament[0][3]
        heap = self._heaps[name]
        heapq.heappop(heap)
        if heap:
            self._enter(name)
        else:
            self._leave(name)
        return entry[2]

    def _catch_up(self, now: float) -> None:
        """Let the heaps take part again whose shares may have changed."""
        touched = self._touched
        if self.usage.remember(now) or touched.all:
            again = set(self._heaps)
            self._shares.clear()
        elif touched.queues:
            common = self.usage.common_levels
            nodes = {each.name for queue in touched.queues for each in queue.path() if each.depth > common}
            again = set().union(*(self._below.get(each, ()) for each in nodes))
            for each in nodes:
                self._shares.pop(each, None)
        else:
            return
        touched.clear()
        for name in again:
            if name in self._heaps:
                self._enter(name)

    def _enter(self, name: str) -> None:
        """Let a heap that is not empty take part with its first pod and its present share."""
        key, number, queued = self._heaps[name][0]
        parts = (*key[0][: self._place], self._share(name, queued), *key[0][self._place + 1 :])
        self._stamp += 1
        self._stamps[name] = self._stamp
        heapq.heappush(self._tournament, ((parts, *key[1:]), number, self._stamp, name))
        if len(self._tournament) > 64 + 4 * len(self._heaps):
            self._tournament = [entry for entry in self._tournament if self._stamps.get(entry[3]) == entry[2]]
            heapq.heapify(self._tournament)

    def _share(self, name: str, queued: QueuedPod) -> Share:
        """Return the present shares of a heap's queue and of those above it, with its first pod."""
        path = self._paths[name]
        if not path:
            return ()
        more, shares = self.usage.amounts(queued.pod), self._shares
        try:
            return tuple([shares[each][more] for each in path])
        except KeyError:  # at least one has changed
            self._compute_shares(queued, more)
        return tuple([shares[each][more] for each in path])

    def _compute_shares(self, queued: QueuedPod, more: Amounts) -> None:
        queue = self.usage.queue_of(queued.pod.template)
        assert queue is not None
        for above in queue.path():
            if above.depth > self.usage.common_levels:
                kept = self._shares.setdefault(above.name, {})
                if more not in kept:
                    if len(kept) >= _MOST_SHARES:
                        kept.clear()
                    kept[more] = self.usage.order_share(above, more)

    def _leave(self, name: str) -> None:
        """Forget a heap that is empty."""
        del self._heaps[name]
        self._stamps.pop(name, None)
        for each in self._paths.pop(name):
            below = self._below[each]
            below.discard(name)
            if not below:
                del self._below[each]
