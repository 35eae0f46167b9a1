"""The control plane of a simulated fleet: its objects, and what Karmada's controllers do with them.

The execution controller has replicas run where `spec.clusters` says, the status controllers report health and what is
free, the taint manager evicts from clusters that are not ready, and the graceful eviction controller ends evictions.
It decides nothing: the decision maker does, by the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.cluster import objects as kubernetes
from kube_policy_scheduler.cluster.taints import TaintKey, tolerates
from kube_policy_scheduler.fleet.claims import claims_of
from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Key
from kube_policy_scheduler.fleet.karmada.objects import (
    AggregatedStatusItem,
    Condition,
    GracefulEvictionTask,
    KarmadaCluster,
    ResourceBinding,
    ResourceSummary,
)
from kube_policy_scheduler.fleet.karmada.writes import Patch, is_observed
from kube_policy_scheduler.fleet.model import HEALTHY
from kube_policy_scheduler.quantities.quantity import NANO
from kube_policy_scheduler.times import Steady, rfc3339
from kube_policy_scheduler.tooling.fleet_simulation.member import Member
from kube_policy_scheduler.tooling.fleet_simulation.scenario import Pace
from kube_policy_scheduler.tooling.short_forms import merged

NOT_READY = "cluster.karmada.io/not-ready"
UNREACHABLE = "cluster.karmada.io/unreachable"
_LOST = tuple(kubernetes.Taint(key=NOT_READY, effect=effect) for effect in ("NoSchedule", "NoExecute"))
_NOT_HEALTHY = "Unhealthy"
Again = Callable[[float, Callable[[], None]], None]
"""Has something done later: at a time from the beginning."""


class Bound(msgspec.Struct):
    """A binding, and what is known of it that its object does not say."""

    binding: ResourceBinding
    name: str
    """NAMESPACE/NAME of the workload."""
    requests: Mapping[str, int]
    """Billionths by resource of each replica, with its pod."""
    cores: float
    has_pods: bool
    leaving: dict[str, float] = msgspec.field(default_factory=dict)
    """Clusters that it is being evicted from, and since when."""


class ControlPlane:
    """Holds the objects, and hands each change to the decision maker."""

    def __init__(self, maker: DecisionMaker, pace: Pace, *, starts_at: float, later: Again) -> None:
        """Hold nothing yet.

        Args:
            maker: who decides.
            pace: how fast the controllers work.
            starts_at: the beginning, Unix seconds.
            later: has something done later.
        """
        self.maker = maker
        self.now = 0.0
        self.clusters: dict[str, KarmadaCluster] = {}
        self.members: dict[str, Member[Key]] = {}
        self.bound: dict[Key, Bound] = {}
        self.changed: set[Key] = set()
        """Bindings of which something changed that somebody counts."""
        self._pace, self._starts_at, self._later = pace, starts_at, later
        self._version = 0
        self._tainted: dict[str, dict[TaintKey, float]] = {}
        """By cluster: since when it has which NoExecute taints."""
        self._to_report: set[str] = set()
        self._evictions: list[tuple[Key, str, int]] = []

    @property
    def wall(self) -> float:
        """Return Unix seconds."""
        return self._starts_at + self.now

    # --- clusters ----------------------------------------------------------------------------------------

    def join(self, written: KarmadaCluster) -> None:
        """Add a cluster. Its resource models are left out: nobody says how many nodes of each grade are left later."""
        spec = replace(written.spec, resource_models=None)
        summary = written.status.resource_summary
        status = written.status
        if summary is not None:
            status = replace(status, resource_summary=replace(summary, allocatable_modelings=None))
        name = written.metadata.name
        member: Member[Key] = Member(start_seconds=self._pace.start)
        member.lost = not reading.cluster(written).ready
        self.members[name] = member
        self._set_cluster(replace(written, spec=spec, status=status))
        read = reading.cluster(self.clusters[name])
        member.others = {each: read.requested(each) for each in {*read.allocated, *read.allocating}}

    def count_others(self) -> None:
        """Take what the workloads have from what clusters say is requested: the rest, pods of others request."""
        for name, member in self.members.items():
            own = member.taken
            member.others = {each: max(0, amount - own.get(each, 0)) for each, amount in member.others.items()}
            self._report(name)

    def change(self, name: str, over: Mapping[str, Any]) -> None:
        """Lay something over a cluster."""
        before = self.clusters[name]
        after = msgspec.convert(merged(msgspec.to_builtins(before), over), KarmadaCluster)
        if self.members[name].lost and "taints" in over.get("spec", {}):
            after = replace(after, spec=replace(after.spec, taints=[*(after.spec.taints or ()), *_LOST]))
        used = over.get("status", {}).get("resourceSummary", {}).get("allocated")
        if used is not None:
            self.members[name].others = dict(reading.cluster(after).allocated)
        self._set_cluster(_of_next_generation(after))
        self._reconcile([name])

    def remove(self, name: str) -> None:
        """Delete a cluster in order: it is seen to be deleted first, then what ran there ends, and it is gone."""
        cluster = self.clusters[name]
        gone = replace(cluster, metadata=replace(cluster.metadata, deletion_timestamp=rfc3339(self.wall)))
        self._set_cluster(gone)
        member = self.members.pop(name)
        del self.clusters[name]
        self._tainted.pop(name, None)
        self.maker.delete_cluster(name, Steady(self.now))
        self.changed.update(member.workloads())

    def lose(self, name: str) -> None:
        """Nobody reaches a cluster any more."""
        member, cluster = self.members[name], self.clusters[name]
        if member.lost:
            return
        member.lost = True
        self.changed.update(member.workloads())
        spec = replace(cluster.spec, taints=[*(cluster.spec.taints or ()), *_LOST])
        self._set_cluster(_of_next_generation(self._with_ready(replace(cluster, spec=spec), "False")))

    def recover(self, name: str) -> None:
        """A cluster is reached again: what is to run there goes on, what is not ends."""
        member, cluster = self.members[name], self.clusters[name]
        if not member.lost:
            return
        member.lost = False
        ready_at = member.interrupt(self.now)
        if ready_at is not None:
            self._later(ready_at, lambda: self._ripen(name))
        self.changed.update(member.workloads())
        taints = [each for each in cluster.spec.taints or () if each.key not in (NOT_READY, UNREACHABLE)]
        spec = replace(cluster.spec, taints=taints or None)
        self._set_cluster(_of_next_generation(self._with_ready(replace(cluster, spec=spec), "True")))
        self._reconcile([name])

    def _with_ready(self, cluster: KarmadaCluster, status: str) -> KarmadaCluster:
        others = [each for each in cluster.status.conditions or () if each.type != "Ready"]
        ready = Condition(type="Ready", status=status, last_transition_time=rfc3339(self.wall))
        return replace(cluster, status=replace(cluster.status, conditions=[*others, ready]))

    def _set_cluster(self, cluster: KarmadaCluster) -> None:
        name = cluster.metadata.name
        self.clusters[name] = cluster
        self.members[name].offer(reading.cluster(cluster))
        self.maker.set_cluster(cluster, Steady(self.now))
        taints = [TaintKey(each.key, each.value, each.effect) for each in cluster.spec.taints or ()]
        known = self._tainted.get(name, {})
        now = {each: known.get(each, self.now) for each in taints if each.effect == "NoExecute"}
        self._tainted[name] = now
        if now != known:
            for key, bound in list(self.bound.items()):
                if name in targets_of(bound.binding):
                    self._evict_if_due(key, name)

    def _report_later(self, name: str) -> None:
        """Report what is free with the next status."""
        if name not in self._to_report:
            self._to_report.add(name)
            every = self._pace.status_every
            self._later((self.now // every + 1) * every, lambda: self._report(name))

    def _report(self, name: str) -> None:
        self._to_report.discard(name)
        member, cluster = self.members.get(name), self.clusters.get(name)
        if member is None or cluster is None or member.lost or cluster.status.resource_summary is None:
            return
        own = member.taken
        allocated = {each: member.others.get(each, 0) + own.get(each, 0) for each in {*member.others, *own}}
        summary = ResourceSummary(
            allocatable=cluster.status.resource_summary.allocatable,
            allocated=_written(allocated),
            allocating=_written(member.waiting()),
        )
        self._set_cluster(replace(cluster, status=replace(cluster.status, resource_summary=summary)))

    # --- bindings ----------------------------------------------------------------------------------------

    def create(self, binding: ResourceBinding) -> Key:
        """Add a binding; where it has replicas, they run."""
        key = binding.metadata.namespace, binding.metadata.name
        asked = reading.workload(binding)
        of = binding.spec.resource
        requests = dict(claims_of(asked, {"": 1})[""])
        bound = Bound(
            binding,
            f"{of.namespace}/{of.name}" if of.namespace else of.name,
            requests,
            cores=(asked.requests or {}).get("cpu", 0) / 10**NANO,
            has_pods=asked.replicas > 0 or bool(asked.components),
            leaving=dict.fromkeys((each.cluster for each in asked.evicting), self.now),
        )
        self.bound[key] = bound
        running = {each.cluster: each.replicas for each in asked.evicting if each.replicas} | dict(asked.has)
        for name, count in running.items():
            if name in self.members and count:
                self.members[name].has(key, requests, count)
        self._write(key, binding)
        self._report_health(key)
        for name in bound.leaving:
            self._later(self.now + self._pace.grace, lambda name=name: self._end_eviction(key, name))  # type: ignore[misc]
        return key

    def delete(self, key: Key) -> None:
        """Delete a binding: its replicas end."""
        bound = self.bound.pop(key)
        self.maker.delete_binding(key)
        self.changed.add(key)
        names = [name for name, member in self.members.items() if key in member.workloads()]
        for name in names:
            self.members[name].want(key, bound.requests, 0)
        self._reconcile(names)

    def scale(self, key: Key, replicas: int) -> None:
        """Have another number of replicas asked for."""
        binding = self.bound[key].binding
        self._write(key, replace(binding, spec=replace(binding.spec, replicas=replicas)), is_spec=True)

    def patch(self, key: Key, patch: Patch) -> ResourceBinding:
        """Apply a merge patch of the decision maker; return the binding as it is then."""
        before = self.bound[key].binding
        after = msgspec.convert(merged(msgspec.to_builtins(before), patch), type(before))
        return self._write(key, after, is_spec="spec" in patch)

    def _write(self, key: Key, binding: ResourceBinding, *, is_spec: bool = False) -> ResourceBinding:
        """Store a binding, have what it says run, and show it to the decision maker."""
        self._version += 1
        generation = binding.metadata.generation + is_spec
        meta = replace(binding.metadata, resource_version=str(self._version), generation=generation)
        written = replace(binding, metadata=meta)
        bound = self.bound[key]
        before, bound.binding = bound.binding, written
        self.maker.set_binding(written, Steady(self.now))
        self.changed.add(key)
        if is_spec:
            self._execute(key, {*wanted_of(before), *wanted_of(written)})
            for name in targets_of(written).keys() - targets_of(before).keys():
                self._evict_if_due(key, name)
        return written

    def _execute(self, key: Key, names: set[str]) -> None:
        """Have as many replicas run in clusters as the binding says."""
        bound = self.bound[key]
        wanted = wanted_of(bound.binding)
        here = sorted(name for name in names if name in self.members)
        for name in here:
            self.members[name].want(key, bound.requests, wanted.get(name, 0))
        self._reconcile(here)
        self._report_health(key)

    def _reconcile(self, names: Sequence[str]) -> None:
        for name in names:
            member = self.members[name]
            before = dict(member.taken)
            ready_at = member.reconcile(self.now)
            if ready_at is not None:
                self._later(ready_at, lambda name=name: self._ripen(name))  # type: ignore[misc]
            if member.taken != before:
                self._report_later(name)
                self.changed.update(each for each in member.workloads() if each in self.bound)

    def _ripen(self, name: str) -> None:
        member = self.members.get(name)
        for key in member.ripen(self.now) if member is not None else ():
            if key in self.bound:
                self.changed.add(key)
                self._report_health(key)

    def _report_health(self, key: Key) -> None:
        """Report where a workload is healthy; of a cluster that is lost, what was reported last stays."""
        binding = self.bound[key].binding
        known = {each.cluster_name: each.health for each in binding.status.aggregated_status or ()}
        items = []
        for name in sorted(targets_of(binding)):
            member = self.members.get(name)
            if member is None or member.lost:
                health = known.get(name, _NOT_HEALTHY)
            else:
                health = HEALTHY if member.is_healthy(key) else _NOT_HEALTHY
            items.append(AggregatedStatusItem(cluster_name=name, health=health, applied=True))
        if items != (binding.status.aggregated_status or []):
            self._write(key, replace(binding, status=replace(binding.status, aggregated_status=items)))
        self.end_evictions(key)

    # --- evictions ---------------------------------------------------------------------------------------

    def evicted(self) -> list[tuple[Key, str, int]]:
        """Return the evictions that have begun since it was asked last: from where, and of how many replicas."""
        found, self._evictions = self._evictions, []
        return found

    def _evict_if_due(self, key: Key, name: str) -> None:
        """Evict a workload from a cluster whose taints it tolerates no longer; come back if it does for some time."""
        bound = self.bound.get(key)
        if bound is None or name not in targets_of(bound.binding):
            return
        tainted = self._tainted.get(name, {})
        due = min((since + self._bears(bound.binding, each) for each, since in tainted.items()), default=inf)
        if due <= self.now:
            self._evict(key, name)
        elif due < inf:
            self._later(due, lambda: self._evict_if_due(key, name))

    def _bears(self, binding: ResourceBinding, taint: TaintKey) -> float:
        """Return for how many seconds a workload tolerates a taint."""
        asked = (binding.spec.placement or {}).get("clusterTolerations") or ()
        read = reading.placement_object(binding.spec.placement).cluster_tolerations or ()
        seconds = [
            float(written.get("tolerationSeconds", inf))
            for written, each in zip(asked, read, strict=True)
            if tolerates(each, taint)
        ]
        usual = self._pace.evict_after if taint.key in (NOT_READY, UNREACHABLE) else 0.0
        return min(seconds, default=usual)

    def _evict(self, key: Key, name: str) -> None:
        bound = self.bound[key]
        spec = bound.binding.spec
        count = targets_of(bound.binding)[name]
        task = GracefulEvictionTask(
            from_cluster=name, replicas=count, reason="TaintUntolerated", producer="TaintManager"
        )
        left = [each for each in spec.clusters or () if each.name != name]
        tasks = [*(spec.graceful_eviction_tasks or ()), task]
        bound.leaving[name] = self.now
        self._evictions.append((key, name, count))
        self._later(self.now + self._pace.grace, lambda: self._end_eviction(key, name))
        changed = replace(spec, clusters=left or None, graceful_eviction_tasks=tasks)
        self._write(key, replace(bound.binding, spec=changed), is_spec=True)

    def end_evictions(self, key: Key) -> None:
        """End the evictions of a workload if it is placed as decided, and healthy everywhere."""
        bound = self.bound[key]
        targets = bound.binding.spec.clusters or ()
        health = {each.cluster_name: each.health for each in bound.binding.status.aggregated_status or ()}
        if (
            bound.leaving
            and targets
            and is_observed(bound.binding)
            and all(health.get(each.name) == HEALTHY for each in targets)
        ):
            self._drop_tasks(key, set(bound.leaving))

    def _end_eviction(self, key: Key, name: str) -> None:
        """End an eviction that takes too long."""
        bound = self.bound.get(key)
        if bound is not None and bound.leaving.get(name, inf) + self._pace.grace <= self.now:
            self._drop_tasks(key, {name})

    def _drop_tasks(self, key: Key, names: set[str]) -> None:
        bound = self.bound[key]
        spec = bound.binding.spec
        left = [each for each in spec.graceful_eviction_tasks or () if each.from_cluster not in names]
        for name in names:
            bound.leaving.pop(name, None)
        self._write(key, replace(bound.binding, spec=replace(spec, graceful_eviction_tasks=left or None)), is_spec=True)

    # --- what somebody counts ----------------------------------------------------------------------------

    def running(self, key: Key) -> dict[str, int]:
        """Return the healthy replicas of a workload by cluster."""
        bound = self.bound.get(key)
        names = wanted_of(bound.binding) if bound is not None else ()
        found = {name: self.members[name].healthy(key) for name in names if name in self.members}
        return {name: count for name, count in found.items() if count}


def _of_next_generation(cluster: KarmadaCluster) -> KarmadaCluster:
    meta = cluster.metadata
    return replace(cluster, metadata=replace(meta, generation=meta.generation + 1))


def targets_of(binding: ResourceBinding) -> dict[str, int]:
    """Return the replicas of a binding by cluster."""
    return {each.name: each.replicas for each in binding.spec.clusters or ()}


def wanted_of(binding: ResourceBinding) -> dict[str, int]:
    """Return the replicas that are to run by cluster: also those that stay until an eviction ends."""
    tasks = binding.spec.graceful_eviction_tasks or ()
    leaving = {each.from_cluster: each.replicas or 0 for each in tasks}
    return leaving | targets_of(binding)


def _written(amounts: Mapping[str, int]) -> dict[str, str | int | float]:
    """Return billionths as quantities."""
    return {name: f"{amount}n" for name, amount in amounts.items()}
