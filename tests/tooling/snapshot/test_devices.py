"""Snapshots of clusters with devices: pods fit the same nodes and get devices alike; no data of drivers is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cli.main import run

Json = dict[str, Any]
SECRET = "hunter2"
LARGE = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
POLICY = 'filter node.ready\nscore claimed_least("memory") / 1e9 ?? 0\ndevices by device_value("memory") desc\n'


def device(name: str, memory: str, numa: int, **more: Any) -> Json:
    return {"name": name, "attributes": {"numa": {"int": numa}}, "capacity": {"memory": {"value": memory}}, **more}


def thing(kind: str, name: str, spec: Json, status: Json | None = None, *, namespaced: bool = True) -> Json:
    metadata = {"name": name, "uid": name} | ({"namespace": "ml"} if namespaced else {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        **({"status": status} if status else {}),
    }


def request(name: str, *, count: int = 1, **more: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **more}}


def pod(name: str, claim: str) -> Json:
    spec = {
        "schedulerName": "policy-scheduler",
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": claim}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec}


def items() -> list[Json]:
    opaque = {"opaque": {"driver": "gpu.example.com", "parameters": {"password": SECRET}}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "pods": "110"}}
    made: list[Json] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": ready} for name in ("a", "b")
    ]
    tainted = {"taints": [{"key": "broken", "value": "fan", "effect": "NoSchedule"}]}
    for node, devices in (
        ("a", [device("gpu-0", "80Gi", 0), device("gpu-1", "80Gi", 1), device("gpu-2", "40Gi", 0)]),
        ("b", [device("gpu-0", "80Gi", 0), device("gpu-1", "80Gi", 0), device("gpu-2", "24Gi", 1, **tainted)]),
    ):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
        made.append(thing("ResourceSlice", f"slice-{node}", spec, namespaced=False))
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    made.append(thing("DeviceClass", "gpu", {"selectors": [selector], "config": [opaque]}, namespaced=False))
    result = {"request": "first/small", "driver": "gpu.example.com", "pool": "a", "device": "gpu-2"}
    first = {"name": "first", "firstAvailable": [{"name": "small", "deviceClassName": "gpu", "count": 1}]}
    chosen = {"devices": {"results": [result], "config": [{"source": "FromClass", **opaque}]}}
    claims = {
        "used": ({"requests": [first]}, {"allocation": chosen}),
        "two": ({"requests": [request("x", count=2, selectors=[{"cel": {"expression": LARGE}}])]}, None),
        "same": (
            {"requests": [request("x"), request("y")], "config": [opaque],
             "constraints": [{"requests": ["x", "y"], "matchAttribute": "gpu.example.com/numa"}]},
            None,
        ),
        "tolerant": (
            {"requests": [request("x", count=3, tolerations=[{"key": "broken", "operator": "Exists"}])]},
            None,
        ),
        "many": ({"requests": [request("x", count=4)]}, None),
    }  # fmt: skip
    made += [thing("ResourceClaim", name, {"devices": devices}, status) for name, (devices, status) in claims.items()]
    return made + [pod(f"pod-{name}", name) for name in claims if name != "used"]


def explained(folder: Path, cluster: str, name: str, capsys: pytest.CaptureFixture[str]) -> Json:
    capsys.readouterr()
    arguments = ["why", name, "--cluster", str(folder / cluster), "--policies", str(folder / "p.policy")]
    run([*arguments, "--format", "json"])
    found: Json = json.loads(capsys.readouterr().out)
    return found


def test_an_anonymised_cluster_decides_about_claims_as_the_real_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items()}))
    (tmp_path / "p.policy").write_text(POLICY)
    arguments = ["snapshot", "--cluster", str(tmp_path / "real.json"), "--anonymise"]
    assert run([*arguments, "-o", str(tmp_path / "hidden.json")]) == 0, capsys.readouterr().err
    text = (tmp_path / "hidden.json").read_text()
    assert SECRET not in text
    assert "gpu-0" not in text
    assert "slice-a" not in text
    hidden = json.loads(text)["items"]
    pods = [one["metadata"] for one in hidden if one["kind"] == "Pod"]
    for name, meta in zip(("two", "same", "tolerant", "many"), pods, strict=True):
        real = explained(tmp_path, "real.json", f"ml/pod-{name}", capsys)
        other = explained(tmp_path, "hidden.json", f"{meta['namespace']}/{meta['name']}", capsys)
        assert other["fits"] == real["fits"], name
        assert (other["ranking"] or {}).get("totals") == (real["ranking"] or {}).get("totals"), name
        assert len(other["devices"]) == len(real["devices"]), name
        assert [one["kind"] for one in other["changes"]] == [one["kind"] for one in real["changes"]], name


def test_an_anonymised_cluster_has_the_taint_rules_of_the_real_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"deviceSelector": {"driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}}
    spec["taint"] = {"key": "broken", "value": "fan", "effect": "NoExecute"}
    rule = thing("DeviceTaintRule", "secret-rule", spec, namespaced=False)
    (tmp_path / "real.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items(), rule]}))
    arguments = ["snapshot", "--cluster", str(tmp_path / "real.json"), "--anonymise"]
    assert run([*arguments, "-o", str(tmp_path / "hidden.json")]) == 0, capsys.readouterr().err
    text = (tmp_path / "hidden.json").read_text()
    assert "secret-rule" not in text
    hidden = {one["metadata"]["name"]: one for one in json.loads(text)["items"]}
    (kept,) = [one for one in hidden.values() if one["kind"] == "DeviceTaintRule"]
    slices = [one["spec"] for one in hidden.values() if one["kind"] == "ResourceSlice"]
    selected = [
        (one["driver"], one["pool"]["name"], device["name"])
        for one in slices
        for device in one["devices"][:1]
        if one["pool"]["name"] == kept["spec"]["deviceSelector"]["pool"]
    ]
    assert [tuple(kept["spec"]["deviceSelector"][key] for key in ("driver", "pool", "device"))] == selected
    tolerations = [
        toleration
        for one in hidden.values()
        if one["kind"] == "ResourceClaim"
        for asked in one["spec"]["devices"]["requests"]
        for toleration in asked.get("exactly", {}).get("tolerations", ())
    ]
    assert [toleration["key"] for toleration in tolerations] == [kept["spec"]["taint"]["key"]]
    capsys.readouterr()


def test_a_snapshot_has_no_parameters_of_drivers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items()}))
    assert run(["snapshot", "--cluster", str(tmp_path / "real.json"), "-o", str(tmp_path / "kept.json")]) == 0
    text = (tmp_path / "kept.json").read_text()
    assert SECRET not in text
    assert "gpu-0" in text
    assert '"opaque"' in text
    capsys.readouterr()
