"""What the status page says about devices that pods claim."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.serving import device_uses as module
from kube_policy_scheduler.daemon.serving.device_uses import device_uses, section
from kube_policy_scheduler.daemon.serving.status_snapshot import take_snapshot
from kube_policy_scheduler.daemon.serving.status_words import put_into_words
from kube_policy_scheduler.pages.status import render
from tests.daemon.status_stage import Scene
from tests.test_kubernetes_rules import rules_of


def publish(cluster: Cluster, node: str | None, count: int, driver: str = "gpu") -> None:
    name = f"{driver}-{node or 'all'}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    where = {"nodeName": node} if node is not None else {"allNodes": True}
    spec = {"driver": driver, "pool": pool, "devices": [{"name": f"d{at}"} for at in range(count)], **where}
    cluster.set_object(msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.ResourceSlice))


def claim(cluster: Cluster, name: str, pool: str, device: str, *pods: str, request: str = "r") -> None:
    result = {"request": request, "driver": "gpu", "pool": pool, "device": device}
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    sub = {"name": "small", "deviceClassName": "tiny"}
    wanted: list[dict[str, Any]] = [
        {"name": "r", "exactly": {"deviceClassName": "large", "allocationMode": "ExactCount", "count": 1}},
        {"name": "f", "firstAvailable": [sub]},
    ]
    body = {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"devices": {"requests": wanted}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users},
    }
    cluster.set_object(msgspec.convert(body, objects.ResourceClaim))


def used_cluster() -> Cluster:
    cluster = Cluster()
    publish(cluster, "a", 4)
    publish(cluster, "b", 2)
    publish(cluster, None, 1, driver="net")
    claim(cluster, "one", "gpu-b", "d0", "train-0")
    claim(cluster, "two", "gpu-b", "d1", "x", "y", "z", request="f/small")
    claim(cluster, "three", "gpu-a", "d3")
    return cluster


def test_devices_are_shown_by_node_with_those_who_use_them() -> None:
    found = device_uses(used_cluster())
    assert found is not None
    shown = section(found)
    assert shown.text == "7 devices: 3 used, 4 free"
    assert [(row.node, row.driver, row.devices, row.used, row.by) for row in shown.rows] == [
        ("b", "gpu", 2, 2, "ml/train-0 (large), ml/x, ml/y and 1 more (tiny)"),
        ("a", "gpu", 4, 1, "claim ml/three (large)"),
        ("several nodes", "net", 1, 0, ""),
    ]


def test_free_devices_that_are_tainted_are_counted() -> None:
    cluster = Cluster(rules_of("1.37"))
    publish(cluster, "a", 4)
    claim(cluster, "three", "gpu-a", "d3")
    for name, device, effect in (("r", "d0", "NoExecute"), ("s", "d1", "None"), ("t", "d3", "NoSchedule")):
        spec = {"deviceSelector": {"device": device}, "taint": {"key": "bad", "effect": effect}}
        cluster.set_object(msgspec.convert({"metadata": {"name": name}, "spec": spec}, objects.DeviceTaintRule))
    found = device_uses(cluster)
    assert found is not None
    assert section(found).text == "4 devices: 1 used, 3 free, 1 of them tainted"


def test_the_cluster_counts_devices_and_those_in_use() -> None:
    cluster = used_cluster()
    assert (cluster.resource_slices.device_count(), cluster.resource_claims.allocated.count()) == (7, 3)
    cluster.resource_slices.remove(next(info.slice for info in cluster.resource_slices if info.name == "gpu-a"))
    assert cluster.resource_slices.device_count() == 3


def test_of_very_many_devices_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DEVICES", 4)
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    cluster = Cluster()
    for number in range(9):
        publish(cluster, f"n{number}", 2)
    found = device_uses(cluster)
    assert found is not None
    assert section(found).text == "4 devices: 0 used, 4 free (the first of 18)"
    assert (len(section(found).rows), section(found).left_out) == (1, 1)


def test_the_page_has_devices_only_if_there_are_some() -> None:
    taken = take_snapshot(Scene(nodes=3, decided=0).sources())
    assert 'id="devices"' not in render(put_into_words(taken)).html
    html = render(put_into_words(msgspec.structs.replace(taken, devices=device_uses(used_cluster())))).html
    assert 'id="devices"' in html
    assert "ml/train-0 (large)" in html
