"""How many replicas a workload may have where, by `limit`: what others of its key have counts, too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from kube_policy_scheduler.fleet.columns import FleetFrame, domains_of
from kube_policy_scheduler.fleet.model import Running
from kube_policy_scheduler.fleet.running import NOTHING_RUNS, ONE, amount_of, key_of
from kube_policy_scheduler.lang.checked import WORKLOADS
from kube_policy_scheduler.lang.compiling.compiled import CompiledPolicy, CompiledWorkloadLimit
from kube_policy_scheduler.lang.environment import CLUSTER

NO_CAP = 2**31 - 1
"""As many as a workload can ask for."""


class Cap(msgspec.Struct, frozen=True):
    """A number of replicas that a workload may have in some clusters together."""

    clause: str
    """The name of the `limit`."""
    reason: str
    """Why there may be no more, for people."""
    clusters: frozenset[str]
    most: int
    """What runs there stays, even if it is more."""

    def allows(self, targets: Mapping[str, int], has: Mapping[str, int]) -> bool:
        """Return whether a placement keeps to it, or makes nothing worse."""
        count = sum(targets.get(name, 0) for name in self.clusters)
        if count <= self.most:
            return not self._begins(targets, has)
        return count <= sum(has.get(name, 0) for name in self.clusters)

    def spare(self, targets: Mapping[str, int]) -> int:
        """Return how many replicas more than these may come to its clusters."""
        return max(0, self.most - sum(targets.get(name, 0) for name in self.clusters))

    def _begins(self, targets: Mapping[str, int], has: Mapping[str, int]) -> bool:
        """Return whether a workload without replicas would come to clusters that may have none."""
        return not self.most and any(name in targets and name not in has for name in self.clusters)


def caps(policy: CompiledPolicy, frame: FleetFrame, running: Running | None) -> list[Cap]:
    """Return what the limits of a policy leave to a workload; without knowing what runs, as if nothing else did."""
    known = running or NOTHING_RUNS
    return [
        cap
        for clause in policy.clauses
        if isinstance(clause, CompiledWorkloadLimit) and (clause.condition is None or clause.condition(frame))
        for cap in _caps_of(clause, frame, known)
    ]


def _caps_of(clause: CompiledWorkloadLimit, frame: FleetFrame, running: Running) -> Iterator[Cap]:
    workload = frame.workload
    key = key_of(clause.counted, workload)
    if key is None or (clause.counted.measure != WORKLOADS and not workload.has_pods):
        return
    bound = float(clause.bound(frame))
    part, whole = math.modf(max(-1e18, min(bound, 1e18)) if bound == bound else 0.0)
    most = int(whole) * ONE + round(part * ONE)  # apart: a float has too few digits for billionths of many bytes
    groups = _groups(clause.topology, frame)
    amounts = running.amounts(clause.counted, key, without=workload)
    each = amount_of(clause.counted, workload)
    for members in groups.values():
        if clause.counted.measure == WORKLOADS:
            used = running.workloads(clause.counted, key, members, without=workload)
            left = NO_CAP if (used + 1) * ONE <= most or any(name in workload.has for name in members) else 0
        elif each:
            left = max(0, most - sum(amounts.get(name, 0) for name in members)) // each
        else:
            left = NO_CAP
        if left < NO_CAP:
            yield Cap(clause.name, clause.reason, frozenset(members), left)


def _groups(topology: str | None, frame: FleetFrame) -> Mapping[str, set[str]]:
    """Return the names of the clusters of each domain; those outside every domain have no limit."""
    if topology == CLUSTER:
        return {"": set(frame.columns.rows)}
    found: dict[str, set[str]] = {}
    for name, domain in domains_of(topology, frame).items():
        found.setdefault(domain, set()).add(name)
    return found
