"""Kubernetes' own PodGroups, where the API server has them."""

from __future__ import annotations

import pytest

from tests.integration.api import ApiRefusal
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import Json, node, pod

PATH = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


def gang(name: str, size: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def test_pods_of_a_pod_group_are_bound_together_or_not_at_all(cluster: Cluster, scheduler: StartScheduler) -> None:
    try:
        cluster.api.request("POST", PATH, gang("train", 3))
    except ApiRefusal as refusal:
        if refusal.code != 404:
            raise
        pytest.skip("this API server has no PodGroups: it is 1.36 or later with GenericWorkload that has them")
    cluster.add_nodes(node("n1", cpu="2"))
    started = scheduler().start_ready()
    group: Json = {"schedulingGroup": {"podGroupName": "train"}}
    cluster.add_pods(*(pod(f"member{number}", cpu="1", **group) for number in range(3)), pod("single", cpu="500m"))
    eventually(
        lambda: (
            "2 of 3 members have a place"
            in str(cluster.condition("member0")) + str(cluster.condition("member1")) + str(cluster.condition("member2"))
        ),
        else_=started.log,
    )
    assert not any(cluster.placements()[f"member{number}"] for number in range(3))
    cluster.add_nodes(node("n2", cpu="2"))
    cluster.wait_bound("member0", "member1", "member2", "single")
    assert cluster.overcommitted() == []
    cluster.api.request("DELETE", f"{PATH}/train")
