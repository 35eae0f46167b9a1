"""Which pods are bound, which are ignored, and how they count on nodes."""

from __future__ import annotations

from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import ZONE, node, pod


def test_of_the_three_pods_of_the_documentation_only_the_one_that_names_us_is_bound(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    cluster.add_nodes(node("n1"))
    scheduler().start_ready()
    cluster.add_pods(
        pod("no-annotation", scheduler=None),
        pod("annotation-default-scheduler", scheduler="default-scheduler"),
        pod("annotation-second-scheduler"),
    )
    assert cluster.wait_bound("annotation-second-scheduler") == {"annotation-second-scheduler": "n1"}
    placed = cluster.placements()
    assert placed["no-annotation"] == placed["annotation-default-scheduler"] == ""
    for other in ("no-annotation", "annotation-default-scheduler"):
        assert cluster.condition(other) == {}
        assert cluster.events(other) == []


def test_pods_that_were_there_before_the_scheduler_are_bound_too(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(*(node(f"n{i}") for i in range(3)))
    cluster.add_pods(*(pod(f"p{i}") for i in range(12)))
    scheduler().start_ready()
    placed = cluster.wait_bound()
    assert sorted(placed) == sorted(f"p{i}" for i in range(12))
    assert set(placed.values()) == {"n0", "n1", "n2"}


def test_pods_that_others_bound_count_on_their_nodes(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("full", cpu="2"), node("free", cpu="2"))
    cluster.add_pods(pod("theirs", scheduler="default-scheduler", cpu="1500m"))
    cluster.bind("theirs", "full")
    scheduler().start_ready()
    cluster.add_pods(*(pod(f"p{i}", cpu="900m") for i in range(2)))
    assert cluster.wait_bound("p0", "p1") == {"p0": "free", "p1": "free"}
    # one more is bound by others while we run: it counts as well
    cluster.add_nodes(node("late", cpu="2"))
    cluster.add_pods(pod("theirs-too", cpu="1500m", scheduler="default-scheduler"))
    cluster.bind("theirs-too", "late")
    cluster.add_pods(pod("waits", cpu="900m"), pod("fits", cpu="400m"))
    assert cluster.wait_bound("fits")["fits"] in ("full", "late")
    eventually(lambda: "3 Insufficient cpu" in cluster.condition("waits").get("message", ""))
    assert cluster.overcommitted() == []


def test_pods_of_every_namespace_are_served(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(node("n1"))
    scheduler().start_ready()
    cluster.add_pods(pod("same-name"), pod("same-name", namespace="kube-system"))
    for namespace in ("default", "kube-system"):
        eventually(lambda at=namespace: cluster.pod("same-name", namespace=at)["spec"].get("nodeName") == "n1")  # type: ignore[misc]
        eventually(lambda at=namespace: cluster.events("same-name", reason="Scheduled", namespace=at))  # type: ignore[misc]


def test_room_is_never_given_twice_and_comes_back_when_pods_are_deleted(
    cluster: Cluster, scheduler: StartScheduler
) -> None:
    cluster.add_nodes(*(node(f"n{i}", cpu="1", pods="4") for i in range(3)))
    scheduler().start_ready()
    cluster.add_pods(*(pod(f"p{i}", cpu="300m") for i in range(12)))
    eventually(lambda: sum(1 for at in cluster.placements().values() if at) == 9)
    eventually(lambda: all(cluster.condition(n).get("reason") == "Unschedulable" for n in _unbound(cluster)))
    assert cluster.overcommitted() == []
    for name in [name for name, at in cluster.placements().items() if at][:3]:
        cluster.delete_pod(name)
    assert len(cluster.wait_bound()) == 9
    assert cluster.overcommitted() == []
    assert cluster.refused_by_kubelets() == []


def _unbound(cluster: Cluster) -> list[str]:
    found = [name for name, at in cluster.placements().items() if not at]
    assert found
    return found


def test_kubernetes_own_rules_hold_beside_the_policy(cluster: Cluster, scheduler: StartScheduler) -> None:
    cluster.add_nodes(
        node("tainted", labels={"disk": "ssd"}, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        node("plain", labels={"disk": "hdd", ZONE: "a"}),
        node("fast", labels={"disk": "ssd", ZONE: "b"}),
    )
    tolerating = [{"key": "gpu", "operator": "Exists"}]
    anti = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    scheduler().start_ready()
    cluster.add_pods(
        pod("selects", nodeSelector={"disk": "ssd"}),
        pod("tolerates", nodeSelector={"disk": "ssd", "kubernetes.io/hostname": "tainted"}, tolerations=tolerating),
        *(pod(f"db{i}", labels={"app": "db"}, affinity=anti) for i in range(2)),
    )
    placed = cluster.wait_bound()
    assert placed["selects"] == "fast"
    assert placed["tolerates"] == "tainted"
    assert {placed["db0"], placed["db1"]} == {"plain", "fast"}
    assert cluster.refused_by_kubelets() == []
