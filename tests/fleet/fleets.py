"""Small fleets and workloads for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.fleet.model import HEALTHY, ClusterCondition, Fleet, FleetCluster, Workload
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.policy.policy_set import load

CORE = 10**9
"""Billionths of a core."""
NOW = 1_767_787_200.0
DEPLOYMENT = ("apps/v1", "Deployment")


def cluster(
    name: str, room: int, *, price: float | None = None, ready_for: float = 3600.0, **facts: Any
) -> FleetCluster:
    """Return a cluster with room for so many replicas of one core."""
    annotations = {"policy-scheduler/hourly-price": str(price)} if price is not None else {}
    zone = facts.pop("zone", "")
    taints = tuple(TaintKey(*each) for each in facts.pop("taints", ()))
    return FleetCluster(
        name,
        annotations=annotations,
        zones=(zone,) if zone else (),
        taints=taints,
        conditions={"Ready": ClusterCondition("True", NOW - ready_for)},
        allocatable={"cpu": room * CORE, "pods": 10**6 * CORE},
        apis=frozenset({DEPLOYMENT}),
        **facts,
    )


def workload(replicas: int, has: Mapping[str, int] | None = None, **facts: Any) -> Workload:
    """Return a Deployment whose replicas ask for one core each; where it runs, it is healthy."""
    has = has or {}
    return Workload(
        "Deployment",
        **{
            "name": "web",
            "namespace": "shop",
            "api_version": "apps/v1",
            "replicas": replicas,
            "requests": {"cpu": CORE},
            "has": has,
            "health": dict.fromkeys(has, HEALTHY),
            **facts,
        },
    )


def policies(text: str) -> FleetPolicies:
    """Return the policy of all workloads that a text says."""
    loaded = load([Source("a.policy", f"for workloads where true\n{text}\n")], rules=False)
    assert loaded.policy_set is not None, "\n".join(map(render, loaded.diagnostics))
    return loaded.policy_set.fleet


THREE = Fleet(
    (
        cluster("a", 6, price=3, provider="own", region="eu"),
        cluster("b", 12, price=5, provider="aws", region="eu"),
        cluster("c", 18, price=4, provider="gcp", region="us"),
    )
)
