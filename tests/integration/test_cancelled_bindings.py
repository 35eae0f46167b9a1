"""A pod that waits for its device or its volume is no victim to delete: its binding is cancelled, and it stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import DRIVER, claim, claim_pod, device_class, resource_slice, taken
from tests.integration.objects import Json, node, pod

SELECTED_NODE = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True)
class Wait:
    """What a binding waits for."""

    pod: Callable[[Cluster], Json]
    """Make what it needs, and return the pod `low` that needs it."""
    waits: Callable[[Cluster], object]
    """Whether the binding waits."""
    arrives: Callable[[Cluster], None]
    """Do what the driver or the provisioner does that was not there."""


def pod_with_a_device(cluster: Cluster) -> Json:
    cluster.ensure("deviceclasses", device_class("gpu"))
    attached: Json = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    for name in ("n1", "n2"):
        cluster.api.create("resourceslices", resource_slice(name, devices=("gpu0",), more=attached))
    cluster.api.create("resourceclaims", claim("low"))
    return claim_pod("low")


def device_arrives(cluster: Cluster) -> None:
    eventually(lambda: cluster.api.get("resourceclaims", "low")["status"].get("reservedFor"))
    ((pool, device),) = taken(cluster)
    condition = {"type": "attached", "status": "True", "reason": "Done", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    known = {"driver": DRIVER, "pool": pool, "device": device, "conditions": [condition]}
    cluster.api.patch("resourceclaims", "low", {"status": {"devices": [known]}}, subresource="status")


def pod_with_a_volume(cluster: Cluster) -> Json:
    mode = {"provisioner": "nobody.example", "volumeBindingMode": "WaitForFirstConsumer"}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    cluster.ensure("storageclasses", {**kind, "metadata": {"name": "slow"}, **mode})
    spec = {
        "storageClassName": "slow",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    wanted = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "low"}, "spec": spec}
    cluster.api.create("persistentvolumeclaims", wanted)
    return pod("low", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "low"}}])


def volume_arrives(cluster: Cluster) -> None:
    eventually(lambda: SELECTED_NODE in volume_claim(cluster).get("annotations", {}))
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "low"}
    spec = {
        "storageClassName": "slow",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"apiVersion": "v1", **reference, "uid": volume_claim(cluster)["uid"]},
        "csi": {"driver": "nobody.example", "volumeHandle": "one"},
    }
    cluster.api.create(
        "persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "one"}, "spec": spec}
    )
    cluster.api.patch("persistentvolumes", "one", {"status": {"phase": "Bound"}}, subresource="status")
    completed = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    cluster.api.patch("persistentvolumeclaims", "low", {"metadata": completed, "spec": {"volumeName": "one"}})
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    cluster.api.patch("persistentvolumeclaims", "low", {"status": status}, subresource="status")


def volume_claim(cluster: Cluster) -> Json:
    metadata: Json = cluster.api.get("persistentvolumeclaims", "low")["metadata"]
    return metadata


WAITS = {
    "device": Wait(
        pod_with_a_device, lambda cluster: cluster.events("low", reason="BindingConditionsPending"), device_arrives
    ),
    "volume": Wait(
        pod_with_a_volume,
        lambda cluster: SELECTED_NODE in volume_claim(cluster).get("annotations", {}),
        volume_arrives,
    ),
}


@pytest.mark.controllers(volumes=False)  # there is nobody who provisions
@pytest.mark.parametrize("grace", [0, 30])
@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")], ids=["one node", "a second node"])
def test_a_binding_that_waits_is_cancelled_for_a_pod_of_higher_priority(
    what: str, grace: int, nodes: tuple[str, ...], cluster: Cluster, scheduler: StartScheduler
) -> None:
    wait = WAITS[what]
    cluster.add_nodes(*(node(name, cpu="2") for name in nodes))
    cluster.ensure("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    scheduler().start_ready()
    low = wait.pod(cluster)
    low["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    low["spec"]["terminationGracePeriodSeconds"] = grace
    cluster.add_pods(low)
    eventually(lambda: wait.waits(cluster))
    uid = cluster.pod("low")["metadata"]["uid"]
    names = [f"high-{name}" for name in nodes]
    cluster.add_pods(*(pod(name, cpu="1500m", priorityClassName="high", priority=1000) for name in names))
    assert set(cluster.wait_bound(*names).values()) == set(nodes)
    there = cluster.pod("low")
    assert there["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in there["metadata"]
    assert not there["spec"].get("nodeName")
    eventually(lambda: cluster.events("low", reason="Preempted"))
    assert any("was cancelled" in event["note"] for event in cluster.events("low", reason="FailedScheduling"))
    if what == "device":
        eventually(lambda: not cluster.api.get("resourceclaims", "low")["status"].get("reservedFor"))
    cluster.delete_pod(names[-1])
    wait.arrives(cluster)
    cluster.wait_bound("low")
    assert cluster.pod("low")["metadata"]["uid"] == uid
    assert cluster.overcommitted() == []
