"""Hover of a queue's name: what is guaranteed to it, and what it uses in the clusters beside the policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.hover import hover
from kube_policy_scheduler.editor.queue_amounts import RecordedCluster, recorded_cluster
from tests.editor.cursor import at_cursor

GPU = "nvidia.com/gpu"
TREE = f"""queue top max {GPU} 8
queue research of top for pods where pod.namespace == "research" min {GPU} 2 max {GPU} 6
queue team of top by pod.label.team min {GPU} 1
score 1
"""


def pod(name: str, *, node: str = "", namespace: str = "research", gpus: int = 1, **labels: str) -> dict[str, Any]:
    requests = {"cpu": "1", GPU: str(gpus)}
    spec: dict[str, Any] = {
        "schedulerName": "policy-scheduler",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": {GPU: str(gpus)}}}],
    }
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def cluster(*pods: dict[str, Any]) -> RecordedCluster:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: "8"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    items = {"apiVersion": "v1", "kind": "List", "items": [node, *pods]}
    found = recorded_cluster(Source("team/live.json", json.dumps(items)))
    assert found is not None
    return found


def shown(name: str, *clusters: RecordedCluster) -> str:
    at = TREE.index(f"queue {name}") + len("queue ")
    found = hover(*at_cursor(f"{TREE[:at]}|{TREE[at:]}"), clusters=lambda: clusters)
    assert found is not None
    return found.text


def test_without_a_cluster_the_amounts_are_those_declared() -> None:
    assert shown("research").endswith(f"|  | guaranteed | maximum |\n|---|---:|---:|\n| {GPU} | 2 | 6 |")
    assert f"| {GPU} | 2 | 8 |" in shown("top"), "what a parent does not say is the sum of its children"


def test_with_a_cluster_it_shows_what_is_used_borrowed_and_pending() -> None:
    there = cluster(pod("a", node="n"), pod("b", node="n", gpus=2), pod("c", gpus=4), pod("d", gpus=1))
    text = shown("research", there)
    assert "in `live.json`: 2 pods on nodes, 2 pending, share 0.125" in text
    assert f"| {GPU} | 2 | 6 | 3 | 1 | 5 |" in text


def test_of_queues_by_a_key_the_largest_are_shown() -> None:
    pods = [pod(f"p{number}", node="n", namespace="x", team=f"t{number % 6}") for number in range(8)]
    text = shown("team", cluster(*pods, pod("more", namespace="x", team="t0")))
    assert "8 pods on nodes, 1 pending; 5 of 6 queues" in text
    assert f"| team/t0: {GPU} | 1 | - | 2 | 1 | 1 |" in text
    assert f"| team/t5: {GPU}" not in text


def test_several_clusters_are_shown_one_after_the_other() -> None:
    assert shown("top", cluster(), cluster(pod("a", node="n"))).count("in `live.json`") == 2


def test_names_from_pods_cannot_change_the_table() -> None:
    text = shown("team", cluster(pod("a", node="n", namespace="x", team="a|b")))
    assert "team/a\\|b" in text


@pytest.mark.parametrize(
    "text", ["", "kind: Node\n  x: 1", "kind: Pod", '{"kind": "Node", "metadata": {}}', "[1, Node]"]
)
def test_other_files_are_no_clusters(text: str) -> None:
    assert recorded_cluster(Source("x.yaml", text)) is None


def test_while_a_policy_has_errors_the_declaration_alone_is_shown() -> None:
    found = hover(*at_cursor(f"queue a|b min {GPU} 2\nfilter nod.ready"), clusters=lambda: [cluster()])
    assert found is not None
    assert "guaranteed" not in found.text
