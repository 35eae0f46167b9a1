"""Preemption where a case file does not reach: many nodes, seeds, rules that reject the pod as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from functools import cache
from math import inf
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.steps import UNFINISHED, Unfinished, in_turn, now
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.default_profile import kubernetes_profile
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter
from kube_policy_scheduler.framework.preempt.preemption import (
    MIN_CANDIDATES,
    DefaultPreemption,
    Preemption,
    RejectedPod,
)
from kube_policy_scheduler.framework.preempt.trials import NODE_WORK, VERDICT_WORK
from kube_policy_scheduler.framework.preempt.victims import Budgets, KeptVictims
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.quota import QueueQuota
from kube_policy_scheduler.framework.status import Code, Status
from kube_policy_scheduler.policy.clauses import LimitClause
from tests.simulation.chaos import policies_of


def pod(
    cluster: Cluster, name: str, *, cpu: str = "1", app: str = "x", labels: Mapping[str, str] | None = None, **spec: Any
) -> PodInfo:
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app, **(labels or {})}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]} | spec,
    }
    return cluster.templates.pod(msgspec.convert(body, objects.Pod))


def full_cluster(size: int, *, priority: int = 0) -> Cluster:
    """Return nodes of one cpu, each with one pod that takes it."""
    cluster = Cluster()
    for number in range(size):
        node = {"metadata": {"name": f"n{number:03}"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
        cluster.set_node(msgspec.convert(node, objects.Node))
        cluster.place(pod(cluster, f"low{number}", priority=priority), f"n{number:03}")
    return cluster


def post_filter(frame: Frame, profile: Profile, **options: Any) -> Generator[int, None, Preemption]:
    """Return the steps of a search for victims."""
    evaluation = evaluate(frame, profile)
    assert not len(evaluation.feasible)
    rejection = RejectedPod(frame, profile, evaluation.pre_filtered, evaluation.diagnosis)
    return DefaultPreemption(**options).post_filter(rejection)


def steps_of(
    cluster: Cluster, *, profile: Profile | None = None, spec: Mapping[str, Any] | None = None, **options: Any
) -> Generator[int, None, Preemption]:
    chosen = profile or kubernetes_profile()
    frame = Frame(pod(cluster, "high", priority=10, **(spec or {})), cluster, 1e9)
    return post_filter(frame, chosen, **options)


def preempted(cluster: Cluster, **options: Any) -> Preemption:
    return now(steps_of(cluster, **options))


def test_the_search_ends_when_enough_nodes_would_do() -> None:
    cluster = full_cluster(150)

    assert len(preempted(cluster).candidates) == MIN_CANDIDATES
    assert len(preempted(cluster, every_node=True).candidates) == 150


def test_a_tenth_of_many_nodes_is_enough() -> None:
    assert len(preempted(full_cluster(1200)).candidates) == 120


def test_where_the_search_starts_follows_from_the_seed() -> None:
    cluster = full_cluster(300)
    found = {seed: preempted(cluster, seed=seed).nominated_node for seed in range(8)}

    assert found == {seed: preempted(cluster, seed=seed).nominated_node for seed in range(8)}
    assert len(set(found.values())) > 4


def test_of_equal_nodes_the_first_by_name_is_selected_and_all_are_listed() -> None:
    found = preempted(full_cluster(5))

    assert found.nominated_node == "n000"
    assert found.ties == ("n000", "n001", "n002", "n003", "n004")
    assert [victim.name for victim in found.victims] == ["low0"]


def test_of_pods_below_zero_fewer_go_although_the_sum_of_their_priorities_is_higher() -> None:
    cluster = full_cluster(2, priority=-5)
    cluster.displace("low0")
    for name in ("half", "other half"):
        cluster.place(pod(cluster, name, cpu="500m", priority=-5), "n000")

    assert [victim.name for victim in preempted(cluster).victims] == ["low1"]


@pytest.mark.parametrize(("started", "goes"), [((1e8, 2e8, None), "low2"), ((3e8, 2e8, 1e8), "low0")])
def test_of_victims_that_are_alike_goes_the_one_that_started_last_or_not_yet(
    started: tuple[float | None, ...], goes: str
) -> None:
    cluster = full_cluster(3)
    for number, at in enumerate(started):
        cluster.displace(f"low{number}")
        cluster.place(msgspec.structs.replace(pod(cluster, f"low{number}", priority=0), started=at), f"n00{number}")

    assert [victim.name for victim in preempted(cluster).victims] == [goes]


def test_the_search_continues_while_every_candidate_violates_a_budget() -> None:
    cluster = full_cluster(150)
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
    found = preempted(cluster)

    assert len(found.candidates) == 150
    assert {victims.violations for victims in found.candidates.values()} == {1}


def test_each_pod_takes_from_every_budget_that_matches_it() -> None:
    cluster = Cluster()
    for name, allowed in (("two", 2), ("one", 1)):
        body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": allowed},
        }
        cluster.set_object(msgspec.convert(body, objects.PodDisruptionBudget))
    pods = [pod(cluster, name) for name in "abc"]
    violating, others = Budgets(cluster).split(pods)

    assert ([p.name for p in others], [p.name for p in violating]) == (["a"], ["b", "c"])


def test_an_earlier_nomination_remains_if_the_pod_may_not_preempt() -> None:
    cluster = full_cluster(1)
    frame = Frame(pod(cluster, "high", priority=10, preemptionPolicy="Never"), cluster, 1e9)
    profile = kubernetes_profile()
    found = now(post_filter(frame, profile))

    assert found.keeps_nomination
    assert not preempted(full_cluster(1, priority=10)).keeps_nomination


class Quorum(Filter):
    """Rejects every pod while more than `most` pods run anywhere."""

    name = "Quorum"
    reads = Reads.ELSEWHERE

    def __init__(self, most: int) -> None:
        self.most = most

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        running = int(frame.cluster.nodes.pod_count.sum())
        return Ready() if running <= self.most else Status(Code.UNSCHEDULABLE, self.name, ("too many run",))

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        return np.ones(frame.size, np.bool_)


@pytest.mark.parametrize(("most", "nominated"), [(1, "n000"), (0, None)])
def test_a_rule_that_rejects_the_pod_as_a_whole_is_asked_again_without_the_victims(
    most: int, nominated: str | None
) -> None:
    plain = kubernetes_profile()
    found = preempted(full_cluster(2), profile=Profile("q", (*plain.filters, Quorum(most)), plain.scores))

    assert found.nominated_node == nominated
    if nominated is None:
        assert "2 too many run" in found.message


@given(st.data())
def test_what_earlier_pods_found_changes_no_victims(data: st.DataObject) -> None:
    cluster, kept, profile = Cluster(), KeptVictims(), kubernetes_profile()
    numbers = st.integers(0, 5)

    def set_node(number: int) -> None:
        cpu = data.draw(st.sampled_from(["2", "3"]))
        body = {"metadata": {"name": f"n{number}"}, "status": {"allocatable": {"cpu": cpu, "pods": "9"}}}
        cluster.set_node(msgspec.convert(body, objects.Node))

    def low(name: str, started: float | None) -> PodInfo:
        made = pod(cluster, name, priority=int(name[-1]) % 3)
        made.started = started
        return made

    for number in range(6):
        set_node(number)
    for serial in range(data.draw(st.integers(1, 25))):
        match data.draw(
            st.sampled_from(["low", "low", "low", "started", "gone", "node", "no node", "budget", "high", "nominated"])
        ):
            case "low":
                cluster.place(low(f"low{serial}", None), f"n{data.draw(numbers)}")
            case "started" if cluster.pods:
                known = cluster.pods[data.draw(st.sampled_from(sorted(cluster.pods)))]
                node_name = cluster.node_of(known.uid)
                assert node_name is not None
                cluster.confirm(low(known.name, float(serial)), node_name)
            case "gone" if cluster.pods:
                cluster.displace(data.draw(st.sampled_from(sorted(cluster.pods))))
            case "node":
                set_node(data.draw(numbers))
            case "no node" if cluster.nodes.size > 1:
                cluster.remove_node(data.draw(st.sampled_from(cluster.nodes.names)))
            case "nominated":
                other = pod(cluster, f"nominated{serial}", cpu="1", priority=data.draw(st.sampled_from([5, 10, 20])))
                cluster.nominate(other, f"n{data.draw(numbers)}")
            case "budget":
                body = {
                    "metadata": {"name": "b", "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"app": "x"}}},
                    "status": {"disruptionsAllowed": data.draw(st.integers(0, 2))},
                }
                cluster.set_object(msgspec.convert(body, objects.PodDisruptionBudget))
        frame = Frame(pod(cluster, "high", cpu=data.draw(st.sampled_from(["1", "2"])), priority=10), cluster, 1e9)
        evaluation = evaluate(frame, profile)
        if not len(evaluation.feasible):
            plain, found = (now(post_filter(frame, profile, kept=each)) for each in (None, kept))
            assert found == plain
            assert found.ties == plain.ties


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "y"}}}
        ]
    }
}
KUBERNETES = "use kubernetes scores\n"
SEARCHES: Mapping[str, tuple[dict[str, Any], str]] = {
    "only resources": ({}, KUBERNETES),
    "spread": ({"topologySpreadConstraints": [SPREAD]}, KUBERNETES),
    "anti-affinity": ({"affinity": ANTI_AFFINITY}, KUBERNETES),
    "some spared": ({}, 'use kubernetes scores\npreempt if pod.priority >= 0 evict where victim.label.app == "x"\n'),
    "gangs": ({}, "use kubernetes scores\ngang by pod.label.job size 2 within 60s if pod.label.job\n"),
}


@cache
def profile_of(text: str) -> Profile:
    return policies_of(text).policy_set.policies[0].profile


def searching(cluster: Cluster, kind: str, **options: Any) -> Generator[int, None, Preemption]:
    spec, policy = SEARCHES[kind]
    return steps_of(cluster, profile=profile_of(policy), spec=spec, **options)


def test_what_a_pod_that_evicts_anybody_found_does_not_count_for_one_that_spares_some() -> None:
    cluster, kept = full_cluster(3), KeptVictims()
    assert preempted(cluster, kept=kept).nominated_node == "n000"
    sparing = profile_of(KUBERNETES + 'preempt if pod.priority >= 0 evict where victim.label.app == "y"\n')
    assert preempted(cluster, kept=kept, profile=sparing).nominated_node is None


def test_what_a_pod_found_does_not_count_for_one_of_lower_priority() -> None:
    cluster, kept, profile = full_cluster(1), KeptVictims(), kubernetes_profile()
    body = {"metadata": {"name": "n000"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}
    cluster.set_node(msgspec.convert(body, objects.Node))
    cluster.place(pod(cluster, "middle", app="y", priority=5), "n000")
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
    for priority, victim in ((10, "middle"), (3, "low0"), (10, "middle")):
        frame = Frame(pod(cluster, "new", priority=priority), cluster, 1e9)
        assert [each.name for each in now(post_filter(frame, profile, kept=kept)).victims] == [victim]


def test_what_a_pod_found_does_not_count_for_one_whose_policy_evicts_gangs_whole() -> None:
    cluster, kept = full_cluster(2, priority=5), KeptVictims()
    for number in range(2):
        cluster.displace(f"low{number}")
        cluster.place(
            pod(cluster, f"member{number}", labels={"job": "a"}, schedulerName="policy-scheduler"), f"n00{number}"
        )
    for policy in (KUBERNETES, SEARCHES["gangs"][1]):
        profile = profile_of(policy)
        assert preempted(cluster, kept=kept, profile=profile) == preempted(cluster, profile=profile)


@pytest.mark.parametrize("most_work", [1, 40, 400])
@pytest.mark.parametrize("budget", [None, 0, 1])
def test_a_search_in_turns_finds_the_same(most_work: int, budget: int | None) -> None:
    cluster, kept = full_cluster(150), KeptVictims()
    if budget is not None:
        body = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": budget},
        }
        cluster.set_object(msgspec.convert(body, objects.PodDisruptionBudget))
    plain, turns = preempted(cluster), 1
    while isinstance(found := in_turn(steps_of(cluster, kept=kept), most=most_work), Unfinished):
        turns += 1
        assert turns <= 151
    assert found == plain
    needed = 150 if budget == 0 else MIN_CANDIDATES  # where no budget allows an eviction, all nodes are searched
    at_once = -(-most_work // (NODE_WORK + 1))
    assert needed // at_once <= turns <= needed // at_once + 2


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=20)
@given(st.data())
def test_whatever_filters_read_a_search_in_turns_finds_the_same(kind: str, data: st.DataObject) -> None:
    cluster, kept = mixed_cluster(data), KeptVictims()
    plain = now(searching(cluster, kind))
    most_work, turns = data.draw(st.integers(1, 2_000)), 1
    while isinstance(found := in_turn(searching(cluster, kind, kept=kept), most=most_work), Unfinished):
        turns += 1
        assert turns <= 2 * cluster.nodes.size
    assert found == plain
    assert found.ties == plain.ties


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("is_nominated", [False, True])
def test_pods_that_search_in_turns_do_not_set_each_other_back(kind: str, is_nominated: bool) -> None:
    """Nor does a pod that is nominated to a free node, which is tried there for each of them."""
    cluster, cycle, (spec, policy) = full_cluster(50), Cycle(), SEARCHES[kind]
    if is_nominated:
        cluster.displace("low1")
        cluster.nominate(pod(cluster, "nominated", priority=20), "n001")
    frames = [Frame(pod(cluster, name, priority=10, **spec), cluster, 1e9) for name in ("high", "higher")]
    turns = Counter[str]()
    while frames:
        frame = frames.pop(0)
        turns[frame.pod.name] += 1
        assert turns[frame.pod.name] <= 50 // 3 + 2
        if isinstance(in_turn(cycle.deciding(frame, profile_of(policy)), most=6 * VERDICT_WORK), Unfinished):
            frames.append(frame)


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=20)
@given(st.data())
def test_after_changes_between_turns_the_victims_are_those_of_now(kind: str, data: st.DataObject) -> None:
    cluster, kept = mixed_cluster(data), KeptVictims()
    most_work = data.draw(st.integers(1, 1_000))
    for turn in range(200):
        found = in_turn(searching(cluster, kind, kept=kept), most=most_work)
        if not isinstance(found, Unfinished):
            break
        if turn < 20 and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(cluster.nodes.names))
            for gone in sorted(cluster.pods_on(name))[:1]:
                cluster.displace(gone)
            cluster.place(pod(cluster, f"new{turn}", app=data.draw(st.sampled_from("xy")), priority=1), name)
    assert not isinstance(found, Unfinished)
    plain = now(searching(cluster, kind, every_node=True))
    assert (found.nominated_node is None) == (plain.nominated_node is None)
    if found.nominated_node is not None:
        current = plain.candidates[found.nominated_node]
        assert sorted(each.uid for each in found.victims) == sorted(each.uid for each in current.pods)


def mixed_cluster(data: st.DataObject) -> Cluster:
    """Return full nodes in zones, with pods of two workloads and of a gang."""
    cluster = Cluster()
    for number in range(data.draw(st.integers(2, 12))):
        labels = {"zone": data.draw(st.sampled_from("ab"))}
        metadata = {"name": f"n{number:03}", "labels": labels}
        body = {"metadata": metadata, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
        cluster.set_node(msgspec.convert(body, objects.Node))
        for place in range(4):
            labels = {"job": data.draw(st.sampled_from(["one", "two"]))} if data.draw(st.integers(0, 5)) == 0 else {}
            app, priority = data.draw(st.sampled_from("xy")), data.draw(st.sampled_from([0, 0, 1, 20]))
            spec = {"priority": priority, "schedulerName": "policy-scheduler"}  # else it is in no gang
            low = pod(cluster, f"low{number}-{place}", cpu="250m", app=app, labels=labels, **spec)
            cluster.place(low, f"n{number:03}")
    return cluster


def test_nodes_that_change_meanwhile_are_searched_again() -> None:
    cluster, kept = full_cluster(10), KeptVictims()
    most_work = 6 * (NODE_WORK + 1)
    assert in_turn(steps_of(cluster, kept=kept), most=most_work) is UNFINISHED
    cluster.displace("low3")
    cluster.place(pod(cluster, "younger", priority=-1), "n003")

    found = in_turn(steps_of(cluster, kept=kept), most=most_work)

    assert not isinstance(found, Unfinished)
    assert found == preempted(cluster)
    assert found.nominated_node == "n003"


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_nodes_to_which_others_are_nominated_meanwhile_or_no_longer_are_searched_again(before: int, after: int) -> None:
    cluster, kept, profile = Cluster(), KeptVictims(), kubernetes_profile()
    for number in range(10):
        body = {"metadata": {"name": f"n{number:03}"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}
        cluster.set_node(msgspec.convert(body, objects.Node))
        for each in range(4):
            cluster.place(pod(cluster, f"low{number}-{each}"), f"n{number:03}")

    def nominate(most: int) -> None:
        for number in range(0, 10, 2):
            for each in range(2):
                other = pod(cluster, f"nominated{number}-{each}", priority=10)
                cluster.nominate(other, f"n{number:03}" if each < most else "")

    nominate(before)
    assert in_turn(steps_of(cluster, profile=profile, kept=kept), most=3 * (NODE_WORK + 4)) is UNFINISHED
    nominate(after)

    assert now(steps_of(cluster, profile=profile, kept=kept)) == preempted(cluster)


def test_a_node_that_needs_more_victims_since_a_change_elsewhere_is_the_best_no_more() -> None:
    cluster, kept = Cluster(), KeptVictims()
    for name, zone, app, priority in (
        ("n000", "a", "x", 0),
        ("n001", "b", "x", 20),
        ("n002", "b", "z", 0),
        ("n003", "b", "z", 1),
    ):
        metadata = {"name": name, "labels": {"zone": zone}}
        body = {"metadata": metadata, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}
        cluster.set_node(msgspec.convert(body, objects.Node))
        for number in range(4):
            cluster.place(pod(cluster, f"{name}-{number}", app=app, priority=priority), name)
    assert in_turn(searching(cluster, "spread", kept=kept), most=6 * VERDICT_WORK) is UNFINISHED
    for number in range(2):
        cluster.displace(f"n001-{number}")
        cluster.place(pod(cluster, f"other-{number}", app="z", priority=20), "n001")

    found = now(searching(cluster, "spread", kept=kept))

    assert found == now(searching(cluster, "spread"))
    assert (found.nominated_node, len(found.victims)) == ("n002", 1)


def test_with_many_nodes_what_earlier_pods_found_changes_no_candidates() -> None:
    rng, cluster, kept, profile = Random(0), full_cluster(400), KeptVictims(), kubernetes_profile()
    for serial in range(25):
        frame = Frame(pod(cluster, f"high{serial}", priority=10), cluster, 1e9)
        plain, found = (now(post_filter(frame, profile, kept=each)) for each in (None, kept))
        assert found.nominated_node is not None
        assert found == plain
        assert (list(found.candidates), found.ties) == (list(plain.candidates), plain.ties)
        if serial % 3 == 0:
            cluster.nominate(frame.pod, found.nominated_node)
        elif serial % 3 == 1:
            evicted = found.victims[0]
            cluster.displace(evicted.uid)
            cluster.place(pod(cluster, f"later{serial}", priority=rng.choice([-5, 3])), found.nominated_node)
        else:
            forbidding = {
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "x"}}},
                "status": {"disruptionsAllowed": serial % 2},
            }
            cluster.set_object(msgspec.convert(forbidding, objects.PodDisruptionBudget))


def test_a_nominated_pod_counts_where_victims_were_found_before_it_came() -> None:
    cluster, kept, profile = Cluster(), KeptVictims(), kubernetes_profile()
    for number in range(150):
        node = {"metadata": {"name": f"n{number:03}"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}
        cluster.set_node(msgspec.convert(node, objects.Node))
        for each in "ab":
            cluster.place(pod(cluster, f"low{number}{each}"), f"n{number:03}")
    before = preempted(cluster, profile=profile, kept=kept, every_node=True)
    for number in range(0, 150, 2):
        cluster.nominate(pod(cluster, f"nominated{number}", priority=10), f"n{number:03}")

    after = preempted(cluster, profile=profile, kept=kept)

    assert {len(victims.pods) for victims in before.candidates.values()} == {1}
    assert {int(name[1:]) % 2: len(found.pods) for name, found in after.candidates.items()} == {0: 2, 1: 1}
    assert after == preempted(cluster, profile=profile)
    assert len(after.ties) == sum(int(name[1:]) % 2 for name in after.candidates)


def started(cluster: Cluster, name: str, at: float | None, *, priority: int = 0) -> PodInfo:
    return msgspec.structs.replace(pod(cluster, name, priority=priority), started=at)


@pytest.mark.parametrize(
    ("first", "second", "goes"),
    [(100.0, None, "second"), (None, 100.0, "first"), (100.0, 200.0, "second"), (None, None, "second")],
)
def test_of_equal_pods_on_a_node_the_one_stays_that_runs_longest(
    first: float | None, second: float | None, goes: str
) -> None:
    cluster = Cluster()
    body = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}}
    cluster.set_node(msgspec.convert(body, objects.Node))
    for name, at in (("second", second), ("first", first)):
        cluster.place(started(cluster, name, at), "n")

    assert [victim.name for victim in preempted(cluster, kept=KeptVictims()).victims] == [goes]


@pytest.mark.parametrize(
    ("starts", "priorities", "order"),
    [
        ((100.0, 100.0), (0, 5), [1, 2]),
        ((100.0, 100.0), (5, 0), [2, 1]),
        ((100.0, 200.0), (0, 0), [2, 1]),
        ((200.0, 100.0), (0, 0), [1, 2]),
        ((100.0, None), (0, 0), [2, 1]),
        ((None, 100.0), (0, 0), [1, 2]),
    ],
)
def test_victims_beside_a_nominated_pod_are_compared_as_all_others(
    starts: tuple[float | None, ...], priorities: tuple[int, ...], order: list[int]
) -> None:
    """The victims beside it are searched again in each attempt; those on other nodes are remembered."""
    cluster, kept = full_cluster(3, priority=20), KeptVictims()
    for number, (at, priority) in enumerate(zip(starts, priorities, strict=True), 1):
        cluster.displace(f"low{number}")
        cluster.place(started(cluster, f"low{number}", at, priority=priority), f"n00{number}")
    cluster.nominate(pod(cluster, "nominated", cpu="0", priority=10), "n002")
    for _ in range(2):
        found = preempted(cluster, kept=kept)
        assert found == preempted(cluster)
        assert [victim.name for victim in found.victims] == [f"low{order[0]}"]
        assert [name for name, _ in found.in_order(1e9)] == [f"n00{order[1]}"]


def test_candidates_stay_as_they_were_found_when_others_change_what_is_kept() -> None:
    cluster, kept = full_cluster(50), KeptVictims()
    first = preempted(cluster, kept=kept)
    cluster.displace("low1")
    cluster.place(started(cluster, "low1", 100.0), "n001")
    second = preempted(cluster, kept=kept)

    assert [name for name, _ in first.in_order(1e9)] == [f"n{number:03}" for number in range(1, 50)]
    assert [name for name, _ in second.in_order(1e9)] == [*(f"n{number:03}" for number in range(2, 50)), "n001"]


QUOTAS = {
    "a queue": "queue team by pod.namespace max cpu 4\n",
    "queues that lend": (
        "queue all max cpu 5\n"
        'queue x of all for pods where pod.label.app == "x" min cpu 2 max cpu 4\n'
        'queue y of all for pods where pod.label.app == "y" min cpu 1\n'
    ),
    "a limit": "limit count() by pod.namespace to 8\n",
    "a limit of cores": 'limit sum(request.cpu) by pod.label.app to 2 if pod.label.app == "x"\n',
    "a limit and a queue": "limit count() by pod.namespace to 9\nqueue team by pod.namespace max cpu 3\n",
    "a limit and spared pods": (
        "limit count() by pod.namespace to 8\npreempt if pod.priority >= 0 evict where victim.label.job is missing\n"
    ),
    "a limit and gangs": "limit count() by pod.namespace to 8\ngang by pod.label.job size 2 if pod.label.job\n",
}
"""Whom they reject depends on which pods are placed, not on where."""


@pytest.mark.parametrize("kind", QUOTAS)
@given(data=st.data())
def test_quotas_that_are_asked_once_for_alike_victims_change_nothing(kind: str, data: st.DataObject) -> None:
    cluster = mixed_cluster(data)
    for name in data.draw(st.lists(st.sampled_from(cluster.nodes.names), max_size=2)):
        body = {"metadata": {"name": name, "labels": {"zone": "a"}}, "spec": {"unschedulable": True}}
        cluster.set_node(msgspec.convert(body | {"status": {"allocatable": {"cpu": "1", "pods": "9"}}}, objects.Node))
    if data.draw(st.booleans()):
        other = pod(cluster, "nominated", cpu="500m", priority=data.draw(st.sampled_from([5, 30])))
        cluster.nominate(other, data.draw(st.sampled_from(cluster.nodes.names)))
    if data.draw(st.booleans()):
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "y"}}},
            "status": {"disruptionsAllowed": data.draw(st.integers(0, 1))},
        }
        cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
    profile = profile_of("use kubernetes scores\n" + QUOTAS[kind])
    cpu = data.draw(st.sampled_from(["100m", "250m", "500m", "1", "2"]))
    frame = Frame(pod(cluster, "high", cpu=cpu, priority=10), cluster, 1e9)
    evaluation = evaluate(frame, profile)
    if len(evaluation.feasible):
        return

    def found() -> tuple[Preemption, object]:
        kept, most = data.draw(st.sampled_from([(None, inf), (KeptVictims(), 200)]))
        while isinstance(each := in_turn(post_filter(frame, profile, kept=kept), most=most), Unfinished):
            pass
        return each, dict(each.candidates)

    before = {uid: cluster.node_of(uid) for uid in cluster.pods}
    quick = found()
    assert {uid: cluster.node_of(uid) for uid in cluster.pods} == before
    with pytest.MonkeyPatch.context() as patch:
        for owner in (QueueQuota, LimitClause):
            patch.setattr(owner, "leaving_key", lambda plugin, pod: None)
        for plugin in profile.filters:
            if isinstance(plugin, LimitClause):
                patch.setattr(plugin, "leaving_key", lambda pod: None)
        assert quick == found()


@pytest.mark.parametrize("nodes", [20, 80])
def test_a_quota_is_asked_as_often_on_many_nodes_as_on_few(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = full_cluster(nodes), 0
    pre_filter = QueueQuota.pre_filter

    def counted(self: QueueQuota, frame: Frame) -> PreFilterResult:
        nonlocal asked
        asked += 1
        return pre_filter(self, frame)

    profile = profile_of(f"queue team by pod.namespace max cpu {nodes}\n")
    monkeypatch.setattr(QueueQuota, "pre_filter", counted)
    found = preempted(cluster, profile=profile)
    assert len(found.candidates) == nodes
    assert asked == 3  # for the pod, for its search, and for all nodes without a victim
