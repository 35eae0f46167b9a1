"""Objects of Kueue's manager cluster, as the API server sends them."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.cluster_profile import ClusterProfile
from kube_policy_scheduler.fleet.model import Fleet, Outcome, Workload
from kube_policy_scheduler.fleet.multikueue.nominating import Decide
from kube_policy_scheduler.fleet.multikueue.objects import (
    AdmissionCheck,
    KueueWorkload,
    MultiKueueCluster,
    MultiKueueConfig,
)
from kube_policy_scheduler.policy.policy_set import load

Json = dict[str, Any]
RESERVED_AT = "2026-01-01T00:00:00Z"
WALL = 1767225600.0
"""The same in Unix seconds."""
API_VERSION = "kueue.x-k8s.io/v1beta2"


def raw_workload(name: str = "train", *, nominated: list[str] | None = None, **status: Any) -> Json:
    """Return a Workload of a Job that has its quota, and waits for a cluster; status: what differs."""
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}
    said: Json = {
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "",
                "lastTransitionTime": RESERVED_AT,
            }
        ],
        "admissionChecks": [{"name": "far", "state": "Pending", "message": "", "lastTransitionTime": RESERVED_AT}],
    } | status
    if nominated is not None:
        said["nominatedClusterNames"] = nominated
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": "team",
            "uid": f"w-{name}",
            "resourceVersion": "10",
            "labels": {"tier": "batch"},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"j-{name}", "controller": True}
            ],
        },
        "spec": {
            "queueName": "users",
            "priority": 7,
            "podSets": [{"name": "main", "count": 4, "template": {"spec": pod}}],
        },
        "status": said,
    }


def workload(name: str = "train", **given: Any) -> KueueWorkload:
    return msgspec.convert(raw_workload(name, **given), KueueWorkload)


def raw_cluster(name: str, *, active: str = "True", profile: str = "", **labels: str) -> Json:
    source = {"clusterProfileRef": {"name": profile}} if profile else {"kubeConfig": {"location": name}}
    return {
        "apiVersion": API_VERSION,
        "kind": "MultiKueueCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterSource": source},
        "status": {
            "conditions": [
                {
                    "type": "Active",
                    "status": active,
                    "reason": "Active",
                    "message": "",
                    "lastTransitionTime": RESERVED_AT,
                }
            ]
        },
    }


def cluster(name: str, **given: Any) -> MultiKueueCluster:
    return msgspec.convert(raw_cluster(name, **given), MultiKueueCluster)


def raw_profile(name: str, *, namespace: str = "kueue-system", **properties: str) -> Json:
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": name, "namespace": namespace, "labels": {"from": "profile"}},
        "status": {
            "version": {"kubernetes": "v1.36.2"},
            "conditions": [{"type": "ControlPlaneHealthy", "status": "True", "lastTransitionTime": RESERVED_AT}],
            "properties": [{"name": key, "value": value} for key, value in properties.items()],
        },
    }


def profile(name: str, **given: Any) -> ClusterProfile:
    return msgspec.convert(raw_profile(name, **given), ClusterProfile)


def raw_config(*clusters: str, name: str = "far") -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "MultiKueueConfig",
        "metadata": {"name": name},
        "spec": {"clusters": list(clusters)},
    }


def config(*clusters: str, name: str = "far") -> MultiKueueConfig:
    return msgspec.convert(raw_config(*clusters, name=name), MultiKueueConfig)


def raw_check(name: str = "far", controller: str = "kueue.x-k8s.io/multikueue", points_to: str = "far") -> Json:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": points_to}
    return {
        "apiVersion": API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller, "parameters": parameters},
    }


def check(*args: Any, **given: Any) -> AdmissionCheck:
    return msgspec.convert(raw_check(*args, **given), AdmissionCheck)


def by_policy(text: str) -> Decide:
    """Return what decides by one policy."""
    loaded = load([Source("fleet.policy", text)])
    assert loaded.policy_set is not None, loaded.diagnostics
    policies = loaded.policy_set.fleet

    def decide(asked: Workload, where: Fleet) -> Outcome:
        return policies.decide(asked, where)

    return decide
