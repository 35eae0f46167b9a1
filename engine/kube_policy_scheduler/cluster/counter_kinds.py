"""The kinds of counters: what is counted of one set of pods, by node. Knows nothing of its users."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.affinity import TemplateAffinity
from kube_policy_scheduler.cluster.exact_sums import ExactSums
from kube_policy_scheduler.cluster.footprint import Measured, footprint
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.pod_sets import PodSet
from kube_policy_scheduler.cluster.pods import PodTemplate

CountArray = NDArray[np.int32 | np.int64]
SumArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_JOURNAL_LIMIT = 256
"""Changes remembered by a counter; readers that lag further behind add up all nodes again (some 20 µs at 5,000)."""
_OWN_BYTES = 2048
"""Of a counter without pods, with its set and where it is found."""
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
    grown: int
    """About how many bytes counters took, at most, since they were measured."""


class Tally(Measured):
    """A number per row: by row while few rows have one, as a column once many have."""

    __slots__ = ("_capacity", "_column", "_dtype", "_rows")

    def __init__(self, capacity: int, dtype: type[np.int32] | type[np.int64] = np.int32) -> None:
        self._capacity = capacity
        self._dtype = dtype
        self._rows: dict[int, int] = {}
        self._column: CountArray | None = None

    @property
    def bytes_to_read(self) -> int:
        """Return how many bytes more it takes once `column` was read."""
        return 0 if self._column is not None else self._capacity * np.dtype(self._dtype).itemsize

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

    def add_many(self, rows: NDArray[np.int64], amounts: NDArray[np.int64]) -> None:
        """Add to the numbers of several rows, each of which is named once."""
        if self._column is None and (len(self._rows) + len(rows)) * _DENSE_SHARE > self._capacity:
            self.column()
        if self._column is not None:
            self._column[rows] += amounts
            return
        for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
            self.add(row, amount)

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


class _PlaceCounts(Measured, msgspec.Struct):
    """How many pods were in each place of a topology at a version of their counter."""

    borrowed = frozenset({"places"})

    places: NDArray[np.intp]
    totals: SumArray
    version: int


_MOST_WEIGHT = 2**40
"""Of a pod whose weights are added up as columns."""
_MOST_PLACES = 4
"""Topologies that a counter follows: those of the policies that use it."""
_REPLAY_LIMIT = 64
"""Changes replayed one by one; beyond it adding up all nodes is cheaper."""


class Counter(Measured):
    """How many pods of one set are on each node, or the sum of their weights."""

    __slots__ = (
        "__weakref__",
        "_journal",
        "_owner",
        "_pods",
        "_pods_by_topology",
        "_sums",
        "asked_by",
        "is_pinned",
        "lags",
        "live",
        "terminating",
        "total",
        "used",
    )

    _fills_one_by_one: ClassVar = False
    _notes: ClassVar = False
    """Whether more is kept than numbers of pods or their weights."""

    def __init__(self, *, owner: Owner, capacity: int, weighs: bool = False, terminating: bool = True) -> None:
        """weighs: whether pods count for other whole numbers than 1. terminating: whether those being deleted count."""
        self.terminating = terminating
        self.total = 0
        """Pods on all nodes."""
        self.live = True
        """False once it is no longer kept up to date: ask for it again."""
        self.used = True
        """Set by readers that keep a counter without requesting it again, so that it is not dropped."""
        self.asked_by: dict[PodTemplate, None] = {}
        """The templates whose pods asked for it."""
        self.is_pinned = False
        """Whether it is kept without a template that asked for it."""
        self.lags: dict[PodTemplate, None] = {}
        """Templates of placed pods that were not compared with the set yet: a large one is compared when it is read."""
        self._owner = owner
        self._pods = Tally(capacity)
        self._sums = Tally(capacity, np.int64) if weighs else self._pods
        """The same as `_pods` where each pod counts for 1."""
        self._journal: Journal[Change] = Journal(most=_JOURNAL_LIMIT)
        self._pods_by_topology: KeptView[Hashable, _PlaceCounts] = KeptView(most=_MOST_PLACES)

    @property
    def counts_each_for_one(self) -> bool:
        """Return whether each pod counts for 1, and nothing else is kept of it."""
        return self._sums is self._pods and not self._notes

    @property
    def owner(self) -> Owner:
        """Return what all counters share."""
        return self._owner

    def per_node(self) -> CountArray:
        """Return `int32[nodes]`: pods; or `int64[nodes]`, the sum of their weights."""
        self._owner.grown += self._sums.bytes_to_read
        return self._sums.column()[: self._owner.size]

    def add_to(self, totals: SumArray, places: NDArray[np.intp], *, weight: int, aside: int) -> int:
        """Add pods or their weights up by place; return how many pods that were. Arguments as of `Tally.add_to`."""
        if self._sums is self._pods:
            return self._pods.add_to(totals, places, weight=weight, aside=aside)
        self._sums.add_to(totals, places, weight=weight, aside=aside)
        return self._pods.add_to(np.zeros_like(totals), places, weight=1, aside=aside)

    def pods_by_place(self, topology: Hashable, places: NDArray[np.intp], slots: int) -> SumArray:
        """Return `int64[slots]`: the number of pods in each place of a topology. Read-only.

        Args:
            topology: a label key.
            places: `intp[nodes]`, the slot of each row; another array if one of them changed. None is the last slot.
            slots: how many there are.
        """
        known = self._pods_by_topology.get(topology)
        if known is not None and known.places is places:
            changes = self.changed_since(known.version)
            if changes is not None and len(changes) <= _REPLAY_LIMIT:
                for row, _, pods in changes:
                    known.totals[places[row]] += pods
                known.version = self.version
                return known.totals
        totals = np.zeros(slots, np.int64)
        self._pods.add_to(totals, places, weight=1, aside=slots - 1)
        self._owner.grown += totals.nbytes
        self._pods_by_topology.set(topology, _PlaceCounts(places, totals, self.version))
        return totals

    @property
    def version(self) -> int:
        """Return a number that grows with every change, except that rows move (see `NodeTable.version`)."""
        return self._journal.end

    def changed_since(self, version: int) -> Sequence[Change] | None:
        """Return the changes after a version; None means that it is too long ago to know."""
        return self._journal.since(version)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        self.total += step
        self._pods.add(row, step)
        amount = step
        if self._sums is not self._pods:
            amount = step * int(weight)
            self._sums.add(row, amount)
        self._journal.note((row, amount, step))

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        self.total += pods
        self._pods.add(row, pods)
        if self._sums is not self._pods:
            self._sums.add(row, pods * int(weight))

    def fill_many(self, rows: NDArray[np.int64], pods: NDArray[np.int64], weight: float) -> None:
        """Do the same for several rows, each of which is named once."""
        if self._fills_one_by_one or abs(weight) > _MOST_WEIGHT:
            for row, number in zip(rows.tolist(), pods.tolist(), strict=True):
                self.fill(row, number, weight)
            return
        self._fill_many_pods(rows, pods)
        if self._sums is not self._pods:
            self._sums.add_many(rows, pods * int(weight))

    def fill_late(self, rows: NDArray[np.int64], pods: NDArray[np.int64], weight: float) -> None:
        """Do the same for pods that were there before: who reads the changes adds up all nodes again."""
        self.fill_many(rows, pods, weight)
        self._journal.note_all()

    def _fill_many_pods(self, rows: NDArray[np.int64], pods: NDArray[np.int64]) -> None:
        self.total += int(pods.sum())
        self._pods.add_many(rows, pods)

    def settle(self) -> None:
        """Do what who reads next would do of what was filled in."""

    def end(self) -> None:
        """Count no longer, and keep nothing: some who read it find out only when they are asked again."""
        self.live, self.total = False, 0
        self._pods = self._sums = Tally(0)
        self._journal.clear()
        self._pods_by_topology.clear()
        self.asked_by, self.lags = {}, {}

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
    """Also the sum of the amounts of all pods, which can be fractions; it is exact."""

    __slots__ = ("_everywhere",)

    _notes: ClassVar = True

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._everywhere = ExactSums(1)

    def worth(self) -> float:
        """Return the sum over all pods on all nodes."""
        return self._everywhere.value(0)

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        super().fill(row, pods, 1)
        self._note(row, weight, pods)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        super().bump(row, step)
        self._note(row, weight, step)

    def fill_many(self, rows: NDArray[np.int64], pods: NDArray[np.int64], weight: float) -> None:
        """Do the same for several rows, each of which is named once."""
        self._fill_many_pods(rows, pods)
        self._everywhere.add(0, weight, int(pods.sum()))

    def _note(self, row: int, amount: float, pods: int) -> None:
        self._everywhere.add(0, amount, pods)


# --- what pods have in places: zones, racks ------------------------------------------------------------

_NOWHERE = -1
Content = TypeVar("Content")
ValueT = TypeVar("ValueT", bound=Hashable)


class PlacesOfRows(Measured, Generic[Content]):
    """What is added up for each place, and the place for which each row counts in it.

    Which place a row is in changes with the labels of nodes; what is added up follows when it is asked for.
    """

    __slots__ = ("_given", "_places", "content")
    borrowed = frozenset({"_given"})

    def __init__(self, content: Content) -> None:
        self.content = content
        self._given: NDArray[np.intp] | None = None
        """The array that the places were read from."""
        self._places: NDArray[np.intp] = np.zeros(0, np.intp)

    def of(self, row: int) -> int:
        """Return the place that a row counts for; less than 0: none yet."""
        return self._places.item(row) if row < len(self._places) else _NOWHERE

    def moved(self, places: NDArray[np.intp]) -> list[tuple[int, int, int]]:
        """Take these as the places of the rows; return the rows that have another now, with the old and the new one."""
        if places is self._given:
            return []
        before = np.full(len(places), _NOWHERE, np.intp)
        common = min(len(places), len(self._places))
        before[:common] = self._places[:common]
        rows = np.flatnonzero(before != places)
        self._given, self._places = places, places.copy()
        return list(zip(rows.tolist(), before[rows].tolist(), places[rows].tolist(), strict=True))

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        if target < len(self._places):
            self._places[target] = self.of(source)
        self._given = None


class RowAmountCounter(AmountCounter):
    """Also the sum of the amounts on each node and in each domain."""

    __slots__ = ("_by_row", "_by_topology")

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._by_row = ExactSums(capacity)
        self._by_topology: KeptView[Hashable, PlacesOfRows[ExactSums]] = KeptView(most=_MOST_PLACES)

    def fill_many(self, rows: NDArray[np.int64], pods: NDArray[np.int64], weight: float) -> None:
        """Do the same for several rows, each of which is named once."""
        super().fill_many(rows, pods, weight)
        self._by_row.add_many(rows, weight, pods)

    def settle(self) -> None:
        """Do what who reads next would do of what was filled in."""
        self._by_row.settle()

    def on_rows(self, rows: slice | NDArray[np.int64]) -> FloatArray:
        """Return `float64[rows]`: the sum on each node. Read-only."""
        self._owner.grown += self._by_row.bytes_to_read
        return self._by_row.values(rows if not isinstance(rows, slice) else slice(self._owner.size))

    def by_place(self, topology: Hashable, places: NDArray[np.intp], slots: int) -> FloatArray:
        """Return `float64[slots]`: the sum in each place of a topology; `places` is the slot of each row. Read-only."""
        known = self._by_topology.get(topology)
        if known is None:
            known = PlacesOfRows(ExactSums(slots))
            known.content.add_by_place(self._by_row, places)
            known.moved(places)
            self._by_topology.set(topology, known)
            self._owner.grown += footprint(known)[0]
        sums = known.content
        if slots > sums.size:
            sums.extend(slots)
        for row, before, after in known.moved(places):
            units, bits = self._by_row.units(row)
            if units:
                if before >= 0:
                    sums.add_units(before, -units, bits)
                sums.add_units(after, units, bits)
        return sums.values(slice(slots))

    def end(self) -> None:
        """Count no longer, and keep nothing."""
        super().end()
        self._by_row = ExactSums(0)
        self._by_topology.clear()

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        super().move(source, target)
        self._by_row.move(source, target)
        for _, known in self._by_topology.items():
            known.move(source, target)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        super().extend(capacity)
        self._by_row.extend(capacity)

    def _note(self, row: int, amount: float, pods: int) -> None:
        super()._note(row, amount, pods)
        self._by_row.add(row, amount, pods)
        for _, known in self._by_topology.items() if self._by_topology else ():
            place = known.of(row)
            if place >= 0:
                known.content.add(place, amount, pods)


class ExtremesCounter(Counter):
    """Also the least and the greatest amount that a pod on each node has."""

    __slots__ = ("_extremes", "_rows", "_stale")

    _fills_one_by_one: ClassVar = True
    _notes: ClassVar = True

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._rows: dict[int, dict[float, int]] = {}
        """Pods by row and amount."""
        self._stale: set[int] = set()
        """Rows whose extremes are not in the columns yet."""
        self._extremes = np.full((2, capacity), np.nan)

    def extremes(self, *, least: bool) -> FloatArray:
        """Return `float64[nodes]`: the least amount on each node, or the greatest; NaN without pods. Read-only."""
        for row in self._stale:
            there = self._rows.get(row)
            self._extremes[:, row] = (min(there), max(there)) if there else np.nan
        self._stale.clear()
        found: FloatArray = self._extremes[0 if least else 1, : self._owner.size]
        return found

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        super().fill(row, pods, 1)
        if pods:
            self._note(row, weight, pods)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        super().bump(row, step)
        self._note(row, weight, step)

    def end(self) -> None:
        """Count no longer, and keep nothing."""
        super().end()
        self._rows, self._stale, self._extremes = {}, set(), np.full((2, 0), np.nan)

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        super().move(source, target)
        if source in self._rows:
            self._rows[target] = self._rows.pop(source)
        self._stale |= {source, target}

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        super().extend(capacity)
        more = np.full((2, capacity - self._extremes.shape[1]), np.nan)
        self._extremes = np.concatenate((self._extremes, more), axis=1)

    def _note(self, row: int, amount: float, pods: int) -> None:
        _add_value(self._rows, row, amount, pods)
        self._stale.add(row)


def _add_value(rows: dict[int, dict[ValueT, int]], row: int, value: ValueT, pods: int) -> int:
    """Add pods with a value on a row; return how many different values more the row has: 1, 0 or -1."""
    there = rows.setdefault(row, {})
    before = there.get(value, 0)
    after = before + pods
    if after:
        there[value] = after
    else:
        there.pop(value, None)
        if not there:
            del rows[row]
    return bool(after) - bool(before)


class ValueCounts(Measured):
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

    def extend(self, size: int) -> None:
        """Make room for this many places."""
        self.numbers = np.concatenate((self.numbers, np.zeros(size - len(self.numbers), np.int64)))


class DistinctCounter(Counter):
    """Also how many different values the pods have, on each node and in each domain; their weights are the values."""

    __slots__ = ("_by_topology", "_different", "_everywhere", "_rows")

    _fills_one_by_one: ClassVar = True
    _notes: ClassVar = True

    def __init__(self, *, owner: Owner, capacity: int, terminating: bool) -> None:
        super().__init__(owner=owner, capacity=capacity, terminating=terminating)
        self._rows: dict[int, dict[int, int]] = {}
        """Pods by row and value."""
        self._different = Tally(capacity)
        """Different values by row."""
        self._everywhere = ValueCounts(1)
        self._by_topology: KeptView[Hashable, PlacesOfRows[ValueCounts]] = KeptView(most=_MOST_PLACES)

    def different(self) -> CountArray:
        """Return `int32[nodes]`: the number of different values on each node."""
        self._owner.grown += self._different.bytes_to_read
        return self._different.column()[: self._owner.size]

    def everywhere(self) -> int:
        """Return the number of different values on all nodes."""
        return int(self._everywhere.numbers[0])

    def by_place(self, topology: Hashable, places: NDArray[np.intp], slots: int) -> SumArray:
        """Return `int64[slots]`: the number of different values in each place of a topology. Read-only.

        Args:
            topology: a label key.
            places: `intp[nodes]`, the slot of each row; another array if it changed.
            slots: how many there are.
        """
        known = self._by_topology.get(topology)
        is_new = known is None
        if known is None:
            known = PlacesOfRows(ValueCounts(0))
            self._by_topology.set(topology, known)
        values = known.content
        if slots > len(values.numbers):
            values.extend(slots)
        for row, before, after in known.moved(places):
            for value, pods in self._rows.get(row, _NO_VALUES).items():
                if before >= 0:
                    values.add(before, value, -pods)
                values.add(after, value, pods)
        if is_new:
            self._owner.grown += footprint(known)[0]
        return values.numbers[:slots]

    def fill(self, row: int, pods: int, weight: float) -> None:
        """Add this number of pods, without an entry in the journal."""
        super().fill(row, pods, 1)
        if pods:
            self._note(row, int(weight), pods)

    def bump(self, row: int, step: int, weight: float = 1) -> None:
        """Count one more (`step` 1) or one less pod (-1) on a node."""
        super().bump(row, step)
        self._note(row, int(weight), step)

    def end(self) -> None:
        """Count no longer, and keep nothing."""
        super().end()
        self._rows, self._different, self._everywhere = {}, Tally(0), ValueCounts(1)
        self._by_topology.clear()

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        super().move(source, target)
        self._different.move(source, target)
        for _, known in self._by_topology.items():
            known.move(source, target)
        if source in self._rows:
            self._rows[target] = self._rows.pop(source)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        super().extend(capacity)
        self._different.extend(capacity)

    def _note(self, row: int, value: int, pods: int) -> None:
        more = _add_value(self._rows, row, value, pods)
        if more:
            self._different.add(row, more)
        self._everywhere.add(0, value, pods)
        for _, known in self._by_topology.items():
            place = known.of(row)
            if place >= 0:
                known.content.add(place, value, pods)


_NO_VALUES: dict[int, int] = {}


def counter_bytes(counter: Counter) -> int:
    """Return about how many bytes a counter takes."""
    return _OWN_BYTES + footprint(counter)[0]


class Carriers(Counter):
    """How many placed pods carry the same affinity terms, on each node. Kept as long as there is a pod that does."""

    __slots__ = ("affinity",)

    def __init__(self, affinity: TemplateAffinity, *, owner: Owner, capacity: int) -> None:
        super().__init__(owner=owner, capacity=capacity)
        self.affinity = affinity
