"""Schedulers that allocate from one pool of devices, and that are killed between two writes: no device is lost or used
twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import (
    claim,
    claim_pod,
    controlled,
    device_class,
    extended_pod,
    free,
    resource_slice,
    taken,
)
from tests.integration.front import Drop, Exchange, ExpireStream, Fault, Front, Hold, Late
from tests.integration.objects import OURS, Json, node
from tests.integration.process import SchedulerProcess
from tests.integration.test_sharding import CONFIG, replicas

OTHER = "other-scheduler"


def shared_pool(devices: int) -> Json:
    """Devices that every node can use, as those on a network."""
    made = resource_slice("fabric", devices=[f"gpu{number}" for number in range(devices)])
    del made["spec"]["nodeName"]
    made["spec"]["allNodes"] = True
    return made


def devices_by_pod(cluster: Cluster) -> dict[str, list[tuple[str, str]]]:
    """Return the devices of each claim that has some, by the name of the claim, which is that of its pod."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in cluster.api.list("resourceclaims"):
        for result in (one.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", ()):
            found.setdefault(one["metadata"]["name"], []).append((result["pool"], result["device"]))
    return found


def settled(cluster: Cluster, *, bound: int) -> Callable[[], bool]:
    """Return whether so many pods are bound, each to devices of its own, and no other claim has devices."""

    def look() -> bool:
        places = {name for name, at in cluster.placements().items() if at}
        has = devices_by_pod(cluster)
        used = [device for name in places for device in has.get(name, ())]
        assert len(used) == len(set(used)), f"a device is used twice: {sorted(used)}"
        assert all(has.get(name) for name in places), "a pod is bound without its device"
        return len(places) == bound and has.keys() == places

    return look


def add_all(cluster: Cluster, names: dict[str, str]) -> None:
    """Create pods with a claim each. names: the pods, with their schedulers."""
    for name in names:
        cluster.api.create("resourceclaims", claim(name))
    cluster.add_pods(*(claim_pod(name, scheduler=scheduler) for name, scheduler in names.items()))


@pytest.mark.parametrize("watch", ["kept", "expired"])
def test_two_schedulers_use_up_one_pool_and_no_device_twice(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, watch: str
) -> None:
    """The watch of claims may end at any time. The list after it shows what is there, not in which order it came."""
    expired: list[Exchange] = []

    def expire(exchange: Exchange) -> Fault | None:
        if watch == "expired" and exchange.is_about("watch", "resourceclaims") and len(expired) < 6:
            expired.append(exchange)
            return ExpireStream()
        return None

    front.plan = expire
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"), node("n2"))
    cluster.api.create("resourceslices", shared_pool(8))
    through = front.kubeconfig(tmp_path / "front")
    ours = scheduler(f"--scheduler-name={OURS}", kubeconfig=through).start()
    other = scheduler(f"--scheduler-name={OTHER}").start()
    for one in (ours, other):
        one.wait_serving()
        eventually(lambda one=one: one.get("/readyz")[0] == 200, else_=one.log)  # type: ignore[misc]
    add_all(cluster, {f"p{number}": (OURS, OTHER)[number % 2] for number in range(12)})
    eventually(settled(cluster, bound=8), else_=lambda: (cluster.placements(), devices_by_pod(cluster)))
    freed = sorted(name for name, at in cluster.placements().items() if at)[:3]
    for name in freed:
        cluster.delete_pod(name)
        free(cluster, name)
    eventually(settled(cluster, bound=8), else_=lambda: (cluster.placements(), devices_by_pod(cluster)))
    eventually(lambda: len(expired) == (6 if watch == "expired" else 0))
    for one in (ours, other):
        assert "Traceback" not in one.log()


def test_a_device_that_is_allocated_while_no_claims_are_watched_is_not_used_twice(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    """The watch is lost before the claim is written, so only a list shows both claims: ours first, by its name."""
    reserving, listing, expired = Hold(), Hold(), threading.Event()
    expired.set()

    def plan(exchange: Exchange) -> Fault | None:
        match exchange.verb, exchange.resource, exchange.name:
            case "patch", "resourceclaims/status", "in-use":
                return reserving
            case "patch", "resourceclaims/status", "a" if not listing.until.is_set():
                controlled(cluster, "theirs", node_name="n1", device="gpu1")
            case "watch", "resourceclaims", _ if not expired.is_set():
                expired.set()
                return ExpireStream()
            case "list", "resourceclaims", _ if front.asked("patch", "resourceclaims/status"):
                return listing
        return None

    front.plan = plan
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1", "gpu2")))
    for name in ("in-use", "a", "theirs"):
        cluster.api.create("resourceclaims", claim(name))
    controlled(cluster, "in-use", node_name="n1", device="gpu0")
    ours = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    lists = len(front.asked("list", "resourceclaims"))
    cluster.add_pods(claim_pod("web", claims=("in-use", "a")))
    eventually(lambda: front.asked("patch", "resourceclaims/status"))
    expired.clear()
    front.cut_connections()
    eventually(lambda: any(each.query.get("limit") != "1" for each in front.asked("list", "resourceclaims")[lists:]))
    reserving.until.set()
    eventually(lambda: any(each.name == "a" for each in front.asked("patch", "resourceclaims/status", code=200)))
    listing.until.set()
    cluster.wait_bound("web")
    assert devices_by_pod(cluster) == {"in-use": [("n1", "gpu0")], "a": [("n1", "gpu2")], "theirs": [("n1", "gpu1")]}
    assert "was allocated to claim default/theirs at the same time" in ours.log()


def test_replicas_that_share_the_work_use_each_device_once(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG % (300.0, 200.0))
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(*(node(f"n{number}") for number in range(6)))
    cluster.api.create("resourceslices", shared_pool(8))
    found = replicas(scheduler, f"--config={path}", 2)
    add_all(cluster, {f"p{number}": OURS for number in range(12)})
    eventually(settled(cluster, bound=8), else_=lambda: (cluster.placements(), devices_by_pod(cluster)))
    for one in found:
        assert "Traceback" not in one.log()


KILLS = {
    "before the finalizer": ("patch", "resourceclaims", 1, Drop()),
    "after the finalizer": ("patch", "resourceclaims", 1, Late(0.0)),
    "before the allocation": ("patch", "resourceclaims/status", 1, Drop()),
    "after the allocation": ("patch", "resourceclaims/status", 1, Late(0.0)),
    "before the binding": ("create", "pods/binding", 1, Drop()),
    "after the binding": ("create", "pods/binding", 1, Late(0.0)),
}


class Killer:
    """Kills a scheduler at one of its requests; the request is carried out or not."""

    def __init__(self, verb: str, resource: str, number: int, fault: Fault) -> None:
        self._about = (verb, resource)
        self._left = number
        self._fault = fault
        self.process: SchedulerProcess | None = None
        self.before: Callable[[], object] = lambda: None

    def __call__(self, exchange: Exchange) -> Fault | None:
        if self.process is None or not exchange.is_about(*self._about) or self._left <= 0:
            return None
        self._left -= 1
        if self._left:
            return None
        self.before()
        self.process.kill()
        return self._fault

    @property
    def has_killed(self) -> bool:
        return self.process is not None and not self.process.is_alive


@pytest.mark.parametrize("at", KILLS)
def test_a_scheduler_that_is_killed_leaves_nothing_behind(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, at: str
) -> None:
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1")))
    front.plan = killer = Killer(*KILLS[at])
    killer.process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    add_all(cluster, dict.fromkeys("ab", OURS))
    eventually(lambda: killer.has_killed)
    scheduler().start_ready()
    eventually(settled(cluster, bound=2), else_=lambda: (cluster.placements(), devices_by_pod(cluster)))
    for name in "ab":
        users = cluster.api.get("resourceclaims", name)["status"]["reservedFor"]
        assert [user["name"] for user in users] == [name]


def test_a_reservation_for_a_pod_that_was_not_bound_does_not_keep_the_claim(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    """The claim had its devices before; the scheduler is killed between reservedFor and the binding."""
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",)))
    cluster.api.create("resourceclaims", claim("shared"))
    controlled(cluster, "shared", node_name="n1", device="gpu0")
    front.plan = killer = Killer("create", "pods/binding", 1, Drop())
    killer.process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(claim_pod("first", claims=("shared",)))
    eventually(lambda: killer.has_killed)
    scheduler().start_ready()
    cluster.add_pods(claim_pod("second", claims=("shared",)))
    cluster.wait_bound("first", "second")
    users = cluster.api.get("resourceclaims", "shared")["status"]["reservedFor"]
    assert sorted(user["name"] for user in users) == ["first", "second"]


@pytest.mark.parametrize("at", ["after the allocation", "before it was taken back"])
def test_an_allocation_that_lost_and_was_not_taken_back_is_taken_back_after_the_restart(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, at: str
) -> None:
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1")))
    cluster.api.create("resourceclaims", claim("theirs"))
    cluster.api.create("resourceclaims", claim("ours"))
    first = at == "after the allocation"
    killer = Killer("patch", "resourceclaims/status", 1 if first else 2, Late(0.0) if first else Drop())
    written: list[str] = []

    def theirs_first(exchange: Exchange) -> Fault | None:
        if exchange.is_about("patch", "resourceclaims/status") and not written:
            written.append(exchange.name)
            controlled(cluster, "theirs", node_name="n1", device="gpu0")
        return killer(exchange)

    front.plan = theirs_first
    killer.process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(claim_pod("ours"))
    eventually(lambda: killer.has_killed)
    eventually(lambda: taken(cluster) == [("n1", "gpu0")] * 2)
    restarted = scheduler().start_ready()
    cluster.wait_bound("ours")
    assert devices_by_pod(cluster) == {"ours": [("n1", "gpu1")], "theirs": [("n1", "gpu0")]}
    assert "was allocated to claim default/theirs at the same time" in restarted.log()


@pytest.mark.parametrize("at", ["before the allocation", "after the allocation", "before the binding"])
def test_a_claim_for_extended_resources_of_a_killed_scheduler_is_not_left_behind(
    cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path, at: str
) -> None:
    cluster.api.create("deviceclasses", device_class("gpu", extended="example.com/gpu"))
    cluster.add_nodes(node("n1"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1")))
    front.plan = killer = Killer(*KILLS[at])
    killer.process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(extended_pod("web", "example.com/gpu", 2))
    eventually(lambda: killer.has_killed)
    scheduler().start_ready()
    cluster.wait_bound("web")
    named = cluster.pod("web")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert [one["metadata"]["name"] for one in cluster.api.list("resourceclaims")] == [named]
    assert sorted(taken(cluster)) == [("n1", "gpu0"), ("n1", "gpu1")]
