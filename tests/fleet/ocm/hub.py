"""Managed clusters, as the API server of a hub sends them."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.fleet.ocm.objects import ManagedCluster

Json = dict[str, Any]
API_VERSION = "cluster.open-cluster-management.io/v1"


def raw_cluster(name: str, *, available: str = "True", cpu: str = "10", **labels: str) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": True, "taints": [{"key": "gpu", "value": "", "effect": "NoSelect"}]},
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
