"""Short forms of nodes and pods say the same in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.tooling.short_forms import (
    HOSTNAME,
    NODE_KEYS,
    POD_KEYS,
    ZONE,
    node_form,
    node_object,
    pod_form,
    pod_object,
)

NAMES = st.sampled_from(["a1", "disk", "example.com/x"])
TEXTS = st.dictionaries(st.sampled_from(["disk", ZONE, HOSTNAME, "example.com/team"]), NAMES, max_size=3)
AMOUNTS = st.sampled_from(["1", "250m", "8Gi", "0"])
RESOURCES = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "hugepages-2Mi", "cpu"]), AMOUNTS, max_size=2)
TAINTS = st.sampled_from(
    ["a=b:NoSchedule", "a:NoExecute", {"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
)
TOLERATIONS = st.sampled_from(
    [
        "a=b:NoSchedule",
        "a:NoExecute",
        "a",
        "a=b",
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        {"key": "a", "operator": "Gt", "value": "3", "effect": "NoSchedule"},
    ]
)
CREATED = st.just("2026-01-01T00:00:00Z")
NODES: dict[str, st.SearchStrategy[Any]] = {
    "zone": NAMES,
    "region": NAMES,
    "cpu": AMOUNTS,
    "mem": AMOUNTS,
    "ephemeral_storage": AMOUNTS,
    "pods": AMOUNTS,
    "resources": RESOURCES,
    "labels": TEXTS,
    "annotations": TEXTS,
    "price": st.sampled_from([0.5, 12, 0.000000001]),
    "taints": st.lists(TAINTS, max_size=2),
    "ready": st.booleans(),
    "unschedulable": st.just(True),
    "created": CREATED,
    "spec": st.just({"providerID": "x"}),
    "status": st.sampled_from(
        [
            {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7", "pods": "3"}},
            {"conditions": [{"type": "DiskPressure", "status": "False"}]},
            {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        ]
    ),
}
PODS: dict[str, st.SearchStrategy[Any]] = {
    "namespace": st.just("team"),
    "node": NAMES,
    "labels": TEXTS,
    "annotations": TEXTS,
    "owner": st.sampled_from(["ReplicaSet/web", "Job/x"]),
    "scheduler": NAMES,
    "priority": st.integers(-2, 2),
    "image": NAMES,
    "cpu": AMOUNTS,
    "mem": AMOUNTS,
    "ephemeral_storage": AMOUNTS,
    "resources": RESOURCES,
    "node_selector": TEXTS,
    "tolerations": st.lists(TOLERATIONS, max_size=2),
    "created": CREATED,
    "running_since": CREATED,
    "ready": st.booleans(),
    "restarts": st.integers(0, 5),
    "started": st.booleans(),
    "claims": st.just({"gpu": 2}),
    "spec": st.sampled_from(
        [
            {"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]},
            {"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "1"}}}]},
            {"hostNetwork": True},
        ]
    ),
}
WITHOUT_OWN_OBJECT = {"devices", "numa", "volume_room", "previous_node"}
"""Keys that say nothing about the node or the pod itself."""


def test_these_are_all_keys() -> None:
    assert NODES.keys() - {"spec", "status"} == NODE_KEYS - WITHOUT_OWN_OBJECT - {"name"}
    assert PODS.keys() - {"spec"} == POD_KEYS - WITHOUT_OWN_OBJECT - {"name"}


def test_there_are_nodes_with_all_keys_and_with_none() -> None:
    assert node_form(node_object({"name": "a1"})) == {"name": "a1", "pods": "110"}
    assert pod_form(pod_object({}, name="web", uid="u")) == {"name": "web", "image": "image", "metadata": {"uid": "u"}}


@given(st.fixed_dictionaries({"name": NAMES}, optional=NODES))
def test_a_node_in_its_short_form_is_the_same_node(form: dict[str, Any]) -> None:
    node = node_object(form)
    assert whole(node_object(node_form(node))) == whole(node)


@given(st.fixed_dictionaries({"name": NAMES}, optional=PODS))
def test_a_pod_in_its_short_form_is_the_same_pod(form: dict[str, Any]) -> None:
    pod = pod_object(form, name="web", uid="u")
    again = pod_object(pod_form(pod), name="other", uid="other")
    for each in (again, pod):
        each["spec"]["tolerations"] = [{"operator": "Equal", **one} for one in each["spec"].get("tolerations", ())]
    assert said(again) == said(pod)


@given(st.fixed_dictionaries({"name": NAMES}, optional=NODES), st.fixed_dictionaries({"name": NAMES}, optional=PODS))
def test_what_a_short_key_says_is_nowhere_else(node: dict[str, Any], pod: dict[str, Any]) -> None:
    shown = node_form(node_object({**node, "status": {}, "spec": {}}))
    assert not shown.keys() & {"metadata", "spec", "status"}, shown
    alone = pod_form(pod_object({**pod, "spec": {}}, name="web", uid="u"))
    assert alone.get("metadata", {}).keys() <= {"uid"}
    assert alone.get("spec", {}).keys() <= {"resourceClaims"}


@pytest.mark.parametrize(
    ("form", "labels"),
    [({"name": "a1", "zone": "b", "labels": {ZONE: "c"}}, {ZONE: "b", HOSTNAME: "a1"})],
)
def test_the_key_that_says_one_thing_wins_over_the_key_for_all(form: dict[str, Any], labels: dict[str, str]) -> None:
    assert node_object(form)["metadata"]["labels"] == labels
    assert node_object({"name": "a1", "cpu": 1, "resources": {"cpu": 2}})["status"]["allocatable"]["cpu"] == "1"


def whole(node: dict[str, Any]) -> dict[str, Any]:
    """Return a node whose conditions stand in one order, and whose capacity has all that it offers."""
    status = node["status"]
    conditions = sorted(status["conditions"], key=lambda one: one["type"])
    capacity = {**status["allocatable"], **status.get("capacity", {})}
    return said({**node, "status": {**status, "conditions": conditions, "capacity": capacity}})


def said(value: Any) -> Any:
    """Return an object without what is empty: that is as if it were not there."""
    if isinstance(value, list):
        return [said(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: said(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in ({}, [])}
