"""What replicas request of the clusters in which they are to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec.structs import replace

from kube_policy_scheduler.fleet.model import HEALTHY, FleetCluster, Workload
from kube_policy_scheduler.quantities.quantity import NANO

Claims: TypeAlias = Mapping[str, Mapping[str, int]]
"""Billionths by cluster and resource."""
DECIDED_SECONDS = 300.0
"""Replicas that are decided, and not healthy after this time, count only by what the status of their cluster says."""


def claims_of(workload: Workload, replicas: Mapping[str, int]) -> Claims:
    """Return what replicas of a workload request, by cluster."""
    requests = {"pods": 10**NANO} | dict(workload.requests or {})
    return {
        name: {resource: amount * count for resource, amount in requests.items()}
        for name, count in replicas.items()
        if count > 0
    }


def unhealthy(workload: Workload) -> dict[str, int]:
    """Return the replicas that are decided and not healthy yet, by cluster."""
    return {name: count for name, count in workload.has.items() if workload.health.get(name) != HEALTHY}


def with_claims(cluster: FleetCluster, claims: Mapping[str, int] | None) -> FleetCluster:
    """Return a cluster of which more (or less, where the amount is negative) is requested, in billionths."""
    if not claims:
        return cluster
    more = {name: cluster.allocating.get(name, 0) + amount for name, amount in claims.items()}
    return replace(cluster, allocating={**cluster.allocating, **more})
