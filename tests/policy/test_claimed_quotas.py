"""Queues count the devices that pods claim, by DeviceClass, under the name that ResourceQuota has for them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.claimed_devices import claimed_devices, device_class
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import AwaitedPods, QuotaUsage
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.decide.new_nodes import AwaitingNodes
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.reclaim import NotReclaimed
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, make_claims, take_claims
from kube_policy_scheduler.policy.policy_set import PolicySet
from kube_policy_scheduler.tooling.queues import data, report
from tests.lang.clusters import NOW, policy_set
from tests.policy.claimed_devices import cluster_of, device

GPU = "gpu.deviceclass.resource.k8s.io/devices"
TEXT = f"""
queue all max {GPU} 6
queue red of all for pods where pod.label.team == "red" min {GPU} 4
queue blue of all for pods where pod.label.team == "blue" min {GPU} 2
order by queue.share, pod.queued
reclaim
score 1
"""


def claim(requests: Any, results: list[tuple[str, bool]] | None = None) -> objects.ResourceClaim:
    status: dict[str, Any] = {}
    if results is not None:
        found = [
            {"request": name, "driver": "d", "pool": "p", "device": f"x{number}", "adminAccess": admin}
            for number, (name, admin) in enumerate(results)
        ]
        status = {"allocation": {"devices": {"results": found}}}
    body = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": requests}}}
    return msgspec.convert(body | {"status": status}, objects.ResourceClaim)


def exactly(count: int = 1, *, of: str = "gpu", name: str = "r", **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": of, "count": count, **more}}


EITHER = {
    "name": "r",
    "firstAvailable": [
        {"name": "big", "deviceClassName": "gpu", "count": 1},
        {"name": "small", "deviceClassName": "gpu", "count": 2},
        {"name": "other", "deviceClassName": "npu", "count": 3},
    ],
}


@pytest.mark.parametrize(
    ("requests", "results", "expected"),
    [
        ([exactly(2), exactly(1, of="npu", name="s")], None, {"gpu": 2, "npu": 1}),
        ([exactly(0)], None, {"gpu": 1}),
        ([exactly(8, adminAccess=True)], None, {}),
        ([exactly(allocationMode="All")], None, {"gpu": 32}),
        ([exactly(allocationMode="All")], [("r", False)] * 3, {"gpu": 3}),
        ([EITHER], None, {"gpu": 2, "npu": 3}),
        ([EITHER], [("r/other", False)] * 3, {"npu": 3}),
        ([exactly(2)], [("r", False), ("r", True)], {"gpu": 1}),
        ([], None, {}),
    ],
)
def test_what_a_claim_counts_for(requests: Any, results: Any, expected: dict[str, int]) -> None:
    assert dict(claimed_devices(claim(requests, results))) == expected


def test_the_name_is_that_of_resource_quota() -> None:
    assert device_class(GPU) == "gpu"
    assert device_class("nvidia.com/gpu") is None
    assert device_class(".deviceclass.resource.k8s.io/devices") is None


class Claims:
    """A cluster with eight devices, and pods of teams that claim them."""

    def __init__(self, text: str = TEXT, *, devices: int = 8) -> None:
        self.cluster = cluster_of([device(f"d{number}") for number in range(devices)])
        self.policies: PolicySet = policy_set(text)
        self.cycle = Cycle()

    @property
    def usage(self) -> QuotaUsage:
        assert self.policies.queues is not None
        return self.cluster.track_usage(self.policies.queues.tree)

    def used(self) -> dict[str, int]:
        assert self.usage.miscounted(self.cluster.pods.values()) == []
        return {state.name: state.used[GPU] for state in self.usage.states()}

    def pod(self, name: str, team: str, *, count: int = 1, shared: str = "") -> PodInfo:
        exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exact}]}}
        reference = {"resourceClaimName": shared} if shared else {"resourceClaimTemplateName": f"t{count}"}
        template = {"metadata": {"name": f"t{count}", "namespace": "default"}, "spec": {"spec": spec}}
        self.cluster.set_object(msgspec.convert(template, objects.ResourceClaimTemplate))
        if shared and self.cluster.get(objects.ResourceClaim, f"default/{shared}") is None:
            body = {"metadata": {"name": shared, "namespace": "default", "uid": shared}, "spec": spec}
            self.cluster.set_object(msgspec.convert(body, objects.ResourceClaim))
        pod = msgspec.convert(
            {
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"team": team}},
                "spec": {
                    "schedulerName": "policy-scheduler",
                    "containers": [{"name": "c"}],
                    "resourceClaims": [{"name": "r", **reference}],
                },
            },
            objects.Pod,
        )
        make_claims(self.cluster, pod)
        return self.cluster.templates.pod(pod)

    def run(self, name: str, team: str, **more: Any) -> PodInfo:
        pod = self.pod(name, team, **more)
        self.cluster.place(pod, "n")
        return pod

    def run_with_devices(self, name: str, team: str, **more: Any) -> PodInfo:
        """Let a pod run whose claims have got their devices."""
        pod = self.pod(name, team, **more)
        take_claims(self.cluster, pod, "n", now=NOW)
        self.cluster.place(pod, "n")
        return pod

    def decide(self, pod: PodInfo) -> Any:
        profile = self.policies.profile_of(pod)
        assert profile is not None
        return self.cycle.decide(Frame(pod, self.cluster, NOW), profile)


def test_claimed_devices_are_used_borrowed_and_limited() -> None:
    made = Claims()
    made.run("a", "red", count=5)
    assert made.used() == {"all": 5, "red": 5, "blue": 0}
    (red,) = [state for state in made.usage.states() if state.name == "red"]
    assert red.borrowed == {GPU: 1}
    assert red.share == pytest.approx(1 / 6)
    rejected = made.decide(made.pod("b", "red", count=2))
    assert rejected.host is None
    assert GPU in rejected.message
    assert made.decide(made.pod("c", "blue")).host == "n"
    assert made.policies.queues is not None
    shown = data(report(made.cluster, made.policies.queues, [], now=NOW))
    assert shown["queues"][1]["used"] == {GPU: "5"}


def test_who_borrows_claimed_devices_gives_them_back() -> None:
    made = Claims()
    for number in range(6):
        made.run(f"a{number}", "red")
    decision = made.decide(made.pod("b", "blue", count=2))
    assert decision.preemption is not None
    assert len(decision.preemption.victims) == 2
    assert {victim.labels["team"] for victim in decision.preemption.victims} == {"red"}


def test_the_devices_of_those_that_go_are_free_for_who_reclaims_them() -> None:
    made = Claims(devices=6)
    running = [made.run_with_devices(f"a{number}", "red") for number in range(6)]
    before = made.cluster.resource_claims.allocated.count()
    decision = made.decide(made.pod("b", "blue", count=2))
    assert decision.preemption is not None
    assert [victim.name for victim in decision.preemption.victims] == ["a4", "a5"]
    assert made.cluster.resource_claims.allocated.count() == before == 6, "nothing was freed yet"
    for pod in running[4:]:
        made.cluster.remove(pod.uid)
    waits = made.decide(made.pod("c", "blue", count=2))
    assert waits.host is None
    assert waits.reclaim is not None
    assert waits.reclaim.why is NotReclaimed.WAITS, "their claims have the devices until their controller frees them"
    for pod in running[4:]:
        give_claims_back(made.cluster, pod)
    assert made.decide(made.pod("d", "blue", count=2)).host == "n"


def test_devices_of_a_claim_that_others_share_are_not_free_without_one_of_them() -> None:
    made = Claims(devices=6)
    for number in range(2):
        made.run_with_devices(f"a{number}", "red", count=4, shared="s")
    made.run_with_devices("x", "blue", count=1)
    made.run_with_devices("y", "red", count=1)
    decision = made.decide(made.pod("b", "blue", count=1))
    assert decision.preemption is not None
    assert [victim.name for victim in decision.preemption.victims] == ["y"]


def test_a_claim_that_pods_share_counts_once_while_one_of_them_runs() -> None:
    made = Claims()
    made.usage  # noqa: B018 (follows from here on)
    pods = [made.run(name, team, count=3, shared="s") for name, team in (("b", "red"), ("c", "blue"), ("a", "red"))]
    assert made.used() == {"all": 3, "red": 3, "blue": 0}
    assert made.usage.amounts(made.pod("d", "blue", count=3, shared="s")) == ()
    made.cluster.remove(pods[0].uid)
    made.cluster.remove(pods[2].uid)
    assert made.used() == {"all": 3, "red": 0, "blue": 3}
    made.cluster.remove(pods[1].uid)
    assert made.used() == {"all": 0, "red": 0, "blue": 0}
    together = [made.pod(name, "red", count=3, shared="s") for name in "xyz"]
    assert dict(made.usage.request(together)) == {made.usage.tree.classes["gpu"]: 3}


def test_a_claim_that_is_known_late_counts_from_then_on() -> None:
    made = Claims()
    made.usage  # noqa: B018
    pod = made.pod("a", "red", count=2, shared="s")
    found = made.cluster.get(objects.ResourceClaim, "default/s")
    assert found is not None
    made.cluster.remove_object(found)
    made.cluster.place(pod, "n")
    assert made.used()["red"] == 0
    made.cluster.set_object(found)
    assert made.used()["red"] == 2
    made.cluster.remove_object(found)
    assert made.used()["red"] == 0


@given(data=st.data())
def test_the_counters_are_a_recount_and_dry_runs_leave_no_trace(data: st.DataObject) -> None:
    made = Claims()
    made.usage  # noqa: B018
    running: list[PodInfo] = []
    for number in range(data.draw(st.integers(1, 15))):
        if running and data.draw(st.booleans()):
            made.cluster.remove(running.pop(data.draw(st.integers(0, len(running) - 1))).uid)
        else:
            name = f"{data.draw(st.sampled_from('abc'))}{number}"
            shared = data.draw(st.sampled_from(["", "s", "t"]))
            running.append(made.run(name, data.draw(st.sampled_from(["red", "blue"])), count=2, shared=shared))
        before = made.used()
        with made.cluster.dry_run():
            for pod in running[: data.draw(st.integers(0, len(running)))]:
                made.cluster.displace(pod.uid)
            made.used()
        assert made.used() == before


# --- pods that new nodes are wanted for --------------------------------------------------------------------


def helped(made: Claims, awaiting: AwaitingNodes, pod: PodInfo, *, gang: str | None = None, together: int = 1) -> bool:
    """Return whether new nodes would help a pod that no node takes."""
    profile = made.policies.profile_of(pod)
    assert profile is not None
    return awaiting.judge(Frame(pod, made.cluster, NOW), profile, gang=gang, together=together).help


def test_new_nodes_are_wanted_for_as_many_claimed_devices_as_the_queue_may_use() -> None:
    made, awaiting = Claims(), AwaitingNodes()
    first, second, third = (made.pod(name, "red", count=3) for name in "abc")
    assert [helped(made, awaiting, pod) for pod in (first, second, third)] == [True, True, False]
    awaiting.withdraw(first.uid)
    assert helped(made, awaiting, third)
    made.cluster.place(first, "n")
    assert not helped(made, awaiting, made.pod("d", "red", count=1)), "three in use, and six are asked for"


def test_a_gang_wants_new_nodes_for_the_devices_of_all_its_members() -> None:
    made, awaiting = Claims(), AwaitingNodes()
    assert not helped(made, awaiting, made.pod("a", "red", count=2), gang="large", together=4)
    assert helped(made, awaiting, made.pod("b", "red", count=2), gang="small", together=3)
    assert not helped(made, awaiting, made.pod("c", "red", count=1)), "the gang leaves none"
    for name in "de":
        assert helped(made, AwaitingNodes(), made.pod(name, "red", count=6, shared="s"), gang="shared", together=9)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["red", "blue"]), st.sampled_from(["", "s", "t"]))),
    known=st.booleans(),
)
def test_pods_that_wait_for_nodes_count_their_devices_as_a_recount_says(
    steps: list[tuple[int, str, str]], known: bool
) -> None:
    made, kept = Claims(), AwaitedPods()
    waiting: list[PodInfo] = []
    for number, (at, team, shared) in enumerate(steps):
        if known:
            kept.by_queue(made.usage)
        if at < len(waiting):
            kept.displace(waiting.pop(at), 0)
        else:
            waiting.append(made.pod(f"w{number}", team, count=1 + at % 3, shared=shared))
            kept.place(waiting[-1], 0)
        total = Counter[int]()
        for _, amounts in kept.by_queue(made.usage):
            total.update(dict(amounts))
        assert dict(total) == dict(made.usage.request(waiting))
