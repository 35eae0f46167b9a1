"""Backfill in the daemon: pods pass the first one that waits if they do not delay it, and say so if they would.

The server says that pods started long ago: one that was to run for an hour is late, and expected to end in 6 minutes.
"""

from __future__ import annotations

from typing import Any

import pytest

from kube_policy_scheduler.framework.backfill import backfill
from kube_policy_scheduler.framework.events import BACKFILL
from tests.simulation.calm import Calm, story

POLICY = "order by pod.priority desc strict\nbackfill lasts duration(pod.label.runtime)\n"
RESERVED = "1 node(s) reserved for default/big, which it would delay"


def test_a_pod_passes_only_if_it_ends_before_the_first_one_starts() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        await calm.after(2)
        calm.pod("short", millis=500, runtime="5m")
        calm.pod("long", millis=500, runtime="30m")
        await calm.after(12)
        assert calm.on_nodes() == ["runs", "short"]
        assert RESERVED in calm.told.why["long"]
        calm.server.delete_pod("runs")
        calm.server.delete_pod("short")
        await calm.after(20)
        assert calm.on_nodes() == ["big"]

    story(POLICY, tell, cpus=(2,))


def test_those_behind_are_tried_at_once_if_the_first_one_is_deleted() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        calm.pod("long", millis=500)
        await calm.after(30)
        assert calm.on_nodes() == ["runs"]
        queued = next(each for each in calm.process.scheduler.queue if each.pod.name == "long")
        assert queued.rejectors == {BACKFILL}
        calm.server.delete_pod("big")
        await calm.after(1)
        assert calm.on_nodes() == ["long", "runs"]

    story(POLICY, tell, cpus=(2,))


def test_a_restart_finds_the_same_reservation() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        calm.pod("long", millis=500, runtime="30m")
        await calm.after(12)
        calm.restart()
        calm.pod("short", millis=500, runtime="5m")
        await calm.after(12)
        assert calm.on_nodes() == ["runs", "short"]

    story(POLICY, tell, cpus=(2,))


def test_those_that_wait_for_a_reservation_are_tried_once_it_is_somewhere_else() -> None:
    """What moves it are pods of others: these take room, so they help nobody else."""

    async def tell(calm: Calm) -> None:
        calm.pod("runs-0", millis=500, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("runs-1", millis=2000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        await calm.after(2)
        calm.pod("long", millis=300, runtime="30m")
        await calm.after(30)
        assert "1 node(s) reserved for default/big" in calm.told.why["long"]
        node = next(pod["spec"]["nodeName"] for name, pod in calm.server.pods.items() if name == "runs-0")
        calm.server.place("stays", node, millis=1000)
        await calm.after(12)
        assert calm.on_nodes() == ["long", "runs-0", "runs-1", "stays"]

    story(POLICY, tell, cpus=(2, 2))


def test_those_that_wait_for_a_reservation_are_tried_once_another_pod_is_the_first_that_waits() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        calm.pod("long", millis=500, runtime="30m")
        await calm.after(30)
        assert RESERVED in calm.told.why["long"]
        calm.pod("huge", millis=9000, priority=10)  # it fits nowhere, at any time, so nothing is reserved for it
        await calm.after(12)
        assert calm.on_nodes() == ["long", "runs"]

    story(POLICY, tell, cpus=(2,))


def test_a_pod_that_ends_in_time_keeps_no_other_one_from_the_room_that_is_left() -> None:
    """Until it is on its node, nobody expects that it will be gone when the first one starts."""

    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=500, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=1600, priority=8)
        await calm.after(2)
        calm.pod("short", millis=300, runtime="5m")
        calm.pod("long", millis=300, runtime="30m")
        await calm.after(15)
        assert calm.on_nodes() == ["long", "runs", "short"]

    story(POLICY, tell, cpus=(2,))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return when reservations were searched for. A search looks at all pods that run: 0.2 s for 45,000 of them."""
    reserve, found = backfill.reserve, list[float]()

    def counted(*arguments: Any, **more: Any) -> Any:
        found.append(more["now"])
        return reserve(*arguments, **more)

    monkeypatch.setattr(backfill, "reserve", counted)
    return found


def test_a_reservation_is_found_again_every_few_seconds_however_much_happens(searches: list[float]) -> None:
    async def tell(calm: Calm) -> None:
        calm.server.set_node("full", cpu=0, labels={})
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        calm.pod("long", millis=500, runtime="30m")
        await calm.after(10)
        searches.clear()
        for number in range(200):
            calm.server.place(f"of-others-{number}", "full", millis=0)
            calm.process.scheduler.context.wakeups.requested.set()  # as pods do that are decided meanwhile
            await calm.after(0.1)
        assert 2 <= len(searches) <= 10

    story(POLICY, tell, cpus=(2,))


def test_pods_that_start_and_end_beside_a_reservation_cost_no_search_each(searches: list[float]) -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("runs", millis=1000, priority=9, runtime="1h")
        await calm.after(2)
        calm.pod("big", millis=2000, priority=8)
        await calm.after(10)
        searches.clear()
        for number in range(50):
            calm.pod(f"short-{number}", millis=10, runtime="1m")
            await calm.after(1)
            if number > 0:
                calm.server.delete_pod(f"short-{number - 1}")
        assert calm.told.told["bound"] == 51
        assert 5 <= len(searches) <= 15

    story('filter pod.priority > 0 or node.name != "n0"\n' + POLICY, tell, cpus=(2, 1))


def test_a_gang_that_starts_is_not_stopped_by_room_that_is_reserved_meanwhile() -> None:
    """`first` backs off for longer than its gang. Once it has a node, `big` is the first pod that waits."""

    async def tell(calm: Calm) -> None:
        for number in range(3):
            calm.pod(f"runs-{number}", millis=1500, priority=9)
            calm.pod(f"small-{number}", millis=100, priority=9)
        await calm.after(2)
        calm.pod("first", millis=2000, priority=8, job="a")
        calm.pod("big", millis=2000, priority=7)
        calm.pod("middle", millis=2000, priority=2, job="a")
        calm.pod("last", millis=2000, priority=1, job="a")
        for number in range(3):
            await calm.after(12)
            calm.server.delete_pod(f"small-{number}")
        await calm.after(12)
        for name in ("middle", "last"):
            calm.server.delete_pod(name)
        await calm.after(1)
        calm.pod("middle", millis=2000, priority=2, job="a")
        calm.pod("last", millis=2000, priority=1, job="a")
        await calm.after(2)
        for number in range(3):
            calm.server.delete_pod(f"runs-{number}")
        await calm.after(20)
        assert calm.on_nodes() == ["first", "last", "middle"]

    story(f"{POLICY}gang by pod.label.job size 3 within 60s if pod label job\n", tell, cpus=(2, 2, 2))
