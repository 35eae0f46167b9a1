"""Pods of one `order by queue.share`: a heap for each queue, and tournaments of their first pods up the tree.

The share of a queue changes with each pod that gets a node, and is the same for all pods in it and below it that
request the same. So the order of these stays as it is: a change costs one entry for each queue on the way to the top,
however many queues there are beside it. What changes between two pods is brought up to date at once, from below.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.framework.queue.queued_pod import FairPosition, QueuedPod, QueuePosition
from kube_policy_scheduler.times import Steady

Entry = tuple[Any, int, QueuedPod]
_Key = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What of a key comes before the shares, and what comes after them. Flat: pods of a queue often differ in neither."""
_First = tuple[tuple[Any, ...], float, tuple[float, ...], tuple[Any, ...], int, int, "_Entrant", "_Heap"]
"""A pod that takes part in a tournament: what of its key comes before the shares; the share of its queue, or of the
queue above it that takes part here, and those of the queues on the way down from there; the rest of its key, its
number; the stamp, who takes part with it, and the heap whose first pod it is."""
_STALE_SLACK = 256
"""Entries of one queue from which on stale ones are dropped."""
_NO_SHARE = -1.0
"""Of pods of no queue, and of queues at the levels that all share: they come first."""


class _Entrant:
    """Who takes part in a tournament: the pods of a queue with the first of them, or the tournament of one."""

    __slots__ = ("above", "stamp")

    def __init__(self, above: _Tournament | None) -> None:
        self.above = above
        """Where it takes part; None: nowhere."""
        self.stamp = 0
        """Of its entry there; others of it are stale."""


class _Heap(_Entrant):
    """The pods of one queue, or of none.

    Most come in order, and are taken from a run without being compared. Those that do not are in a heap beside it.
    """

    __slots__ = ("_beside", "_run", "number", "queue")

    def __init__(self, queue: Quota | None) -> None:
        super().__init__(None)
        self.queue = queue
        self._run: deque[Entry] = deque()
        """Entries in ascending order."""
        self._beside: list[Entry] = []
        self.number = -1
        """Of the entry with which it takes part; -1: it does not."""

    def __iter__(self) -> Iterator[Entry]:
        yield from self._run
        yield from self._beside

    def push(self, entry: Entry, is_stale: Callable[[int, QueuedPod], bool]) -> None:
        """Add an entry."""
        run, beside = self._run, self._beside
        if not run or run[-1] < entry:
            run.append(entry)
        else:
            heapq.heappush(beside, entry)
        size = len(run) + len(beside)
        if not size & (size - 1) and size > _STALE_SLACK:  # occasionally: at powers of two
            self._run = deque(each for each in run if not is_stale(each[1], each[2]))
            self._beside = [each for each in beside if not is_stale(each[1], each[2])]
            heapq.heapify(self._beside)

    def first(self) -> Entry | None:
        """Return the entry that is next; None: there is none."""
        run, beside = self._run, self._beside
        if beside and (not run or beside[0] < run[0]):
            return beside[0]
        return run[0] if run else None

    def pop(self) -> Entry:
        """Take the entry that is next."""
        run, beside = self._run, self._beside
        return heapq.heappop(beside) if beside and (not run or beside[0] < run[0]) else run.popleft()


class _Tournament(_Entrant):
    """The first pods of the queues below one, at any depth, that request the same."""

    __slots__ = ("depth", "entries", "most", "queue", "request")

    def __init__(self, above: _Tournament | None, queue: Quota | None, request: Amounts) -> None:
        super().__init__(above)
        self.queue, self.request = queue, request
        self.depth = queue.depth if queue is not None else 0
        self.entries: list[_First] = []
        self.most = 16
        """The number of entries up to which stale ones are kept."""

    def first(self) -> _First | None:
        """Return the entry that is next."""
        entries = self.entries
        while entries:
            first = entries[0]
            if first[5] == first[6].stamp:
                return first
            heapq.heappop(entries)
        return None

    def enter(self, entry: _First) -> None:
        """Let somebody take part with a first pod."""
        who, entries = entry[6], self.entries
        who.stamp = entry[5]
        if entries and entries[0][6] is who:  # most often: it was first, and its pod has got a node
            heapq.heapreplace(entries, entry)
            return
        heapq.heappush(entries, entry)
        if len(entries) > self.most:
            self.entries = [each for each in entries if each[5] == each[6].stamp]
            heapq.heapify(self.entries)
            self.most = 16 + 4 * len(self.entries)


_depth = attrgetter("depth")
_NONE: Mapping[Amounts, _Tournament] = {}


class FairLine:
    """The active pods of one line."""

    def __init__(
        self, position: FairPosition, is_stale: Callable[[int, QueuedPod], bool], *, before: FairLine | None = None
    ) -> None:
        """Begin with the pods of the line before; its queues were others."""
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
        self._next = _Heap(None)
        """Whose first pod is next."""
        self._stamp = 0
        self._read = self.usage.changed.end
        for entry in before.entries() if before is not None else ():
            self._push(self.usage.quota_of(entry[2].pod.template), entry)

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {number for heap in self._heaps.values() for _, number, _ in heap}

    def entries(self) -> list[Entry]:
        """Return the entries that are not stale."""
        return [entry for heap in self._heaps.values() for entry in heap if not self._is_stale(entry[1], entry[2])]

    def push(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Add a pod."""
        assert position.fair is not None
        parts, at = position.key[0], self._place
        key: _Key = parts[:at], (*parts[at + 1 :], *position.key[1:])
        self._push(position.fair.queue, (key, queued.ticket, queued))

    def _push(self, queue: Quota | None, entry: Entry) -> None:
        heap = self._heaps.get(queue)
        if heap is None:
            heap = self._heaps[queue] = _Heap(queue)
        heap.push(entry, self._is_stale)
        if heap.first() is entry:
            self._left.add(heap)

    def leave(self, number: int) -> None:
        """Note that the pod of an entry leaves, and not as the next one: the entry is about to be stale.

        Until the next pod of its queue takes part, the share of the queue would be with what the first one requested.
        """
        heap = self._heads.get(number)
        if heap is not None:
            self._left.add(heap)

    def head(self) -> Entry | None:
        """Return the entry of the pod that is next, by the shares that `catch_up` saw last."""
        if self._left:
            self._settle()
        while (found := self._top.first()) is not None:
            heap = found[7]
            entry = heap.first()
            if entry is not None and entry[1] == found[4] and not self._is_stale(entry[1], entry[2]):
                self._next = heap
                return entry
            self._left.add(heap)
            self._settle()
        return None

    def pop(self) -> QueuedPod:
        """Take the pod that `head` has just returned."""
        heap = self._next
        self._left.add(heap)
        return heap.pop()[2]

    def catch_up(self, now: Steady) -> None:
        """Bring past usage up to a time, and let those take part again whose shares may have changed.

        Only who takes a pod knows what time it is: whether there is one, a standby asks, too, and so does a scrape.
        """
        faded = self.usage.remember(now)
        queues, self._read = self.usage.changed.since(self._read), self.usage.changed.end
        if faded or queues is None:
            self._begin_again()
        elif queues:
            self._settle(queues)

    def _begin_again(self) -> None:
        """Let all heaps take part again: any share may have changed."""
        self._tournaments.clear()
        self._top = _Tournament(None, None, ())
        for heap in self._heaps.values():
            heap.above = None
            first = heap.first()
            if heap.queue is not None and first is not None:  # without pods, its past usage is as of the last look
                self.usage.quota_of(first[2].pod.template)
        self._left.update(self._heaps.values())
        self._settle()

    def _settle(self, changed: Iterable[Quota] = ()) -> None:
        """Let those take part again whose first pod or share has changed, each one once.

        changed: the queues whose own pods changed; so the shares of those above them may have, too.
        """
        rising = self._of(changed)
        while self._left:
            self._enter(self._left.pop(), rising)
        for tournament in sorted(rising, key=_depth, reverse=True) if len(rising) > 1 else rising:
            self._rise(tournament)

    def _of(self, queues: Iterable[Quota]) -> set[_Tournament]:
        """Return the tournaments of queues and of all above them; their own pods take part again, too."""
        seen: set[Quota] = set()
        found: set[_Tournament] = set()
        shared = self.usage.common_levels
        for queue in queues:
            each: Quota | None = queue
            while each is not None and each.depth > shared and each not in seen:
                seen.add(each)
                heap, alike = self._heaps.get(each), self._tournaments.get(each)
                if heap is not None:
                    self._left.add(heap)
                if alike is not None:
                    found.update(alike.values())
                each = each.parent
        return found

    def _enter(self, heap: _Heap, rising: set[_Tournament]) -> None:
        """Let a heap take part with its first pod, if it has one; those above are to rise, too."""
        first, before = heap.first(), heap.above
        while first is not None and self._is_stale(first[1], first[2]):
            heap.pop()
            first = heap.first()
        self._heads.pop(heap.number, None)
        if first is None:
            heap.stamp = 0
            del self._heaps[heap.queue]
            self._add_path(before, rising)
            return
        key, number, queued = first
        self._heads[number], heap.number = heap, number
        queue, where, share = heap.queue, self._top, _NO_SHARE
        if queue is not None and queue.depth > self.usage.common_levels:
            assert queue.parent is not None
            request = self.usage.asks(queued.pod)
            where, share = self._tournament(queue.parent, request), self.usage.order_share(queue, request)
        if where is not before:
            heap.above = where
            self._add_path(before, rising)
        self._stamp = stamp = self._stamp + 1
        where.enter((key[0], share, (), key[1], number, stamp, heap, heap))
        self._add_path(where, rising)

    def _tournament(self, queue: Quota, request: Amounts) -> _Tournament:
        """Return the tournament below a queue for pods of one request; at the levels that all share there is one."""
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
        queue, above, found = tournament.queue, tournament.above, tournament.first()
        assert queue is not None
        assert above is not None
        if found is None:
            tournament.stamp = 0
            alike = self._tournaments[queue]
            del alike[tournament.request]
            if not alike:
                del self._tournaments[queue]
            return
        before, first, below, after, number, _, _, heap = found
        self._stamp = stamp = self._stamp + 1
        share = self.usage.order_share(queue, tournament.request)
        above.enter((before, share, (first, *below), after, number, stamp, tournament, heap))
