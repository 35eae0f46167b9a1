"""Simulated nodes: they become ready, run bound pods, reject pods that do not fit, and stop deleted pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster, KubeletSettings
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from tests.patience import PATIENCE_SECONDS

Json = dict[str, Any]


def node(name: str, **status: Any) -> Json:
    capacity = {"cpu": "2", "memory": "4Gi", "pods": "3"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": capacity, **status}}


def pod(name: str, on: str = "", *, cpu: str = "500m", **spec: Any) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    body = {"containers": [container], **spec} | ({"nodeName": on} if on else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


class Driver:
    """Reads and writes a cluster that runs in this loop."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def send(self, verb: str, plural: str, body: Json) -> Json:
        namespace = None if plural == "nodes" else "default"
        target = Target(verb, resource(plural), namespace, body["metadata"]["name"], "")
        done: Json = orjson.loads(self.cluster.api.create(target, body))
        return done

    def get(self, plural: str, name: str) -> Json | None:
        entry = self.cluster.api.store.collection(plural).get(("" if plural == "nodes" else "default", name))
        return entry.decode() if entry else None

    def phase(self, name: str) -> str | None:
        found = self.get("pods", name)
        return found["status"]["phase"] if found else None

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - anything may make it true
                await asyncio.sleep(0)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with EmbeddedCluster() as cluster:
        yield Driver(cluster)


async def test_a_new_node_gets_ready_and_loses_the_taint_that_kept_pods_away(driver: Driver) -> None:
    made = driver.send("create", "nodes", node("a"))
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

    def ready() -> bool:
        found = driver.get("nodes", "a")
        assert found is not None
        return "taints" not in found["spec"] and found["metadata"]["labels"]["kubernetes.io/hostname"] == "a"

    await driver.until(lambda: (driver.get("nodes", "a") or {})["status"].get("conditions"))
    await driver.until(ready)


async def test_a_node_that_says_it_is_not_ready_stays_so_and_is_tainted(driver: Driver) -> None:
    driver.cluster.load([node("a", conditions=[{"type": "Ready", "status": "False"}])])
    await driver.until(lambda: (driver.get("nodes", "a") or {})["spec"].get("taints"))
    found = driver.get("nodes", "a")
    assert found is not None
    assert {(item["key"], item["effect"]) for item in found["spec"]["taints"]} == {
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
    }


async def test_a_bound_pod_comes_to_run_with_addresses_and_conditions(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    driver.send("create", "pods", pod("p", "a"))
    await driver.until(lambda: driver.phase("p") == "Running")
    status = (driver.get("pods", "p") or {})["status"]
    assert status["podIP"].startswith("10.")
    assert {item["type"]: item["status"] for item in status["conditions"]}["Ready"] == "True"
    assert status["containerStatuses"][0]["state"]["running"]


async def test_pods_that_do_not_fit_together_are_refused_one_by_one(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    for name in ("p1", "p2"):
        driver.send("create", "pods", pod(name, "a", cpu="1500m"))
    await driver.until(lambda: driver.phase("p2") == "Failed")
    assert driver.phase("p1") == "Running"
    status = (driver.get("pods", "p2") or {})["status"]
    assert status["reason"] == "OutOfcpu"
    assert "requested: 1500, used: 1500, capacity: 2000" in status["message"]


async def test_a_node_takes_no_more_pods_than_it_has_room_for(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    for number in range(4):
        driver.send("create", "pods", pod(f"p{number}", "a", cpu="1m"))
    await driver.until(lambda: all(driver.phase(f"p{number}") != "Pending" for number in range(4)))
    assert [driver.phase(f"p{number}") for number in range(4)] == ["Running"] * 3 + ["Failed"]
    assert (driver.get("pods", "p3") or {})["status"]["reason"] == "OutOfpods"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "NodeAffinity"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        }
                    }
                }
            },
            "NodeAffinity",
        ),
    ],
)
async def test_a_pod_on_a_node_it_did_not_select_is_refused(driver: Driver, spec: Json, reason: str) -> None:
    driver.cluster.load([node("a")])
    driver.send("create", "pods", pod("p", "a", **spec))
    await driver.until(lambda: driver.phase("p") == "Failed")
    assert (driver.get("pods", "p") or {})["status"]["reason"] == reason


async def test_two_pods_cannot_have_one_host_port(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    ports = [{"containerPort": 80, "hostPort": 80}]
    for name in ("p1", "p2"):
        driver.send("create", "pods", pod(name, "a", containers=[{"name": "c", "image": "x", "ports": ports}]))
    await driver.until(lambda: driver.phase("p2") == "Failed")
    assert (driver.get("pods", "p2") or {})["status"]["reason"] == "NodePorts"


async def test_a_taint_that_evicts_refuses_pods_that_do_not_tolerate_it(driver: Driver) -> None:
    tainted = node("a") | {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}
    driver.cluster.load([tainted])
    driver.send("create", "pods", pod("p", "a"))
    driver.send("create", "pods", pod("q", "a", tolerations=[{"key": "k", "operator": "Exists"}]))
    await driver.until(lambda: driver.phase("p") == "Failed" and driver.phase("q") == "Running")
    assert (driver.get("pods", "p") or {})["status"]["reason"] == "TaintToleration"


async def test_what_ends_makes_room_again(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    driver.send("create", "pods", pod("p1", "a", cpu="2"))
    await driver.until(lambda: driver.phase("p1") == "Running")
    driver.cluster.api.delete(Target("delete", resource("pods"), "default", "p1", ""), {})
    await driver.until(lambda: driver.phase("p1") is None)
    driver.send("create", "pods", pod("p2", "a", cpu="2"))
    await driver.until(lambda: driver.phase("p2") == "Running")


async def test_a_pod_with_a_run_time_succeeds_after_it(driver: Driver) -> None:
    driver.cluster.load([node("a")])
    timed = pod("p", "a")
    timed["metadata"]["annotations"] = {"embedded/run-seconds": "0.01"}
    driver.send("create", "pods", timed)
    await driver.until(lambda: driver.phase("p") == "Succeeded")
    terminated = (driver.get("pods", "p") or {})["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")


async def test_a_pod_waits_for_a_node_that_comes_later(driver: Driver) -> None:
    driver.send("create", "pods", pod("p", "late"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert driver.phase("p") == "Pending"
    driver.send("create", "nodes", node("late"))
    await driver.until(lambda: driver.phase("p") == "Running")


async def test_cordoning_a_node_taints_it_until_it_is_undone(driver: Driver) -> None:
    driver.cluster.load([node("a")])

    def taints() -> list[str]:
        found = driver.get("nodes", "a")
        assert found is not None
        return [item["key"] for item in found["spec"].get("taints", ())]

    target = Target("patch", resource("nodes"), None, "a", "")
    merge = "application/merge-patch+json"
    driver.cluster.api.patch(target, b'{"spec":{"unschedulable":true}}', content_type=merge)
    await driver.until(lambda: taints() == ["node.kubernetes.io/unschedulable"])
    driver.cluster.api.patch(target, b'{"spec":{"unschedulable":null}}', content_type=merge)
    await driver.until(lambda: taints() == [])


async def test_pods_that_already_run_when_they_are_loaded_count_too() -> None:
    async with EmbeddedCluster() as cluster:
        driver = Driver(cluster)
        cluster.load([node("a"), pod("old", "a", cpu="2") | {"status": {"phase": "Running"}}])
        driver.send("create", "pods", pod("new", "a"))
        await driver.until(lambda: driver.phase("new") == "Failed")
        assert driver.phase("old") == "Running"


async def test_starting_can_take_time() -> None:
    async with EmbeddedCluster(kubelets=KubeletSettings(start_seconds=0.05)) as cluster:
        driver = Driver(cluster)
        cluster.load([node("a")])
        driver.send("create", "pods", pod("p", "a"))
        await asyncio.sleep(0)
        assert driver.phase("p") == "Pending"
        await driver.until(lambda: driver.phase("p") == "Running")


async def test_kubelets_can_accept_everything() -> None:
    async with EmbeddedCluster(kubelets=KubeletSettings(check_pods=False)) as cluster:
        driver = Driver(cluster)
        cluster.load([node("a")])
        driver.send("create", "pods", pod("p", "a", cpu="64"))
        await driver.until(lambda: driver.phase("p") == "Running")
