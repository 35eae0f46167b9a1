"""API objects of the benchmarks, shaped as scheduler_perf's: what kubernetes' own performance tests schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo

Json = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
NAMESPACE = "measured"


def node(
    name: str, *, zone: str = "moon-1", taints: Sequence[Json] = (), labels: Mapping[str, str] | None = None
) -> Json:
    """Return a node: 4 cpus, 32Gi, 110 pods, Ready."""
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {HOSTNAME: name, ZONE: zone, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            | dict(labels or {}),
        },
        "spec": {"taints": list(taints)},
        "status": {
            "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str,
    *,
    namespace: str = NAMESPACE,
    labels: Mapping[str, str] | None = None,
    cpu: str = "100m",
    memory: str = "500Mi",
    **spec: Any,
) -> Json:
    """Return a pod of one container: 100m, 500Mi, port 80; `spec` is added to its spec."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "labels": dict(labels or {})},
        "spec": {
            "containers": [
                {
                    "name": "pause",
                    "image": "registry.k8s.io/pause:3.10.1",
                    "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"cpu": cpu, "memory": memory}},
                }
            ],
            **spec,
        },
    }


def near(color: str, *, key: str, kind: str = "podAffinity", required: bool = True, **term: Any) -> Json:
    """Return the `affinity` of pods that want to be near (or apart from) those of a color."""
    wanted = {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key, **term}
    if required:
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": wanted}]}}


def spread(color: str, *, action: str) -> list[Json]:
    """Return the `topologySpreadConstraints` of scheduler_perf: over zones, at most 5 apart."""
    return [
        {
            "maxSkew": 5,
            "topologyKey": ZONE,
            "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"color": color}},
        }
    ]


def in_zones(*zones: str) -> Json:
    """Return the `affinity` of pods that need one of some zones."""
    expression = {"key": ZONE, "operator": "In", "values": list(zones)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def add_node(cluster: Cluster, manifest: Json) -> None:
    """Add a node to the cluster."""
    cluster.set_node(msgspec.convert(manifest, objects.Node))


def pod_info(cluster: Cluster, manifest: Json) -> PodInfo:
    """Return a pod as the cluster keeps it."""
    return cluster.templates.pod(msgspec.convert(manifest, objects.Pod))
