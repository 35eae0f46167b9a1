"""Bindings and clusters of tests, as the API server sends them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.karmada.triggers import APPLIED

DYNAMIC = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }
}
DUPLICATED = {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}
LABELS = {"propagationpolicy.karmada.io/permanent-id": "p"}
SUCCESS = [{"type": "Scheduled", "status": "True", "reason": "Success", "message": "m"}]


def raw_binding(
    name: str = "web",
    *,
    replicas: int = 3,
    placement: dict[str, Any] | None = None,
    has: dict[str, int] | None = None,
    applied: dict[str, Any] | str | None = None,
    status: dict[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a ResourceBinding of a Deployment; applied: the placement in its annotation."""
    annotations = {} if applied is None else {APPLIED: applied if isinstance(applied, str) else json.dumps(applied)}
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name, "uid": f"u-{name}"}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {
            "name": f"{name}-deployment",
            "namespace": "shop",
            "uid": f"b-{name}",
            "resourceVersion": "10",
            "generation": 1,
            "labels": LABELS,
            "annotations": annotations,
        }
        | (meta or {}),
        "spec": {
            "resource": resource,
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "placement": DYNAMIC if placement is None else placement,
            "schedulerName": "fleet",
            "clusters": [{"name": name, "replicas": count} for name, count in (has or {}).items()],
        }
        | spec,
        "status": status or {},
    }


def binding(*args: Any, **given: Any) -> ResourceBinding:
    """Return the same as a struct."""
    return msgspec.convert(raw_binding(*args, **given), ResourceBinding)


def raw_cluster(name: str, *, cpu: int = 10, generation: int = 1, **other: Any) -> dict[str, Any]:
    """Return a Cluster with so many free cores; other: of its metadata (`labels`), spec or status."""
    meta = {key: other.pop(key) for key in ("labels", "annotations", "deletionTimestamp") if key in other}
    spec = {key: other.pop(key) for key in ("provider", "region", "zones", "taints") if key in other}
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "generation": generation} | meta,
        "spec": {"syncMode": "Push"} | spec,
        "status": {
            "apiEnablements": [
                {"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]}
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceSummary": {"allocatable": {"cpu": str(cpu), "pods": "110"}},
        }
        | other,
    }


def cluster(name: str, **given: Any) -> KarmadaCluster:
    """Return the same as a struct."""
    return msgspec.convert(raw_cluster(name, **given), KarmadaCluster)
