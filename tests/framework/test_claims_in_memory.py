"""Devices in recorded clusters: claims from templates, released devices, contents of snapshots."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.device_columns import ClassDevices, class_devices
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, make_claims, take_claims
from kube_policy_scheduler.tooling.snapshot.fields import recorded_objects

NOW = 1_800_000_000.0
PROFILE = kubernetes_profile()
TEMPLATE = {
    "metadata": {"name": "two", "namespace": "default"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}
                ]
            }
        }
    },
}


def cluster_of(*nodes: str, devices: int) -> Cluster:
    cluster = Cluster()
    selector = {"cel": {"expression": 'device.driver == "gpu"'}}
    add(cluster, objects.DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
    add(cluster, objects.ResourceClaimTemplate, TEMPLATE)
    for name in nodes:
        status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
        cluster.set_node(msgspec.convert({"metadata": {"name": name}, "status": status}, objects.Node))
        publish(cluster, name, devices)
    return cluster


def publish(cluster: Cluster, name: str, devices: int) -> None:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu", "nodeName": name, "pool": pool, "devices": [{"name": f"d{i}"} for i in range(devices)]}
    add(cluster, objects.ResourceSlice, {"metadata": {"name": f"{name}-gpu"}, "spec": spec})


def add(cluster: Cluster, kind: type, thing: dict[str, Any]) -> None:
    cluster.set_object(msgspec.convert(thing, kind))


def frame_of(cluster: Cluster, name: str) -> Frame:
    spec = {
        "containers": [{"name": "c"}],
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}],
    }
    metadata = {"name": name, "namespace": "default", "uid": name}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod)
    make_claims(cluster, pod)
    return Frame(cluster.templates.pod(pod), cluster, NOW)


def test_pods_take_devices_until_there_are_none_and_give_them_back_when_they_end() -> None:
    cluster, cycle = cluster_of("a", "b", devices=3), Cycle()
    first, second, third = (frame_of(cluster, name) for name in ("p", "q", "r"))
    for frame in (first, second):
        host = cycle.decide(frame, PROFILE).host
        assert host is not None
        take_claims(cluster, frame.pod, host, now=NOW)
        cluster.place(frame.pod, host)
    assert "cannot allocate all claims" in cycle.decide(third, PROFILE).message
    cluster.displace("p")
    again = give_claims_back(cluster, first.pod)
    assert cycle.decide(third, PROFILE).host is not None
    again()
    assert cycle.decide(third, PROFILE).host is None


def test_what_is_taken_can_be_taken_back() -> None:
    cluster = cluster_of("a", devices=2)
    frame = frame_of(cluster, "p")
    before = list(cluster.resource_claims.all())
    take_back = take_claims(cluster, frame.pod, "a", now=NOW)
    assert list(cluster.resource_claims.all()) != before
    take_back()
    assert list(cluster.resource_claims.all()) == before
    assert Cycle().decide(frame, PROFILE).host == "a"


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_a_class_are_as_if_all_nodes_were_looked_at(seed: int) -> None:
    random = Random(seed)
    names = [f"n{number}" for number in range(6)]
    cluster = cluster_of(*names, devices=4)
    kept = class_devices(cluster, "gpu")
    taken: dict[str, Frame] = {}
    for step in range(60):
        match random.randrange(4):
            case 0:
                publish(cluster, random.choice(names), random.randrange(6))
            case 1 if taken:
                give_claims_back(cluster, taken.pop(random.choice(list(taken))).pod)
            case _:
                frame = frame_of(cluster, f"p{step}")
                take_claims(cluster, frame.pod, random.choice(names), now=NOW)
                taken[frame.pod.uid] = frame
        fresh = ClassDevices(cluster, "gpu")
        assert [column.tolist() for column in kept.columns()] == [column.tolist() for column in fresh.columns()], step


def test_a_snapshot_has_no_opaque_data_of_drivers() -> None:
    secret = "correct-horse"
    told = {"opaque": {"driver": "gpu", "parameters": {"token": secret}}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "finalizers": [secret]},
        "spec": {"devices": {"config": [told]}},
        "status": {
            "allocation": {"devices": {"config": [{"source": "FromClaim", **told}]}},
            "devices": [
                {
                    "driver": "gpu",
                    "pool": "p",
                    "device": "d",
                    "data": {"x": secret},
                    "networkData": {"ips": [secret]},
                    "conditions": [{"type": "Ready", "status": "True", "message": secret}],
                }
            ],
        },
    }
    device_class = {"metadata": {"name": "gpu"}, "spec": {"config": [told]}}
    template = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": {"devices": {"config": [told]}}}}
    things = [
        msgspec.convert(claim, objects.ResourceClaim),
        msgspec.convert(device_class, objects.DeviceClass),
        msgspec.convert(template, objects.ResourceClaimTemplate),
    ]
    text = json.dumps(recorded_objects(things))
    assert secret not in text
    assert text.count('"opaque": {"driver": "gpu"}') == 4


def test_claims_are_made_in_each_cluster_of_the_same_objects() -> None:
    from kube_policy_scheduler.tooling.cluster_state import cluster_state
    from tests.tooling.test_answer_laws import CLAIMS, devices
    from tests.tooling.worlds import things_of

    things = [*devices(1), *things_of([{"name": "n0", "cpu": 1}], [{"name": "m", "namespace": "shop", **CLAIMS}])]
    for _ in range(2):
        claims = cluster_state(things).cluster.all(objects.ResourceClaim)
        assert [claim.metadata.name for claim in claims] == ["m-r"]
