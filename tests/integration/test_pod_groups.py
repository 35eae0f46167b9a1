"""Kubernetes' own PodGroups, where the API server has them: kube-scheduler is the yardstick."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.kube_scheduler import kube_scheduler
from tests.integration.objects import OURS, node, pod, pod_group


@pytest.fixture
def grouped(cluster: Cluster) -> Cluster:
    """A cluster with PodGroups."""
    if not cluster.has_pod_groups:
        pytest.skip("this API server has no PodGroups: it is 1.36 or later with GenericWorkload that has them")
    return cluster


def test_pods_of_a_pod_group_are_bound_together_or_not_at_all_and_the_group_says_which(
    grouped: Cluster, scheduler: StartScheduler
) -> None:
    started = scheduler().start_ready()
    tells_of_its_group(grouped, scheduler=OURS)
    assert "0 of 3 members have a node, 3 are pending" in started.log()


def test_so_does_kube_scheduler(grouped: Cluster, tmp_path: Path) -> None:
    gates = "GenericWorkload=true,GangScheduling=true"
    with kube_scheduler(grouped.kubeconfig(tmp_path / "admin"), log=tmp_path / "kube-scheduler.log", gates=gates):
        tells_of_its_group(grouped, scheduler="default-scheduler")


def tells_of_its_group(cluster: Cluster, *, scheduler: str) -> None:
    def told() -> tuple[str, str]:
        condition = cluster.condition("train", "PodGroupScheduled", plural="podgroups")
        return condition.get("status", ""), condition.get("reason", "")

    member = partial(pod, scheduler=scheduler, schedulingGroup={"podGroupName": "train"})
    single = partial(pod, scheduler=scheduler, cpu="500m")
    cluster.api.create("podgroups", pod_group("train", size=3))
    cluster.add_nodes(node("n1", cpu="2"))
    cluster.add_pods(member("member0", cpu="1"), member("member1", cpu="1"), single("before"))
    cluster.wait_bound("before")
    assert told() == ("", ""), "nothing is said of a group that is not all there"
    cluster.delete_pod("before")
    cluster.add_pods(member("member2", cpu="1"), single("single"))
    eventually(lambda: told() == ("False", "Unschedulable"))
    cluster.wait_bound("single")  # nothing is held for a group that does not fit
    assert not any(cluster.placements()[f"member{number}"] for number in range(3))
    cluster.add_nodes(node("n2", cpu="2"))
    cluster.wait_bound("member0", "member1", "member2")
    assert cluster.overcommitted() == []
    eventually(lambda: told() == ("True", "Scheduled"))
    cluster.add_pods(member("member3", cpu="9"))
    eventually(lambda: cluster.condition("member3"))
    assert told() == ("True", "Scheduled"), "one more does not undo that"
