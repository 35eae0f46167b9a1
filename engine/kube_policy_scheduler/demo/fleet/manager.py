"""What Karmada does in a real fleet, done for the demo by one small controller.

Its detector keeps bindings as templates are, its execution controller has pods run where `spec.clusters` says, its
status controllers report room and health, and its taint manager evicts from clusters that are not ready. It decides
nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.demo.fleet.story import NAMESPACE, FleetCluster, Targets, Workload
from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.embedded.patch import MERGE
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import Resource, resource
from kube_policy_scheduler.times import rfc3339

Json = dict[str, Any]

LOST = "demo/lost"
"""An annotation of clusters: it says that nobody can reach it."""
PRICE = "policy-scheduler/hourly-price"
NOT_READY = "cluster.karmada.io/not-ready"
_CLUSTERS = resource("clusters", group="cluster.karmada.io", version="v1alpha1")
_BINDINGS = resource("resourcebindings", group="work.karmada.io", version="v1alpha2")
_TEMPLATES = resource("deployments", group="apps")
_PODS = resource("pods")
_PLACEMENT = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }
}
_HEALTH = {True: "Healthy", False: "Unhealthy"}


@dataclass(slots=True)
class Seen:
    """What somebody who watches sees."""

    lost: frozenset[str] = frozenset()
    """Clusters that nobody reaches."""
    placed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Replicas by workload and cluster, as they are decided."""
    running: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same, as they run."""
    wanted: dict[str, int] = field(default_factory=dict)
    """Replicas by workload."""
    waiting: dict[str, str] = field(default_factory=dict)
    """By workload: why it could not be placed as it asks."""


class Manager:
    """Plays Karmada's controllers between a control plane and its member clusters."""

    def __init__(
        self,
        control: EmbeddedCluster,
        members: Mapping[str, EmbeddedCluster],
        *,
        seen: Callable[[Seen], None],
    ) -> None:
        """Do nothing yet.

        Args:
            control: the control plane; it needs no kubelets and no controllers.
            members: the clusters by name, each with one node of its name.
            seen: called with the state of the fleet after each change.
        """
        self._control, self._members = control, members
        self._seen = seen
        self._changed = asyncio.Event()
        for each in (_CLUSTERS, _BINDINGS, _TEMPLATES):
            control.api.collection(each).observe(lambda _: self._changed.set())
        for member in members.values():
            member.api.collection(_PODS).observe(lambda _: self._changed.set())

    def join(self, cluster: FleetCluster) -> None:
        """Add a cluster to the fleet."""
        amounts = {"cpu": str(cluster.cores), "memory": "64Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": cluster.name}}
        self._members[cluster.name].load([node | {"status": {"allocatable": amounts, "capacity": amounts}}])
        enabled = [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]}]
        self._control.load(
            [
                {
                    "apiVersion": _CLUSTERS.api_version,
                    "kind": "Cluster",
                    "metadata": {"name": cluster.name, "annotations": {PRICE: str(cluster.price)}},
                    "spec": {"syncMode": "Push", "provider": cluster.provider, "region": cluster.region},
                    "status": {
                        "apiEnablements": enabled,
                        "conditions": [_ready(True, self._now())],
                        "resourceSummary": {"allocatable": amounts, "allocated": {}},
                    },
                }
            ]
        )

    def deploy(self, workload: Workload, *, scheduler: str) -> None:
        """Create a template, and its binding as the detector does."""
        name, labels = workload.name, {"app": workload.name, "tier": workload.tier}
        container = {"name": "main", "image": "registry.example/demo:1", "resources": {"requests": {"cpu": "1"}}}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
        spec = {"replicas": workload.replicas, "selector": {"matchLabels": labels}, "template": pod}
        self._control.load([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}])
        about = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": name, "uid": name}
        binding = {
            "apiVersion": _BINDINGS.api_version,
            "kind": "ResourceBinding",
            "metadata": {"name": f"{name}-deployment", "labels": {"propagationpolicy.karmada.io/permanent-id": name}},
            "spec": {
                "resource": about,
                "replicas": workload.replicas,
                "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
                "placement": _PLACEMENT,
                "schedulerName": scheduler,
            },
        }
        target = Target("create", _BINDINGS, NAMESPACE, "", "")
        self._control.api.create(target, binding)

    def lose(self, region: str) -> None:
        """Lose all clusters of a region, and no others."""
        for cluster in self._clusters():
            is_lost = cluster["spec"]["region"] == region
            change = {"metadata": {"annotations": {LOST: "true" if is_lost else None}}}
            self._patch(_CLUSTERS, cluster, change)

    async def run(self) -> None:
        """Keep everything as it should be, for ever."""
        while True:
            self._changed.clear()
            self._reconcile()
            await self._changed.wait()

    # --- what the controllers do ----------------------------------------------------------------------

    def _reconcile(self) -> None:
        lost = frozenset(
            each["metadata"]["name"]
            for each in self._clusters()
            if (each["metadata"].get("annotations") or {}).get(LOST) == "true"
        )
        self._detect()
        self._evict(lost)
        for name, member in self._members.items():
            if name not in lost:
                self._execute(name, member)
        for cluster in self._clusters():
            self._report_cluster(cluster, is_lost=cluster["metadata"]["name"] in lost)
        seen = Seen(lost)
        for binding in self._all(_BINDINGS):
            self._report_health(binding, lost, seen)
        self._seen(seen)

    def _detect(self) -> None:
        """Keep the number of replicas as the template has it."""
        templates = {each["metadata"]["name"]: each for each in self._all(_TEMPLATES)}
        for binding in self._all(_BINDINGS):
            template = templates.get(binding["spec"]["resource"]["name"])
            if template is not None and binding["spec"]["replicas"] != template["spec"]["replicas"]:
                self._patch(_BINDINGS, binding, {"spec": {"replicas": template["spec"]["replicas"]}})

    def _evict(self, lost: frozenset[str]) -> None:
        """Begin evictions from clusters that are lost; end those whose replicas are healthy elsewhere."""
        for binding in self._all(_BINDINGS):
            spec, status = binding["spec"], binding.get("status", {})
            targets, tasks = spec.get("clusters") or [], spec.get("gracefulEvictionTasks") or []
            leaving = [each["name"] for each in targets if each["name"] in lost]
            if leaving:
                new = [
                    {"fromCluster": name, "reason": "TaintUntolerated", "producer": "TaintManager"} for name in leaving
                ]
                left = [each for each in targets if each["name"] not in lost]
                self._patch(_BINDINGS, binding, {"spec": {"clusters": left, "gracefulEvictionTasks": [*tasks, *new]}})
                continue
            healthy = {
                each["clusterName"] for each in status.get("aggregatedStatus", ()) if each["health"] == "Healthy"
            }
            is_seen = status.get("schedulerObservedGeneration") == binding["metadata"]["generation"]
            if tasks and is_seen and targets and all(each["name"] in healthy for each in targets):
                self._patch(_BINDINGS, binding, {"spec": {"gracefulEvictionTasks": None}})

    def _execute(self, name: str, member: EmbeddedCluster) -> None:
        """Have as many pods as the bindings say."""
        there: dict[str, list[str]] = {}
        for pod in _pods(member):
            if "deletionTimestamp" not in pod["metadata"]:
                there.setdefault(pod["metadata"]["labels"]["app"], []).append(pod["metadata"]["name"])
        wanted = {each["spec"]["resource"]["name"]: targets_of(each).get(name, 0) for each in self._all(_BINDINGS)}
        for workload in wanted.keys() | there.keys():
            count, has = wanted.get(workload, 0), sorted(there.get(workload, ()))
            for extra in has[count:]:
                member.api.delete(Target("delete", _PODS, NAMESPACE, extra, ""), {"gracePeriodSeconds": 0})
            free = (number for number in itertools.count() if f"{workload}-{number}" not in has)
            member.load([_pod(workload, next(free), name) for _ in range(count - len(has))])

    def _report_cluster(self, cluster: Json, *, is_lost: bool) -> None:
        """Report whether a cluster is ready, with the taints that follow, and what its pods request."""
        was_ready = cluster["status"]["conditions"][0]["status"] == "True"
        if was_ready is is_lost:
            taints = [{"key": NOT_READY, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
            self._patch(_CLUSTERS, cluster, {"spec": {"taints": taints if is_lost else None}})
            self._patch(_CLUSTERS, cluster, {"status": {"conditions": [_ready(not is_lost, self._now())]}}, "status")
        if not is_lost:
            count = str(len(_pods(self._members[cluster["metadata"]["name"]])))
            allocated = {"cpu": count, "pods": count}
            if cluster["status"]["resourceSummary"]["allocated"] != allocated:
                self._patch(_CLUSTERS, cluster, {"status": {"resourceSummary": {"allocated": allocated}}}, "status")

    def _report_health(self, binding: Json, lost: frozenset[str], seen: Seen) -> None:
        """Report where a workload is healthy."""
        workload, targets = binding["spec"]["resource"]["name"], targets_of(binding)
        running = {
            name: sum(
                pod["metadata"]["labels"]["app"] == workload and pod.get("status", {}).get("phase") == "Running"
                for pod in _pods(self._members[name])
            )
            for name in targets
            if name not in lost
        }
        items = [
            {"clusterName": name, "applied": True, "health": _HEALTH[running.get(name) == count]}
            for name, count in sorted(targets.items())
        ]
        if binding.get("status", {}).get("aggregatedStatus", []) != items:
            self._patch(_BINDINGS, binding, {"status": {"aggregatedStatus": items}}, "status")
        seen.placed[workload], seen.running[workload] = dict(targets), running
        seen.wanted[workload] = binding["spec"]["replicas"]
        for condition in binding.get("status", {}).get("conditions", ()):
            if condition["type"] == "Scheduled" and condition["status"] == "False":
                seen.waiting[workload] = condition["message"]

    # --- objects --------------------------------------------------------------------------------------

    def _all(self, kind: Resource) -> list[Json]:
        return [entry.decode() for entry in self._control.api.collection(kind).scan()]

    def _clusters(self) -> list[Json]:
        """Return the clusters that the demo has, and no others that somebody creates."""
        return [each for each in self._all(_CLUSTERS) if each["metadata"]["name"] in self._members]

    def _patch(self, kind: Resource, obj: Json, change: Json, subresource: str = "") -> None:
        meta = obj["metadata"]
        target = Target("patch", kind, meta.get("namespace"), meta["name"], subresource)
        self._control.api.patch(target, json.dumps(change).encode(), content_type=MERGE)

    def _now(self) -> str:
        return rfc3339(self._control.api.now())


def targets_of(binding: Json) -> Targets:
    """Return the replicas of a binding by cluster."""
    return {each["name"]: each.get("replicas", 0) for each in binding["spec"].get("clusters") or ()}


def _pods(member: EmbeddedCluster) -> list[Json]:
    return [entry.decode() for entry in member.api.collection(_PODS).scan()]


def _ready(is_ready: bool, now: str) -> Json:
    reason = "ClusterReady" if is_ready else "ClusterNotReachable"
    return {"type": "Ready", "status": str(is_ready), "reason": reason, "lastTransitionTime": now}


def _pod(workload: str, number: int, node: str) -> Json:
    container = {"name": "main", "image": "registry.example/demo:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{workload}-{number}", "namespace": NAMESPACE, "labels": {"app": workload}},
        "spec": {"nodeName": node, "containers": [container]},
    }
