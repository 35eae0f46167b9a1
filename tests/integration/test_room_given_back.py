"""Room that a pod kept by its nomination helps those that wait for it at once, in whatever way the nomination ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kubectl import kubectl
from tests.integration.objects import Json, node, pod

HOLDS = "test.example/holds"
HIGH: Json = {"priorityClassName": "high", "priority": 1000}
ENDS: dict[str, Callable[[Cluster], object]] = {
    "is deleted": lambda cluster: cluster.delete_pod("keeps"),
    "ends, and a finalizer holds it": lambda cluster: cluster.api.request("DELETE", cluster.api.path("pods", "keeps")),
    "is moved": lambda cluster: nominate(cluster, "keeps", "n2"),
    "is bound elsewhere": lambda cluster: cluster.bind("keeps", "n2"),
    "fails": lambda cluster: cluster.api.patch("pods", "keeps", {"status": {"phase": "Failed"}}, subresource="status"),
}


def nominate(cluster: Cluster, name: str, node_name: str | None) -> None:
    cluster.api.patch("pods", name, {"status": {"nominatedNodeName": node_name}}, subresource="status")


@pytest.fixture
def waits(cluster: Cluster, scheduler: StartScheduler) -> Callable[..., None]:
    """Let a pod `keeps` hold by its nomination what a pod `waits` needs; it cannot run itself, nor preempt."""

    def arrange(*finalizers: str) -> None:
        on_n1 = {"kubernetes.io/hostname": "n1"}
        cluster.ensure("priorityclasses", {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
        cluster.add_nodes(node("n1"), node("n2"))
        cluster.add_pods(pod("runs", cpu="2", nodeSelector=on_n1))
        scheduler().start_ready()
        cluster.wait_bound("runs")
        keeps = pod("keeps", cpu="3", nodeSelector=on_n1, preemptionPolicy="Never", **HIGH)
        keeps["metadata"]["finalizers"] = list(finalizers)
        cluster.add_pods(keeps)
        eventually(lambda: cluster.condition("keeps").get("reason") == "Unschedulable")
        nominate(cluster, "keeps", "n1")
        cluster.add_pods(pod("waits", cpu="1500m", nodeSelector=on_n1))
        eventually(lambda: cluster.condition("waits").get("reason") == "Unschedulable")

    return arrange


@pytest.mark.parametrize("change", ENDS)
def test_a_pod_that_waits_is_bound_when_the_nominated_one(
    change: str, cluster: Cluster, waits: Callable[..., None]
) -> None:
    waits(*([HOLDS] if "finalizer" in change else []))
    ENDS[change](cluster)
    assert cluster.wait_bound("waits") == {"waits": "n1"}  # by itself it is tried again after five minutes


@pytest.mark.needs("kubectl")
def test_a_pod_that_waits_is_bound_when_somebody_clears_the_nomination(
    cluster: Cluster, waits: Callable[..., None], tmp_path: Path
) -> None:
    waits()
    change = json.dumps({"status": {"nominatedNodeName": None}})
    config = cluster.kubeconfig(tmp_path / "admin")
    kubectl(config, "patch", "pod", "keeps", "--subresource=status", "--type=merge", "-p", change)
    assert cluster.wait_bound("waits") == {"waits": "n1"}


@pytest.mark.parametrize("ending", ["is deleted", "ends, and a finalizer holds it"])
def test_a_pod_that_waits_is_bound_when_the_pod_for_which_room_was_made_goes(
    ending: str, cluster: Cluster, scheduler: StartScheduler
) -> None:
    """The victim ends slowly, so the room is kept by a nomination of this scheduler."""
    cluster.ensure("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    cluster.add_nodes(node("n1", cpu="2"))
    victim = pod("victim", cpu="1500m")
    victim["metadata"]["finalizers"] = [HOLDS]
    scheduler().start_ready()
    cluster.add_pods(victim)
    cluster.wait_bound("victim")
    keeps = pod("keeps", cpu="1500m", **HIGH)
    keeps["metadata"]["finalizers"] = [HOLDS] if "finalizer" in ending else []
    cluster.add_pods(keeps)
    eventually(lambda: cluster.pod("keeps")["status"].get("nominatedNodeName") == "n1")
    cluster.add_pods(pod("waits", cpu="1"))
    eventually(lambda: cluster.condition("waits").get("reason") == "Unschedulable")
    ENDS[ending](cluster)
    cluster.api.patch("pods", "victim", {"metadata": {"finalizers": None}})
    assert cluster.wait_bound("waits") == {"waits": "n1"}
