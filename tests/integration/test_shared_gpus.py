"""Shares of GPUs in a whole cluster: a share fits on one device, the pod is told which, a restarted scheduler knows."""

from __future__ import annotations

from typing import Any

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

GPU = "nvidia.com/gpu"
DEVICES = "policy-scheduler/devices"


def gpu_node(name: str, gpus: int) -> dict[str, Any]:
    made = node(name)
    offered = {GPU: str(gpus), f"{GPU}-milli": str(gpus * 1000)}
    made["status"]["capacity"] = made["status"]["allocatable"] = made["status"]["allocatable"] | offered
    return made


def gpu_pod(name: str, resource: str, amount: int) -> dict[str, Any]:
    made = pod(name)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"][resource] = str(amount)
    resources["limits"] = {resource: str(amount)}
    return made


def devices(cluster: Cluster, name: str) -> str:
    return str(cluster.pod(name)["metadata"].get("annotations", {}).get(DEVICES, ""))


def test_a_pod_is_told_its_device_and_a_restarted_scheduler_knows_it(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    cluster.add_nodes(gpu_node("a", 2))
    first = scheduler()
    first.start_ready()
    for name, share in (("one", 600), ("two", 700)):
        cluster.add_pods(gpu_pod(name, f"{GPU}-milli", share))
        cluster.wait_bound(name)
    assert (devices(cluster, "one"), devices(cluster, "two")) == (f"{GPU}=0", f"{GPU}=1")
    first.terminate()
    cluster.delete_pod("one")
    scheduler().start_ready()
    cluster.add_pods(gpu_pod("half", f"{GPU}-milli", 500))
    cluster.wait_bound("half")
    assert devices(cluster, "half") == f"{GPU}=0", "the other has 300 left"
    cluster.add_pods(gpu_pod("large", f"{GPU}-milli", 600), gpu_pod("whole", GPU, 1))
    for name in ("large", "whole"):
        eventually(
            lambda at=name: "too little room on each nvidia.com/gpu device" in cluster.condition(at).get("message", "")
        )  # type: ignore[misc]
    cluster.delete_pod("half")
    eventually(lambda: sorted(filter(None, (devices(cluster, n) for n in ("large", "whole")))) == [f"{GPU}=0"])
