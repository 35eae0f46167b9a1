"""Nodes and pods as people write them, in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

OURS = "policy-scheduler"
ZONE = "topology.kubernetes.io/zone"


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
) -> Json:
    """A ready node."""
    capacity = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def pod(
    name: str,
    *,
    scheduler: str | None = OURS,
    cpu: str = "100m",
    memory: str = "64Mi",
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> Json:
    """A pod of one container; `spec` is merged into its spec."""
    container = {
        "name": "main",
        "image": "registry.example/pause:3.9",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    named = {} if scheduler is None else {"schedulerName": scheduler}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **named, **spec},
    }


def pod_group(name: str, *, size: int) -> Json:
    """A PodGroup of Kubernetes' own; pods belong to it by their `schedulingGroup`."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def taint(key: str, *, effect: str = "NoSchedule", value: str = "") -> Json:
    """A taint as written on a node."""
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
