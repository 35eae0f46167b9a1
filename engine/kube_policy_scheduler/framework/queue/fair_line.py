"""Pods of one `order by queue.share`: a heap for each queue, and tournaments of their first pods up the tree.

The share of a queue changes with each pod that gets a node, and is the same for all pods in it and below it that
request the same. So the order of these stays as it is: a change costs one entry for each queue on the way to the top,
however many queues there are beside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, QuotaUsage
from kube_policy_scheduler.framework.queue.queued_pod import FairPosition, QueuedPod, QueuePosition
from kube_policy_scheduler.times import Steady

Entry = tuple[Any, int, QueuedPod]
_NO_QUEUE = ""
"""The name of the heap of pods that belong to no queue."""
_MOST_SHARES = 16
"""Shares that are kept of one queue: one for each request of the first pods below it."""
_Place = tuple[str, Amounts]
"""A queue, and what the first pods request that see the same share of it."""
_Who = str | _Place
"""A heap by name, or the tournament of a child."""
_TOP: _Place = ("", ())


class _Tournament:
    """The first pods of a queue, and of the queues below it, that request the same."""

    __slots__ = ("entries", "stamps")

    def __init__(self) -> None:
        self.entries: list[tuple[Any, int, int, _Who]] = []
        """Keys with the shares of the queues below this one, numbers of pods, stamps, and who takes part; stale if the
        stamp is older."""
        self.stamps: dict[_Who, int] = {}

    def first(self) -> tuple[Any, int, int, _Who] | None:
        """Return the entry that is next."""
        entries, stamps = self.entries, self.stamps
        while entries and stamps.get(entries[0][3]) != entries[0][2]:
            heapq.heappop(entries)
        return entries[0] if entries else None

    def enter(self, key: Any, number: int, stamp: int, who: _Who) -> None:
        """Let somebody take part with a first pod."""
        self.stamps[who] = stamp
        heapq.heappush(self.entries, (key, number, stamp, who))
        if len(self.entries) > 16 + 4 * len(self.stamps):
            self.entries = [entry for entry in self.entries if self.stamps.get(entry[3]) == entry[2]]
            heapq.heapify(self.entries)


class FairLine:
    """The active pods of one line."""

    def __init__(self, position: FairPosition, is_stale: Callable[[Entry], bool]) -> None:
        self.usage: QuotaUsage = position.usage
        self._place = position.place
        self._is_stale = is_stale
        self._heaps: dict[str, list[Entry]] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        """By heap: its queue and those above it, from the top."""
        self._entered: dict[str, Amounts] = {}
        """By heap: what the pod requests with which it takes part."""
        self._tournaments: dict[_Place, _Tournament] = {_TOP: _Tournament()}
        self._heads: dict[int, str] = {}
        """By the number of its first entry: the heap that takes part with it."""
        self._numbers: dict[str, int] = {}
        """The same by heap."""
        self._left: set[str] = set()
        """Heaps whose first pod has left since: they take part with the next one."""
        self._requests: dict[str, set[Amounts]] = {}
        """By queue: what the tournaments are for that it has."""
        self._above: dict[str, str] = {}
        self._stamp = 0
        self._shares: dict[str, dict[Amounts, float]] = {}
        """By queue and by what the next pod requests, since its usage changed."""
        self._read = self.usage.changed.end

    def tickets(self) -> set[int]:
        """Return the numbers of all entries, stale ones included."""
        return {number for heap in self._heaps.values() for _, number, _ in heap}

    def entries(self) -> list[Entry]:
        """Return the entries that are not stale."""
        return [entry for heap in self._heaps.values() for entry in heap if not self._is_stale(entry)]

    def push(self, queued: QueuedPod, position: QueuePosition) -> None:
        """Add a pod."""
        assert position.fair is not None
        queue = position.fair.queue
        name = queue.name if queue is not None else _NO_QUEUE
        heap = self._heaps.get(name)
        if heap is None:
            heap = self._heaps[name] = []
            path = tuple(each.name for each in queue.path()) if queue is not None else ()
            self._paths[name] = path = path[::-1][self.usage.common_levels :]
            self._above.update(zip(path, (_TOP[0], *path), strict=False))
        heapq.heappush(heap, (position.key, queued.ticket, queued))
        if heap[0][1] == queued.ticket:
            self._enter(name)
        elif len(heap) > 256 and len(heap) & (len(heap) - 1) == 0:  # occasionally: at powers of two
            heap[:] = [entry for entry in heap if not self._is_stale(entry)]
            heapq.heapify(heap)

    def leave(self, number: int) -> None:
        """Note that the pod of an entry leaves, and not as the next one: the entry is about to be stale.

        Until the next pod of its queue takes part, the share of the queue would be with what the first one requested.
        """
        name = self._heads.get(number)
        if name is not None:
            self._left.add(name)

    def head(self) -> Entry | None:
        """Return the entry of the pod that is next, by the shares that `catch_up` saw last."""
        name = self._first()
        return self._heaps[name][0] if name is not None else None

    def pop(self) -> QueuedPod | None:
        """Take the pod that is next, by the shares that `catch_up` saw last."""
        name = self._first()
        if name is None:
            return None
        entry = heapq.heappop(self._heaps[name])
        self._enter(name)
        return entry[2]

    def _first(self) -> str | None:
        """Return the heap whose first pod is next."""
        while self._left:
            name = self._left.pop()
            if name in self._heaps:
                self._enter(name)
        while (found := self._tournaments[_TOP].first()) is not None:
            name = self._heap_of(found)
            head = self._heaps[name][0]
            if head[1] == found[1] and not self._is_stale(head):
                return name
            self._enter(name)
        return None

    def _heap_of(self, entry: tuple[Any, int, int, _Who]) -> str:
        """Return the heap that an entry stands for."""
        who = entry[3]
        while not isinstance(who, str):
            found = self._tournaments[who].first()
            assert found is not None
            who = found[3]
        return who

    def catch_up(self, now: Steady) -> None:
        """Bring past usage up to a time, and let those take part again whose shares may have changed.

        Only who takes a pod knows what time it is: whether there is one, a standby asks, too, and so does a scrape.
        """
        faded = self.usage.remember(now)
        queues, self._read = self.usage.changed.since(self._read), self.usage.changed.end
        if faded or queues is None:
            self._shares.clear()
            self._tournaments = {_TOP: _Tournament()}
            self._requests.clear()
            self._entered.clear()
            for name in list(self._heaps):
                self._enter(name)
        elif queues:
            common = self.usage.common_levels
            changed = {each.name: each.depth for queue in set(queues) for each in queue.path()}
            for name, depth in sorted(changed.items(), key=lambda each: -each[1]):
                if depth > common:
                    self._shares.pop(name, None)
                    for more in tuple(self._requests.get(name, ())):
                        self._rise((name, more))

    def _enter(self, name: str) -> None:
        """Let a heap take part with its first pod, if it has one."""
        heap, path = self._heaps[name], self._paths[name]
        while heap and self._is_stale(heap[0]):
            heapq.heappop(heap)
        self._heads.pop(self._numbers.pop(name, 0), None)
        before = self._entered.get(name)
        if not heap:
            self._withdraw(name, path, before)
            del self._heaps[name], self._paths[name]
            return
        key, number, queued = heap[0]
        self._heads[number], self._numbers[name] = name, number
        more = self.usage.amounts(queued.pod) if path else ()
        if before != more:
            self._withdraw(name, path, before)
            self._entered[name] = more
            for each in path:
                self._requests.setdefault(each, set()).add(more)
                self._tournaments.setdefault((each, more), _Tournament())
        parts = (*key[0][: self._place], (), *key[0][self._place + 1 :])
        self._stamp += 1
        last = (path[-1], more) if path else _TOP
        self._tournaments[last].enter((parts, *key[1:]), number, self._stamp, name)
        self._rise_all(path, more)

    def _withdraw(self, name: str, path: Sequence[str], more: Amounts | None) -> None:
        """Let a heap take part no more."""
        if more is None:
            return
        del self._entered[name]
        last = (path[-1], more) if path else _TOP
        self._tournaments[last].stamps.pop(name, None)
        self._rise_all(path, more)

    def _rise_all(self, path: Sequence[str], more: Amounts) -> None:
        for each in reversed(path):
            self._rise((each, more))

    def _rise(self, place: _Place) -> None:
        """Let the first pod of a tournament take part in the one above, with the present share."""
        name, more = place
        above = self._above[name]
        parent = self._tournaments[(above, more) if above else _TOP]
        found = self._tournaments[place].first()
        if found is None:
            parent.stamps.pop(place, None)
            del self._tournaments[place]
            self._requests[name].discard(more)
            if not self._requests[name]:
                del self._requests[name]
            return
        key, number, _, _ = found
        parts, at = key[0], self._place
        parts = (*parts[:at], (self._share(place, found), *parts[at]), *parts[at + 1 :])
        self._stamp += 1
        parent.enter((parts, *key[1:]), number, self._stamp, place)

    def _share(self, place: _Place, found: tuple[Any, int, int, _Who]) -> float:
        """Return the present share of a queue for pods of one request."""
        name, more = place
        share = self._shares.get(name, _NONE).get(more)
        if share is not None:
            return share
        queue = self.usage.quota_of(self._heaps[self._heap_of(found)][0][2].pod.template)
        while queue is not None and queue.name != name:
            queue = queue.parent
        assert queue is not None
        kept = self._shares.setdefault(name, {})
        if len(kept) >= _MOST_SHARES:
            kept.clear()
        kept[more] = share = self.usage.order_share(queue, more)
        return share


_NONE: dict[Amounts, float] = {}
