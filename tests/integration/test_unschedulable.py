"""An unschedulable pod: its events and conditions, and that any change that helps triggers a new attempt at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.front import Exchange, Front, Reply
from tests.integration.objects import node, pod, taint

UNTAINTED: dict[str, object] = {"spec": {"taints": []}}


def test_the_reasons_are_counted_per_node_in_event_and_condition(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(
        node("small-0", cpu="1"),
        node("small-1", cpu="1"),
        node("tainted", taints=[taint("team", value="blue")]),
        node("cordoned"),
        node("wrong", labels={"disk": "hdd"}),
    )
    cluster.api.patch("nodes", "cordoned", {"spec": {"unschedulable": True}})
    for name in ("small-0", "small-1", "tainted", "cordoned"):
        cluster.api.patch("nodes", name, {"metadata": {"labels": {"disk": "ssd"}}})
    process = scheduler().start_ready()
    cluster.add_pods(pod("waits", cpu="2", nodeSelector={"disk": "ssd"}))
    condition = eventually(lambda: cluster.condition("waits"))
    assert condition["status"] == "False"
    assert condition["reason"] == "Unschedulable"
    message = condition["message"]
    assert message.startswith("0/5 nodes are available: ")
    for part in (
        "2 Insufficient cpu",
        "1 node(s) had untolerated taint",
        "1 node(s) were unschedulable",
        "1 node(s) didn't match Pod's node affinity/selector",
    ):
        assert part in message
    (event,) = eventually(lambda: cluster.events("waits", reason="FailedScheduling"))
    assert event["note"] == message
    assert event["type"] == "Warning"
    assert event["action"] == "Scheduling"
    metrics = process.metrics()
    for plugin in ("NodeResourcesFit", "NodeAffinity", "TaintToleration"):
        assert metrics[f'scheduler_unschedulable_pods{{plugin="{plugin}",profile="policy-scheduler"}}'] == 1
    assert metrics['policy_scheduler_watch_restarts_total{resource="pods"}'] == 0
    assert event["reportingController"] == "policy-scheduler"
    assert event["regarding"]["uid"] == cluster.pod("waits")["metadata"]["uid"]


def test_without_any_node_it_says_so_and_the_first_node_is_taken(cluster: Cluster, scheduler: StartScheduler) -> None:
    scheduler().start_ready()
    cluster.add_pods(pod("waits"))
    eventually(lambda: cluster.condition("waits").get("message") == "no nodes available to schedule pods")
    cluster.add_nodes(node("first"))
    assert cluster.wait_bound("waits") == {"waits": "first"}
    assert cluster.condition("waits")["status"] == "True"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (400, 'admission webhook "w.example" denied the request: status of {name} may not be changed'),
        (403, 'admission webhook "w.example" denied the request: status of {name} may not be changed'),
        (422, "pods {name} is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
    ],
)
def test_a_condition_that_is_refused_comes_once_it_is_allowed_and_the_log_names_the_pod(
    code: int, message: str, cluster: Cluster, front: Front, scheduler: StartScheduler, tmp_path: Path
) -> None:
    denies = True

    def plan(exchange: Exchange) -> Reply | None:
        if denies and exchange.is_about("patch", "pods/status"):
            return Reply(code, "Invalid", message.format(name=exchange.name))
        return None

    front.plan = plan
    process = scheduler(kubeconfig=front.kubeconfig(tmp_path / "front")).start_ready()
    cluster.add_pods(pod("one"), pod("two"))
    eventually(lambda: len(front.asked("patch", "pods/status")) >= 6)
    assert cluster.condition("one") == cluster.condition("two") == {}
    (told,) = [entry["message"] for entry in process.log_entries() if "pod status of" in entry["message"]]
    assert told.startswith(("pod status of default/one: ", "pod status of default/two: "))
    assert "no" in told
    metrics = process.metrics()
    assert metrics['policy_scheduler_write_refusals_total{kind="pod-status"}'] >= 6
    assert metrics['policy_scheduler_write_failing{kind="pod-status"}'] == 2
    assert metrics['policy_scheduler_write_oldest_seconds{kind="pod-status"}'] > 0
    assert "the API server refused the last of pod-status that failed, default/" in process.get("/readyz?verbose")[1]
    denies = False
    eventually(lambda: all(cluster.condition(name) for name in ("one", "two")))


CHANGES: dict[str, Callable[[Cluster], object]] = {
    "a node is added": lambda cluster: cluster.add_nodes(node("new", labels={"disk": "ssd"})),
    "a pod is deleted": lambda cluster: cluster.delete_pod("fills"),
    "a taint is removed": lambda cluster: cluster.api.patch("nodes", "tainted", UNTAINTED),
    "a label is changed": lambda cluster: cluster.api.patch("nodes", "hdd", {"metadata": {"labels": {"disk": "ssd"}}}),
    "a node is uncordoned": lambda cluster: cluster.api.patch("nodes", "cordoned", {"spec": {"unschedulable": None}}),
    "a node grows": lambda cluster: cluster.api.patch(
        "nodes", "full", {"status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}}, subresource="status"
    ),
    "a pod finishes": lambda cluster: cluster.api.patch(
        "pods", "fills", {"status": {"phase": "Succeeded"}}, subresource="status"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_bound_as_soon_as(change: str, cluster: Cluster, scheduler: StartScheduler) -> None:
    ssd = {"disk": "ssd"}
    cluster.add_nodes(
        node("full", cpu="1", labels=ssd),
        node("tainted", labels=ssd, taints=[taint("team")]),
        node("cordoned", labels=ssd),
        node("hdd", labels={"disk": "hdd"}),
    )
    cluster.api.patch("nodes", "cordoned", {"spec": {"unschedulable": True}})
    cluster.add_pods(pod("fills", scheduler="another", cpu="900m"))
    cluster.bind("fills", "full")
    scheduler().start_ready()
    cluster.add_pods(pod("waits", cpu="500m", nodeSelector=ssd))
    eventually(lambda: cluster.condition("waits").get("reason") == "Unschedulable")
    CHANGES[change](cluster)
    cluster.wait_bound("waits")  # by itself it is tried again after five minutes
    assert cluster.overcommitted() == []


def test_a_pod_with_gates_waits_until_they_are_taken_off(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"))
    scheduler().start_ready()
    cluster.add_pods(pod("gated", schedulingGates=[{"name": "example.com/quota"}]), pod("free"))
    cluster.wait_bound("free")
    assert cluster.placements()["gated"] == ""
    cluster.api.patch("pods", "gated", {"spec": {"schedulingGates": []}})
    cluster.wait_bound("gated")


def test_a_pod_deleted_while_it_waits_is_forgotten(cluster: Cluster, scheduler: StartScheduler) -> None:
    process = scheduler().start_ready()
    cluster.add_pods(pod("waits"))
    pending = 'scheduler_pending_pods{queue="unschedulable"}'
    eventually(lambda: process.metrics()[pending] == 1)
    cluster.delete_pod("waits")
    eventually(lambda: process.metrics()[pending] == 0)
    cluster.add_nodes(node("n1"))
    cluster.add_pods(pod("next"))
    assert cluster.wait_bound("next") == {"next": "n1"}
