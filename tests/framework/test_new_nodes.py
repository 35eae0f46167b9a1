"""Whether new nodes would help a pod that no node takes, clause by clause, and how pods share what limits leave."""

from __future__ import annotations

from typing import Any
from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.decide.new_nodes import SKIPPED, UNSCHEDULABLE, AwaitingNodes, NewNodes, judge
from kube_policy_scheduler.framework.frame import Frame
from tests.daemon.deciding_stage import NOW, Stage, policies, reading

LOAD = 'metric load = promql("load") default 100\nfilter load < 80'
ANY = "rejects the pod on any node"
REJECTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no room": ("", {"cpu": "64"}, ""),
    "a label of nodes": ("filter label disk=ssd", {}, ""),
    "a label that no node gets": ("filter label disk=ssd as ssd new nodes never help", {}, "ssd accepts no new node"),
    "the pod alone": ('filter pod.label.tier == "gold" as gold', {}, f"gold {ANY}"),
    "the pod alone, though it says otherwise": ('filter pod.label.tier == "gold" new nodes help', {}, ""),
    "one of two conditions": ('filter label disk=ssd and pod.label.tier == "gold" as both', {}, f"both {ANY}"),
    "one of two conditions, with a reason": (
        'filter label disk=ssd and pod.label.tier == "gold" as both else "no"',
        {},
        f"both {ANY}",
    ),
    "either of two conditions": ('filter label disk=ssd or pod.label.tier == "gold"', {}, ""),
    "a condition of its own that holds": (
        'filter pod.label.tier == "gold" as gold if pod.namespace == "shop"',
        {},
        f"gold {ANY}",
    ),
    "a condition of its own that does not hold": (
        'filter label disk=ssd\nfilter pod.label.tier == "gold" if pod.namespace == "other"',
        {},
        "",
    ),
    "a condition of its own about nodes": ('filter pod.label.tier == "gold" if not label disk=ssd', {}, ""),
    "require": ('require pod.label.tier == "gold" as gold', {}, f"gold {ANY}"),
    "require about the number of nodes": ("require count(n in cluster.nodes) > 9", {}, ""),
    "require about pods anywhere": ("require count(p in cluster.pods) > 9 as busy", {}, f"busy {ANY}"),
    "a limit": ("limit count() by pod.namespace to 0 as quota", {}, f"quota {ANY}"),
    "a limit, and no room": ("limit count() by pod.namespace to 0 as quota", {"cpu": "64"}, f"quota {ANY}"),
    "a limit that nodes help": ("limit count() by pod.namespace to 0 new nodes help", {}, ""),
    "a limit of nodes": ("limit count() by pod.namespace to 0 over node", {}, ""),
    "a limit of nodes that never change": (
        "limit count() by pod.namespace to 0 over node as few new nodes never help",
        {},
        "few accepts no new node",
    ),
    "a skew over zones": ("spread by pod.namespace over rack max skew 1\nfilter label disk=ssd", {}, ""),
    "devices of nodes": ('filter class_devices_left("gpu") >= 2', {}, ""),
    "what claims would get": ('filter (claimed_kinds("gpu/numa") ?? 0) == 1', {}, ""),
    "a metric that no node has": (LOAD, {}, "load < 80 has no value for any node"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_a_clause_depends_on_tells_whether_new_nodes_help(name: str) -> None:
    text, shape, why = REJECTED[name]
    stage = Stage(policies(f"policy web\n{text}\nuse kubernetes\n"))
    decision, pod, profile = judged(stage, **shape)

    assert decision.help == (not why)
    assert decision.why == (f"policy clause {why}" if why else "")
    assert decision.reason == (SKIPPED if why else UNSCHEDULABLE)
    stage.cluster.remove_node("n0")
    for number in range(1, stage.nodes):
        stage.cluster.remove_node(f"n{number}")
    if "nodes never" not in text and "load" not in text:  # those speak of the nodes that there are
        assert judge(Frame(pod, stage.cluster, NOW), profile).help == (not why)


def judged(stage: Stage, **shape: Any) -> tuple[NewNodes, PodInfo, Any]:
    pod = stage.pod(**shape)
    policy = stage.policy_set.governing(pod)
    assert policy is not None
    frame = Frame(pod, stage.cluster, stage.now, signals=stage.signals)
    decision = stage.cycle.decide(frame, policy.profile)
    assert decision.host is None
    return judge(frame, policy.profile, decision.diagnosis), pod, policy.profile


def test_a_metric_of_busy_nodes_does_not_keep_new_ones_away() -> None:
    busy = Signals.of([reading("load", {f"n{number}": 95.0 for number in range(4)})])

    assert judged(Stage(policies(f"policy web\n{LOAD}\n"), signals=busy))[0].help


def test_a_rule_of_kubernetes_keeps_the_reason_that_autoscalers_know() -> None:
    stage = Stage(policies("policy web\nuse kubernetes\n"))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"containers": [], "schedulerName": "policy-scheduler", "affinity": {"nodeAffinity": required}}
    made = msgspec.convert({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": spec}, objects.Pod)
    pod = stage.cluster.templates.pod(made)
    policy = stage.policy_set.governing(pod)
    assert policy is not None
    frame = Frame(pod, stage.cluster, NOW)
    found = judge(frame, policy.profile, stage.cycle.decide(frame, policy.profile).diagnosis)

    assert (found.help, found.is_kubernetes, found.reason) == (False, True, UNSCHEDULABLE)


QUEUES = """policy web
queue all {limit}
queue a of all for pods where pod.namespace == "shop" min cpu 2
order by queue.share
reclaim
"""


@pytest.mark.parametrize(
    ("limit", "together", "helps"), [("", 1, True), ("max cpu 3", 1, False), ("max cpu 9", 2, False)]
)
def test_a_queue_that_only_lacks_nodes_gets_some(limit: str, together: int, helps: bool) -> None:
    stage = Stage(policies(QUEUES.format(limit=limit)), nodes=1)
    pod = stage.pod(cpu="5")
    policy = stage.policy_set.governing(pod)
    assert policy is not None
    frame = Frame(pod, stage.cluster, NOW)
    decision = stage.cycle.decide(frame, policy.profile)
    assert decision.host is None
    found = judge(frame, policy.profile, decision.diagnosis, together=together)

    assert (found.help, found.reason) == (helps, UNSCHEDULABLE if helps else SKIPPED)
    assert helps or "has no quota for cpu" in found.why


def test_pods_that_waited_under_other_policies_leave_nothing() -> None:
    """Templates stay when policies change, again and again, and what they know of queues would stay with them."""
    stage, others = (Stage(policies(QUEUES.format(limit=f"max cpu {most}")), nodes=1) for most in (20, 30))
    pod, awaiting = stage.pod(cpu="5"), AwaitingNodes()
    policy, other = stage.policy_set.governing(pod), others.policy_set.governing(pod)
    assert policy is not None
    assert other is not None
    assert other.profile.queues is not None
    frame = Frame(pod, stage.cluster, NOW)
    known: list[set[object]] = []
    for _ in range(3):
        diagnosis = stage.cycle.decide(frame, policy.profile).diagnosis
        assert awaiting.judge(frame, policy.profile, diagnosis).help
        usage = ref(stage.cluster.quota_usage)
        awaiting.clear()
        known.append(set(pod.template.memo))
    stage.cluster.track_usage(other.profile.queues.tree)

    assert known[0] == known[1] == known[2]
    assert usage() is None


EVENTS = st.lists(st.tuples(st.sampled_from(["reject", "gone", "place"]), st.integers(0, 11)), max_size=40)


@given(EVENTS)
def test_new_nodes_are_never_wanted_for_more_than_a_limit_admits(events: list[tuple[str, int]]) -> None:
    stage = Stage(policies("policy web\nlimit sum(request.cpu) by pod.label.tenant to 10\n"), nodes=1)
    pods = [stage.pod(cpu=str(1 + at % 3), tenant="ab"[at % 2], job=str(at // 4)) for at in range(12)]
    awaiting, wanted, placed = AwaitingNodes(), set[str](), set[str]()
    policy = stage.policy_set.governing(pods[0])
    assert policy is not None
    for event, at in events:
        pod = pods[at]
        if event == "reject" and pod.uid not in placed:
            found = awaiting.judge(Frame(pod, stage.cluster, NOW), policy.profile)
            wanted.discard(pod.uid)
            if found.help:
                wanted.add(pod.uid)
        elif event == "place" and pod.uid in wanted:
            wanted.discard(pod.uid)
            awaiting.withdraw(pod.uid)
            placed.add(pod.uid)
            stage.cluster.place(pod, "n0")
        elif event == "gone":
            wanted.discard(pod.uid)
            awaiting.withdraw(pod.uid)
            placed.discard(pod.uid)
            stage.cluster.remove(pod.uid)
        for tenant in "ab":
            mine = [each for each in pods if each.template.labels["tenant"] == tenant]
            used = sum(_cores(each) for each in mine if each.uid in wanted | placed)
            assert used <= 10
            if event == "reject" and pod in mine and pod.uid not in wanted | placed:
                assert used + _cores(pod) > 10, "the limit leaves room for it"
        assert awaiting.numbers[0] == len(wanted)


def _cores(pod: PodInfo) -> float:
    return pod.demand.requests["cpu"] / 1000


@given(st.permutations(range(12)))
def test_a_gang_wants_new_nodes_as_a_whole_whatever_the_order(order: list[int]) -> None:
    stage = Stage(policies("policy web\nlimit sum(request.cpu) by pod.label.tenant to 10\n"), nodes=1)
    pods = [stage.pod(cpu="2", tenant="a", job=str(at // 4)) for at in range(12)]
    awaiting, helped = AwaitingNodes(), set[int]()
    policy = stage.policy_set.governing(pods[0])
    assert policy is not None
    for at in order:
        job = at // 4
        found = awaiting.judge(Frame(pods[at], stage.cluster, NOW), policy.profile, gang=job, together=4)
        if found.help:
            helped.add(at)

    assert helped == {at for at in range(12) if at // 4 == order[0] // 4}
    for at in order:
        awaiting.withdraw(pods[at].uid)
    assert awaiting.numbers == (0, 0)
    assert awaiting.judge(Frame(pods[order[-1]], stage.cluster, NOW), policy.profile, gang="x", together=5).help
