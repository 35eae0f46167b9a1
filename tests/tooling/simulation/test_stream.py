"""Streams of pods as people write them, and what is wrong with them."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.defaulting import BUILTIN_PRIORITY_CLASSES
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.tooling.simulation.scenario import Arrival
from kube_policy_scheduler.tooling.simulation.stream import parse_stream

NO_PODS = "expected `pods:`, a list of pods with times, or Kubernetes objects of which some are pods"


def stream(text: str) -> list[Arrival]:
    return parse_stream(Source("pods.yaml", text), classes=BUILTIN_PRIORITY_CLASSES, scheduler="s")


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        stream(text)
    return [diagnostic.message for diagnostic in caught.value.diagnostics]


def test_short_forms_come_as_often_as_they_say_in_the_order_of_time() -> None:
    found = stream("""
pods:
- {name: late, cpu: 1, at: 25s}
- {name: web, cpu: 500m, mem: 1Gi, count: 3, every: 10s, lasts: 2min}
""")
    assert [(arrival.at, arrival.lasts) for arrival in found] == [(0, 120), (10, 120), (20, 120), (25, None)]
    assert len({arrival.name for arrival in found}) == 4
    assert found[0].pod is found[1].pod
    assert found[0].pod.spec.scheduler_name == "s"


def test_kubernetes_objects_come_at_their_creation_and_unplaced() -> None:
    found = stream("""
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: b, creationTimestamp: "2026-01-01T00:01:00Z"}
  spec: {nodeName: n, containers: [{name: c}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: a, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec: {containers: [{name: c}]}
- {apiVersion: v1, kind: Service, metadata: {name: s}}
""")
    assert [(arrival.at, arrival.name, arrival.pod.spec.node_name) for arrival in found] == [
        (0, "default.a", ""),
        (60, "default.b", ""),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pods: []", ["pods: expected at least one item, got an empty list"]),
        ("pods:\n- {cpu: 1, lasts: soon}", None),
        ("pods:\n- {cpu: 1, every: 5s}", ["key `every` requires `count`"]),
        ("pods:\n- {cpu: 1, count: 0}", ["pods[0].count: expected at least 1, got 0"]),
        ("pods:\n- {cpus: 1}", ["unknown key `cpus` in pods[0]"]),
        ("pods:\n- {cpu: 1}\npod: {cpu: 1}", ["unknown key `pod`"]),
        ("pods:\n- {cpu: lots}\n- {mem: 1Gb}", None),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: s}", [NO_PODS]),
        ("- 1", None),
        ("", [NO_PODS]),
    ],
)  # fmt: skip
def test_errors_are_reported_with_their_place(text: str, expected: list[str] | None) -> None:
    found = problems(text)
    assert found
    assert expected is None or found == expected
