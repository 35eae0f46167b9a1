"""Pods that must go so that another one can grow in place (KEP-5836)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.resize import DISABLED, ResizePlan, Room, is_deferred, plan_resize
from kube_policy_scheduler.framework.profile import Profile
from tests.simulation.chaos import policies_of

NOW = 1_800_000_000.0


def cluster_of(*, cpu: str = "4", spec: dict[str, Any] | None = None) -> Cluster:
    cluster = Cluster()
    node = {
        "metadata": {"name": "n"},
        "spec": spec or {},
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }
    cluster.set_node(msgspec.convert(node, objects.Node))
    return cluster


def add(
    cluster: Cluster,
    name: str,
    cpu: str,
    *,
    priority: int = 0,
    wants: str = "",
    reason: str = "",
    terminating: bool = False,
    labels: dict[str, str] | None = None,
    on: str = "n",
    **spec: Any,
) -> None:
    """Add a pod on a node; wants: what it is to be resized to."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": wants or cpu}}}]
    resources = {"requests": {"cpu": cpu}}
    pod: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels or {}},
        "spec": {"nodeName": on, "priority": priority, "containers": containers, **spec},
        "status": {
            "containerStatuses": [{"name": "c", "resources": resources, "allocatedResources": resources["requests"]}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
        },
    }
    if terminating:
        pod["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    info = cluster.templates.pod(msgspec.convert(pod, objects.Pod))
    cluster.place(info, on)


def plan(cluster: Cluster, profile: Profile | None = None) -> ResizePlan:
    return plan_resize(Frame(cluster.pods["grows"], cluster, NOW), profile or kubernetes_profile())


def victims(found: ResizePlan) -> list[str]:
    return [pod.name for pod in found.victims]


def test_a_pod_waits_for_room_only_while_its_resize_is_deferred() -> None:
    cluster = cluster_of()
    for reason in ("Deferred", "Infeasible"):
        add(cluster, reason, "1", wants="2", reason=reason)
    add(cluster, "none", "1")
    assert [name for name, pod in cluster.pods.items() if is_deferred(pod)] == ["Deferred"]


def test_the_scheduler_counts_the_larger_of_what_a_pod_has_and_wants() -> None:
    cluster = cluster_of()
    add(cluster, "grows", "1", wants="3", reason="Deferred")
    assert cluster.pods["grows"].demand.requests["cpu"] == 3000
    add(cluster, "shrinks", "2", wants="1")
    assert cluster.pods["shrinks"].demand.requests["cpu"] == 2000
    add(cluster, "never", "1", wants="64", reason="Infeasible")
    assert cluster.pods["never"].demand.requests["cpu"] == 1000, "what can never be is not counted"


def test_the_least_important_pods_go_and_no_more_than_needed() -> None:
    cluster = cluster_of()
    add(cluster, "grows", "1", priority=10, wants="2", reason="Deferred")
    add(cluster, "low", "1", priority=1)
    add(cluster, "lower", "1", priority=0)
    add(cluster, "equal", "1", priority=10)
    found = plan(cluster)
    assert (found.room, victims(found)) == (Room.EVICT, ["lower"])


def test_pods_of_the_same_and_of_a_higher_priority_stay() -> None:
    cluster = cluster_of()
    add(cluster, "grows", "1", priority=10, wants="4", reason="Deferred")
    add(cluster, "low", "1", priority=1)
    add(cluster, "equal", "2", priority=10)
    found = plan(cluster)
    assert (found.room, found.victims) == (Room.NONE, ())
    assert "hold too little" in found.why


def test_nobody_goes_if_it_fits_by_now_or_will_once_pods_have_ended() -> None:
    cluster = cluster_of(cpu="8")
    add(cluster, "grows", "1", priority=10, wants="4", reason="Deferred")
    add(cluster, "low", "3")
    assert plan(cluster).room is Room.FITS
    add(cluster, "ends", "3", terminating=True)
    assert plan(cluster).room is Room.FREED


@pytest.mark.parametrize(("wants", "gone"), [("2", "e3"), ("3", "e2 e3"), ("4", "e0 e1 e2 e3")])
def test_members_that_a_gang_can_do_without_go_before_the_others(wants: str, gone: str) -> None:
    cluster, ours = cluster_of(cpu="5"), {"schedulerName": "policy-scheduler"}
    add(cluster, "grows", "1", priority=10, wants=wants, reason="Deferred", **ours)
    profile = policies_of("gang by pod.label.job size 2 if pod.label.job\n").policy_set.profile_of(
        cluster.pods["grows"]
    )
    for number in range(4):
        add(cluster, f"e{number}", "1", labels={"job": "e"}, **ours)
    assert sorted(victims(plan(cluster, profile))) == gone.split()


@pytest.mark.parametrize(("wants", "gone"), [("3", "e0 e1 e2"), ("2", "alone")])
def test_members_that_a_gang_can_do_without_go_with_it_wherever_they_are(wants: str, gone: str) -> None:
    cluster, ours = cluster_of(), {"schedulerName": "policy-scheduler"}
    cluster.set_node(
        msgspec.convert({"metadata": {"name": "m"}, "status": {"allocatable": {"cpu": "4"}}}, objects.Node)
    )
    add(cluster, "grows", "1", priority=10, wants=wants, reason="Deferred", **ours)
    profile = policies_of("gang by pod.label.job size 2 if pod.label.job\n").policy_set.profile_of(
        cluster.pods["grows"]
    )
    for number in range(3):
        add(cluster, f"e{number}", "1", labels={"job": "e"}, on="m" if number == 2 else "n", **ours)
    add(cluster, "alone", "1", priority=-1 if wants == "2" else 5, **ours)
    assert sorted(victims(plan(cluster, profile))) == gone.split()


def test_a_gang_goes_as_a_whole_or_not_at_all() -> None:
    cluster, ours = cluster_of(), {"schedulerName": "policy-scheduler"}
    add(cluster, "grows", "1", priority=10, wants="2", reason="Deferred", **ours)
    profile = policies_of("gang by pod.label.job size 2 evict whole if pod.label.job\n").policy_set.profile_of(
        cluster.pods["grows"]
    )
    for name in ("a0", "a1"):
        add(cluster, name, "1", labels={"job": "a"}, **ours)
    add(cluster, "equal", "1", priority=10, **ours)
    assert victims(plan(cluster, profile)) == ["a0", "a1"]
    cluster.displace("equal")
    add(cluster, "alone", "1", priority=5, **ours)
    add(cluster, "a2", "0", priority=10, labels={"job": "a"}, **ours)
    assert victims(plan(cluster, profile)) == ["alone"], "a member must stay"


def test_a_budget_is_violated_only_if_nothing_else_helps() -> None:
    cluster = cluster_of()
    add(cluster, "grows", "1", priority=10, wants="2", reason="Deferred")
    add(cluster, "protected", "1", priority=0, labels={"app": "db"})
    add(cluster, "free", "1", priority=5)
    add(cluster, "other", "1", priority=10)
    budget = {
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
    assert victims(plan(cluster)) == ["free"]


@pytest.mark.parametrize(
    ("policy", "spec", "node", "why"),
    [
        ("use kubernetes scores", {"preemptionPolicy": "Never"}, {}, "preemptionPolicy=Never"),
        ("preempt never", {}, {}, "not eligible due to policy clause"),
        ("preempt if pod.priority > 100", {}, {}, "pod.priority > 100"),
        ("preempt if pod.priority >= 0 evict where victim.priority < 0", {}, {}, "hold too little"),
        (
            "use kubernetes scores",
            {},
            {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/autoscaler"]}},
            DISABLED,
        ),
    ],
)
def test_what_forbids_a_preemption_forbids_it_here(
    policy: str, spec: dict[str, Any], node: dict[str, Any], why: str
) -> None:
    cluster = cluster_of(spec=node)
    add(cluster, "grows", "1", priority=10, wants="4", reason="Deferred", **spec)
    add(cluster, "low", "3", priority=1)
    profile = policies_of(f"{policy}\n").policy_set.policies[0].profile
    found = plan(cluster, profile)
    assert found.room is Room.NONE
    assert why in found.why
