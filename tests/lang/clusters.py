"""Small clusters for tests of policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Reading, Series, Signals
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.framework.evaluate.evaluation import Evaluation, evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.policy.policy_set import PolicySet, load

NOW = 1_800_000_000.0


def policy_set(*texts: str) -> PolicySet:
    """Return policies that must load; files are called a, b, c, …"""
    loaded = load([Source(f"{name}.policy", text) for name, text in zip("abcdefgh", texts, strict=False)])
    assert loaded.policy_set is not None, "\n".join(map(render, loaded.diagnostics))
    return loaded.policy_set


def policy(text: str) -> Policy:
    return policy_set(text).policies[0]


def node(name: str, *, zone: str = "", labels: Mapping[str, str] | None = None, **changes: Any) -> objects.Node:
    body = {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name}
            | ({"topology.kubernetes.io/zone": zone} if zone else {})
            | dict(labels or {}),
            **changes.get("metadata", {}),
        },
        "spec": changes.get("spec", {}),
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"} | changes.get("allocatable", {}),
            "conditions": [{"type": "Ready", "status": "True" if changes.get("ready", True) else "False"}],
            **changes.get("status", {}),
        },
    }
    return msgspec.convert(body, objects.Node)


def pod(
    cluster: Cluster, name: str, *, cpu: str = "500m", labels: Mapping[str, str] | None = None, **more: Any
) -> PodInfo:
    body = {
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "default"),
            "uid": name,
            "labels": dict(labels or {}),
            "annotations": more.get("annotations", {}),
        },
        "spec": {
            "schedulerName": more.get("scheduler", "policy-scheduler"),
            "priority": more.get("priority", 0),
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"} | more.get("requests", {})}}
            ],
        }
        | more.get("spec", {}),
        "status": more.get("status", {}),
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def cluster(*nodes: objects.Node) -> Cluster:
    made = Cluster()
    for each in nodes or tuple(node(f"n{i}", zone="abc"[i % 3]) for i in range(6)):
        made.set_node(each)
    return made


def signals(query: str, values: Mapping[str, float], *, age: float = 0.0) -> Signals:
    series = tuple(Series({"node": name}, value, NOW - age) for name, value in values.items())
    return Signals.of([Reading(query, series, NOW - age, NOW - age)])


def decide(policy_: Policy, pod_: PodInfo, cluster_: Cluster, **more: Any) -> Evaluation:
    return evaluate(Frame(pod_, cluster_, more.pop("now", NOW), **more), policy_.profile)


def feasible(result: Evaluation, cluster_: Cluster) -> list[str]:
    return [cluster_.nodes.names[row] for row in result.feasible]


def scores(result: Evaluation, cluster_: Cluster, name: str) -> dict[str, float]:
    names = [cluster_.nodes.names[row] for row in result.feasible]
    return dict(zip(names, result.scores[name].tolist(), strict=True))


def place(cluster_: Cluster, on: Sequence[tuple[str, Mapping[str, str]]], **more: Any) -> None:
    for number, (name, labels) in enumerate(on):
        cluster_.place(pod(cluster_, f"{name}-{number}-{len(cluster_.pods)}", labels=labels, **more), name)
