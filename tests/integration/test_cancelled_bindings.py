"""A pod that waits for its device is no victim to delete: its binding is cancelled, and it stays."""

from __future__ import annotations

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import DRIVER, claim, claim_pod, device_class, resource_slice, taken
from tests.integration.objects import Json, node, pod


def test_a_binding_that_waits_for_a_device_is_cancelled_for_a_pod_of_higher_priority(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    cluster.add_nodes(node("n1", cpu="2"))
    cluster.ensure("deviceclasses", device_class("gpu"))
    attached: Json = {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",), more=attached))
    cluster.api.create("resourceclaims", claim("low"))
    cluster.ensure("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    scheduler().start_ready()
    low = claim_pod("low")
    low["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    cluster.add_pods(low)
    eventually(lambda: cluster.events("low", reason="BindingConditionsPending"))
    uid = cluster.pod("low")["metadata"]["uid"]
    cluster.add_pods(pod("high", cpu="1500m", priorityClassName="high", priority=1000))
    assert cluster.wait_bound("high") == {"high": "n1"}
    there = cluster.pod("low")
    assert there["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in there["metadata"]
    assert not there["spec"].get("nodeName")
    eventually(lambda: cluster.events("low", reason="Preempted"))
    assert any("was cancelled" in event["note"] for event in cluster.events("low", reason="FailedScheduling"))
    eventually(lambda: not cluster.api.get("resourceclaims", "low")["status"].get("reservedFor"))
    cluster.delete_pod("high")
    eventually(lambda: cluster.api.get("resourceclaims", "low")["status"].get("reservedFor"))
    condition = {"type": "attached", "status": "True", "reason": "Done", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    known = {"driver": DRIVER, "pool": "n1", "device": "gpu0", "conditions": [condition]}
    cluster.api.patch("resourceclaims", "low", {"status": {"devices": [known]}}, subresource="status")
    assert cluster.wait_bound("low") == {"low": "n1"}
    assert taken(cluster) == [("n1", "gpu0")]
