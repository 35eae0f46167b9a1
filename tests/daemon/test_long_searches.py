"""The search for victims on very many nodes is divided, so that other work gets its turn."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Any

import pytest

from kube_policy_scheduler.cluster.steps import UNFINISHED, Unfinished, in_turn
from kube_policy_scheduler.daemon.scheduling import schedule_one
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.preempt.trials import NODE_WORK
from tests.simulation.calm import Calm, story

NODES = 12
Decisions = list[Decision | Unfinished]


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    """Return what came of each turn, with three nodes in a turn."""
    monkeypatch.setattr(schedule_one, "WORK_IN_A_TURN", 3 * (NODE_WORK + 1))
    made: Decisions = []

    def noted(steps: Generator[int, None, Any], *, most: float) -> Any:
        found = in_turn(steps, most=most)
        made.append(found[0] if isinstance(found, tuple) else found)
        return found

    monkeypatch.setattr(schedule_one, "in_turn", noted)
    return made


def test_a_pod_evicts_after_several_turns_of_one_attempt(decisions: Decisions) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(NODES):
            calm.pod(f"low{number}", millis=4000)
        await calm.after(3.0)
        decisions.clear()
        calm.pod("high", millis=4000, priority=10)
        await calm.after(60.0)
        assert "high" in calm.on_nodes()
        assert len(calm.on_nodes()) == NODES

    story("use kubernetes scores\n", tell, cpus=(4,) * NODES)
    parts = [decision for decision in decisions if isinstance(decision, Unfinished)]
    assert len(parts) == NODES // 3 - 1
    after = decisions[len(parts)]
    assert isinstance(after, Decision)
    assert after.preemption is not None
    assert after.preemption.nominated_node is not None


def test_other_pods_are_placed_between_the_turns(decisions: Decisions) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(NODES):
            calm.pod(f"low{number}", millis=3000)
        await calm.after(3.0)
        decisions.clear()
        calm.pod("high", millis=4000, priority=10)
        calm.pod("higher", millis=1000, priority=20)
        calm.pod("small", millis=500)
        await calm.after(60.0)
        assert {"high", "higher", "small"} <= set(calm.on_nodes())

    story("use kubernetes scores\n", tell, cpus=(4,) * NODES)
    assert UNFINISHED in decisions


def test_a_gang_evicts_after_several_turns_of_one_attempt(decisions: Decisions) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(NODES):
            calm.pod(f"low{number}", millis=4000)
        await calm.after(3.0)
        decisions.clear()
        for number in range(3):
            calm.pod(f"member{number}", millis=4000, priority=10, job="train", size="3")
        await calm.after(60.0)
        assert {"member0", "member1", "member2"} <= set(calm.on_nodes())
        assert len(calm.on_nodes()) == NODES

    gang = "gang by pod.label.job size 3 within 600s if pod.label.job\n"
    story(f"{gang}use kubernetes scores\n", tell, cpus=(4,) * NODES)
    parts = [decision for decision in decisions if isinstance(decision, Unfinished)]
    assert NODES // 3 <= len(parts) < 2 * NODES  # turns of the plan, and of the searches for victims


@pytest.mark.parametrize(
    ("most", "fewer", "more"),
    [(schedule_one.WORK_IN_A_TURN, None, (1, 0)), (64, (1, 0), (20, 0)), (64, (20, 0), (20, 20))],
    ids=["at least some", "more with more nodes", "more with more pods"],
)
def test_a_search_that_is_set_back_in_every_turn_is_finished_in_one(
    most: int, fewer: tuple[int, int] | None, more: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has so many turns that in them every pod could have been asked about."""
    monkeypatch.setattr(schedule_one, "WORK_IN_A_TURN", most)
    turns = _turns_of_two_attempts(*more, monkeypatch)
    assert turns[1] >= turns[0], "there is a node more by then"
    assert turns[0] > (_turns_of_two_attempts(*fewer, monkeypatch)[0] if fewer is not None else 0)


def _turns_of_two_attempts(nodes: int, pods: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return in how many turns each attempt is set back before the one in which it is finished."""
    turns = [0]

    def set_back(steps: Generator[int, None, Any], *, most: float) -> Any:
        if most == inf:
            turns.append(0)
            return in_turn(steps, most=most)
        steps.close()
        turns[-1] += 1
        return UNFINISHED

    async def tell(calm: Calm) -> None:
        for number in range(pods):
            calm.pod(f"small{number}", millis=100)
        await calm.after(30.0)
        assert len(calm.on_nodes()) == pods
        monkeypatch.setattr(schedule_one, "in_turn", set_back)
        calm.pod("large", millis=8000)
        await calm.after(30.0)
        calm.server.set_node("large", cpu=8, labels={})
        await calm.after(30.0)
        assert "large" in calm.on_nodes()

    monkeypatch.setattr(schedule_one, "in_turn", in_turn)
    story("use kubernetes scores\n", tell, cpus=(4,) * nodes)
    return turns[:2]
