"""DeviceTaintRules of the embedded cluster, as an API server has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.kubernetes_rules import KubernetesVersion
from tests.embedded.conftest import Server
from tests.embedded.rest import Client

Json = dict[str, Any]
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
TAINT = {"key": "bad", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def newer(server: Server) -> Iterator[Server]:
    """A server of 1.37, the first that has the rules."""
    if server.is_real:
        yield server
        return
    with EmbeddedCluster(kubelets=None, controllers=None, kubernetes=KubernetesVersion(37)).in_thread() as cluster:
        yield dataclasses.replace(server, client=Client(cluster.url))


def send(newer: Server, name: str, spec: Json, verb: str = "POST") -> Any:
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
    path = RULES if verb == "POST" else f"{RULES}/{name}"
    return newer.client.send(verb, path, body={**kind, "metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("selector", [None, {}, {"driver": "gpu.x", "pool": "a/b", "device": "d"}], ids=str)
def test_a_rule_is_created_changed_and_deleted(newer: Server, selector: Json | None) -> None:
    spec: Json = {"taint": TAINT} | ({} if selector is None else {"deviceSelector": selector})
    made = send(newer, "rule", spec)
    assert made.code == 201, made.body
    assert made.body["spec"].get("deviceSelector") == selector
    assert made.body["spec"]["taint"]["timeAdded"] == made.body["metadata"]["creationTimestamp"]
    assert made.body["metadata"]["generation"] == 1
    changed = send(newer, "rule", {**spec, "taint": {**TAINT, "effect": "NoExecute"}}, "PUT")
    assert changed.body["metadata"]["generation"] == 2
    deleted = newer.client.send("DELETE", f"{RULES}/rule")
    assert deleted.body["kind"] == "DeviceTaintRule"


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"taint": {"key": "bad"}}, ["spec.taint.effect"]),
        (
            {"taint": {"key": "a b", "effect": "Foo", "value": "-x"}},
            ["spec.taint.key", "spec.taint.value", "spec.taint.effect"],
        ),
        (
            {"deviceSelector": {"driver": "GPU_X", "pool": "P_/", "device": "D_"}, "taint": TAINT},
            [
                "spec.deviceSelector.driver",
                "spec.deviceSelector.pool",
                "spec.deviceSelector.pool",
                "spec.deviceSelector.device",
            ],
        ),
        (
            {"deviceSelector": {"driver": "", "pool": "", "device": ""}, "taint": TAINT},
            ["spec.deviceSelector.driver", "spec.deviceSelector.pool", "spec.deviceSelector.device"],
        ),
    ],
    ids=str,
)
def test_what_an_api_server_refuses_is_refused(newer: Server, spec: Json, fields: list[str]) -> None:
    refused = send(newer, "wrong", spec)
    assert refused.code == 422
    assert [one["field"] for one in refused.body["details"]["causes"]] == fields


def test_kubectl_gets_the_taint_in_columns(newer: Server) -> None:
    send(newer, "shown", {"taint": {**TAINT, "value": "x"}})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = newer.client.send("GET", RULES, accept=accept).body
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", "Key", "Value", "Effect", "TimeAdded", "Age"]
    assert table["rows"][0]["cells"][:4] == ["shown", "bad", "x", "NoSchedule"]
