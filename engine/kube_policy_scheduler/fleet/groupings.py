"""`spread` and `pack` of workloads: replicas of one key over clusters, or over regions and other domains of them.

The scores are those of pods (`policy.groupings`): the replicas of other workloads of the key count, and those that the
workload has itself, unless it is decided afresh. With `max skew`, the replicas of each domain are bounded when they are
divided: no domain has more than N above the one with the fewest.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.fleet.columns import FleetFrame, domains_of
from kube_policy_scheduler.fleet.division import Bounds, Member, Together
from kube_policy_scheduler.fleet.model import Running
from kube_policy_scheduler.fleet.running import NOTHING_RUNS, ONE, key_of
from kube_policy_scheduler.lang.checked import ClauseKind
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import CompiledGrouping, CompiledPolicy


def groupings(policy: CompiledPolicy, frame: FleetFrame, *, hard: bool) -> list[CompiledGrouping]:
    """Return the `spread` and `pack` that hold for the workload. hard: those that reject, else those that score."""
    return [
        clause
        for clause in policy.clauses
        if isinstance(clause, CompiledGrouping)
        and (clause.max_skew is not None) is hard
        and (clause.condition is None or clause.condition(frame))
    ]


def counts_of(clause: CompiledGrouping, frame: FleetFrame, running: Running | None) -> dict[str, int]:
    """Return the replicas of other workloads of the key, by cluster."""
    assert clause.counted is not None, "it is of workloads"
    key = key_of(clause.counted, frame.workload)
    if key is None:
        return {}
    found = (running or NOTHING_RUNS).amounts(clause.counted, key, without=frame.workload)
    return {name: amount // ONE for name, amount in found.items()}


# --- scores ----------------------------------------------------------------------------------------------


def score(clause: CompiledGrouping, frame: FleetFrame, running: Running | None, has: Mapping[str, int]) -> FloatArray:
    """Return `float64[rows]`, 0 to 100; 0 outside every domain.

    Args:
        clause: a `spread` or `pack` that scores.
        frame: of the clusters that are compared.
        running: what other workloads run.
        has: the replicas of the workload itself that count, by cluster.
    """
    domains = domains_of(clause.topology, frame)
    totals: dict[str, float] = dict.fromkeys(domains.values(), 0.0)
    for counts in (counts_of(clause, frame, running), has):
        for name, count in counts.items():
            if name in domains:
                totals[domains[name]] += count
    names = [frame.columns.clusters[row].name for row in frame.index().tolist()]
    among = {domains[name] for name in names if name in domains}
    if clause.share is not None:
        scores = _by_size(clause, frame, domains, totals, among)
    elif clause.targets:
        scores = _by_target(clause.targets, totals, more=max(1, frame.workload.replicas - sum(has.values())))
    else:
        scores = _by_count(clause.kind, {domain: totals[domain] for domain in among})
    return np.array([scores.get(domains.get(name, ""), 0.0) for name in names], np.float64)


def _by_count(kind: ClauseKind, totals: Mapping[str, float]) -> dict[str, float]:
    most, fewest = max(totals.values(), default=0.0), min(totals.values(), default=0.0)
    if kind is ClauseKind.PACK:
        return {domain: count * 100.0 / most if most else 0.0 for domain, count in totals.items()}
    return {domain: (most + fewest - count) * 100.0 / most if most else 100.0 for domain, count in totals.items()}


def _by_target(targets: Mapping[str, float], totals: Mapping[str, float], *, more: int) -> dict[str, float]:
    """Return how far each domain is below its share of what runs and of the replicas that come."""
    others = [domain for domain in totals if domain not in targets]
    rest = max(0.0, 1.0 - sum(targets.values())) / max(len(others), 1)
    wanted = {domain: targets.get(domain, rest) * (sum(totals.values()) + more) for domain in totals}
    return {
        domain: 100.0 * max(0.0, 1.0 - (count + 0.5) / (2.0 * wanted[domain])) if wanted[domain] > 0 else 0.0
        for domain, count in totals.items()
    }


def _by_size(
    clause: CompiledGrouping,
    frame: FleetFrame,
    domains: Mapping[str, str],
    totals: Mapping[str, float],
    among: Iterable[str],
) -> dict[str, float]:
    assert clause.share is not None
    whole = frame.at(slice(None))
    sizes = dict.fromkeys(totals, 0.0)
    for row, size in enumerate(full(clause.share(whole), whole.size).tolist()):
        name = frame.columns.clusters[row].name
        if name in domains and size > 0:
            sizes[domains[name]] += size
    filled = {domain: (totals[domain] + 0.5) / sizes[domain] for domain in among if sizes[domain] > 0}
    least = min(filled.values(), default=0.0)
    return {domain: 100.0 * least / fill for domain, fill in filled.items()}


# --- bounds ----------------------------------------------------------------------------------------------


class Skew(msgspec.Struct, frozen=True):
    """What `spread … max skew` asks of a placement."""

    clause: str
    reason: str
    domains: Mapping[str, str]
    """By cluster, of those that are in one."""
    others: Mapping[str, int]
    """Replicas of other workloads, by domain."""
    most: int
    least_domains: int

    def of(self, targets: Mapping[str, int], counting: Iterable[str]) -> int:
        """Return the skew of a placement over the domains of the clusters that count."""
        counts = {self.domains[name]: 0 for name in counting if name in self.domains}
        counts = {domain: self.others.get(domain, 0) for domain in counts}
        for name, count in targets.items():
            domain = self.domains.get(name)
            if domain is not None and count:
                counts[domain] = counts.get(domain, self.others.get(domain, 0)) + count
        if not counts:
            return 0
        return max(counts.values()) - (0 if len(counts) < self.least_domains else min(counts.values()))

    def together(
        self,
        wish: Mapping[str, int],
        replicas: int,
        members: Sequence[Member],
        bounds: Bounds,
        counting: Container[str],
    ) -> list[Together]:
        """Return between which numbers each domain is, so that the skew is met and as much as can be is placed.

        Of all ranges that are as wide as the skew, the one is taken in which as few replicas as possible are elsewhere
        than without it. If replicas are taken away, those of the largest domains are.

        Args:
            wish: what each cluster would have without the skew.
            replicas: of the workload.
            members: the clusters among which they are divided.
            bounds: of each cluster.
            counting: the clusters whose domains count.
        """
        groups: dict[str, list[str]] = {}
        for member in members:
            if member.name in self.domains:
                groups.setdefault(self.domains[member.name], []).append(member.name)
        seen = {domain: self.others.get(domain, 0) for domain in groups}
        base = {domain: sum(bounds.least[name] for name in names) for domain, names in groups.items()}
        able = {domain: sum(bounds.most[name] for name in names) for domain, names in groups.items()}
        counted = [domain for domain, names in groups.items() if any(name in counting for name in names)]
        wanted = min(
            replicas - sum(bounds.least[each.name] for each in members) + sum(base.values()), sum(able.values())
        )

        def limits(fewest: int) -> dict[str, int]:
            return {each: min(able[each], max(base[each], fewest + self.most - seen[each])) for each in groups}

        def enough(fewest: int) -> bool:
            return sum(limits(fewest).values()) >= wanted

        fewest = 0
        if counted and len(counted) >= self.least_domains:
            highest = min(seen[each] + able[each] for each in counted)
            lowest = _first(min(seen[each] for each in counted), highest, enough)
            totals = [seen[each] + sum(wish.get(name, 0) for name in groups[each]) for each in groups]

            def needs_more(fewest: int) -> bool:
                return sum(max(base[each], fewest - seen[each]) for each in groups) > wanted

            def elsewhere(fewest: int) -> int:
                return sum(max(0, each - fewest - self.most, fewest - each) for each in totals)

            last = max(lowest, _first(lowest, highest + 1, needs_more) - 1)
            ends = {min(max(end, lowest), last) for each in totals for end in (each, each - self.most)}
            fewest = min(sorted({lowest, *ends}), key=elsewhere)
        most = limits(fewest)
        if replicas < sum(each.has for each in members) and not enough(fewest):
            most = limits(_first(fewest, max(seen[each] + able[each] for each in groups), enough))
            fewest = 0
        return [
            Together(frozenset(names), most[each], min(max(0, fewest - seen[each]), most[each]))
            for each, names in groups.items()
        ]


def skews(policy: CompiledPolicy, frame: FleetFrame, running: Running | None) -> list[Skew]:
    """Return what a policy says of the skew of a workload."""
    found = []
    for clause in groupings(policy, frame, hard=True):
        domains, others = domains_of(clause.topology, frame), dict[str, int]()
        for name, count in counts_of(clause, frame, running).items():
            if name in domains:
                others[domains[name]] = others.get(domains[name], 0) + count
        found.append(Skew(clause.name, clause.reason, domains, others, clause.max_skew or 0, clause.min_domains or 0))
    return found


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number for which something holds that holds from there on; the last one if there is none."""
    low = min(low, high)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
