"""Preemption by priority takes members beyond the size of a gang one by one, and else all of it, or none."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt import trials
from kube_policy_scheduler.policy.extension import may_evict
from kube_policy_scheduler.policy.policy_set import PolicySet, load
from kube_policy_scheduler.times import Steady
from tests.policy.test_preempt import ANTI_AFFINITY
from tests.policy.worlds import node, pod, policy

GANG = "gang by pod.label.job size 2 if pod.label.job\n"
SLICES = GANG + "gang by pod.label.slice size 2 if pod.label.slice\n"
RULES = pytest.mark.parametrize("spec", [{}, ANTI_AFFINITY], ids=["arithmetic", "rehearsal"])


def cluster_of(*nodes: str) -> Cluster:
    cluster = Cluster()
    for name in nodes:
        cluster.set_node(node(name))
    return cluster


def place(
    cluster: Cluster,
    name: str,
    where: str,
    *,
    job: str = "",
    slice_: str = "",
    role: str = "",
    priority: int = 0,
    **more: Any,
) -> PodInfo:
    labels = {key: value for key, value in (("job", job), ("slice", slice_), ("role", role)) if value}
    placed = pod(cluster, name, labels=labels, priority=priority, **more)
    cluster.place(placed, where)
    return placed


def decide(cluster: Cluster, text: str = GANG, *, priority: int = 10, job: str = "", **spec: Any) -> Decision:
    incoming = pod(cluster, "high", priority=priority, labels={"job": job} if job else {}, **spec)
    policies = PolicySet.of([policy(text)])
    profile = policies.profile_of(incoming)
    assert profile is not None
    return Cycle().decide(Frame(incoming, cluster, 1e9), profile)


def victims(decision: Decision) -> list[str]:
    assert decision.preemption is not None
    return sorted(victim.name for victim in decision.preemption.victims)


@pytest.mark.parametrize(
    ("roles", "workers", "expected"),
    [
        ("", 4, ["worker3"]),
        (" with 1 of role=driver", 4, ["worker3"]),
        (" with 1 of role=driver, 2 of role=worker", 4, ["worker3"]),
        (" with 1 of role=driver, 2 of role=worker", 2, ["driver", "worker0", "worker1"]),
    ],
)
def test_a_worker_that_no_role_needs_goes_alone_though_the_gang_needs_its_only_driver(
    roles: str, workers: int, expected: list[str]
) -> None:
    cluster = Cluster()
    cluster.set_node(node("n0", cpu=str(workers + 1)))
    place(cluster, "driver", "n0", job="j", role="driver")
    for number in range(workers):
        place(cluster, f"worker{number}", "n0", job="j", role="worker")
    text = f"gang by pod.label.job size 3{roles} if pod.label.job\n"
    assert victims(decide(cluster, text)) == expected


def test_gangs_of_which_no_pod_may_go_cost_a_search_for_victims_nothing() -> None:
    def calls(others: int) -> int:
        cluster, found = cluster_of("n0", "n1", "n2"), 0
        for name in ("n0", "n1"):
            place(cluster, f"low-{name}", name, job="low")
        for number in range(others):
            place(cluster, f"other{number}", "n2", job=f"other{number // 2}", priority=99)
        frame, policies = Frame(pod(cluster, "high", priority=10), cluster, 1e9), PolicySet.of([policy(GANG)])
        profile = policies.profile_of(frame.pod)
        assert profile is not None
        Cycle().decide(frame, profile)  # the first one of a policy looks at all templates

        def count(*_: Any) -> None:
            nonlocal found
            found += 1

        sys.setprofile(count)
        try:
            decision = Cycle().decide(frame, profile)
        finally:
            sys.setprofile(None)
        assert victims(decision) == ["low-n0", "low-n1"]
        return found

    calls(10)
    assert calls(1000) < calls(200) + 100, "the node is full with 200, too"


@RULES
def test_all_members_of_a_gang_go_with_one(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    for number in range(3):
        place(cluster, f"a{number}", f"n{number}", job="a")
    assert victims(decide(cluster, GANG.replace("size 2", "size 3"), **spec)) == ["a0", "a1", "a2"]


@RULES
def test_members_beyond_the_size_go_alone_if_that_is_enough(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    for number in range(3):
        place(cluster, f"a{number}", f"n{number}", job="a", priority=2 - number)
    assert victims(decide(cluster, **spec)) == ["a2"], "the least important one"
    whole = GANG.replace("size 2", "size 2 evict whole")
    assert victims(decide(cluster, whole, **spec)) == ["a0", "a1", "a2"]


@RULES
def test_while_one_member_is_being_evicted_no_other_one_is_beyond_the_size(spec: dict[str, Any]) -> None:
    """The watch has not shown yet that it ends."""
    cluster = cluster_of("n0", "n1", "n2")
    goes = [place(cluster, f"a{number}", f"n{number}", job="a") for number in range(3)][2]
    place(cluster, "important", "n2", priority=99)
    cluster.note_evictions([goes.uid], Steady(1e9))
    assert victims(decide(cluster, **spec)) == ["a0", "a1"]


@RULES
def test_all_go_where_the_members_beyond_the_size_are_not_enough(spec: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.set_node(node("n0", cpu="4"))
    place(cluster, "a0", "n0", job="a", cpu="2", priority=1)
    place(cluster, "a1", "n0", job="a", cpu="1", priority=1)
    place(cluster, "a2", "n0", job="a", cpu="1")
    assert victims(decide(cluster, cpu="4", **spec)) == ["a0", "a1", "a2"]
    assert victims(decide(cluster, cpu="1", **spec)) == ["a2"]


@RULES
def test_a_pod_alone_goes_rather_than_a_gang(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    place(cluster, "alone", "n2")
    assert victims(decide(cluster, **spec)) == ["alone"]


@RULES
@pytest.mark.parametrize("ending", [1, 3], ids=["the gang has its size without it", "all of the gang ends"])
def test_a_member_that_is_terminating_goes_alone_as_any_pod(ending: int, spec: dict[str, Any]) -> None:
    """Nobody else is evicted: its gang counts without it, and its node will have room."""
    cluster = cluster_of("n0", "n1", "n2", "n3")
    for number in range(3):
        member = place(cluster, f"a{number}", f"n{number}", job="a", priority=1 if number < ending else 2)
        member.terminating = number < ending
    place(cluster, "alone", "n3", priority=5)
    assert victims(decide(cluster, **spec)) == ["a0"]


@RULES
def test_a_gang_with_a_member_of_higher_priority_stays(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a", priority=10)
    decision = decide(cluster, **spec)
    assert victims(decision) == []
    assert "No preemption victims found" in decision.message


@RULES
def test_a_gang_with_a_member_that_a_rule_spares_stays(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a", priority=5)
    text = GANG + "preempt if true evict where victim.priority < 5\n"
    assert victims(decide(cluster, text, **spec)) == []
    assert victims(decide(cluster, text.replace("5", "6"), **spec)) == ["a0", "a1"]


@RULES
def test_gangs_that_share_a_pod_go_together(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a", slice_="s")
    place(cluster, "s1", "n2", slice_="s")
    assert victims(decide(cluster, SLICES, **spec)) == ["a0", "a1", "s1"]
    place(cluster, "s2", "n2", slice_="s", priority=10)
    assert victims(decide(cluster, SLICES, **spec)) == [], "one of them must stay"


@RULES
def test_a_member_whose_node_is_gone_goes_with_its_gang(spec: dict[str, Any]) -> None:
    cluster = cluster_of("n0", "n1")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    cluster.remove_node("n1")
    assert victims(decide(cluster, **spec)) == ["a0", "a1"]


@RULES
@pytest.mark.parametrize("job", ["", "h"])
def test_a_pod_whose_node_is_gone_fills_no_gang_but_its_own(job: str, spec: dict[str, Any]) -> None:
    cluster = cluster_of("n1")
    for name in ("g1", "g2"):
        place(cluster, name, "n1", job="g", cpu="500m")
    place(cluster, "other", "n9", job=job)
    assert victims(decide(cluster, cpu="500m", **spec)) == ["g1", "g2"]


def test_reclaim_evicts_gangs_that_share_a_pod_together() -> None:
    cluster = cluster_of("n0", "n1", "n2")
    for name, where, job, slice_ in (("a0", "n0", "a", "r"), ("a1", "n1", "a", "s"), ("b0", "n2", "", "s")):
        place(cluster, name, where, job=job, slice_=slice_)
    text = "gang by pod.label.slice size 2 if pod.label.slice\ngang by pod.label.job size 2 if pod.label.job\n"
    text += "queue high for pods where not pod.label.slice and not pod.label.job min cpu 1\nqueue others\nreclaim\n"
    assert victims(decide(cluster, text, priority=0)) == ["a0", "a1", "b0"]
    place(cluster, "b1", "n2", slice_="s", scheduling_group={"podGroupName": "unknown"})
    assert victims(decide(cluster, text, priority=0)) == ["a0", "a1", "b0", "b1"], (
        "a clause's gang, known by its clause"
    )


def test_a_member_does_not_evict_its_own_gang() -> None:
    cluster = cluster_of("n0", "n1")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    assert victims(decide(cluster, job="a")) == []


def test_a_gang_of_another_policy_goes_as_a_whole_too() -> None:
    cluster = cluster_of("n0", "n1")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    training = Source("training.policy", 'for pods where pod.label.job == "a"\n' + GANG)
    policies = load([training, Source("web.policy", "score node.free.cpu\n")]).policy_set
    assert policies is not None
    incoming = pod(cluster, "high", priority=10)
    profile = policies.profile_of(incoming)
    assert profile is not None
    assert profile.name == "web"
    assert victims(Cycle().decide(Frame(incoming, cluster, 1e9), profile)) == ["a0", "a1"]


def test_a_limit_counts_the_members_elsewhere_as_gone() -> None:
    cluster = cluster_of("n0", "n1", "n2")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    place(cluster, "other", "n2", priority=10)
    text = GANG + "limit count() by pod.namespace to 2\norder by pod.priority desc, pod.queued\n"
    assert victims(decide(cluster, text)) == ["a0", "a1"]


def test_a_search_that_leaves_members_elsewhere_out_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    place(cluster, "a0", "n0", job="a")
    place(cluster, "a1", "n1", job="a")
    place(cluster, "other", "n2", priority=10)
    text = GANG + "limit count() by pod.namespace to 2\norder by pod.priority desc, pod.queued\n"
    monkeypatch.setattr(trials, "MOST_DISPLACED_ELSEWHERE", 0)
    decision = decide(cluster, text)
    assert victims(decision) == []
    assert "members on other nodes were looked at; the rest counted as still there." in decision.message


def test_the_extender_takes_no_node_whose_victims_are_part_of_a_gang() -> None:
    cluster = cluster_of("n0", "n1")
    members = [place(cluster, f"a{number}", "n0", job="a") for number in range(2)]
    incoming = pod(cluster, "high", priority=10)
    profile = PolicySet.of([policy(GANG)]).profile_of(incoming)
    assert profile is not None
    frame = Frame(incoming, cluster, 1e9)
    assert may_evict(frame, profile, 0, members)
    assert not may_evict(frame, profile, 0, members[:1])


@pytest.mark.parametrize("largest", range(4))
def test_of_members_that_ask_for_several_sizes_the_largest_counts(largest: int) -> None:
    """Four of five are needed if one of them says so, whichever it is."""
    cluster = cluster_of("n")
    members = [
        place(cluster, f"m{number}", "n", job="j", role="4" if number == largest else "2", cpu="0", priority=5 - number)
        for number in range(5)
    ]
    sized = "gang by pod.label.job size number(pod.label.role) if pod.label.job\n"
    incoming = pod(cluster, "high", priority=10, cpu="1")
    profile = PolicySet.of([policy(sized)]).profile_of(incoming)
    assert profile is not None
    frame = Frame(incoming, cluster, 1e9)
    others = [member for member in members[:4] if member is not members[largest]]
    assert not may_evict(frame, profile, 0, others[:2])
    assert may_evict(frame, profile, 0, members[4:])
    assert may_evict(frame, profile, 0, others[:1]), "the fifth takes its place"


@given(data=st.data())
def test_no_gang_is_ever_evicted_in_part(data: st.DataObject) -> None:
    cluster = cluster_of("n0", "n1", "n2")
    policies, cycle = PolicySet.of([policy(SLICES)]), Cycle()
    running: dict[str, PodInfo] = {}
    for number in range(data.draw(st.integers(1, 12), "pods")):
        name, job = f"p{number}", data.draw(st.sampled_from(["", "a", "b", "c"]), "job")
        slice_ = data.draw(st.sampled_from(["", "", "s", "t"]), "slice")
        where = data.draw(st.sampled_from(["n0", "n1", "n2"]), "node")
        priority = data.draw(st.integers(0, 3), "priority")
        running[name] = place(cluster, name, where, job=job, slice_=slice_, priority=priority)
        incoming = pod(cluster, f"new{number}", priority=data.draw(st.integers(1, 4), "incoming"))
        profile = policies.profile_of(incoming)
        assert profile is not None
        preemption = cycle.decide(Frame(incoming, cluster, 1e9), profile).preemption
        gone = {pod.name for pod in preemption.victims} if preemption is not None else set()
        for victim in gone:
            assert running[victim].priority < incoming.priority
            for key in ("job", "slice"):
                gang = running[victim].labels.get(key)
                members = {name for name, each in running.items() if gang and each.labels.get(key) == gang}
                assert not members - gone or len(members - gone) >= 2
