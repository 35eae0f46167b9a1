"""How many pods of one set are on each node, and what changed recently. Knows nothing of its users."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import CarriedTerm
from kube_policy_scheduler.cluster.pod_sets import PodSet

CountArray = NDArray[np.int32 | np.int64]
SumArray = NDArray[np.int64]

_JOURNAL_LIMIT = 512
"""Changes remembered by a counter; readers that lag further behind add up all nodes again (some 20 µs at 5,000)."""
_DENSE_SHARE = 16
"""A tally with more than one row in so many is kept as a column: adding that up is then faster."""

Change: TypeAlias = tuple[int, int, int]
"""A row, by how much its sum changed, and by how many pods."""


class CountKey(NamedTuple):
    """What a counter counts."""

    pods: PodSet
    terminating: bool
    """Whether pods that are being deleted count (pod affinity) or not (spreading)."""


class Owner(Protocol):
    """What all counters share."""

    size: int
    """Rows of the node table."""
    changes: int
    """Grows with every change of any counter."""


class Tally:
    """A number per row: by row while few rows have one, as a column once many have."""

    __slots__ = ("_capacity", "_column", "_dtype", "_rows")

    def __init__(self, capacity: int, dtype: type[np.int32] | type[np.int64] = np.int32) -> None:
        self._capacity = capacity
        self._dtype = dtype
        self._rows: dict[int, int] = {}
        self._column: CountArray | None = None

    def add(self, row: int, amount: int) -> None:
        """Add to a row's number."""
        if self._column is not None:
            self._column[row] += amount
            return
        rows = self._rows
        total = rows.get(row, 0) + amount
        if total:
            rows[row] = total
            if len(rows) * _DENSE_SHARE > self._capacity:
                self.column()
        else:
            rows.pop(row, None)

    def column(self) -> CountArray:
        """Return `[capacity]`; kept as a column from now on."""
        if self._column is None:
            column: CountArray = np.zeros(self._capacity, self._dtype)
            for row, number in self._rows.items():
                column[row] = number
            self._column, self._rows = column, {}
        return self._column

    def add_to(self, totals: SumArray, places: NDArray[np.intp], *, weight: int, aside: int) -> int:
        """Add up the numbers by place; return their sum, without weight.

        Args:
            totals: `int64[slots]`, the totals to add to.
            places: `intp[rows]`, the slot of each row.
            weight: the factor of each number.
            aside: the slot of rows that do not count.
        """
        if self._column is not None:
            sums = np.bincount(places, weights=self._column[: len(places)], minlength=len(totals)).astype(np.int64)
            sums[aside] = 0
            totals += sums * weight
            return int(sums.sum())
        counted = 0
        for row, number in self._rows.items():
            place = places[row]
            if place != aside:
                totals[place] += number * weight
                counted += number
        return counted

    def move(self, source: int, target: int) -> None:
        """Follow a row to another one, which is empty."""
        if self._column is not None:
            self._column[target], self._column[source] = self._column[source], 0
        elif source in self._rows:
            self._rows[target] = self._rows.pop(source)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        if self._column is not None:
            more: CountArray = np.zeros(capacity - self._capacity, self._dtype)
            self._column = np.concatenate((self._column, more))
        self._capacity = capacity


class Counter:
    """How many pods of one set are on each node, or the sum of their weights."""

    __slots__ = ("_journal", "_journal_start", "_owner", "_pods", "_sums", "live", "terminating", "total", "used")

    def __init__(self, *, owner: Owner, capacity: int, weighs: bool = False, terminating: bool = True) -> None:
        """weighs: whether pods count for other whole numbers than 1. terminating: whether those being deleted count."""
        self.terminating = terminating
        self.total = 0
        """Pods on all nodes."""
        self.live = True
        """False once it is no longer kept up to date: ask for it again."""
        self.used = True
        """Set by readers that keep a counter without requesting it again, so that it is not dropped."""
        self._owner = owner
        self._pods = Tally(capacity)
        self._sums = Tally(capacity, np.int64) if weighs else self._pods
        """The same as `_pods` where each pod counts for 1."""
        self._journal: list[Change] = []
        self._journal_start = 0

    @property
    def owner(self) -> Owner:
        """Return what all counters share."""
        return self._owner

    def per_node(self) -> CountArray:
        """Return `int32[nodes]`: pods; or `int64[nodes]`, the sum of their weights."""
        return self._sums.column()[: self._owner.size]

    def add_to(self, totals: SumArray, places: NDArray[np.intp], *, weight: int, aside: int) -> int:
        """Add pods or their weights up by place; return how many pods that were. Arguments as of `Tally.add_to`."""
        if self._sums is self._pods:
            return self._pods.add_to(totals, places, weight=weight, aside=aside)
        self._sums.add_to(totals, places, weight=weight, aside=aside)
        return self._pods.add_to(np.zeros_like(totals), places, weight=1, aside=aside)

    @property
    def version(self) -> int:
        """Return a number that grows with every change, except that rows move (see `NodeTable.version`)."""
        return self._journal_start + len(self._journal)

    def changed_since(self, version: int) -> Sequence[Change] | None:
        """Return the changes after a version; None means that it is too long ago to know."""
        return self._journal[version - self._journal_start :] if version >= self._journal_start else None

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        self.total += step
        self._pods.add(row, step)
        amount = step
        if self._sums is not self._pods:
            amount = step * int(weight)
            self._sums.add(row, amount)
        self._journal.append((row, amount, step))
        if len(self._journal) > _JOURNAL_LIMIT:
            drop = _JOURNAL_LIMIT // 2
            del self._journal[:drop]
            self._journal_start += drop

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        self.total += pods
        self._pods.add(row, pods)
        if self._sums is not self._pods:
            self._sums.add(row, pods * int(weight))

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        self._pods.move(source, target)
        if self._sums is not self._pods:
            self._sums.move(source, target)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        self._pods.extend(capacity)
        if self._sums is not self._pods:
            self._sums.extend(capacity)


class AmountCounter(Counter):
    """Also how many pods have each amount; amounts can be fractions."""

    __slots__ = ("_amounts",)

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._amounts: dict[float, int] = {}

    def worth(self) -> float:
        """Return the sum over all pods on all nodes."""
        return math.fsum(amount * pods for amount, pods in self._amounts.items())

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        super().fill(row, pods, 1)
        self._note(weight, pods)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        super().bump(row, step)
        self._note(weight, step)

    def _note(self, amount: float, pods: int) -> None:
        number = self._amounts.get(amount, 0) + pods
        if number:
            self._amounts[amount] = number
        else:
            self._amounts.pop(amount, None)


_MOST_PLACES = 4
"""Ways to group nodes that a counter of values follows: topologies of the policies that use it."""


class ValueCounts:
    """How many pods (or nodes) have each value in each place, and how many values each place has."""

    __slots__ = ("_members", "numbers")

    def __init__(self, size: int) -> None:
        self.numbers = np.zeros(size, np.int64)
        """`int64[places]`: different values."""
        self._members: dict[tuple[int, Hashable], int] = {}
        """By place and value."""

    def add(self, place: int, value: Hashable, number: int) -> None:
        """Add this number with a value."""
        before = self._members.get((place, value), 0)
        after = before + number
        if after:
            self._members[place, value] = after
        else:
            self._members.pop((place, value), None)
        self.numbers[place] += bool(after) - bool(before)


class DistinctCounter(Counter):
    """Also how many different values the pods have, on each node and in each domain; their weights are the values."""

    __slots__ = ("_by_place", "_different", "_everywhere", "_rows")

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._rows: dict[int, dict[int, int]] = {}
        """Pods by row and value."""
        self._different = Tally(capacity)
        """Different values by row."""
        self._everywhere = ValueCounts(1)
        self._by_place: dict[int, tuple[NDArray[np.intp], ValueCounts]] = {}
        """By the identity of the array with the group of each row."""

    def different(self) -> CountArray:
        """Return `int32[nodes]`: the number of different values on each node."""
        return self._different.column()[: self._owner.size]

    def everywhere(self) -> int:
        """Return the number of different values on all nodes."""
        return int(self._everywhere.numbers[0])

    def by_place(self, places: NDArray[np.intp], slots: int) -> SumArray:
        """Return `int64[slots]`: the number of different values in each place; `places` is the slot of each row.

        Read-only. Kept for the arrays used last, which must not change.
        """
        kept = self._by_place.get(id(places))
        if kept is None or kept[0] is not places:
            values = ValueCounts(slots)
            for row, found in self._rows.items():
                for value, pods in found.items():
                    values.add(int(places[row]), value, pods)
            while len(self._by_place) >= _MOST_PLACES:
                del self._by_place[next(iter(self._by_place))]
            kept = self._by_place[id(places)] = places, values
        return kept[1].numbers

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        super().fill(row, pods, 1)
        if pods:
            self._note(row, int(weight), pods)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        super().bump(row, step)
        self._note(row, int(weight), step)

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        super().move(source, target)
        self._different.move(source, target)
        self._by_place.clear()
        if source in self._rows:
            self._rows[target] = self._rows.pop(source)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        super().extend(capacity)
        self._different.extend(capacity)

    def _note(self, row: int, value: int, pods: int) -> None:
        found = self._rows.setdefault(row, {})
        before = found.get(value, 0)
        found[value] = before + pods
        if not before:
            self._different.add(row, 1)
        if not found[value]:
            self._different.add(row, -1)
            del found[value]
            if not found:
                del self._rows[row]
        self._everywhere.add(0, value, pods)
        for key, (places, values) in tuple(self._by_place.items()):
            if row < len(places):
                values.add(int(places[row]), value, pods)
            else:
                del self._by_place[key]  # of a table with fewer nodes


class Carriers(Counter):
    """How many placed pods carry one affinity term, on each node. Kept as long as there is a pod that does."""

    __slots__ = ("__weakref__", "term")

    def __init__(self, term: CarriedTerm, *, owner: Owner, capacity: int) -> None:
        super().__init__(owner=owner, capacity=capacity)
        self.term = term
