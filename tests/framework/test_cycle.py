"""The cycle: the kept path decides as the plain one does, always the same, and never moves the cluster."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import NO_NODES, Cycle
from kube_policy_scheduler.framework.decide.gang_domains import Domain, GangTopology
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.events import wake_events
from kube_policy_scheduler.framework.frame import Frame

ZONES = ("a", "b", "c")


def node(name: str, **changes: Any) -> objects.Node:
    body = {
        "metadata": {"name": name, "labels": {"zone": "a", "kubernetes.io/hostname": name} | changes.get("labels", {})},
        "spec": {"unschedulable": changes.get("unschedulable", False), "taints": changes.get("taints", [])},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"} | changes.get("allocatable", {})},
    }
    return msgspec.convert(body, objects.Node)


def pod(cluster: Cluster, name: str, *, cpu: str = "500m", spec: dict[str, Any] | None = None) -> PodInfo:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name[0]}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}
        | (spec or {}),
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def test_the_message_without_nodes_is_that_of_kube_scheduler() -> None:
    cluster = Cluster()
    decision = Cycle().decide(Frame(pod(cluster, "a"), cluster, 0.0), kubernetes_profile())

    assert (decision.host, decision.message) == (None, NO_NODES)


def test_an_unschedulable_pod_has_its_reasons_with_counts() -> None:
    cluster = Cluster()
    for number in range(11):
        cluster.set_node(node(f"n{number}", unschedulable=number == 0))
    decision = Cycle().decide(Frame(pod(cluster, "a", cpu="5"), cluster, 0.0), kubernetes_profile())

    assert decision.host is None
    assert decision.message.startswith("0/11 nodes are available: 1 node(s) were unschedulable, 10 Insufficient cpu.")
    assert decision.rejectors == {"NodeUnschedulable", "NodeResourcesFit"}


def test_the_order_in_which_nodes_came_does_not_matter() -> None:
    hosts = set()
    for seed in range(5):
        cluster = Cluster()
        names = [f"n{number}" for number in range(20)]
        Random(seed).shuffle(names)
        for name in names:
            cluster.set_node(node(name))
        hosts.add(Cycle(seed=7).decide(Frame(pod(cluster, "a"), cluster, 0.0), kubernetes_profile()).host)

    assert len(hosts) == 1


def test_ties_spread_over_the_nodes_and_follow_the_seed() -> None:
    cluster = Cluster()
    for number in range(50):
        cluster.set_node(node(f"n{number}"))
    profile = kubernetes_profile()

    def hosts(seed: int) -> list[str | None]:
        cycle = Cycle(seed=seed)
        return [cycle.decide(Frame(pod(cluster, f"a{i}"), cluster, 0.0), profile).host for i in range(40)]

    assert hosts(1) == hosts(1)
    assert hosts(1) != hosts(2)
    assert len(set(hosts(1))) > 20


AFFINITY = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "y"}},
        }
    ]
}
TOLERANT = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
PREFERS = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}}
            ]
        }
    }
}
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("a", {}),
    ("x", AFFINITY),
    ("y", SPREAD),
    ("t", TOLERANT),
    ("p", PREFERS),
)


@given(st.data())
def test_the_kept_path_decides_as_the_plain_one(data: st.DataObject) -> None:
    """Under random events, `Cycle.decide` gives a best node of `evaluate`, or none where it has none.

    Also for gangs in one zone: their profiles share what is kept for all nodes.
    """
    cluster, cycle, whole = Cluster(), Cycle(), kubernetes_profile()
    profiles = [whole, *(whole.narrowed(GangTopology((Domain("zone", zone),))) for zone in ZONES)]
    serial = 0
    for _ in range(data.draw(st.integers(5, 40))):
        step = data.draw(st.sampled_from(["node", "node", "remove", "pod", "pod", "pod", "pod", "leave"]))
        number = data.draw(st.integers(0, 7))
        match step:
            case "node":
                taints = [
                    {
                        "key": "spot",
                        "value": "",
                        "effect": data.draw(st.sampled_from(["NoSchedule", "PreferNoSchedule"])),
                    }
                ]
                cluster.set_node(
                    node(
                        f"n{number}",
                        labels={"zone": data.draw(st.sampled_from(ZONES))},
                        unschedulable=data.draw(st.integers(0, 5)) == 0,
                        taints=taints if data.draw(st.booleans()) else [],
                        allocatable={"cpu": data.draw(st.sampled_from(["1", "4", "8"]))},
                    )
                )
            case "remove":
                cluster.remove_node(f"n{number}")
            case "leave":
                if cluster.pods:
                    cluster.displace(data.draw(st.sampled_from(sorted(cluster.pods))))
            case "pod":
                kind, spec = data.draw(st.sampled_from(KINDS))
                serial += 1
                incoming = pod(cluster, f"{kind}{serial}", spec=spec)
                frame, profile = Frame(incoming, cluster, 0.0), data.draw(st.sampled_from(profiles))
                decision = cycle.decide(frame, profile)
                wanted = evaluate(frame, profile)
                names = [cluster.nodes.names[row] for row in wanted.feasible]
                if not names:
                    assert decision.host is None
                    continue
                assert decision.feasible == len(names)
                best = [n for n, total in zip(names, wanted.totals, strict=True) if total == wanted.totals.max()]
                assert decision.host in best
                if len(names) > 1:
                    assert decision.score == pytest.approx(float(np.max(wanted.totals)))
                    assert decision.ties == len(best)
                cluster.place(incoming, decision.host)


def test_a_pod_that_met_no_nodes_is_woken_by_the_first_one() -> None:
    cluster = Cluster()
    decision = Cycle().decide(Frame(pod(cluster, "a"), cluster, 0.0), kubernetes_profile())

    assert wake_events(decision.rejectors, {}) is None


def test_a_nominated_node_is_taken_without_comparing() -> None:
    cluster = Cluster()
    for number in range(5):
        cluster.set_node(node(f"n{number}", allocatable={"cpu": str(4 + number)}))
    waiting = msgspec.structs.replace(pod(cluster, "a"), nominated_node="n0")
    cluster.nominate(waiting, "n0")

    decision = Cycle().decide(Frame(waiting, cluster, 0.0), kubernetes_profile())

    assert (decision.host, decision.score) == ("n0", None)


def test_room_kept_for_a_nominated_pod_is_not_given_to_another() -> None:
    cluster = Cluster()
    cluster.set_node(node("n0", allocatable={"cpu": "1"}))
    cluster.nominate(pod(cluster, "a", cpu="800m"), "n0")

    decision = Cycle().decide(Frame(pod(cluster, "b", cpu="500m"), cluster, 0.0), kubernetes_profile())

    assert decision.host is None


def test_a_full_node_is_offered_to_a_more_important_pod_with_its_victims() -> None:
    cluster = Cluster()
    cluster.set_node(node("n0", allocatable={"cpu": "1"}))
    cluster.place(pod(cluster, "low", cpu="800m"), "n0")
    important = pod(cluster, "high", cpu="800m", spec={"priority": 10})

    decision = Cycle().decide(Frame(important, cluster, 0.0), kubernetes_profile())

    assert decision.host is None
    assert decision.preemption is not None
    assert decision.preemption.nominated_node == "n0"
    assert [victim.name for victim in decision.preemption.victims] == ["low"]


@pytest.mark.parametrize(
    ("passed", "rejected", "host", "asks_again"),
    [
        ({"a": 0.0}, {}, "a", False),
        ({"a": 0.0, "b": 5.0}, {"c": "no"}, "b", False),
        ({}, {"a": "no", "b": "no"}, None, True),
        ({}, {"a": "no", "b": "no", "c": "no"}, None, False),
    ],
    ids=["one of some", "the best of two", "none of some", "none of all"],
)
def test_extenders_are_asked_again_only_where_no_node_is_left_of_those_they_were_asked_about(
    passed: dict[str, float], rejected: dict[str, str], host: str | None, asks_again: bool
) -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.set_node(node(name))
    verdict = ExtenderVerdict(passed, rejected)
    decision = Cycle().decide(Frame(pod(cluster, "p"), cluster, 0.0), kubernetes_profile(), verdict=verdict)
    assert (decision.host, decision.asks_again) == (host, asks_again)
