"""Small clusters, streams and policies for simulations."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.simulation.run import Run, run
from kube_policy_scheduler.tooling.simulation.scenario import Arrival, PolicyVariant, Scenario


def node(name: str, *, cpu: str = "4", labels: dict[str, str] | None = None) -> objects.Node:
    body = {"metadata": {"name": name, "labels": labels or {}}}
    offered = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return msgspec.convert({**body, "status": {"allocatable": offered}}, objects.Node)


def pod(*, cpu: str = "1", priority: int = 0, labels: dict[str, str] | None = None, **spec: Any) -> objects.Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    meta = {"name": "pod", "namespace": "default", "uid": "pod", "labels": labels or {}}
    body = {"metadata": meta, "spec": {"containers": containers, "priority": priority, **spec}}
    return msgspec.convert(body, objects.Pod)


def variant(*texts: str) -> PolicyVariant:
    loaded = load([Source(f"test-{number}.policy", text) for number, text in enumerate(texts)])
    assert loaded.policy_set is not None, loaded.diagnostics
    return PolicyVariant("test", loaded.policy_set)


def simulated(
    arrivals: list[Arrival],
    *,
    nodes: list[objects.Node],
    by: str | tuple[str, ...] | None = None,
    seed: int = 0,
    drops: bool = False,
) -> Run:
    scenario = Scenario(nodes, arrivals, drops=drops)
    who = variant(*([by] if isinstance(by, str) else by)) if by is not None else PolicyVariant("kubernetes")
    return run(scenario, who, seed=seed, stopwatch=lambda: 0.0)
