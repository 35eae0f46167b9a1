"""Counts of pods per node, kept up to date by every placement: the base of spreading and affinity.

A counter is made when a rule or a policy first asks for a set of pods; from then on a placement updates it
in O(1), and no decision scans pods. Totals per zone or rack follow from these counts (`engine.cluster.domains`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

import numpy as np

from engine.cluster.affinity import CarriedTerm, Carriers, carried_terms
from engine.cluster.counter import Counter, CountKey, PodSet
from engine.cluster.pods import PodInfo, PodTemplate
from engine.cluster.tallies import GroupOf, Tallies

_FIRST_CAPACITY = 64
_MAX_COUNTERS = 4096
"""Counters kept (80 MB at 5,000 nodes); beyond it those not used of late go, and are made anew when asked for."""
_MAX_KEPT = 1024
"""Sets of totals kept, over all templates; one over hostnames takes 40 kB at 5,000 nodes."""
_LOG_SLACK = 64
"""Dead entries that a log may hold beside as many as there are live ones."""


class _Carried:
    """One carried term, and how many placed pods carry it."""

    __slots__ = ("__weakref__", "pods", "term")

    def __init__(self, term: CarriedTerm) -> None:
        self.term = term
        self.pods = 0


class _Known:
    """What a template's memo keeps of one `PodCounters`: the counters and carried terms that match the template."""

    __slots__ = (
        "carried",
        "carried_at",
        "carried_version",
        "carries",
        "counters",
        "counters_at",
        "deaths",
        "epoch",
        "labels",
        "owner",
        "towards",
    )

    def __init__(self, owner: PodCounters, *, template: PodTemplate, epoch: int) -> None:
        self.owner = owner
        self.epoch = epoch
        self.labels = owner.namespaces.get(template.namespace)
        """Labels of the template's namespace, compared by identity: under others it may match otherwise."""
        self.carries = tuple(owner.entry(term) for term in carried_terms(template))
        self.counters: list[Counter] = []
        self.counters_at = 0
        self.deaths = 0
        self.carried: dict[CarriedTerm, None] = {}
        self.carried_at = 0
        self.carried_version = -1
        self.towards: tuple[CarriedTerm, ...] = ()


class PodCounters:
    """All counters, and the terms that placed pods carry."""

    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.size = 0
        """Rows of the node table."""
        self.carried_version = 0
        """Changes whenever a carried term appears or disappears, or the labels of a namespace change."""
        self._counters: dict[CountKey, Counter] = {}
        self._counter_log: list[Counter] = []
        """Counters in the order in which they were made: a template is asked about each one once."""
        self._deaths = 0
        self._carried: dict[CarriedTerm, _Carried] = {}
        """Terms that at least one placed pod carries."""
        self._carried_log: list[CarriedTerm] = []
        self._entries: WeakValueDictionary[CarriedTerm, _Carried] = WeakValueDictionary()
        self._epoch = 0
        """Changes when a log is compacted, so that positions in it mean something else."""
        self._kept: dict[tuple[PodTemplate, Hashable], None] = {}
        self._capacity = _FIRST_CAPACITY
        self._placed: dict[PodTemplate, dict[int, list[int]]] = {}
        """Pods placed by template and row: [all, those terminating]."""
        self._tallies = Tallies()

    def counter(self, pods: PodSet, *, terminating: bool) -> Counter:
        """Return the counter of a set of pods, made on first use."""
        key = CountKey(pods, terminating)
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= _MAX_COUNTERS:
                self._evict()
            counter = self._counters[key] = self._count(key)
            self._counter_log.append(counter)
        counter.used = True
        return counter

    def carriers(self, term: CarriedTerm) -> Counter:
        """Return the counter of the pods that carry a term."""
        return self.counter(Carriers(term), terminating=True)

    def carried_towards(self, template: PodTemplate) -> tuple[CarriedTerm, ...]:
        """Return the terms of placed pods, of every kind, that select pods of this template."""
        known = self._known(template)
        if known.carried_version == self.carried_version:
            return known.towards
        if known.carried_at < len(self._carried_log):
            for term in self._carried_log[known.carried_at :]:
                if term.term.pods.matches(template, self.namespaces):
                    known.carried[term] = None
            known.carried_at = len(self._carried_log)
        gone = [term for term in known.carried if term not in self._carried]
        for term in gone:
            del known.carried[term]
        known.carried_version = self.carried_version
        known.towards = tuple(known.carried)
        return known.towards

    def group_size(self, group_of: GroupOf, group: Hashable) -> int:
        """Return how many placed pods are in a group, without those that are terminating; costs the same for any."""
        return self._tallies.size(group_of, group, self.placements(terminating=False))

    def forget_groups(self) -> None:
        """Take note that groups are told apart in other ways from now on."""
        self._tallies.forget()

    def keep(self, template: PodTemplate, key: Hashable, totals: object) -> None:
        """Keep totals made of counters in a template's memo; beyond a limit the oldest of any template go."""
        template.memo[key] = totals
        self._kept.pop((template, key), None)
        self._kept[template, key] = None
        if len(self._kept) > _MAX_KEPT:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            oldest[0].memo.pop(oldest[1], None)

    def entry(self, term: CarriedTerm) -> _Carried:
        """Return the one count of a carried term that all templates with it share."""
        return self._entries.setdefault(term, _Carried(term))

    def placements(self, *, terminating: bool) -> Iterator[tuple[PodTemplate, dict[int, int]]]:
        """Yield each template with how many of its pods are on which rows, with or without terminating ones."""
        for template, rows in self._placed.items():
            yield template, {row: total - (0 if terminating else leaving) for row, (total, leaving) in rows.items()}

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
        known = self._known(pod.template)
        if known.counters_at < len(self._counter_log) or known.deaths != self._deaths:
            self._catch_up(known, pod.template)
        for counter in known.counters:
            if counter.key.terminating or not pod.terminating:
                counter.bump(row, step)
        for carried in known.carries:
            self._carry(carried, step)
        if not pod.terminating:
            self._tallies.update(pod.template, step)

    def _known(self, template: PodTemplate) -> _Known:
        known: _Known | None = template.memo.get("counters")
        if (
            known is None
            or known.owner is not self
            or known.epoch != self._epoch
            or known.labels is not self.namespaces.get(template.namespace)
        ):
            known = template.memo["counters"] = _Known(self, template=template, epoch=self._epoch)
        return known

    def _catch_up(self, known: _Known, template: PodTemplate) -> None:
        """Find the counters made since the template was last asked, and forget those that are gone."""
        fresh = self._counter_log[known.counters_at :]
        known.counters += [c for c in fresh if c.live and c.key.pods.matches(template, self.namespaces)]
        known.counters_at = len(self._counter_log)
        if known.deaths != self._deaths:
            known.deaths = self._deaths
            known.counters = [c for c in known.counters if c.live]

    def _carry(self, carried: _Carried, step: int) -> None:
        carried.pods += step
        if carried.pods == 0:
            del self._carried[carried.term]
            self.carried_version += 1
        elif carried.pods == 1 and step > 0:
            self._carried[carried.term] = carried
            self._carried_log.append(carried.term)
            self.carried_version += 1
            if len(self._carried_log) > 2 * len(self._carried) + _LOG_SLACK:
                self._carried_log = list(self._carried)
                self._epoch += 1

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set or (None) forget the labels of a namespace."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.carried_version += 1
        if any(template.namespace == name for template in self._placed):
            self._drop([counter for counter in self._counters.values() if counter.key.pods.reads_namespaces])

    # --- the life of counters ------------------------------------------------------------------------

    def _count(self, key: CountKey) -> Counter:
        column = np.zeros(self._capacity, np.int32)
        for template, rows in self._placed.items():
            if key.pods.matches(template, self.namespaces):
                for row, (total, terminating) in rows.items():
                    column[row] += total if key.terminating else total - terminating
        return Counter(key, owner=self, column=column)

    def _evict(self) -> None:
        """Drop the counters not used since the last time, at least an eighth of all (the oldest)."""
        unused = [counter for counter in self._counters.values() if not counter.used]
        if len(unused) * 8 < len(self._counters):
            unused = list(self._counters.values())[: len(self._counters) // 8]
        self._drop(unused)
        for counter in self._counters.values():
            counter.used = False

    def _drop(self, counters: Sequence[Counter]) -> None:
        for counter in counters:
            counter.live = False
            del self._counters[counter.key]
        self._deaths += len(counters)
        if len(self._counter_log) > 2 * len(self._counters) + _LOG_SLACK:
            self._counter_log = list(self._counters.values())
            self._epoch += 1

    # --- rows ----------------------------------------------------------------------------------------

    def resize(self, size: int) -> None:
        """Follow the node table to a new number of rows."""
        self.size = size
        if size > self._capacity:
            more = max(size, self._capacity * 2) - self._capacity
            self._capacity += more
            for counter in self._counters.values():
                counter.extend(more)

    def move(self, source: int, target: int, templates: Iterable[PodTemplate]) -> None:
        """Follow a node (the one with pods of these templates) from row `source` to the empty row `target`."""
        for counter in self._counters.values():
            counter.move(source, target)
        for template in set(templates):
            rows = self._placed[template]
            rows[target] = rows.pop(source)
