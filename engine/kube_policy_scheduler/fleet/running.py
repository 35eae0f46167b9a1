"""What runs where: how much of each key every cluster has, for limits and spreads, which count other workloads.

What is counted is kept for each clause and follows each change, so a decision takes as long with ten thousand workloads
as with ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.fleet.model import NOTHING, Identity, Workload
from kube_policy_scheduler.lang.checked import REPLICAS
from kube_policy_scheduler.lang.compiling.compiled import CountedWorkloads
from kube_policy_scheduler.quantities.quantity import NANO

ONE: int = 10**NANO
"""A whole one, in billionths."""
ALL = ""
"""The key of all workloads of a clause without one."""
NO_KEY = "\0"
"""The key of workloads that have none: they form one group. No label and no name is this text."""
MOST_COUNTS = 64
"""Clauses for which something is kept; the one that nobody asked about for the longest time makes room."""


class Subject(msgspec.Struct, frozen=True):
    """What keys and conditions of workloads are read from, in the place of a frame."""

    workload: Workload


def key_of(counted: CountedWorkloads, workload: Workload) -> str | None:
    """Return the key of a workload for a clause; None: it does not count."""
    subject = Subject(workload)
    if counted.counts is not None and not counted.counts(subject):
        return None
    found: str | None = counted.key(subject) if counted.key is not None else ALL
    return found if found is not None else NO_KEY


def amount_of(counted: CountedWorkloads, workload: Workload) -> int:
    """Return what a replica of a workload counts for, in billionths; of a clause that counts workloads, nothing."""
    if counted.measure in (REPLICAS, "pods"):
        return ONE
    amount: int = (workload.requests or NOTHING).get(counted.measure, 0)
    return amount


class _Count:
    """The workloads that one clause counts, by key and cluster."""

    def __init__(self, counted: CountedWorkloads) -> None:
        self._counted = counted
        self._members: dict[Identity, tuple[str, Mapping[str, int]]] = {}
        self._totals: dict[str, dict[str, int]] = {}
        self._in_clusters: dict[str, dict[str, set[Identity]]] = {}

    def put(self, who: Identity, workload: Workload | None) -> None:
        """Count a workload as it is now, instead of as it was; None: it is gone."""
        known = self._members.pop(who, None)
        if known is not None:
            self._add(who, *known, sign=-1)
        key = key_of(self._counted, workload) if workload is not None and workload.has else None
        if workload is None or key is None:
            return
        each = amount_of(self._counted, workload)
        amounts = {name: each * count for name, count in workload.has.items()}
        self._members[who] = key, amounts
        self._add(who, key, amounts, sign=1)

    def _add(self, who: Identity, key: str, amounts: Mapping[str, int], *, sign: int) -> None:
        totals, inside = self._totals.setdefault(key, {}), self._in_clusters.setdefault(key, {})
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0) + sign * amount
            members = inside.setdefault(name, set())
            if sign > 0:
                members.add(who)
            else:
                members.discard(who)
            if not members:
                del inside[name], totals[name]
        if not inside:
            del self._totals[key], self._in_clusters[key]

    def amounts(self, key: str, without: Identity) -> dict[str, int]:
        """Return what is counted of a key by cluster, in billionths, without one workload."""
        found = dict(self._totals.get(key, NOTHING))
        known = self._members.get(without)
        for name, amount in known[1].items() if known is not None and known[0] == key else ():
            found[name] -= amount
        return found

    def workloads(self, key: str, clusters: Iterable[str], without: Identity) -> int:
        """Return how many workloads of a key run in at least one of some clusters, without one of them."""
        inside = self._in_clusters.get(key, NOTHING)
        sets = [inside[name] for name in clusters if name in inside]
        found = sets[0] if len(sets) == 1 else set[Identity]().union(*sets)
        return len(found) - (without in found)


class RunningWorkloads:
    """All workloads that run somewhere."""

    def __init__(self, workloads: Iterable[Workload] = ()) -> None:
        self._workloads: dict[Identity, Workload] = {}
        self._counts: dict[CountedWorkloads, _Count] = {}
        self.version = 0
        """Of what can be counted: another one after each change of it."""
        for each in workloads:
            self.put(each)

    def put(self, workload: Workload) -> None:
        """Take a workload as it is now."""
        self._set(workload.identity, workload)

    def remove(self, workload: Workload) -> None:
        """Forget a workload."""
        self._set(workload.identity, None)

    def _set(self, who: Identity, workload: Workload | None) -> None:
        before = self._workloads.pop(who, None)
        if workload is not None:
            self._workloads[who] = workload
        if before is not workload and _countable(before) != _countable(workload):
            self.version += 1
        for count in self._counts.values():
            count.put(who, workload)

    def amounts(self, counted: CountedWorkloads, key: str, *, without: Workload) -> dict[str, int]:
        """Return what is counted of a key by cluster, in billionths, without one workload."""
        return self._count(counted).amounts(key, without.identity)

    def workloads(self, counted: CountedWorkloads, key: str, clusters: Iterable[str], *, without: Workload) -> int:
        """Return how many workloads of a key run in at least one of some clusters, without one of them."""
        return self._count(counted).workloads(key, clusters, without.identity)

    def _count(self, counted: CountedWorkloads) -> _Count:
        found = self._counts.pop(counted, None)
        if found is None:
            found = _Count(counted)
            for who, workload in self._workloads.items():
                found.put(who, workload)
            while len(self._counts) >= MOST_COUNTS:
                del self._counts[next(iter(self._counts))]
        self._counts[counted] = found
        return found


def _countable(workload: Workload | None) -> Workload | None:
    """Return a workload without what no clause counts."""
    if workload is None or not workload.has:
        return None
    return replace(workload, room=NOTHING, health=NOTHING, evicting=(), decided=None, observed_term="")


NOTHING_RUNS = RunningWorkloads()
"""What runs, where nobody says."""
