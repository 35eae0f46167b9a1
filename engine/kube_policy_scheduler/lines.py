"""Lines of what waits, each in the order of keys that may change while it waits.

A key grows in a straight line for a while, so keys of one slope stay in order: each slope of a line has a heap, and
the first entries of the heaps are compared at the time of a question. When a slope ends, what has it enters again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from kube_policy_scheduler.times import Steady

MOST_SLOPES = 64
"""Heaps of all lines. If entries have more slopes, the rest is sorted again every few seconds."""
_RESORT_SECONDS = 5.0
_VOID_SLACK = 256
"""Entries of one heap from which on those that are void are dropped."""

Line = TypeVar("Line", bound=Hashable)
Item = TypeVar("Item")
Slopes: TypeAlias = tuple[float, ...]
_Entry: TypeAlias = tuple[tuple[Any, ...], int, Item]
"""Key, ticket, and what waits."""


class First(msgspec.Struct, Generic[Line, Item], frozen=True):
    """The first entry of a line."""

    key: tuple[Any, ...]
    """At the time of the question."""
    item: Item
    line: Line
    slopes: Slopes


class Lines(Generic[Line, Item]):
    """What waits, in lines. Entries can become void; who fills the lines says which."""

    def __init__(self, is_void: Callable[[int, Item], bool]) -> None:
        """is_void: tells whether an entry with a ticket counts no more."""
        self._is_void = is_void
        self._heaps: dict[tuple[Line, Slopes], list[_Entry[Item]]] = {}
        self._ends: list[tuple[float, int, Item]] = []
        """When entries end, the earliest first."""

    def clear(self) -> None:
        """Forget all entries."""
        self._heaps.clear()
        self._ends.clear()

    def add(
        self,
        line: Line,
        key: tuple[Any, ...],
        item: Item,
        *,
        ticket: int,
        now: Steady,
        slopes: Slopes = (),
        until: float = inf,
    ) -> None:
        """Add an entry.

        Args:
            line: its keys are compared with each other only.
            key: at the time 0 of the steady clock, the smallest first. With `slopes`, its first part is a tuple.
            item: what waits; it is never compared.
            ticket: tells entries of one thing apart, and breaks ties.
            now: the time.
            slopes: the growth per second of each part of the key's first part.
            until: on the steady clock: the key is right before this moment, and then `ended` returns the thing.
        """
        if not any(slopes):
            slopes = ()
        elif (line, slopes) not in self._heaps and len(self._heaps) >= MOST_SLOPES:
            key, slopes, until = at(key, slopes, now), (), min(until, now + _RESORT_SECONDS)
        heap = self._heaps.setdefault((line, slopes), [])
        self._push(heap, (key, ticket, item))
        if until < inf:
            self._push(self._ends, (until, ticket, item))

    def _push(self, heap: list[tuple[Any, int, Item]], entry: tuple[Any, int, Item]) -> None:
        heapq.heappush(heap, entry)
        size = len(heap)
        if not size & (size - 1) and size > _VOID_SLACK:  # occasionally: at powers of two
            heap[:] = [each for each in heap if not self._is_void(each[1], each[2])]
            heapq.heapify(heap)

    def firsts(self, now: Steady) -> dict[Line, First[Line, Item]]:
        """Return the first entry of each line that has one that counts."""
        firsts: dict[Line, First[Line, Item]] = {}
        for line, slopes, heap in self._heads():
            key, ticket, item = heap[0]
            found, known = First((*at(key, slopes, now), ticket), item, line, slopes), firsts.get(line)
            if known is None or found.key < known.key:
                firsts[line] = found
        return firsts

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return any(True for _ in self._heads())

    def _heads(self) -> Iterator[tuple[Line, Slopes, list[_Entry[Item]]]]:
        """Yield the heaps of which the first entry counts; drop those without one that does."""
        for (line, slopes), heap in list(self._heaps.items()):
            while heap and self._is_void(heap[0][1], heap[0][2]):
                heapq.heappop(heap)
            if heap:
                yield line, slopes, heap
            else:
                del self._heaps[line, slopes]

    def take(self, first: First[Line, Item]) -> Item:
        """Take an entry that `firsts` has just returned."""
        return heapq.heappop(self._heaps[first.line, first.slopes])[2]

    def ended(self, now: Steady) -> Item | None:
        """Return something whose key is right no more, so that it enters again; None: there is nothing."""
        while self._ends and self._ends[0][0] <= now:
            _, ticket, item = heapq.heappop(self._ends)
            if not self._is_void(ticket, item):
                return item
        return None

    def of(self, line: Line) -> Iterator[Item]:
        """Yield what waits in a line, in no order."""
        for (each, _), heap in self._heaps.items():
            if each == line:
                yield from (item for _, ticket, item in heap if not self._is_void(ticket, item))

    def __iter__(self) -> Iterator[Item]:
        """Yield what waits in any line, in no order."""
        for heap in self._heaps.values():
            yield from (item for _, ticket, item in heap if not self._is_void(ticket, item))

    def tickets(self) -> set[int]:
        """Return the tickets of all entries, also of those that are void."""
        return {ticket for heap in self._heaps.values() for _, ticket, _ in heap}


def at(key: tuple[Any, ...], slopes: Slopes, now: Steady) -> tuple[Any, ...]:
    """Return a key as it is at a time."""
    if not any(slopes):
        return key
    parts = zip(key[0], slopes, strict=True)
    return (tuple(part + slope * now if slope else part for part, slope in parts), *key[1:])
