"""Counts of pods by their current state (ready, started, restarts, running time), kept up to date by every change.

What a template decides is computed once per template (`StateSet.worth`), for every state that its pods can be in. A
pod then counts by a look into that table: when it comes or goes, when its status changes, and when time passes one of
the durations that the set compares with. Made on first use; without sets nothing is kept.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.counter_kinds import CountArray, Tally
from kube_policy_scheduler.cluster.exact_sums import ExactSums
from kube_policy_scheduler.cluster.kept_views import KeptBytes, KeptView
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.cluster.pod_sets import Anchor, Family, Value
from kube_policy_scheduler.cluster.pods import NO_WORDS, PodInfo, PodTemplate

_MOST_SETS = 256
"""Sets that are kept; each costs a look at every new template. Of more, those not used recently are dropped."""
_MOST_BYTES, _COUNTED_BYTES = 150 * 10**6, 150
"""Of all sets, and of each pod that a set knows. Of more, sets not used recently are dropped."""
_MOST_FAMILIES = 64
"""Fields of pods by which templates are found; each costs an entry for each template."""
_MOST_STALE = 64
"""Entries of deleted pods that a heap holds in addition to one per pod."""
_CLOCK_ERROR_SECONDS = 1e-3
"""A sum of times may be off by the last digit of a float; a pod is checked so much earlier."""


class RunningState(NamedTuple):
    """The current state of a pod. Fields of existing pods read it as they read a `PodInfo`."""

    ready: bool
    all_started: bool
    started: float | None
    restarts: float
    name: str = ""
    annotations: Mapping[str, str] = NO_WORDS.annotations


class StateEdges(NamedTuple):
    """The numbers that the state of pods is compared with: where they may join or leave a set."""

    running: tuple[float, ...] = ()
    """Running times in seconds, ascending, none negative."""
    restarts: tuple[float, ...] = ()
    """Numbers of restarts, ascending, none negative."""


class StateSet(Hashable, Protocol):
    """A set of pods whose membership follows from the template and the state of the pod."""

    @property
    def anchor(self) -> Anchor:
        """Return what a template must have to belong to the set."""
        ...

    @property
    def thresholds(self) -> StateEdges:
        """Return where pods may join or leave."""
        ...

    def worth(self, template: PodTemplate, state: RunningState, now: float) -> float | None:
        """Return what a pod of the template in a state counts for, at a time in Unix seconds.

        None if it does not belong to the set.
        """
        ...


def worths(pods: StateSet, template: PodTemplate) -> tuple[float | None, ...] | None:
    """Return what pods of a template count for in a set, by their `kind_of`; None if none belongs to it."""
    edges = pods.thresholds
    table = tuple(
        pods.worth(template, RunningState(ready, all_started, 0.0, restarts, *template.own), running)
        for ready in (False, True)
        for all_started in (False, True)
        for restarts in _examples(edges.restarts)
        for running in _examples(edges.running)
    )
    return table if any(worth is not None for worth in table) else None


def _examples(edges: Sequence[float]) -> list[float]:
    """Return a number in each range: below the first threshold, equal to it, between it and the next, …"""
    found, before = [], 0.0
    for edge in edges:
        found += [(before + edge) / 2, edge]
        before = edge
    return [*found, before + 1.0]


def _place(edges: Sequence[float], value: float) -> int:
    """Return which of `_examples` is in the range of a value."""
    at = bisect_left(edges, value)
    return 2 * at + (at < len(edges) and edges[at] == value)


def kind_of(pod: PodInfo, edges: StateEdges, now: float) -> int:
    """Return which of the kinds of `worths` a pod is of."""
    kind = 2 * pod.ready + pod.all_started
    if edges.restarts:  # most sets have none
        kind = kind * (2 * len(edges.restarts) + 1) + _place(edges.restarts, pod.restarts)
    return kind * (2 * len(edges.running) + 1) + _place(edges.running, running_seconds(pod.started, now))


def running_seconds(started: float | None, now: float) -> float:
    """Return how long a pod has run: 0 before the kubelet has it, and if its clock is ahead of ours."""
    return max(now - started, 0.0) if started is not None else 0.0


class _Placed(msgspec.Struct):
    """A pod on a row of the node table."""

    pod: PodInfo
    row: int
    gone: bool = False


class _Starts:
    """When the first and the last pod of a set started, on each node."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_row: dict[int, dict[str, float]] = {}
        self._dirty: set[int] = set()
        self._first = np.full(capacity, np.nan)
        self._last = np.full(capacity, np.nan)

    def add(self, placed: _Placed) -> None:
        """Add a pod; one that has not started counts as one that starts after all others."""
        started = placed.pod.started
        self._by_row.setdefault(placed.row, {})[placed.pod.uid] = math.inf if started is None else started
        self._dirty.add(placed.row)

    def drop(self, placed: _Placed) -> None:
        """Remove a pod."""
        self._by_row[placed.row].pop(placed.pod.uid)
        self._dirty.add(placed.row)

    def columns(self) -> tuple[FloatArray, FloatArray]:
        """Return `float64[capacity]` twice: Unix seconds of the first and of the last start, NaN without pods."""
        for row in self._dirty:
            there = self._by_row.get(row)
            if not there:
                self._by_row.pop(row, None)
            self._first[row] = min(there.values()) if there else math.nan
            self._last[row] = max(there.values()) if there else math.nan
        self._dirty.clear()
        return self._first, self._last

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        there = self._by_row.pop(source, None)
        if there is not None:
            self._by_row[target] = there
        self._dirty |= {source, target}

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        more = np.full(capacity - self._capacity, np.nan)
        self._first, self._last = (np.concatenate((each, more)) for each in (self._first, self._last))
        self._capacity = capacity


class _StateCounter(msgspec.Struct, eq=False):
    """How many pods of one set are on each node, by what they count for."""

    pods: StateSet
    capacity: int
    edges: StateEdges
    now: float = float("-inf")
    """The time of these counts."""
    tallies: dict[float, Tally] = msgspec.field(default_factory=dict)
    """By what pods count for."""
    totals: dict[float, int] = msgspec.field(default_factory=dict)
    """Pods on all nodes, by what they count for."""
    starts: _Starts | None = None
    """When they started, once that was requested."""
    sums: tuple[Tally, ExactSums] | None = None
    """How many count on each node, and for how much together, once that was requested."""
    counted: dict[str, tuple[_Placed, tuple[float | None, ...], float | None]] = msgspec.field(default_factory=dict)
    """Pods of templates that may match by uid, with what their kinds count for, and what they count for."""
    changes: list[tuple[float, int, _Placed]] = msgspec.field(default_factory=list)
    """A heap: when the running time of a pod crosses the next threshold."""
    serials: count[int] = msgspec.field(default_factory=count)

    def add(self, placed: _Placed, table: tuple[float | None, ...]) -> None:
        """Add a pod."""
        worth = table[kind_of(placed.pod, self.edges, self.now)]
        self.counted[placed.pod.uid] = placed, table, worth
        self._count(placed, worth, 1)
        self._wait_for(placed)

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        known = self.counted.pop(uid, None)
        if known is not None:
            self._count(known[0], known[2], -1)

    def _count(self, placed: _Placed, worth: float | None, step: int) -> None:
        if worth is None:
            return
        tally = self.tallies.get(worth)
        if tally is None:
            tally = self.tallies[worth] = Tally(self.capacity)
        tally.add(placed.row, step)
        total = self.totals[worth] = self.totals.get(worth, 0) + step
        if not total:
            del self.tallies[worth], self.totals[worth]
        if self.sums is not None:
            self.sums[0].add(placed.row, step)
            self.sums[1].add(placed.row, worth, step)
        if self.starts is not None:
            if step > 0:
                self.starts.add(placed)
            else:
                self.starts.drop(placed)

    def follow_sums(self) -> tuple[Tally, ExactSums]:
        """Return how many pods count on each node and their sum, followed from now on."""
        if self.sums is None:
            self.sums = number, sums = Tally(self.capacity), ExactSums(self.capacity)
            for placed, _, worth in self.counted.values():
                if worth is not None:
                    number.add(placed.row, 1)
                    sums.add(placed.row, worth)
        return self.sums

    def follow_starts(self) -> _Starts:
        """Return when pods started, followed from now on."""
        if self.starts is None:
            self.starts = _Starts(self.capacity)
            for placed, _, worth in self.counted.values():
                if worth is not None:
                    self.starts.add(placed)
        return self.starts

    def _wait_for(self, placed: _Placed) -> None:
        """Check a pod again when it crosses the next threshold."""
        started = placed.pod.started
        edges = self.edges.running
        if started is None or not edges:
            return
        at = bisect_left(edges, running_seconds(started, self.now))
        if at < len(edges):
            heapq.heappush(self.changes, (started + edges[at], next(self.serials), placed))
            if len(self.changes) > 2 * len(self.counted) + _MOST_STALE:
                self.changes = [entry for entry in self.changes if not entry[2].gone]
                heapq.heapify(self.changes)

    def advance(self, now: float) -> None:
        """Advance the time to `now`; it may also have been set back."""
        if now == self.now or not self.edges.running:
            return
        back, self.now = now < self.now, now
        if back:
            self.changes = []
            due = [placed for placed, _, _ in self.counted.values()]
        else:
            due = []
            while self.changes and self.changes[0][0] <= now + _CLOCK_ERROR_SECONDS:
                due.append(heapq.heappop(self.changes)[2])
        for placed in due:
            if placed.gone:
                continue
            _, table, before = self.counted[placed.pod.uid]
            worth = table[kind_of(placed.pod, self.edges, now)]
            if worth != before:
                self._count(placed, before, -1)
                self._count(placed, worth, 1)
                self.counted[placed.pod.uid] = placed, table, worth
            self._wait_for(placed)

    def move(self, source: int, target: int) -> None:
        """Follow a node to another row, which is empty."""
        for tally in self.tallies.values():
            tally.move(source, target)
        if self.sums is not None:
            for each in self.sums:
                each.move(source, target)
        if self.starts is not None:
            self.starts.move(source, target)

    def extend(self, capacity: int) -> None:
        """Grow to this number of rows."""
        self.capacity = capacity
        for tally in self.tallies.values():
            tally.extend(capacity)
        if self.sums is not None:
            for each in self.sums:
                each.extend(capacity)
        if self.starts is not None:
            self.starts.extend(capacity)


class PodStates:
    """Pods on nodes with their state, and the counters that follow it."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._by_template: dict[PodTemplate, dict[str, _Placed]] = {}
        self._by_row: dict[int, dict[str, _Placed]] = {}
        self._tables: dict[PodTemplate, list[tuple[_StateCounter, tuple[float | None, ...]]]] = {}
        """Of templates of placed pods: the counters that may count their pods."""
        self._counters: KeptView[StateSet, _StateCounter] = KeptView(
            KeptBytes(_MOST_BYTES),
            most=_MOST_SETS,
            size_of=lambda pods, counter: _COUNTED_BYTES * len(counter.counted),
            dropped=partial(_end, self._tables),  # no bound method: that would be a cycle
        )
        self._families: dict[Family, dict[Hashable, dict[PodTemplate, None]]] = {}
        """Templates of placed pods by their values in families, of sets that differ in one value."""

    def per_node(self, pods: StateSet, *, now: float) -> list[tuple[float, CountArray]]:
        """Return what pods of a set count for, each time with `int32[capacity]`: how many of those are on each node.

        now: Unix seconds.
        """
        return [(worth, tally.column()) for worth, tally in self._counter(pods, now).tallies.items()]

    def sums(self, pods: StateSet, *, now: float) -> tuple[CountArray, ExactSums]:
        """Return `int32[capacity]`, how many pods of a set are on each node, and what they count for together by row.

        now: Unix seconds.
        """
        number, sums = self._counter(pods, now).follow_sums()
        return number.column(), sums

    def running(self, pods: StateSet, *, now: float, longest: bool) -> FloatArray:
        """Return `float64[capacity]`: for how many seconds the pods of a set have run on each node, NaN without pods.

        Args:
            pods: the set.
            now: Unix seconds.
            longest: the one that has run longest, else the one that started last.
        """
        first, last = self._counter(pods, now).follow_starts().columns()
        result: FloatArray = np.maximum(now - (first if longest else last), 0.0)
        return result

    def _counter(self, pods: StateSet, now: float) -> _StateCounter:
        counter = self._counters.get(pods)
        if counter is None:
            counter = self._make(pods, now)
        counter.advance(now)
        return counter

    def _make(self, pods: StateSet, now: float) -> _StateCounter:
        counter = _StateCounter(pods, self._capacity, pods.thresholds, now)
        for template in self._candidates(pods.anchor):
            table = worths(pods, template)
            if table is not None:
                self._tables[template].append((counter, table))
                for placed in self._by_template[template].values():
                    counter.add(placed, table)
        for known, _ in self._counters.items():  # they count more pods since, or less
            self._counters.measure(known)
        self._counters.set(pods, counter)
        return counter

    def _candidates(self, anchor: Anchor) -> Collection[PodTemplate]:
        """Return the templates of placed pods that have an anchor, perhaps with some others."""
        if not isinstance(anchor, Value):
            return self._by_template
        by_value = self._families.get(anchor.family)
        if by_value is None:
            if len(self._families) >= _MOST_FAMILIES:
                self._families.clear()
            by_value = self._families[anchor.family] = {}
            for template in self._by_template:
                by_value.setdefault(anchor.family.value_of(template), {})[template] = None
        return by_value.get(anchor.value, ())

    def place(self, pod: PodInfo, row: int) -> None:
        """Count a pod on a node."""
        if pod.terminating:
            return
        template, placed = pod.template, _Placed(pod, row)
        there = self._by_template.get(template)
        if there is None:
            there = self._by_template[template] = {}
            for family, by_value in self._families.items():
                by_value.setdefault(family.value_of(template), {})[template] = None
            self._tables[template] = [
                (counter, table)
                for _, counter in self._counters.items()
                if (table := worths(counter.pods, template)) is not None
            ]
        there[pod.uid] = self._by_row.setdefault(row, {})[pod.uid] = placed
        for counter, table in self._tables[template]:
            counter.add(placed, table)

    def displace(self, pod: PodInfo) -> None:
        """Stop counting a pod."""
        there = self._by_template.get(pod.template)
        placed = there.pop(pod.uid, None) if there is not None else None
        if there is None or placed is None:
            return
        placed.gone = True
        for counter, _ in self._tables[pod.template]:
            counter.drop(pod.uid)
        on_row = self._by_row[placed.row]
        del on_row[pod.uid]
        if not on_row:
            del self._by_row[placed.row]
        if not there:
            del self._by_template[pod.template], self._tables[pod.template]
            for family, by_value in self._families.items():
                value = family.value_of(pod.template)
                by_value[value].pop(pod.template)
                if not by_value[value]:
                    del by_value[value]

    def on_rows(self) -> Iterable[tuple[int, Iterable[PodInfo]]]:
        """Yield each row with the pods there, without those that are terminating."""
        for row, there in self._by_row.items():
            yield row, (placed.pod for placed in there.values())

    def move(self, source: int, target: int) -> None:
        """Follow a node from row `source` to the empty row `target`."""
        for _, counter in self._counters.items():
            counter.move(source, target)
        there = self._by_row.pop(source, None)
        if there is not None:
            self._by_row[target] = there
            for placed in there.values():
                placed.row = target

    def extend(self, capacity: int) -> None:
        """Make room for this many rows."""
        self._capacity = capacity
        for _, counter in self._counters.items():
            counter.extend(capacity)


def _end(
    tables: Mapping[PodTemplate, list[tuple[_StateCounter, tuple[float | None, ...]]]],
    pods: StateSet,
    counter: _StateCounter,
) -> None:
    """Let no template's pods be counted by a counter that is not kept any more."""
    for kept in tables.values():
        kept[:] = [pair for pair in kept if pair[0] is not counter]


def differs(old: PodInfo, new: PodInfo) -> bool:
    """Return whether a pod's state changed."""
    return (old.ready, old.all_started, old.started, old.restarts) != (
        new.ready,
        new.all_started,
        new.started,
        new.restarts,
    )
