"""Beside kube-scheduler and instead of it, as in the Kubernetes page "Configure Multiple Schedulers"."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kube_scheduler import kube_scheduler
from tests.integration.objects import node, pod

NO_NAME, DEFAULT, OURS = "no-annotation", "annotation-default-scheduler", "annotation-second-scheduler"
"""The names that the example gives its pods."""


def add_the_three(cluster: Cluster) -> None:
    cluster.add_pods(pod(NO_NAME, scheduler=None), pod(DEFAULT, scheduler="default-scheduler"), pod(OURS))


def binders(cluster: Cluster) -> dict[str, set[str]]:
    """Return the scheduler that reports the binding of each of the three pods."""
    return {
        name: {event["reportingController"] for event in cluster.events(name, reason="Scheduled")}
        for name in (NO_NAME, DEFAULT, OURS)
    }


def test_beside_kube_scheduler_each_binds_its_own(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    kubeconfig = cluster.kubeconfig(tmp_path / "admin")
    with kube_scheduler(kubeconfig, log=tmp_path / "kube-scheduler.log"):
        process = scheduler().start_ready()
        cluster.add_nodes(*(node(f"n{i}", cpu="2") for i in range(3)))

        add_the_three(cluster)

        cluster.wait_bound(NO_NAME, DEFAULT, OURS)
        wanted = {NO_NAME: {"default-scheduler"}, DEFAULT: {"default-scheduler"}, OURS: {"policy-scheduler"}}
        eventually(lambda: binders(cluster) == wanted, else_=process.log)
        # both see all pods: neither gives away what the other has taken
        cluster.add_pods(*(pod(f"theirs-{i}", scheduler=None, cpu="900m") for i in range(3)))
        cluster.wait_bound(*(f"theirs-{i}" for i in range(3)))
        cluster.add_pods(*(pod(f"ours-{i}", cpu="900m") for i in range(3)))
        cluster.wait_bound(*(f"ours-{i}" for i in range(3)))
        assert cluster.overcommitted() == []


def test_as_the_main_scheduler_it_binds_what_names_no_scheduler(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"))
    process = scheduler("--scheduler-name=default-scheduler").start_ready()

    add_the_three(cluster)

    cluster.wait_bound(NO_NAME, DEFAULT)
    wanted = {NO_NAME: {"default-scheduler"}, DEFAULT: {"default-scheduler"}, OURS: set()}
    eventually(lambda: binders(cluster) == wanted, else_=process.log)
    assert cluster.placements()[OURS] == ""
    assert cluster.condition(OURS) == {}


def test_as_both_it_binds_all_three(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"))
    scheduler("--scheduler-name=policy-scheduler", "--scheduler-name=default-scheduler").start_ready()

    add_the_three(cluster)

    assert set(cluster.wait_bound(NO_NAME, DEFAULT, OURS).values()) == {"n1"}


def test_a_policy_can_serve_a_scheduler_of_its_own(cluster: Cluster, scheduler: StartScheduler, tmp_path: Path) -> None:
    cluster.add_nodes(node("n1"), node("n2"))
    policies = tmp_path / "own"
    policies.mkdir()
    (policies / "batch.policy").write_text('scheduler batch-scheduler\nfilter node.name == "n2"\n')
    (policies / "other.policy").write_text('filter node.name == "n1"\n')
    scheduler(f"--policies={policies}").start_ready()

    cluster.add_pods(pod("batch", scheduler="batch-scheduler"), pod(OURS), pod(NO_NAME, scheduler=None))

    assert cluster.wait_bound("batch", OURS) == {"batch": "n2", OURS: "n1"}
    assert cluster.placements()[NO_NAME] == ""
