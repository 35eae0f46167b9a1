"""What the doctor finds about devices that pods claim."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.tooling.doctor.findings import Status
from tests.test_kubernetes_rules import rules_of
from tests.tooling.doctor.test_findings import found, inspection, nodes, pod

Json = dict[str, Any]
POLICY = "filter node.ready\n"


def slice_of(name: str, *, count: int = 1, pool: str = "", devices: int = 2, driver: str = "gpu") -> Any:
    made = [{"name": f"d{at}", "attributes": {"model": {"string": "a100"}}} for at in range(devices)]
    of_pool = {"name": pool or name, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": driver, "nodeName": "n0", "pool": of_pool, "devices": made}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.ResourceSlice)


def class_of(name: str, expression: str) -> Any:
    selectors = [{"cel": {"expression": expression}}]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, objects.DeviceClass)


def claim_of(name: str, *, class_name: str = "gpu", selector: str = "", device: str = "", pool: str = "s") -> Any:
    exactly: Json = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    results = [{"request": "r", "driver": "gpu", "pool": pool, "device": device}]
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}} if device else {},
    }
    return msgspec.convert(body, objects.ResourceClaim)


GPU = class_of("gpu", 'device.driver == "gpu"')


def devices_of(*things: Any, policy: str = POLICY) -> list[tuple[str, Status, str, str]]:
    return found(inspection(policy, things=[*nodes(), pod(), *things]), "devices")


def test_a_cluster_without_devices_has_nothing_to_say() -> None:
    assert devices_of() == []


def test_a_class_says_how_many_devices_it_has() -> None:
    ok = ("class gpu", Status.OK, "2 devices on 1 node, 1 free", "")
    assert devices_of(slice_of("s"), GPU, claim_of("used", device="d0")) == [ok]


@pytest.mark.parametrize(
    ("things", "subject", "status", "text"),
    [
        ([slice_of("s"), class_of("other", 'device.driver == "x"')], "class other", Status.WARNING,
         "no device meets its selectors"),
        ([GPU, claim_of("c")], "class gpu", Status.PROBLEM,
         "no device meets its selectors, and 1 request of claims wants one"),
        ([class_of("gpu", "1 +")], "class gpu", Status.PROBLEM, "its selector cannot be compiled: "),
        ([slice_of("s"), GPU, claim_of("c", class_name="gpuu")], "claim default/c", Status.PROBLEM,
         "there is no class gpuu"),
        ([slice_of("s"), GPU, claim_of("c", selector='device.attributes["gpu"].model == "h100"')],
         'claim default/c, selector `device.attributes["gpu"].model == "h100"`', Status.PROBLEM,
         "none of 2 devices meets it"),
        ([slice_of("s"), GPU, claim_of("c", selector='device.attributes["gpu"].memory == 1')],
         'claim default/c, selector `device.attributes["gpu"].memory == 1`', Status.PROBLEM,
         "it has an error on a device, which ends each attempt: CEL runtime error: no such key: memory"),
        ([slice_of("s", count=2), GPU], "pool gpu/s", Status.WARNING,
         "1 of 2 slices of generation 1: its devices cannot be used"),
        ([slice_of("s", count=2, pool="p"), slice_of("t", count=2, pool="p"), GPU], "pool gpu/p", Status.PROBLEM,
         "its slices contradict each other: duplicate device name"),
        ([slice_of("s"), GPU, claim_of("c", device="d0", pool="gone")], "pool gpu/gone", Status.PROBLEM,
         "nobody publishes it, but 1 claim has devices of it: default/c"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_devices_is_found(things: list[Any], subject: str, status: Status, text: str) -> None:
    got = devices_of(*things)
    assert any(one[:2] == (subject, status) and one[2].startswith(text) for one in got), got


def rule_of(name: str, selector: Json | None) -> Any:
    spec = {"taint": {"key": "bad", "effect": "NoSchedule"}} | (
        {} if selector is None else {"deviceSelector": selector}
    )
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.DeviceTaintRule)


@pytest.mark.parametrize(
    ("version", "selector", "status", "text"),
    [
        ("1.37", {"device": "d0"}, Status.OK, "it taints 1 device with bad:NoSchedule"),
        ("1.37", {}, Status.OK, "it taints 2 devices with bad:NoSchedule"),
        ("1.37", {"pool": "t"}, Status.WARNING, "it selects no device"),
        ("1.37", None, Status.WARNING, "it has no deviceSelector, and taints 2 devices"),
        ("1.38", None, Status.WARNING, "it has no deviceSelector, and taints 0 devices"),
        ("1.36", {}, Status.OK, "its feature gate DRADeviceTaintRules is off in Kubernetes 1.36: it taints no device"),
    ],
)
def test_a_taint_rule_says_how_many_devices_it_taints(
    version: str, selector: Json | None, status: Status, text: str
) -> None:
    things = [*nodes(), pod(), slice_of("s"), GPU, rule_of("bad", selector)]
    got = found(inspection(POLICY, things=things, rules=rules_of(version)), "devices")
    assert ("DeviceTaintRule bad", status, text) in [one[:3] for one in got]


def test_devices_that_are_never_chosen_are_counted_by_field() -> None:
    made = msgspec.to_builtins(slice_of("s"))
    made["spec"]["skipNodeOperations"] = ["*"]
    got = devices_of(msgspec.convert(made, objects.ResourceSlice), GPU)
    subject = "field skipNodeOperations (alpha, feature gate DRAOptionalNodeOperations)"
    assert (subject, Status.WARNING, "2 devices with this field are never chosen") in [one[:3] for one in got]


@pytest.mark.parametrize(
    ("policy", "subject", "advice"),
    [
        ('score class_devices_free("gpuu")', "class gpuu", "did you mean `gpu`?"),
        ('score 1 if claimed_text("modle") == "a100"', "`modle`", "did you mean `model`?"),
        ('score class_devices_together("gpu", "modl")', "`modl`", "did you mean `model`?"),
        ('devices by device_text("gpu/modell")', "`gpu/modell`", "did you mean `model`?"),
    ],
)
def test_a_policy_that_reads_what_no_device_has_is_found(policy: str, subject: str, advice: str) -> None:
    got = devices_of(slice_of("s"), GPU, policy=f"{POLICY}{policy}")
    assert (subject, Status.PROBLEM, advice) in [(one[0], one[1], one[3]) for one in got]
    meant = policy.replace(subject.strip("`").removeprefix("class ").removeprefix("gpu/"), advice.split("`")[1])
    assert all(one[1] is Status.OK for one in devices_of(slice_of("s"), GPU, policy=f"{POLICY}{meant}"))
