"""Pods of one `order by queue.share`: a heap for each queue, and tournaments of their first pods up the tree.

The share of a queue changes with each pod that gets a node, and is the same for all pods in it and below it that
request the same. So the order of these stays as it is: a change costs one entry for each queue on the way to the top,
however many queues there are beside it. What changes between two pods is brought up to date at once, from below.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.framework.queue.queued_pod import FairPosition, QueuedPod, QueuePosition
from kube_policy_scheduler.times import Steady

Entry = tuple[Any, int, QueuedPod]
_First = tuple[Any, tuple[float, ...], Any, int, int, "_Entrant", "_Heap"]
"""A pod that takes part in a tournament: what of its key comes before the shares, the shares of the queues below this
one, the rest of its key, its number; the stamp, who takes part with it, and the heap whose first pod it is."""


class _Entrant:
    """Who takes part in a tournament: the pods of a queue with the first of them, or the tournament of one."""

    __slots__ = ("above", "stamp")

    def __init__(self, above: _Tournament | None) -> None:
        self.above = above
        """Where it takes part; None: nowhere."""
        self.stamp = 0
        """Of its entry there; others of it are stale."""


class _Heap(_Entrant):
    """The pods of one queue, or of none."""

    __slots__ = ("entries", "number", "queue")

    def __init__(self, queue: Quota | None) -> None:
        super().__init__(None)
        self.queue = queue
        self.entries: list[Entry] = []
        self.number = -1
        """Of the entry with which it takes part; -1: it does not."""


class _Tournament(_Entrant):
    """The first pods of a queue, and of the queues below it, that request the same."""

    __slots__ = ("depth", "entries", "most", "queue", "request", "share")

    def __init__(self, above: _Tournament | None, queue: Quota | None, request: Amounts) -> None:
        super().__init__(above)
        self.queue, self.request = queue, request
        self.depth = queue.depth if queue is not None else 0
        self.share: float | None = None
        """Of the queue for pods that request this; None: not computed since its usage changed."""
        self.entries: list[_First] = []
        self.most = 16
        """The number of entries up to which stale ones are kept."""

    def first(self) -> _First | None:
        """Return the entry that is next."""
        entries = self.entries
        while entries and entries[0][4] != entries[0][5].stamp:
            heapq.heappop(entries)
        return entries[0] if entries else None

    def enter(self, entry: _First) -> None:
        """Let somebody take part with a first pod."""
        who, entries = entry[5], self.entries
        who.stamp = entry[4]
        if entries and entries[0][5] is who:  # most often: it was first, and its pod has got a node
            heapq.heapreplace(entries, entry)
            return
        heapq.heappush(entries, entry)
        if len(entries) > self.most:
            self.entries = [each for each in entries if each[4] == each[5].stamp]
            heapq.heapify(self.entries)
            self.most = 16 + 4 * len(self.entries)


_depth = attrgetter("depth")
_NONE: Mapping[Amounts, _Tournament] = {}


class FairLine:
    """The active pods of one line."""

    def __init__(self, position: FairPosition, is_stale: Callable[[Entry], bool]) -> None:
        self.usage: QuotaUsage = position.usage
        self._place = position.place
        self._is_stale = is_stale
        self._heaps: dict[Quota | None, _Heap] = {}
        """By queue; None: the pods of no queue."""
        self._top = _Tournament(None, None, ())
        self._tournaments: dict[Quota, dict[Amounts, _Tournament]] = {}
        """By queue, and by what the first pods request that see the same share of it; none of them is empty."""
        self._heads: dict[int, _Heap] = {}
        """By the number of its first entry: the heap that takes part with it."""
        self._left: set[_Heap] = set()
        """Heaps whose first pod came or left since: they take part with the present one from the next question on."""
        self._stamp = 0
        self._read = self.usage.changed.end

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {number for heap in self._heaps.values() for _, number, _ in heap.entries}

    def entries(self) -> list[Entry]:
        """Return the entries that are not stale."""
        return [entry for heap in self._heaps.values() for entry in heap.entries if not self._is_stale(entry)]

    def push(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Add a pod."""
        assert position.fair is not None
        queue = position.fair.queue
        heap = self._heaps.get(queue)
        if heap is None:
            heap = self._heaps[queue] = _Heap(queue)
        entries = heap.entries
        heapq.heappush(entries, (position.key, queued.ticket, queued))
        if entries[0][1] == queued.ticket:
            self._left.add(heap)
        elif len(entries) > 256 and len(entries) & (len(entries) - 1) == 0:  # occasionally: at powers of two
            entries[:] = [entry for entry in entries if not self._is_stale(entry)]
            heapq.heapify(entries)

    def leave(self, number: int) -> None:
        """Note that the pod of an entry leaves, and not as the next one: the entry is about to be stale.

        Until the next pod of its queue takes part, the share of the queue would be with what the first one requested.
        """
        heap = self._heads.get(number)
        if heap is not None:
            self._left.add(heap)

    def head(self) -> Entry | None:
        """Return the entry of the pod that is next, by the shares that `catch_up` saw last."""
        heap = self._first()
        return heap.entries[0] if heap is not None else None

    def pop(self) -> QueuedPod | None:
        """Take the pod that is next, by the shares that `catch_up` saw last."""
        heap = self._first()
        if heap is None:
            return None
        self._left.add(heap)
        return heapq.heappop(heap.entries)[2]

    def _first(self) -> _Heap | None:
        """Return the heap whose first pod is next."""
        if self._left:
            self._settle(set())
        while (found := self._top.first()) is not None:
            heap = found[6]
            head = heap.entries[0]
            if head[1] == found[3] and not self._is_stale(head):
                return heap
            self._left.add(heap)
            self._settle(set())
        return None

    def catch_up(self, now: Steady) -> None:
        """Bring past usage up to a time, and let those take part again whose shares may have changed.

        Only who takes a pod knows what time it is: whether there is one, a standby asks, too, and so does a scrape.
        """
        faded = self.usage.remember(now)
        queues, self._read = self.usage.changed.since(self._read), self.usage.changed.end
        if faded or queues is None:
            self._begin_again()
        elif queues:
            self._settle(self._of_changed(queues))

    def _begin_again(self) -> None:
        """Let all heaps take part again: any share may have changed."""
        self._tournaments.clear()
        self._top = _Tournament(None, None, ())
        for heap in self._heaps.values():
            heap.above = None
            if heap.queue is not None and heap.entries:  # of a queue without pods, past usage is as of the last look
                self.usage.quota_of(heap.entries[0][2].pod.template)
        self._left.update(self._heaps.values())
        self._settle(set())

    def _of_changed(self, queues: Iterable[Quota]) -> set[_Tournament]:
        """Return the tournaments of queues and of all above them, whose shares are no longer known."""
        seen, found = set[Quota](), set[_Tournament]()
        for queue in queues:
            each = queue
            while each.parent is not None and each not in seen:
                seen.add(each)
                for tournament in self._tournaments.get(each, _NONE).values():
                    tournament.share = None
                    found.add(tournament)
                each = each.parent
        return found

    def _settle(self, rising: set[_Tournament]) -> None:
        """Let those take part again whose first pod or share has changed, each one once.

        rising: the tournaments whose share has changed, and all above these.
        """
        while self._left:
            self._enter(self._left.pop(), rising)
        for tournament in sorted(rising, key=_depth, reverse=True):
            self._rise(tournament)

    def _enter(self, heap: _Heap, rising: set[_Tournament]) -> None:
        """Let a heap take part with its first pod, if it has one; those above are to rise, too."""
        entries, before = heap.entries, heap.above
        while entries and self._is_stale(entries[0]):
            heapq.heappop(entries)
        self._heads.pop(heap.number, None)
        if not entries:
            heap.stamp = 0
            del self._heaps[heap.queue]
            self._add_path(before, rising)
            return
        key, number, queued = entries[0]
        self._heads[number], heap.number = heap, number
        where = self._tournament(heap.queue, self.usage.amounts(queued.pod)) if heap.queue is not None else self._top
        if where is not before:
            heap.above = where
            self._add_path(before, rising)
        self._stamp += 1
        parts, at = key[0], self._place
        where.enter((parts[:at], (), (parts[at + 1 :], key[1:]), number, self._stamp, heap, heap))
        self._add_path(where, rising)

    def _tournament(self, queue: Quota, request: Amounts) -> _Tournament:
        """Return the tournament of a queue for pods of one request; above, the levels that all share decide nothing."""
        found = self._tournaments.get(queue, _NONE).get(request)
        if found is None:
            if queue.parent is None or queue.depth <= self.usage.common_levels:
                return self._top
            found = _Tournament(self._tournament(queue.parent, request), queue, request)
            self._tournaments.setdefault(queue, {})[request] = found
        return found

    @staticmethod
    def _add_path(tournament: _Tournament | None, rising: set[_Tournament]) -> None:
        while tournament is not None and tournament.above is not None and tournament not in rising:
            rising.add(tournament)
            tournament = tournament.above

    def _rise(self, tournament: _Tournament) -> None:
        """Let the first pod of a tournament take part in the one above, with the present share."""
        queue, found = tournament.queue, tournament.first()
        assert queue is not None
        assert tournament.above is not None
        if found is None:
            tournament.stamp = 0
            alike = self._tournaments[queue]
            del alike[tournament.request]
            if not alike:
                del self._tournaments[queue]
            return
        share = tournament.share
        if share is None:
            share = tournament.share = self.usage.order_share(queue, tournament.request)
        before, shares, after, number, _, _, heap = found
        self._stamp += 1
        tournament.above.enter((before, (share, *shares), after, number, self._stamp, tournament, heap))
