"""Pods behind the first pod of a strict order: their condition and event name that pod, and why it has no node."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.daemon.scheduling import gated_pods
from tests.simulation.calm import Calm, story

STRICT = "order by pod.priority desc strict\n"
WAITS = "waiting until default/{} has a node, which comes first in a strict order. default/{}: 0/1 nodes are available"


def test_a_pod_behind_says_which_pod_it_waits_for_and_why() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("big", millis=9000, priority=8)
        calm.pod("small")
        await calm.after(12)
        assert calm.on_nodes() == []
        assert calm.told.why["small"].startswith(WAITS.format("big", "big"))
        assert "Insufficient cpu" in calm.told.why["small"]
        calm.pod("bigger", millis=8000, priority=9)
        await calm.after(12)
        assert calm.told.why["small"].startswith(WAITS.format("bigger", "bigger"))
        for name in ("big", "bigger"):
            calm.server.delete_pod(name)
        await calm.after(12)
        assert calm.on_nodes() == ["small"]

    story(STRICT, tell, cpus=(2,))


def test_not_all_pods_are_told_at_once_that_another_pod_is_the_first() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("big", millis=9000, priority=8)
        behind = [f"p{number}" for number in range(3 * gated_pods.RENEWED_AT_ONCE)]
        for name in behind:
            calm.pod(name)
        await calm.after(12)
        assert all(calm.told.why[name].startswith(WAITS.format("big", "big")) for name in behind)
        calm.pod("bigger", millis=9000, priority=9)
        await calm.after(8)
        renewed = [name for name in behind if "bigger" in calm.told.why[name]]
        assert 0 < len(renewed) < len(behind)
        await calm.after(20)
        assert all("bigger" in calm.told.why[name] for name in behind)

    story(STRICT, tell, cpus=(2,))


def test_without_strict_nothing_is_said() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("big", millis=9000, priority=8)
        calm.pod("small")
        await calm.after(12)
        assert calm.on_nodes() == ["small"]
        assert "waiting until" not in calm.told.why.get("small", "")

    story(STRICT.replace(" strict", ""), tell, cpus=(2,))


@pytest.mark.parametrize("ordered", ["", ' if pod.label.line == "x"'], ids=["same", "other"])
def test_members_start_with_the_one_whose_turn_it_is_though_they_are_behind_another_pod(ordered: str) -> None:
    """Otherwise two gangs of which each has the first pod of another order would wait for each other for ever."""

    async def tell(calm: Calm) -> None:
        calm.pod("big", millis=9000, priority=8, line="x")
        await calm.after(12)
        calm.pod("small", line="x")
        calm.pod("second", line="x", job="j")
        calm.pod("first", priority=9, job="j")
        await calm.after(12)
        assert calm.on_nodes() == ["first", "second"]

    gang = "gang by pod.label.job size 2 if pod label job\n"
    story(STRICT.replace("strict", f"strict{ordered}") + gang, tell, cpus=(4,))
