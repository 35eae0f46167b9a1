"""Sharding: one owner per node and pod, the same on every replica; pods that depend on each other stay together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.daemon.scheduling.sharding import Ring, Sharding
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.policy.policy_set import load
from tests.simulation.chaos import NAMES, compiled

MEMBERS = st.frozensets(st.sampled_from([f"r{number}" for number in range(8)]), min_size=1, max_size=6)


def pod(namespace: str = "team", *, node: str = "", passed: bool = False, **spec: Any) -> PodInfo:
    condition = {"type": "policy-scheduler/PassedOn", "status": str(passed), "message": node}
    made = {
        "metadata": {"name": "p", "namespace": namespace, "uid": "u1", "labels": {"tenant": "x"}},
        "spec": {"schedulerName": "policy-scheduler", **spec},
        "status": {"nominatedNodeName": node, "conditions": [condition]},
    }
    return Templates().pod(msgspec.convert(made, Pod))


@given(MEMBERS, st.text())
def test_equal_members_give_equal_owners(members: frozenset[str], key: str) -> None:
    assert Ring(members).owner(key) == Ring(sorted(members, reverse=True)).owner(key)
    assert Ring(members).owner(key) in members


@given(MEMBERS, MEMBERS, st.text())
def test_two_that_know_each_other_never_both_own_a_key(one: frozenset[str], other: frozenset[str], key: str) -> None:
    first, second = Ring(one | {"a", "b"}).owner(key), Ring(other | {"a", "b"}).owner(key)
    assert (first, second) not in (("a", "b"), ("b", "a"))


@given(MEMBERS, st.text())
def test_what_a_member_leaves_is_all_that_changes(members: frozenset[str], key: str) -> None:
    before, after = Ring(members).owner(key), Ring(members - {"r0"}).owner(key)
    assert before == after or before == "r0"


def test_parts_are_about_equal() -> None:
    ring = Ring(("a", "b", "c"))
    owned = [ring.owner(f"node/n{number}") for number in range(3000)]
    assert all(900 < owned.count(member) < 1100 for member in "abc")


def test_there_is_no_owner_before_the_members_are_known() -> None:
    share = Sharding("a")
    assert not share.owns_node("n1")
    assert not share.is_ours(pod())


def test_a_nomination_keeps_room_and_only_one_that_says_so_passes_the_pod_on() -> None:
    share, other = Sharding("a"), Sharding("b")
    for each in (share, other):
        each.use(("a", "b"))
    mine, its = (share, other) if share.owns_unit(pod()) else (other, share)
    node = next(name for name in (f"n{number}" for number in range(50)) if its.owns_node(name))
    kept, passed = pod(node=node), pod(node=node, passed=True)
    assert (mine.is_ours(kept), its.is_ours(kept), its.is_nominated_to_ours(kept)) == (True, False, True)
    assert (mine.is_ours(passed), its.is_ours(passed), its.is_nominated_to_ours(passed)) == (False, True, False)
    assert (mine.passed_to(passed), mine.passed_to(kept), its.passed_to(passed)) == (node, None, None)
    assert its.was_passed_here(passed)


@pytest.mark.parametrize(
    ("policy", "by_pod", "unit"),
    [
        ("score node.free.cpu\n", False, "namespace/team"),
        ("score node.free.cpu\n", True, "pod/u1"),
        ("limit count() by pod.label.tenant to 5\n", True, "counted"),
        ("limit count() by pod.namespace to 5\n", False, "namespace/team"),
        ("gang by pod.label.tenant size 3 within 60s if pod.label.tenant\n", True, "namespace/team"),
        ("gang by pod.label.job size 3 within 60s if pod.label.job\n", True, "pod/u1"),
        ("filter count(p in zone.pods) < 5\n", False, "counted"),
        ("spread by pod.label.tenant over zone max skew 1\n", False, "counted"),
        ("queue team by pod.namespace max cpu 5\n", True, "counted"),
        ('queue others for pods where pod.label.tenant == "nobody" max cpu 5\n', False, "namespace/team"),
    ],
)
def test_pods_that_are_counted_together_are_one_unit(policy: str, by_pod: bool, unit: str) -> None:
    policies = compiled(policy)
    assert policies is not None, policy
    assert policies.unit(pod(), by_pod=by_pod) == unit


GANG = "gang by pod.label.tenant size 3 within 60s if pod.label.tenant\n"
NO_GANG = "gang by pod.label.job size 3 within 60s if pod.label.job\n"


@pytest.mark.parametrize("by_pod", [False, True])
@pytest.mark.parametrize(
    ("policy", "group", "unit"),
    [
        # the queue of a member is told by what others of the gang may have
        (f'{GANG}queue a for pods where pod.label.role == "driver" max cpu 5\n', "", "counted"),
        (f"{GANG}queue a by pod.label.team max cpu 5\n", "", "counted"),
        (
            f"{GANG}queue all for pods where pod.priority > 5\nqueue a of all by pod.namespace max cpu 5\n",
            "",
            "counted",
        ),
        ('queue a for pods where pod.label.role == "driver" max cpu 5\n', "train", "counted"),
        # no pod of the namespace is of the queue
        (f'{GANG}queue a for pods where pod.namespace == "other" max cpu 5\n', "", "namespace/team"),
        (
            f'{GANG}queue a for pods where pod.namespace == "other" and pod.label.role == "driver" max cpu 5\n',
            "",
            "namespace/team",
        ),
        (f'{GANG}queue a for pods where startswith(pod.namespace, "other-") max cpu 5\n', "", "namespace/team"),
        (
            'queue a for pods where pod.namespace == "other" max cpu 5\n'
            'queue b of a for pods where pod.label.role == "driver" max cpu 5\n',
            "train",
            "namespace/team",
        ),
    ],
)
def test_what_members_of_a_gang_have_in_common_says_their_unit(
    policy: str, group: str, unit: str, *, by_pod: bool
) -> None:
    policies = compiled(policy)
    assert policies is not None, policy
    member = pod(schedulingGroup={"podGroupName": group}) if group else pod()
    assert policies.unit(member, by_pod=by_pod) == unit


@pytest.mark.parametrize("by_pod", [False, True])
@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ('for pods where pod.label.role == "driver"', "counted"),
        ('for pods where pod.namespace == "other"', "namespace/team"),
        ("scheduler another", "namespace/team"),
    ],
)
def test_a_group_may_have_members_under_another_policy_that_counts_more(head: str, unit: str, *, by_pod: bool) -> None:
    texts = {"counts": f"{head}\npriority 1\nlimit count() by pod.label.tenant to 5\n", "others": ""}
    found = load([Source(f"{name}.policy", text) for name, text in texts.items()], default_schedulers=NAMES).policy_set
    assert found is not None
    policies = LivePolicies(found, scheduler_names=NAMES)
    assert policies.unit(pod(schedulingGroup={"podGroupName": "train"}), by_pod=by_pod) == unit


def test_pods_of_no_gang_stay_where_they_are() -> None:
    policies = compiled(f'{NO_GANG}queue a for pods where pod.label.role == "driver" max cpu 5\n')
    assert policies is not None
    assert policies.unit(pod(), by_pod=False) == "namespace/team"


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"schedulingGroup": {"podGroupName": "train"}},
    ],
)
def test_pods_that_ask_for_others_go_with_their_namespace(spec: dict[str, Any]) -> None:
    policies = compiled("")
    assert policies is not None
    assert policies.unit(pod(**spec), by_pod=True) == "namespace/team"
