"""Values of expressions in a cluster: all that can be read has one, and missing stays missing."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.lang.checking.one_expression import check_expression
from kube_policy_scheduler.lang.environment import Field, Key
from kube_policy_scheduler.lang.types import Depends, Shape
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state, stored_objects
from kube_policy_scheduler.tooling.expression_values import (
    ExpressionValues,
    NeedsPod,
    Row,
    Subject,
    data,
    values_of,
)

ENVIRONMENT = environment()
CLUSTER = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: b, labels: {speed: "7"}}, status: {allocatable: {cpu: "8", pods: "9"}}}
- {apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: "4", pods: "9"}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: db, namespace: shop, labels: {speed: "3"}}
  spec: {nodeName: b, containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop}
  spec: {containers: [{name: main, resources: {requests: {cpu: "1"}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: shop}
  spec: {nodeName: b, containers: [{name: main, resources: {requests: {cpu: "1"}}}]}
  status: {phase: Succeeded}
"""
KEYS = {Key.RESOURCE: "cpu", Key.LABEL: "speed", Key.ANNOTATION: "note", Key.CONDITION: "Ready"}


def state() -> ClusterState:
    return cluster_state(stored_objects(parse_objects(Source("cluster.yaml", CLUSTER)), scheduler="policy-scheduler"))


def evaluated(text: str, *, pod: objects.Pod | None = None) -> ExpressionValues:
    value, found = check_expression(Source("<expression>", text), ENVIRONMENT, {})
    assert value is not None, [str(each) for each in found]
    return values_of(value, ENVIRONMENT, state(), pod=pod, now=1000.0)


VALUES: dict[str, tuple[Subject, list[Row]]] = {
    "node.free.cpu": (Subject.NODES, [Row(4.0, "a"), Row(6.0, "b")]),
    "number(node.label.speed)": (Subject.NODES, [Row(None, "a"), Row(7.0, "b")]),
    "number(node.label.speed) > 5": (Subject.NODES, [Row(None, "a"), Row(True, "b")]),
    "node.zone": (Subject.NODES, [Row(None, "a"), Row(None, "b")]),
    "p.request.cpu": (Subject.RUNNING_PODS, [Row(2.0, "b", "shop/db")]),
    "number(p.label.slow) > 1": (Subject.RUNNING_PODS, [Row(None, "b", "shop/db")]),
    "number(p.label.speed) > 1": (Subject.RUNNING_PODS, [Row(True, "b", "shop/db")]),
    "count(p in cluster.pods)": (Subject.CLUSTER, [Row(1.0)]),
    "p.request.cpu * weekday()": (Subject.RUNNING_PODS, [Row(8.0, "b", "shop/db")]),
    "1 + 1": (Subject.CLUSTER, [Row(2.0)]),
}


@pytest.mark.parametrize(("text", "expected"), VALUES.items(), ids=VALUES)
def test_an_expression_has_a_value_for_each_of_what_it_is_about(text: str, expected: tuple[Subject, list[Row]]) -> None:
    found = evaluated(text)

    assert (found.subject, list(found.rows)) == expected
    assert len(data(found)["values"]) == len(found.rows)


def test_without_a_pod_what_is_about_pods_has_a_value_for_each() -> None:
    found = evaluated("pod.request.cpu")

    assert found.subject is Subject.PODS
    assert {row.pod: row.value for row in found.rows} == {"shop/db": 2.0, "shop/done": 1.0, "shop/web": 1.0}


def test_a_value_of_each_node_and_pod_needs_a_pod() -> None:
    with pytest.raises(NeedsPod):
        evaluated("fits(cpu)")
    pod = state().find("web")

    assert [row.value for row in evaluated("fits(cpu)", pod=pod).rows] == [True, True]
    assert [row.value for row in evaluated("node.free.cpu - pod.request.cpu", pod=pod).rows] == [3.0, 5.0]


@pytest.mark.parametrize("field", ENVIRONMENT.fields.values(), ids=lambda field: field.path)
def test_every_field_has_values(field: Field) -> None:
    path = f"{field.path}.{KEYS[field.key]}" if field.key is not None else field.path
    if field.shape is Shape.NODE:
        assert [row.node for row in evaluated(path).rows] == ["a", "b"]
        return
    value, _ = check_expression(Source("<expression>", path.replace("pod.", "p.", 1)), ENVIRONMENT, {})
    if value is not None:
        rows = values_of(value, ENVIRONMENT, state(), now=1000.0).rows
        assert [row.pod for row in rows] == ["shop/db"]
    if not field.depends & Depends.RUN:
        assert {row.pod for row in evaluated(path).rows} == {"shop/db", "shop/done", "shop/web"}
