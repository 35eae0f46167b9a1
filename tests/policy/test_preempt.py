"""`preempt`: a policy narrows preemptors and victims; priorities and budgets apply as always."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from tests.lang.texts import said
from tests.policy.worlds import node, pod, policy

BATCH_ONLY = 'preempt if true evict where victim.label.tier == "batch"'
ANTI_AFFINITY: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
}
"""Concerns nobody, but has the pod tried node by node in a rehearsal rather than by arithmetic."""
RULES = pytest.mark.parametrize("spec", [{}, ANTI_AFFINITY], ids=["arithmetic", "rehearsal"])


def two_nodes() -> Cluster:
    """Return n0 with a batch pod of priority 5, and n1 with a web pod of priority 1: Kubernetes would take n1."""
    cluster = Cluster()
    cluster.set_node(node("n0"))
    cluster.set_node(node("n1"))
    cluster.place(pod(cluster, "batch", labels={"tier": "batch"}, priority=5), "n0")
    cluster.place(pod(cluster, "web", labels={"tier": "web"}, priority=1), "n1")
    return cluster


def decide(cluster: Cluster, text: str, *, priority: int = 10, **spec: Any) -> Decision:
    incoming = pod(cluster, "high", priority=priority, **spec)
    return Cycle().decide(Frame(incoming, cluster, 1e9), policy(text).profile)


def victims(decision: Decision) -> list[str]:
    assert decision.preemption is not None
    return [victim.name for victim in decision.preemption.victims]


@RULES
def test_without_a_rule_the_least_important_pod_goes(spec: dict[str, Any]) -> None:
    assert victims(decide(two_nodes(), "filter node.ready or true", **spec)) == ["web"]


@RULES
def test_only_pods_that_the_policy_names_are_evicted(spec: dict[str, Any]) -> None:
    decision = decide(two_nodes(), BATCH_ONLY, **spec)

    assert victims(decision) == ["batch"]
    assert decision.preemption is not None
    assert decision.preemption.nominated_node == "n0"


@RULES
def test_a_pod_of_higher_priority_stays_even_if_the_policy_names_it(spec: dict[str, Any]) -> None:
    decision = decide(two_nodes(), BATCH_ONLY, priority=3, **spec)

    assert victims(decision) == []
    assert "2 No preemption victims found for incoming pod" in decision.message


@RULES
def test_a_pod_that_stays_keeps_its_room_on_a_node_with_victims(spec: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.set_node(node("n0", cpu="3"))
    for name, tier in (("a", "batch"), ("b", "web"), ("c", "batch")):
        cluster.place(pod(cluster, name, labels={"tier": tier}), "n0")

    assert victims(decide(cluster, BATCH_ONLY, cpu="2", **spec)) == ["a", "c"]
    assert "1 Insufficient cpu" in decide(cluster, BATCH_ONLY, cpu="3", **spec).message


def test_a_condition_can_read_the_pod_and_the_victim() -> None:
    text = "preempt if pod.label.team evict where victim.label.team == pod.label.team"
    cluster = Cluster()
    cluster.set_node(node("n0", cpu="2"))
    cluster.place(pod(cluster, "x", labels={"team": "x"}), "n0")
    cluster.place(pod(cluster, "y", labels={"team": "y"}), "n0")

    assert victims(decide(cluster, text, labels={"team": "x"})) == ["x"]
    assert victims(decide(cluster, text, labels={"team": "y"})) == ["y"]
    assert victims(decide(cluster, text)) == []


@pytest.mark.parametrize("text", ["preempt never", "preempt if pod.priority > 100"])
def test_the_clause_that_forbids_eviction_is_named(text: str) -> None:
    decision = decide(two_nodes(), text)

    assert victims(decision) == []
    assert decision.message.endswith(f"preemption: not eligible due to policy clause {text}.")


def test_budgets_still_choose_among_the_nodes_that_the_policy_leaves() -> None:
    cluster = two_nodes()
    cluster.set_node(node("n2"))
    cluster.place(pod(cluster, "other", labels={"tier": "batch", "spare": "yes"}, priority=8), "n2")
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [{"key": "spare", "operator": "DoesNotExist"}]}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))

    assert victims(decide(cluster, BATCH_ONLY)) == ["other"]


@given(
    pods=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["batch", "web"]), st.integers(0, 6), st.integers(1, 3)),
        max_size=9,
    ),
    priority=st.integers(0, 7),
    cpu=st.integers(1, 4),
)
def test_no_victim_is_ever_spared_by_the_rule_and_arithmetic_agrees_with_the_rehearsal(
    pods: list[tuple[int, str, int, int]], priority: int, cpu: int
) -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.set_node(node(f"n{number}", cpu="6"))
    for number, (where, tier, rank, size) in enumerate(pods):
        there = pod(cluster, f"p{number}", labels={"tier": tier}, priority=rank, cpu=str(size))
        cluster.place(there, f"n{where}")
    for number in range(3):
        cluster.place(pod(cluster, f"blocker{number}", priority=1000, cpu="3"), f"n{number}")
    found = [decide(cluster, BATCH_ONLY, priority=priority, cpu=str(cpu), **spec) for spec in ({}, ANTI_AFFINITY)]

    assert found[0].host == found[1].host
    if found[0].host is None:
        assert victims(found[0]) == victims(found[1])
        assert found[0].preemption is not None
        for victim in found[0].preemption.victims:
            assert victim.labels["tier"] == "batch"
            assert victim.priority < priority


@pytest.mark.parametrize("field", ["queued", "waiting", "attempts"])
def test_a_pod_that_runs_has_no_time_in_the_queue(field: str) -> None:
    (found,) = said(f"preempt if true evict where victim.{field} == pod.{field}")

    assert (found.code, found.message) == ("P0102", f"`victim.{field}` is not available for running pods")


def _cluster_of_running(seconds: float | None, *, budget: int | None = None) -> Cluster:
    """Return one node, full of a pod that has run for some seconds; budget: the disruptions that are allowed."""
    cluster = Cluster()
    cluster.set_node(node("n0"))
    started = None if seconds is None else 1e9 - seconds
    cluster.place(msgspec.structs.replace(pod(cluster, "low", labels={"app": "web"}), started=started), "n0")
    if budget is not None:
        body = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": budget},
        }
        cluster.set_object(msgspec.convert(body, objects.PodDisruptionBudget))
    return cluster


@RULES
@pytest.mark.parametrize(("seconds", "evicted"), [(None, []), (60, []), (601, ["low"])])
def test_only_pods_that_have_run_for_some_time_are_evicted(
    seconds: float | None, evicted: list[str], spec: dict[str, Any]
) -> None:
    text = "preempt if true evict where victim.running > 10min"
    decision = decide(_cluster_of_running(seconds), text, **spec)

    assert victims(decision) == evicted


@RULES
@pytest.mark.parametrize(("budget", "evicted"), [(None, ["low"]), (0, []), (1, ["low"])])
def test_pods_that_a_budget_protects_are_never_evicted_if_the_policy_spares_them(
    budget: int | None, evicted: list[str], spec: dict[str, Any]
) -> None:
    text = "preempt if true evict where not victim.breaks_budget"
    decision = decide(_cluster_of_running(60, budget=budget), text, **spec)

    assert victims(decision) == evicted


def test_time_wakes_a_pod_whose_victims_must_have_run_for_some_time() -> None:
    plain, timed = (policy(f"preempt if true{evict}").profile for evict in ("", " evict where victim.running > 10min"))

    assert ClusterEvent.CLOCK in timed.wakes["NodeResourcesFit"]
    assert ClusterEvent.CLOCK not in plain.wakes["NodeResourcesFit"]


_COUNTED = "`count(p in node.pods where p.running > 10min)`, or "


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("require pod.running == pod.running", f"{_COUNTED}`victim.running`"),
        ("hold if pod.running == pod.running", f"{_COUNTED}`victim.running`"),
        ("require pod.breaks_budget == pod.breaks_budget", "`victim.breaks_budget`"),
        ("filter any(p in node.pods where p.breaks_budget == p.breaks_budget)", "`victim.breaks_budget`"),
        ("hold if pod.breaks_budget == pod.breaks_budget", "`victim.breaks_budget`"),
    ],
)
def test_fields_of_running_pods_are_rejected_elsewhere(text: str, advice: str) -> None:
    (found, *_) = said(text)

    assert (found.code, found.help) == ("P0102", f"write {advice} after `evict where`")
