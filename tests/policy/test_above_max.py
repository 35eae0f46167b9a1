"""`reclaim above max`: who is evicted of a queue that uses more than its `max`, and who is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.preempt.above_max import (
    EVERY_SECONDS,
    AboveMaxReclaim,
    all_above_max,
    next_above_max,
)
from kube_policy_scheduler.framework.preempt.reclaim import next_victims
from kube_policy_scheduler.framework.quota import QuotaRules
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.policy.worlds import node, pod

QUEUE = "queue a for pods where pod label queue=a min cpu 2 max cpu 3\n"
GANG = "gang by pod.label.job size 2 if pod label job\n"
NOW = 1000.0
GPU = "nvidia.com/gpu"


def rules_of(text: str) -> QuotaRules:
    loaded = load([Source("t.policy", text)])
    assert loaded.policy_set is not None
    assert loaded.policy_set.queues is not None
    return loaded.policy_set.queues


def running(*pods: tuple[str, float, int, str], job: str = "") -> Cluster:
    """Return a cluster with pods of queue `a`: name, start, priority, and job."""
    cluster = Cluster()
    cluster.set_node(node("n", cpu="32"))
    for name, started, priority, of in pods:
        labels = {"queue": "a", **({"job": of} if of else {})}
        made = pod(cluster, name, labels=labels, priority=priority)
        cluster.place(msgspec.structs.replace(made, started=started), "n")
    return cluster


def evicted(cluster: Cluster, rules: QuotaRules) -> Sequence[str]:
    """Return the names of all who are evicted, one pod or gang after the other."""
    found = list[str]()
    while (above := next_above_max(cluster, rules, now=NOW)) is not None:
        found += sorted(each.name for each in above.pods)
        for each in above.pods:
            cluster.displace(each.uid)
    return found


FIVE = [(name, float(at), 0, "") for at, name in enumerate("pqrst")]
CASES = {
    "the youngest go, until the queue is within its max": (FIVE, "", ["t", "s"]),
    "the lowest priority goes first": ([*FIVE[:4], ("u", 0.0, -1, "")], "", ["u", "s"]),
    "pods that the condition spares stay": (FIVE, ' evict where victim.name != "t"', ["s", "r"]),
    "members beyond the size go before the gang": (
        [("p", 0.0, 5, ""), ("q", 0.0, 5, ""), *((f"j{number}", float(number), 0, "j") for number in range(3))],
        "",
        ["j2", "j0", "j1"],
    ),
}


@pytest.mark.parametrize(("pods", "where", "wanted"), CASES.values(), ids=CASES)
def test_who_goes(pods: list[tuple[str, float, int, str]], where: str, wanted: list[str]) -> None:
    cluster, rules = running(*pods), rules_of(f"{QUEUE}{GANG}reclaim above max{where}\n")
    listed = all_above_max(cluster, rules, now=NOW, most=9)
    assert [name for each in listed for name in sorted(pod.name for pod in each.pods)] == wanted
    (first,) = all_above_max(cluster, rules, now=NOW, most=1)
    assert first.pods == listed[0].pods
    assert evicted(cluster, rules) == wanted, "the list changed nothing"


def test_who_would_go_next_leaves_budgets_what_those_before_left() -> None:
    """Two of the youngest are in a budget that allows one eviction, so the second one goes last."""
    cluster = running(*[(name, float(at), 0, "guarded" if name in "st" else "") for at, name in enumerate("pqrst")])
    budget = {
        "metadata": {"name": "guard", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"job": "guarded"}}},
        "status": {"disruptionsAllowed": 1},
    }
    cluster.set_object(msgspec.convert(budget, objects.PodDisruptionBudget))
    rules = rules_of(f"{QUEUE}reclaim\nreclaim above max\n")
    above = all_above_max(cluster, rules, now=NOW, most=9)
    assert [each.pods[0].name for each in above] == ["t", "r"]
    reclaimed = next_victims(cluster, rules, now=NOW, most=9)
    assert [unit.pods[0].name for unit in reclaimed] == ["t", "r", "s"]


def test_nobody_goes_without_the_statement_or_within_the_max() -> None:
    assert evicted(running(*FIVE), rules_of(f"{QUEUE}reclaim\n")) == []
    assert evicted(running(*FIVE[:3]), rules_of(f"{QUEUE}reclaim above max\n")) == []


def test_what_is_guaranteed_stays_although_the_queue_is_above_its_max() -> None:
    rules = rules_of("queue a for pods where pod label queue=a min cpu 5 max cpu 5\nreclaim above max\n")
    cluster = running(*FIVE, ("x", 9.0, 9, ""))
    assert evicted(cluster, rules) == ["t"], "x has the highest priority, so the youngest of the others borrows"


def of_group(cluster: Cluster, name: str, *, cpu: str = "1", gpus: int = 0, **spec: Any) -> PodInfo:
    """Return a pod of queue `a` and of gang `j`."""
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return pod(cluster, name, labels={"queue": "a", "job": "j"}, containers=containers, **spec)


def test_a_gang_goes_with_surplus_that_holds_nothing_of_what_is_used_too_much() -> None:
    cluster = Cluster()
    cluster.set_node(node("n", cpu="32"))
    for name, gpus in (("j0", 2), ("j1", 2), ("j2", 0)):
        started = of_group(cluster, name, gpus=gpus)
        cluster.place(msgspec.structs.replace(started, started=float(name[1:])), "n")
    rules = rules_of(f"queue a for pods where pod label queue=a max {GPU} 3\n{GANG}reclaim above max\n")
    assert evicted(cluster, rules) == ["j0", "j1", "j2"]


@pytest.mark.parametrize(
    ("where", "gone"), [("", ["a", "b", "none"]), (' evict where victim.name != "none"', ["alone"])], ids=["", "spared"]
)
def test_a_gang_goes_with_members_in_other_queues_and_in_none(where: str, gone: list[str]) -> None:
    cluster = Cluster()
    cluster.set_node(node("n", cpu="32"))
    for name, queue, priority in (("a", "a", 0), ("b", "b", 0), ("none", "", 0), ("alone", "a", 9)):
        labels = {"queue": queue, **({"job": "j"} if name != "alone" else {})}
        cluster.place(pod(cluster, name, labels=labels, priority=priority), "n")
    queues = "queue a for pods where pod label queue=a max cpu 1\nqueue b for pods where pod label queue=b max cpu 9\n"
    gang = GANG.replace("size 2", "size 3")
    assert evicted(cluster, rules_of(f"{queues}{gang}reclaim above max{where}\n")) == gone


@pytest.mark.parametrize(("mode", "gone"), [("Pod", ["j2"]), ("PodGroup", [])])
def test_a_podgroup_that_preemption_leaves_where_it_is_stays(mode: str, gone: list[str]) -> None:
    cluster = Cluster()
    cluster.set_node(node("n", cpu="32"))
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": mode}
    body = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    cluster.set_object(msgspec.convert(body, objects.PodGroup))
    for number in range(3):
        member = of_group(cluster, f"j{number}", schedulingGroup={"podGroupName": "g"})
        cluster.place(msgspec.structs.replace(member, started=float(number)), "n")
    rules = rules_of("queue a for pods where pod label queue=a max cpu 2\nreclaim\nreclaim above max\n")
    assert evicted(cluster, rules) == gone
    assert bool(next_victims(cluster, rules, now=NOW, most=9)) is bool(gone)


def test_one_goes_every_thirty_seconds() -> None:
    cluster, rules = running(*FIVE), rules_of(f"{QUEUE}reclaim above max\n")
    reclaim, times = AboveMaxReclaim(cluster), list[float]()
    for second in range(100):
        found = reclaim.due(lambda: rules, Steady(float(second)))
        if found is not None:
            times.append(second)
            assert found.why == f"queue a uses {6 - len(times)} cpu, and its `max` is 3"
            cluster.displace(found.pods[0].uid)
    assert times == [0, EVERY_SECONDS]
