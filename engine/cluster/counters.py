"""Counts of pods per node, kept up to date by every placement: the base of spreading and affinity.

A counter is made when a rule or a policy first asks for a set of pods; from then on a placement updates it
in O(1), and no decision scans pods. Domain totals (per zone, per rack) follow from these counts and a label
column with one `np.bincount`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cluster.affinity import AffinityTerm, NamespaceLabels, affinity_terms
from engine.cluster.pods import PodInfo, PodTemplate
from engine.cluster.selectors import SelectorError

CountArray = NDArray[np.int32]

_FIRST_CAPACITY = 64
_MAX_COUNTERS = 4096
"""Counters kept; beyond it the least recently used go, and are counted afresh when asked for again."""


class PodSet(Hashable, Protocol):
    """A set of pods that can be counted: membership follows from the template alone."""

    def matches(self, template: PodTemplate, namespaces: NamespaceLabels) -> bool:
        """Return whether pods of this template belong to the set."""
        ...


class CountKey(NamedTuple):
    """What a counter counts."""

    pods: PodSet
    terminating: bool
    """Whether pods that are being deleted count (pod affinity) or not (spreading)."""


class Counter:
    """How many pods of one set are on each node."""

    def __init__(self, key: CountKey, capacity: int) -> None:
        self.key = key
        self.version = 0
        self._column: CountArray = np.zeros(capacity, np.int32)
        self._size = 0

    def per_node(self) -> CountArray:
        """Return `int32[nodes]`."""
        return self._column[: self._size]


class CarriedTerm(NamedTuple):
    """An affinity term of pods that are already placed, which weighs on pods to come."""

    kind: str
    """required, required_anti or preferred"""
    term: AffinityTerm


class PodCounters:
    """All counters, and the terms that placed pods carry."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.carried: dict[CarriedTerm, CountArray] = {}
        """How many pods with that term are on each node, `int32[capacity]`; use `carriers`."""
        self.carried_version = 0
        """Changes when a term appears or disappears."""
        self._carried_totals: dict[CarriedTerm, int] = defaultdict(int)
        self._counters: dict[CountKey, Counter] = {}
        self._generation = 0
        self._size = 0
        self._capacity = _FIRST_CAPACITY
        self._placed: dict[PodTemplate, dict[int, list[int]]] = {}
        """Pods placed by template and row: [all, those terminating]."""

    def counter(self, pods: PodSet, *, terminating: bool) -> Counter:
        """Return the counter of a set of pods, made on first use."""
        key = CountKey(pods, terminating)
        counter = self._counters.pop(key, None)
        if counter is None:
            counter = self._count(key)
            self._generation += 1
            if len(self._counters) >= _MAX_COUNTERS:
                del self._counters[next(iter(self._counters))]
        self._counters[key] = counter  # most recently used last
        return counter

    def carriers(self, term: CarriedTerm) -> CountArray:
        """Return `int32[nodes]`: pods that carry the term."""
        return self.carried[term][: self._size]

    # --- changes -------------------------------------------------------------------------------------

    def place(self, pod: PodInfo, row: int) -> None:
        """Count a pod on a node."""
        cell = self._placed.setdefault(pod.template, {}).setdefault(row, [0, 0])
        cell[0] += 1
        cell[1] += pod.terminating
        self._update(pod, row, 1)

    def displace(self, pod: PodInfo, row: int) -> None:
        """Count a pod no longer."""
        rows = self._placed[pod.template]
        cell = rows[row]
        cell[0] -= 1
        cell[1] -= pod.terminating
        if not cell[0]:
            del rows[row]
            if not rows:
                del self._placed[pod.template]
        self._update(pod, row, -1)

    def _update(self, pod: PodInfo, row: int, step: int) -> None:
        for counter in self._matching(pod.template):
            if counter.key.terminating or not pod.terminating:
                counter._column[row] += step
                counter.version += 1
        for carried in carried_terms(pod.template):
            column = self.carried.get(carried)
            if column is None:
                column = self.carried[carried] = np.zeros(self._capacity, np.int32)
                self.carried_version += 1
            column[row] += step
            self._carried_totals[carried] += step
            if not self._carried_totals[carried]:
                del self._carried_totals[carried], self.carried[carried]
                self.carried_version += 1

    def _matching(self, template: PodTemplate) -> list[Counter]:
        """Return the counters that count pods of this template."""
        known: tuple[PodCounters, int, list[Counter]] | None = template.memo.get("counters")
        if known is None or known[0] is not self or known[1] != self._generation:
            found = [c for c in self._counters.values() if c.key.pods.matches(template, self.namespaces)]
            known = template.memo["counters"] = (self, self._generation, found)
        return known[2]

    def _count(self, key: CountKey) -> Counter:
        counter = Counter(key, self._capacity)
        counter._size = self._size
        column = counter._column
        for template, rows in self._placed.items():
            if key.pods.matches(template, self.namespaces):
                for row, (total, terminating) in rows.items():
                    column[row] += total if key.terminating else total - terminating
        return counter

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set or (None) forget the labels of a namespace; counters are counted afresh if they changed."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        for key in self._counters:
            self._counters[key] = self._count(key)
        self._generation += 1
        self.carried_version += 1

    # --- rows ----------------------------------------------------------------------------------------

    def resize(self, size: int) -> None:
        """Follow the node table to a new number of rows."""
        self._size = size
        if size > self._capacity:
            more = max(size, self._capacity * 2) - self._capacity
            self._capacity += more
            for counter in self._counters.values():
                counter._column = np.concatenate((counter._column, np.zeros(more, np.int32)))
            for term, column in self.carried.items():
                self.carried[term] = np.concatenate((column, np.zeros(more, np.int32)))
        for counter in self._counters.values():
            counter._size = size

    def move(self, source: int, target: int, templates: Iterator[PodTemplate]) -> None:
        """Follow a node (the one with pods of these templates) from row `source` to the empty row `target`."""
        for counter in self._counters.values():
            counter._column[target], counter._column[source] = counter._column[source], 0
            counter.version += 1
        for column in self.carried.values():
            column[target], column[source] = column[source], 0
        for template in set(templates):
            rows = self._placed[template]
            rows[target] = rows.pop(source)


def carried_terms(template: PodTemplate) -> tuple[CarriedTerm, ...]:
    """Return the terms that a placed pod of this template weighs on others with."""
    carried: tuple[CarriedTerm, ...] | None = template.memo.get("carried")
    if carried is None:
        try:
            terms = affinity_terms(template)
        except SelectorError:
            carried = ()  # kube-scheduler keeps such a pod without its terms
        else:
            carried = tuple(
                CarriedTerm(kind, term)
                for kind in ("required", "required_anti", "preferred")
                for term in getattr(terms, kind)
            )
        template.memo["carried"] = carried
    return carried
