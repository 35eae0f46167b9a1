"""Kubernetes' own PodGroups, where the API server has them."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import Json, node, pod, pod_group


def test_pods_of_a_pod_group_are_bound_together_or_not_at_all_and_the_group_says_which(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    if not cluster.has_pod_groups:
        pytest.skip("this API server has no PodGroups: it is 1.36 or later with GenericWorkload that has them")

    def told() -> tuple[str, str, str]:
        condition = cluster.condition("train", "PodGroupScheduled", plural="podgroups")
        return condition.get("status", ""), condition.get("reason", ""), condition.get("message", "")

    cluster.api.create("podgroups", pod_group("train", size=3))
    cluster.add_nodes(node("n1", cpu="2"))
    started = scheduler().start_ready()
    group: Json = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.add_pods(*(pod(f"member{number}", cpu="1", **group) for number in range(2)), pod("single", cpu="500m"))
    cluster.wait_bound("single")
    assert told() == ("", "", ""), "of a group that is not all there kube-scheduler says nothing either"
    cluster.delete_pod("single")
    cluster.add_pods(pod("member2", cpu="1", **group), pod("single", cpu="500m"))
    eventually(lambda: "2 of 3 members have a place" in told()[2], else_=started.log)
    assert told()[:2] == ("False", "Unschedulable")
    assert any("2 of 3 members have a place" in str(cluster.condition(f"member{number}")) for number in range(3))
    assert not any(cluster.placements()[f"member{number}"] for number in range(3))
    cluster.add_nodes(node("n2", cpu="2"))
    cluster.wait_bound("member0", "member1", "member2", "single")
    assert cluster.overcommitted() == []
    eventually(lambda: told() == ("True", "Scheduled", ""))
    cluster.add_pods(pod("member3", cpu="9", **group))
    eventually(lambda: cluster.events("member3", reason="FailedScheduling"))
    eventually(lambda: cluster.condition("member3"))
    assert told()[0] == "True", "one more does not undo that"
