"""Defaults of fixtures equal those that a real API server set on the same objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube_policy_scheduler.cluster import defaulting
from kube_policy_scheduler.quantities.quantity import scaled
from tests.embedded.cases import recording_of, steps_of

Json = dict[str, Any]


def created_pods() -> list[Any]:
    found = []
    for name in ("pods", "binding", "patches"):
        answers = json.loads(recording_of(name).read_text(encoding="utf-8"))
        for step, answer in zip(steps_of(name), answers, strict=True):
            body = answer.get("body")
            if step["send"] == "POST {pods}" and answer["code"] == 201 and isinstance(step.get("body"), dict):
                found.append(pytest.param(step["body"], body, id=body["metadata"]["name"]))
    return found


@pytest.mark.parametrize(("given", "stored"), created_pods())
def test_a_pod_gets_the_spec_a_real_api_server_gave_it(given: Json, stored: Json) -> None:
    done = defaulting.default_pod(given)
    wanted = json.loads(json.dumps(stored["spec"]))
    assert normalised(done["spec"]) == normalised(wanted)
    assert done["status"]["qosClass"] == stored["status"]["qosClass"]


def normalised(value: Any) -> Any:
    """Normalize quantities, which only the API server rewrites."""
    if isinstance(value, dict):
        return {
            key: {name: scaled(amount, 9) for name, amount in item.items()}
            if key in ("requests", "limits")
            else normalised(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return value


def test_the_argument_is_left_alone() -> None:
    given: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    before = json.dumps(given)
    defaulting.default_pod(given)
    assert json.dumps(given) == before


def test_defaulting_twice_changes_nothing_more() -> None:
    given: Json = {
        "metadata": {"name": "p", "labels": {"v": "1"}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["v"]}
            ],
        },
    }
    once = defaulting.default_pod(given)
    assert defaulting.default_pod(once) == once


def test_a_global_default_class_gives_its_priority() -> None:
    classes = {"usual": {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True, "preemptionPolicy": "Never"}}
    given: Json = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    spec = defaulting.default_pod(given, priority_classes=classes)["spec"]
    assert (spec["priority"], spec["priorityClassName"], spec["preemptionPolicy"]) == (7, "usual", "Never")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"priorityClassName": "absent"}, "no PriorityClass with name absent was found"),
        ({"priority": 5}, "must not be provided in pod spec"),
    ],
)
def test_contradictions_about_priority_are_refused(spec: Json, text: str) -> None:
    with pytest.raises(defaulting.AdmissionError, match=text):
        defaulting.default_pod({"metadata": {"name": "p"}, "spec": {"containers": [], **spec}})


def test_a_runtime_class_gives_overhead_selector_and_tolerations() -> None:
    runtime = {
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"r": "x"}, "tolerations": [{"key": "r", "operator": "Exists"}]},
    }
    given: Json = {"metadata": {"name": "p"}, "spec": {"runtimeClassName": "gvisor", "containers": []}}
    spec = defaulting.default_pod(given, runtime_classes={"gvisor": runtime})["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"r": "x"}
    assert {"key": "r", "operator": "Exists"} in spec["tolerations"]


def test_a_node_offers_its_capacity_by_default() -> None:
    whole = defaulting.default_node({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}})
    less = defaulting.default_node(
        {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}
    )
    assert whole["status"]["allocatable"] == {"cpu": "4"}
    assert less["status"]["allocatable"] == {"cpu": "3"}


def test_finer_amounts_than_a_thousandth_are_rounded_up() -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "0.0001"}}}
    spec = defaulting.default_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1m"}
