"""When a binding is decided, and whose it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.karmada.triggers import Trigger, serves, trigger
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC, SUCCESS, binding, raw_binding

TERMS = [{"affinityName": "own", "clusterNames": ["a"]}, {"affinityName": "cloud", "clusterNames": ["b"]}]
OTHER = [{"affinityName": "own", "clusterNames": ["a"]}, {"affinityName": "cloud", "clusterNames": ["c"]}]
DONE = {"conditions": SUCCESS}
GO = DYNAMIC | {"clusterTolerations": None, "spreadConstraints": [], "clusterAffinity": {"exclude": []}}
"""The same placement, as another program may write it."""
PARTS: dict[str, Any] = {
    "replicas": 0,
    "replicaRequirements": None,
    "components": [{"name": name, "replicas": 1} for name in ("jobmanager", "taskmanager")],
}
"""Of a workload that has several kinds of pods."""
LATER = {"conditions": SUCCESS, "lastScheduledTime": "2026-11-20T09:00:00Z"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Trigger.PLACEMENT),
        ({"applied": DUPLICATED, "has": {"a": 3}, "status": DONE}, Trigger.PLACEMENT),
        ({"applied": DYNAMIC, "has": {"a": 3}, "status": DONE}, None),
        ({"applied": GO, "placement": DYNAMIC | {"clusterAffinity": {}}, "has": {"a": 3}, "status": DONE}, None),
        ({"applied": "{not json", "has": {"a": 3}, "status": DONE}, None),
        ({"applied": "[1]", "has": {"a": 3}, "status": DONE}, None),
        ({"applied": "[]", "has": {"a": 3}, "status": DONE}, None),
        ({"applied": '{"clusterAffinity": 7}', "has": {"a": 3}, "status": DONE}, None),
        ({"applied": "null", "has": {"a": 3}, "status": DONE}, Trigger.PLACEMENT),
        ({"applied": "null", "placement": {}, "has": {"a": 3}, "status": DONE}, Trigger.ALWAYS),
        ({"applied": '{"a":' * 900 + "1" + "}" * 900, "has": {"a": 3}, "status": DONE}, None),
        ({"applied": DYNAMIC, "has": {"a": 2}, "status": DONE}, Trigger.REPLICAS),
        ({"applied": DYNAMIC, "has": {"a": 2, "b": 2}, "status": DONE}, Trigger.REPLICAS),
        ({"applied": DUPLICATED, "placement": DUPLICATED, "has": {"a": 2}, "status": DONE}, Trigger.REPLICAS),
        ({"applied": DUPLICATED, "placement": DUPLICATED, "has": {"a": 3}, "status": DONE}, Trigger.ALWAYS),
        ({"applied": {"x": 1}, "placement": {"x": 1}, "has": {"a": 2}, "status": DONE}, Trigger.ALWAYS),
        (
            {"applied": DYNAMIC, "has": {"a": 3}, "status": LATER, "rescheduleTriggeredAt": "2026-11-20T10:00:00Z"},
            Trigger.RESCHEDULE,
        ),
        (
            {"applied": DYNAMIC, "has": {"a": 3}, "status": LATER, "rescheduleTriggeredAt": "2026-11-20T08:00:00Z"},
            None,
        ),
        (
            {"applied": DYNAMIC, "replicas": 0, "replicaRequirements": None, "status": DONE},
            Trigger.ALWAYS,
        ),
        ({"applied": DYNAMIC, "status": DONE} | PARTS, Trigger.REPLICAS),
        ({"applied": DYNAMIC, "has": {"a": 0}, "status": DONE} | PARTS, None),
        ({"applied": DYNAMIC, "has": {"gone": 3}, "status": DONE}, Trigger.CLUSTER_GONE),
        ({"applied": DYNAMIC, "has": {"a": 3}}, Trigger.INTERRUPTED),
    ],
)  # fmt: skip
def test_the_first_reason_that_is_true_counts(given: dict[str, Any], expected: Trigger | None) -> None:
    assert trigger(binding(**given), is_leaving=lambda name: name == "gone") is expected


@pytest.mark.parametrize(
    ("asked", "applied", "observed", "is_new"),
    [
        (TERMS, TERMS, "", False),
        (TERMS, OTHER, "", True),
        (TERMS, OTHER, "own", False),
        (TERMS, OTHER, "cloud", True),
        (TERMS, OTHER, "gone", True),
    ],
)
def test_only_the_observed_affinity_term_counts(
    asked: list[dict[str, Any]], applied: list[dict[str, Any]], observed: str, is_new: bool
) -> None:
    found = binding(
        placement=DYNAMIC | {"clusterAffinities": asked},
        applied=DYNAMIC | {"clusterAffinities": applied},
        has={"a": 3},
        status={"schedulerObservingAffinityName": observed, "conditions": SUCCESS},
    )
    assert trigger(found, is_leaving=lambda _: False) is (Trigger.PLACEMENT if is_new else None)


@pytest.mark.parametrize(("observed", "is_new"), [("", True), ("own", False), ("gone", True)])
def test_workload_affinity_alone_is_a_new_placement_unless_a_term_placed_the_workload(
    observed: str, is_new: bool
) -> None:
    found = binding(
        placement=DYNAMIC | {"clusterAffinities": TERMS, "workloadAffinity": {"affinity": {"groupByLabelKey": "app"}}},
        applied=DYNAMIC | {"clusterAffinities": TERMS},
        has={"a": 3},
        status=DONE | {"schedulerObservingAffinityName": observed},
    )
    assert trigger(found, is_leaving=lambda _: False) is (Trigger.PLACEMENT if is_new else None)


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ({}, True),
        ({"schedulerName": "default-scheduler"}, False),
        ({"schedulerName": ""}, False),
        ({"suspension": {"scheduling": True}}, False),
        ({"suspension": {"dispatching": True}}, True),
        ({"meta": {"deletionTimestamp": "2026-11-20T09:00:00Z"}}, False),
        ({"meta": {"labels": {}}}, False),
        ({"meta": {"labels": {"propagationpolicy.karmada.io/permanent-id": ""}}}, False),
        ({"meta": {"labels": {"binding.karmada.io/managed-by": "x"}}}, True),
    ],
)
def test_a_binding_is_ours_if_it_asks_for_us_and_karmada_made_it(given: dict[str, Any], served: bool) -> None:
    assert serves({"fleet"}, binding(**given)) is served


def test_a_binding_without_a_placement_follows_others() -> None:
    found = raw_binding()
    del found["spec"]["placement"]
    assert not serves({"fleet"}, msgspec.convert(found, ResourceBinding))


def test_a_binding_without_a_scheduler_is_the_default_schedulers() -> None:
    assert serves({"default-scheduler"}, binding(schedulerName=""))
