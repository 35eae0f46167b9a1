"""An API server with bindings and clusters, without I/O: generations, versions, preconditions, lost answers.

It plays the controller manager, too, and judges every write of the decision maker.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kube_policy_scheduler.fleet.karmada.decision_maker import (
    AnyQuestion,
    DecisionMaker,
    Key,
    MembersQuestion,
    Question,
    RoomQuestion,
    Template,
    Work,
)
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.writes import Patch
from kube_policy_scheduler.fleet.model import ToldMember
from kube_policy_scheduler.times import Steady
from tests.fleet.karmada.bindings import raw_binding, raw_cluster

Json = dict[str, Any]


class ConflictError(Exception):
    """409."""


def merged(value: Json, patch: Mapping[str, Any]) -> Json:
    """Return a JSON merge patch applied (RFC 7386)."""
    done = dict(value)
    for key, item in patch.items():
        if item is None:
            done.pop(key, None)
        elif isinstance(item, dict):
            old = done.get(key)
            done[key] = merged(old if isinstance(old, dict) else {}, item)
        else:
            done[key] = copy.deepcopy(item)
    return done


class ControlPlane:
    """What is stored, and what happens to it."""

    def __init__(self) -> None:
        self.version = 100
        self.clusters: dict[str, Json] = {}
        self.bindings: dict[Key, Json] = {}
        self.writes = 0
        self.room: dict[str, dict[str, int]] = {}
        """By cluster and source: what estimators say."""
        self.asked: list[tuple[str, ...]] = []
        """The clusters of each question about room."""
        self.read: dict[str, ToldMember] = {}
        """By cluster: what a reading of its nodes and pods says."""
        self.waited_for: list[tuple[str, ...]] = []
        """The clusters of each question about nodes and pods."""
        self.judge: Callable[[Key, Json, Json], None] = lambda key, before, after: None
        """Told of every placement that the decision maker writes."""

    def _next_version(self) -> str:
        self.version += 1
        return str(self.version)

    # --- clusters --------------------------------------------------------------------------------------

    def set_cluster(self, name: str, **given: Any) -> None:
        before = self.clusters.get(name)
        made = raw_cluster(name, **given)
        if before is not None:
            same = before["spec"] == made["spec"]
            made["metadata"]["generation"] = before["metadata"]["generation"] + (not same)
        self.clusters[name] = made

    def cluster(self, name: str) -> KarmadaCluster:
        return msgspec.convert(self.clusters[name], KarmadaCluster)

    # --- bindings --------------------------------------------------------------------------------------

    def add(self, name: str, **given: Any) -> Key:
        made = raw_binding(name, **given)
        made["metadata"]["resourceVersion"] = self._next_version()
        key = made["metadata"]["namespace"], made["metadata"]["name"]
        self.bindings[key] = made
        return key

    def binding(self, key: Key) -> ResourceBinding:
        return msgspec.convert(self.bindings[key], ResourceBinding)

    def targets(self, key: Key) -> dict[str, int]:
        return {each["name"]: each.get("replicas", 0) for each in self.bindings[key]["spec"].get("clusters", ())}

    def change(self, key: Key, spec: Mapping[str, Any]) -> None:
        """Change the specification, as others do."""
        self._store(key, merged(self.bindings[key], {"spec": spec}))

    def set_health(self, key: Key, healthy: Mapping[str, bool]) -> None:
        """Report the health of a workload in its clusters."""
        items = [{"clusterName": name, "health": "Healthy" if good else "Unhealthy"} for name, good in healthy.items()]
        self._store(key, merged(self.bindings[key], {"status": {"aggregatedStatus": items}}))

    def evict(self, key: Key, cluster: str) -> None:
        """Begin a graceful eviction."""
        spec = self.bindings[key]["spec"]
        left = [each for each in spec.get("clusters", ()) if each["name"] != cluster]
        tasks = [*spec.get("gracefulEvictionTasks", ()), {"fromCluster": cluster, "reason": "r", "producer": "p"}]
        self.change(key, {"clusters": left, "gracefulEvictionTasks": tasks})

    def end_evictions(self, key: Key) -> None:
        """End the evictions whose decision has been seen and is healthy."""
        found = self.binding(key)
        health = {each.cluster_name: each.health for each in found.status.aggregated_status or ()}
        seen = found.status.scheduler_observed_generation == found.metadata.generation
        if seen and found.spec.clusters and all(health.get(each.name) == "Healthy" for each in found.spec.clusters):
            self.change(key, {"gracefulEvictionTasks": []})

    def _store(self, key: Key, after: Json) -> None:
        before = self.bindings[key]
        after["metadata"]["generation"] = before["metadata"]["generation"] + (after["spec"] != before["spec"])
        if after != before:
            after["metadata"]["resourceVersion"] = self._next_version()
        self.bindings[key] = after

    # --- what the decision maker does ------------------------------------------------------------------

    def patch(self, key: Key, body: Patch, *, status: bool = False) -> ResourceBinding:
        """Apply a patch of the decision maker.

        Raises:
            ConflictError: the binding has changed since.
        """
        before = self.bindings[key]
        if body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise ConflictError
        body = copy.deepcopy(body)
        del body["metadata"]["resourceVersion"]
        if not status and "spec" in body:
            self.judge(key, before, merged(before, body))
        self.writes += 1
        self._store(key, merged(before, body))
        return self.binding(key)

    def show_all(self, maker: DecisionMaker, now: float) -> None:
        """Let a decision maker list everything."""
        at = Steady(now)
        maker.replace_clusters([self.cluster(name) for name in self.clusters], at)
        maker.replace_bindings([self.binding(key) for key in self.bindings], at, namespaced=True)

    def carry_out(self, maker: DecisionMaker, work: Work | AnyQuestion, now: float) -> None:
        """Write what a decision maker wants to have written."""
        if isinstance(work, MembersQuestion):
            self.waited_for.append(work.clusters)
            for name in work.clusters:
                if name in self.read:
                    maker.set_member(name, self.read[name], Steady(now))
            maker.members_waited_for(work.key, Steady(now))
            return
        if isinstance(work, RoomQuestion):
            self.asked.append(work.clusters)
            maker.set_room(
                work.key, {name: self.room[name] for name in work.clusters if name in self.room}, Steady(now)
            )
            return
        if isinstance(work, Question):
            maker.set_template(work.key, Template({}, {}), Steady(now))
            return
        at, binding = Steady(now), work.binding
        generation = binding.metadata.generation
        try:
            if work.patch is not None:
                binding = self.patch(work.key, work.patch)
                generation = binding.metadata.generation
            body = maker.status_of(work, binding, generation=generation, now=1.8e9 + now)
            if body is not None:
                binding = self.patch(work.key, body, status=True)
        except ConflictError:
            maker.conflicted(work, at)
            return
        maker.done(work, binding, at)

    def settle(self, maker: DecisionMaker, now: float = 0.0) -> int:
        """Let a decision maker work, and see what it wrote, until there is nothing to do; return how much it did."""
        done = 0
        while (work := maker.next(Steady(now))) is not None:
            self.carry_out(maker, work, now)
            if work.key in self.bindings:
                maker.set_binding(self.binding(work.key), Steady(now))
            done += 1
            assert done < 10_000, "it never comes to rest"
        return done
