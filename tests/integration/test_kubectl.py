"""What people see with kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kubectl import kubectl
from tests.integration.objects import node, pod

pytestmark = pytest.mark.needs("kubectl")


@pytest.fixture
def kubeconfig(cluster: Cluster, tmp_path: Path) -> Path:
    return cluster.kubeconfig(tmp_path / "kubectl.kubeconfig")


def test_kubectl_describe_and_get_events_show_the_way_of_a_pod(
    cluster: Cluster, scheduler: StartScheduler, kubeconfig: Path
) -> None:
    scheduler().start_ready()
    cluster.add_pods(pod("web"))
    eventually(lambda: cluster.events("web", reason="FailedScheduling"))
    pending = kubectl(kubeconfig, "describe", "pod", "web")
    assert "FailedScheduling" in pending
    assert "no nodes available to schedule pods" in pending
    cluster.add_nodes(node("n1"))
    cluster.wait_bound("web")
    eventually(lambda: cluster.events("web", reason="Scheduled"))
    described = kubectl(kubeconfig, "describe", "pod", "web")
    told = next(line for line in described.splitlines() if "Scheduled " in line and "Successfully" in line)
    assert told.split()[:2] == ["Normal", "Scheduled"]
    assert "policy-scheduler" in told
    assert "Successfully assigned default/web to n1" in told
    listed = kubectl(kubeconfig, "get", "events", "--sort-by=.metadata.creationTimestamp")
    reasons = [line.split()[2] for line in listed.splitlines() if "pod/web" in line]
    assert (reasons[0], reasons[-1]) == ("FailedScheduling", "Scheduled")
    wide = kubectl(kubeconfig, "get", "pods", "-o", "wide")
    assert "n1" in wide


def test_there_is_one_scheduled_event_per_pod(cluster: Cluster, scheduler: StartScheduler, kubeconfig: Path) -> None:
    cluster.add_nodes(node("n1"), node("n2"))
    process = scheduler().start_ready()
    names = [f"p{i}" for i in range(20)]
    cluster.add_pods(*(pod(name) for name in names))
    placed = cluster.wait_bound(*names)
    assert process.terminate() == 0  # ending sends what waits
    about: dict[str, list[str]] = {name: [] for name in names}
    for event in cluster.api.list("events"):
        if event["reason"] == "Scheduled" and event["reportingController"] == "policy-scheduler":
            about[event["regarding"]["name"]].append(event["note"])
    assert about == {name: [f"Successfully assigned default/{name} to {placed[name]}"] for name in names}


def test_a_pod_that_waits_long_has_one_event_that_is_counted_up(cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler().start_ready()
    cluster.add_nodes(node("small", cpu="100m"))
    cluster.add_pods(pod("big", cpu="2"))
    attempts = 'scheduler_schedule_attempts_total{profile="policy-scheduler",result="unschedulable"}'
    eventually(lambda: process.metrics().get(attempts, 0) >= 1)
    for change in range(2):
        before = process.metrics()[attempts]
        cluster.api.patch("nodes", "small", {"metadata": {"labels": {"turn": str(change)}}})
        size = {"cpu": f"{200 + change}m"}
        cluster.api.patch("nodes", "small", {"status": {"allocatable": size}}, subresource="status")
        eventually(lambda before=before: process.metrics()[attempts] > before)  # type: ignore[misc]
    event = eventually(lambda: [e for e in cluster.events("big") if e.get("series")])[0]
    assert event["series"]["count"] >= 2
    assert len(cluster.events("big", reason="FailedScheduling")) == 1
