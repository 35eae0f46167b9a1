"""Rejections that are kept for the next pods are bounded in bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster.objects import ResourceClaim
from kube_policy_scheduler.framework.decide import rejection_memo
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimsAfter, Deallocation
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from tests.daemon.deciding_stage import NOW, Stage, policies


@pytest.mark.parametrize(("limit", "kept"), [(20_000, 2), (10**9, 8)])
def test_columns_of_nodes_count(limit: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection_memo, "_MOST_BYTES", limit)
    stage = Stage(policies("policy web\nfilter fits(cpu)\n"), nodes=2_000)
    pods = [stage.pod(cpu="64", job=str(number)) for number in range(8)]
    policy, memo = stage.policy_set.governing(pods[0]), RejectionMemo()
    assert policy is not None

    for pod in pods:
        memo.note(stage.cycle.decide(Frame(pod, stage.cluster, NOW), policy.profile), policy.profile, "state")
    found = [memo.get(pod, policy.profile, "state") is not None for pod in pods]

    assert found == [False] * (8 - kept) + [True] * kept


STAGE = Stage(policies("policy web\nfilter fits(cpu)\n"), nodes=2)
CLAIM = msgspec.convert({"metadata": {"name": "c"}}, ResourceClaim)
NOTHING = Deallocation(ClaimsAfter.STILL_NOT_SCHEDULABLE)


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        pytest.param({}, True, id="a rejection"),
        pytest.param({"preemption": Preemption()}, True, id="nobody could be evicted"),
        pytest.param({"preemption": Preemption(claims=NOTHING)}, True, id="no claim is to be deallocated"),
        pytest.param({"preemption": Preemption("n", (STAGE.pod(job="victim"),))}, False, id="others are evicted"),
        pytest.param(
            {"preemption": Preemption(claims=msgspec.structs.replace(NOTHING, one_of=(CLAIM,)))},
            False,
            id="a claim is deallocated",
        ),
        pytest.param({"rejected_by": frozenset(("Reclaim",))}, False, id="it is looked at again later"),
        pytest.param({"host": "n"}, False, id="a node"),
    ],
)
def test_only_rejections_that_change_nothing_and_wait_for_nothing_are_kept(
    changed: dict[str, Any], is_kept: bool
) -> None:
    pod, memo = STAGE.pod(cpu="64", job="j"), RejectionMemo()
    policy = STAGE.policy_set.governing(pod)
    assert policy is not None
    decision = STAGE.cycle.decide(Frame(pod, STAGE.cluster, NOW), policy.profile)

    memo.note(msgspec.structs.replace(decision, **{"preemption": None, **changed}), policy.profile, 1)

    assert (memo.get(pod, policy.profile, 1) is not None) is is_kept
    assert memo.get(pod, policy.profile, 2) is None, "something has changed"


def test_what_no_pod_is_of_is_dropped() -> None:
    pod, other, memo = STAGE.pod(cpu="64", job="j"), STAGE.pod(cpu="64", job="k"), RejectionMemo()
    policy = STAGE.policy_set.governing(pod)
    assert policy is not None
    for each in (pod, other):
        memo.note(STAGE.cycle.decide(Frame(each, STAGE.cluster, NOW), policy.profile), policy.profile, 1)

    memo.keep_in_use([pod.template])

    assert memo.get(pod, policy.profile, 1) is not None
    assert memo.get(other, policy.profile, 1) is None
