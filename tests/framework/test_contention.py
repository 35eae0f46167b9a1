"""Two schedulers that allocate the same devices: the allocation that is stored first stands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.devices.contention import contention

Json = dict[str, Any]
DRIVER = "gpu.example.com"
SHARE = "00000000-0000-4000-8000-00000000000"


def published(cluster: Cluster, devices: list[Json], **spec: Any) -> None:
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    thing = {"metadata": {"name": "s"}, "spec": {"driver": DRIVER, "pool": pool, "devices": devices, **spec}}
    cluster.set_object(msgspec.convert(thing, objects.ResourceSlice))


def stored(cluster: Cluster, name: str, device: str = "", **result: Any) -> objects.ResourceClaim:
    """Let the watch show a claim; without a device one that has none."""
    results = [{"request": "r", "driver": DRIVER, "pool": "fabric", "device": device, **result}]
    status = {"allocation": {"devices": {"results": results}}} if device else {}
    thing = {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}
    claim = msgspec.convert(thing, objects.ResourceClaim)
    cluster.set_object(claim)
    return claim


def share(number: int, amount: str) -> Json:
    return {"shareID": f"{SHARE}{number}", "consumedCapacity": {"memory": amount}}


def test_the_first_allocation_of_a_device_stands_and_the_second_does_not() -> None:
    cluster = Cluster()
    first = stored(cluster, "first", "a")
    assert contention(first, cluster) == ""
    second = stored(cluster, "second", "a")
    assert (
        contention(second, cluster) == f"device {DRIVER}/fabric/a was allocated to claim default/first at the same time"
    )
    assert contention(stored(cluster, "third", "b"), cluster) == ""


@pytest.mark.parametrize("frees", [True, False], ids=["deallocated", "deleted"])
def test_a_device_that_was_given_back_may_be_allocated_again(frees: bool) -> None:
    cluster = Cluster()
    first = stored(cluster, "first", "a")
    if frees:
        stored(cluster, "first")
    else:
        cluster.remove_object(first)
    assert contention(stored(cluster, "second", "a"), cluster) == ""


def test_admin_access_takes_nothing_away() -> None:
    cluster = Cluster()
    stored(cluster, "first", "a", adminAccess=True)
    assert contention(stored(cluster, "second", "a"), cluster) == ""
    assert contention(stored(cluster, "third", "a", adminAccess=True), cluster) == ""


def test_shares_stand_together_as_far_as_the_capacity_goes() -> None:
    cluster = Cluster()
    published(cluster, [{"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}])
    assert contention(stored(cluster, "first", "a", **share(1, "4Gi")), cluster) == ""
    assert contention(stored(cluster, "second", "a", **share(2, "6Gi")), cluster) == ""
    third = stored(cluster, "third", "a", **share(3, "1Gi"))
    assert contention(third, cluster).startswith(f"memory of device {DRIVER}/fabric/a was allocated to claim ")


def test_partitions_stand_together_as_far_as_the_counters_go() -> None:
    cluster = Cluster()
    takes = [{"counterSet": "gpu", "counters": {"slices": {"value": "2"}}}]
    counters = [{"name": "gpu", "counters": {"slices": {"value": "4"}}}]
    published(cluster, [{"name": name, "consumesCounters": takes} for name in "abc"], sharedCounters=counters)
    assert contention(stored(cluster, "first", "a"), cluster) == ""
    assert contention(stored(cluster, "second", "b"), cluster) == ""
    third = stored(cluster, "third", "c")
    assert contention(third, cluster) == (
        f"counter gpu/slices of pool {DRIVER}/fabric was used up by another claim at the same time"
    )
