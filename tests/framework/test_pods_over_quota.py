"""Pods that wait for quota: only what may admit them wakes them."""

from __future__ import annotations

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.framework.queue.pods_over_quota import PodsOverQuota
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.framework.quota import QuotaRules, quota_wait
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.times import Steady
from tests.lang.clusters import cluster, node, pod

LIMITED = """\
queue all max cpu 6
queue a of all for pods where pod.label.q == "a" max cpu 4
queue b of all for pods where pod.label.q == "b" max cpu 4
"""


def rules_of(text: str) -> QuotaRules:
    loaded = load([Source("queues.policy", text)]).policy_set
    assert loaded is not None
    assert loaded.queues is not None
    return loaded.queues


class Stage:
    """A node with pods of two queues, and pods that wait for their quota."""

    def __init__(self, text: str = LIMITED) -> None:
        self.cluster: Cluster = cluster(node("n", allocatable={"cpu": "64", "memory": "64Gi"}))
        self.rules = rules_of(text)
        self.waiting = PodsOverQuota()

    def place(self, name: str, queue: str, cpu: str) -> None:
        self.cluster.place(self._pod(name, queue, cpu), "n")

    def end(self, name: str) -> list[str]:
        self.cluster.displace(name)
        return self.helped()

    def waits(self, name: str, queue: str, cpu: str) -> None:
        info = self._pod(name, queue, cpu)
        wait = quota_wait(self.cluster, self.rules, info)
        assert wait is not None
        self.waiting.add(QueuedPod(info, queued=Steady(0.0), timestamp=Steady(0.0)), wait)

    def helped(self) -> list[str]:
        return sorted(queued.pod.name for queued in self.waiting.helped())

    def _pod(self, name: str, queue: str, cpu: str) -> PodInfo:
        return pod(self.cluster, name, labels={"q": queue}, cpu=cpu)


def test_a_pod_is_woken_once_all_of_its_queues_have_room_for_it() -> None:
    stage = Stage()
    for name, queue, cpu in (("a1", "a", "3"), ("a2", "a", "1"), ("b1", "b", "1"), ("b2", "b", "1")):
        stage.place(name, queue, cpu)
    stage.waits("large", "a", "4")
    stage.waits("small", "a", "1")
    assert stage.helped() == [], "nothing has changed since"
    assert stage.end("b1") == [], "its own queue is full"
    assert stage.end("a2") == ["small"], "3 of 4 are used: one is free"
    assert stage.end("b2") == []
    assert stage.end("a1") == ["large", "small"]


def test_pods_are_woken_in_the_order_in_which_their_queues_changed() -> None:
    """Not in one that differs from process to process, as that of a set of names does."""
    names = [f"q{number}" for number in range(24)]
    stage = Stage("\n".join(f'queue {name} for pods where pod.label.q == "{name}" max cpu 1' for name in names))
    for name in names:
        stage.place(f"{name}-runs", name, "1")
        stage.waits(f"{name}-waits", name, "1")
    assert stage.helped() == []
    for name in reversed(names):
        stage.cluster.displace(f"{name}-runs")
    assert [queued.pod.name for queued in stage.waiting.helped()] == [f"{name}-waits" for name in reversed(names)]


def test_a_pod_that_waits_no_longer_is_not_woken() -> None:
    stage = Stage()
    stage.place("a1", "a", "4")
    stage.waits("one", "a", "1")
    stage.waits("two", "a", "1")
    stage.waiting.remove("one")
    assert ("one" in stage.waiting, "two" in stage.waiting) == (False, True)
    assert stage.end("a1") == ["two"]


def test_pods_that_waited_for_queues_of_former_policies_are_woken() -> None:
    stage = Stage()
    stage.place("a1", "a", "4")
    stage.waits("before", "a", "1")
    stage.rules = rules_of(LIMITED.replace("a of all", "c of all"))
    stage.waits("since", "a", "1")
    assert "before" in stage.helped()
    assert "since" not in stage.helped()


def test_where_queues_reclaim_a_change_that_does_not_admit_the_pod_may_help_it_to_evict() -> None:
    stage = Stage(LIMITED.replace("max cpu 4", "min cpu 2 max cpu 4") + "reclaim after 30s\n")
    for name, queue, cpu in (("a1", "a", "3"), ("b1", "b", "2"), ("b2", "b", "1")):
        stage.place(name, queue, cpu)
    stage.waits("large", "a", "4")
    assert stage.end("b2") == ["large"]
    assert stage.helped() == []


def test_that_more_pods_wait_or_fewer_wakes_nobody() -> None:
    stage = Stage(LIMITED.replace("max cpu 4", "min cpu 2 max cpu 4") + "reclaim after 30s\n")
    for name, queue, cpu in (("a1", "a", "3"), ("b1", "b", "2"), ("b2", "b", "1")):
        stage.place(name, queue, cpu)
    stage.waits("first", "a", "4")
    assert stage.helped() == [], "what was before it came is no news to it"
    stage.waits("second", "a", "4")
    assert stage.helped() == []
    stage.waiting.remove("second")
    stage.waiting.remove("never there")
    assert stage.helped() == []
    assert stage.end("b2") == ["first"]
