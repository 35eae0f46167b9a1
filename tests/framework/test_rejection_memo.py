"""Rejections that are kept for the next pods are bounded in bytes."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.framework.decide import rejection_memo
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.frame import Frame
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
