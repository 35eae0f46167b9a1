"""Managed clusters, as the API server of a hub sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.fleet.ocm.objects import (
    ClusterPlacement,
    ManagedCluster,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    PlacementDecision,
)

Json = dict[str, Any]
GPU: Json = {"key": "gpu", "value": "", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"}
API_VERSION = "cluster.open-cluster-management.io/v1"


def raw_cluster(
    name: str, *, available: str = "True", cpu: str = "10", taints: Sequence[Json] | None = None, **labels: str
) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": True, "taints": [GPU] if taints is None else list(taints)},
        "status": {
            "conditions": [
                {
                    "type": "ManagedClusterConditionAvailable",
                    "status": available,
                    "reason": "Available",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "allocatable": {"cpu": cpu, "memory": "64Gi"},
            "version": {"kubernetes": "v1.36.2"},
            "clusterClaims": [
                {"name": "platform.open-cluster-management.io", "value": "AWS"},
                {"name": "region.open-cluster-management.io", "value": "eu-west-1"},
            ],
        },
    }


def cluster(name: str, **given: Any) -> ManagedCluster:
    return msgspec.convert(raw_cluster(name, **given), ManagedCluster)


GROUP = "cluster.open-cluster-management.io"
IN_GLOBAL: Json = {f"{GROUP}/clusterset": "global"}
OURS: Json = {
    f"{GROUP}/experimental-scheduling-disable": "true",
    "policy-scheduler/scheduler-name": "policy-scheduler",
}


def member(name: str, *, cluster_set: str = "global", **given: Any) -> ManagedCluster:
    """Return a managed cluster of a set, without taints."""
    return msgspec.convert(raw_member(name, cluster_set=cluster_set, **given), ManagedCluster)


def raw_member(name: str, *, cluster_set: str = "global", **given: Any) -> Json:
    return raw_cluster(name, **{"taints": [], f"{GROUP}/clusterset": cluster_set, **given})


def raw_set(name: str = "global", **selector: Any) -> Json:
    spec = {"clusterSelector": selector or {"selectorType": "ExclusiveClusterSetLabel"}}
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "ManagedClusterSet",
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster_set(name: str = "global", **given: Any) -> ManagedClusterSet:
    return msgspec.convert(raw_set(name, **given), ManagedClusterSet)


def raw_set_binding(name: str = "global", namespace: str = "shop") -> Json:
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "ManagedClusterSetBinding",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterSet": name},
    }


def set_binding(name: str = "global", namespace: str = "shop") -> ManagedClusterSetBinding:
    return msgspec.convert(raw_set_binding(name, namespace), ManagedClusterSetBinding)


def raw_placement(name: str = "web", *, annotations: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Placement",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"tier": "gold"},
            "annotations": OURS if annotations is None else annotations,
        },
        "spec": spec,
    }


def placement(
    name: str = "web", *, uid: str = "p-1", version: str = "10", status: Json | None = None, **given: Any
) -> ClusterPlacement:
    made = raw_placement(name, **given) | {"status": status or {}}
    made["metadata"] |= {"uid": uid, "resourceVersion": version}
    return msgspec.convert(made, ClusterPlacement)


def decision(
    *names: str, number: int = 1, of: str = "web", owner: str = "p-1", version: str = "10"
) -> PlacementDecision:
    labels = {
        f"{GROUP}/placement": of, f"{GROUP}/decision-group-index": "0", f"{GROUP}/decision-group-name": "",
    }  # fmt: skip
    made = {
        "metadata": {
            "name": f"{of}-decision-{number}",
            "namespace": "shop",
            "uid": f"d-{number}",
            "resourceVersion": version,
            "labels": labels,
            "ownerReferences": [{"kind": "Placement", "name": of, "uid": owner, "controller": True}],
        },
        "status": {"decisions": [{"clusterName": name, "reason": ""} for name in names]},
    }
    return msgspec.convert(made, PlacementDecision)
