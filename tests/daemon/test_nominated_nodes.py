"""`status.nominatedNodeName` of pods that have a node and wait there: for their gang, volumes or devices (KEP-5278)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.simulation.calm import Calm, story

GANG = "gang by pod.label.job size number(pod.label.size) within 60s if pod.label.job\nscore node.free.cpu\n"


def gang(calm: Calm, job: str, size: int, *, millis: int = 1000) -> None:
    for number in range(size):
        calm.pod(f"{job}{number}", job=job, size=str(size), millis=millis)


def nominated(calm: Calm) -> dict[str, str]:
    """Return what the API server shows."""
    return {
        name: node for name, pod in calm.server.pods.items() if (node := pod["status"].get("nominatedNodeName") or "")
    }


def assumed(calm: Calm) -> dict[str, str]:
    cluster = calm.process.scheduler.cluster
    return {cluster.pods[uid].name: cluster.assumed[uid] for uid in cluster.assumed}


def test_a_gang_that_is_complete_at_once_and_plain_pods_cost_no_write() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 3)
        calm.pod("plain")
        await calm.after(20)
        assert len(calm.on_nodes()) == 4
        assert calm.told.told["nominated"] == 0

    story(GANG, tell, cpus=(2, 2))


class SlowVolumes:
    """Binds volumes after some time."""

    def __init__(self, seconds: float, why: str = "") -> None:
        self.seconds, self.why = seconds, why

    async def bind(self, reservation: Any) -> str:
        await asyncio.sleep(self.seconds)
        return self.why


def slow_volumes(calm: Calm, monkeypatch: pytest.MonkeyPatch, *, seconds: float, why: str = "") -> None:
    """Give each pod a volume whose binding takes so long."""
    scheduler = calm.process.scheduler
    assume = scheduler.assume

    def with_volumes(*args: Any) -> Any:
        found = assume(*args)
        return msgspec.structs.replace(found, volumes=object()) if found is not None else None

    monkeypatch.setattr(scheduler, "assume", with_volumes)
    monkeypatch.setattr(calm.told, "bind", SlowVolumes(seconds, why).bind)


def test_members_of_a_gang_that_wait_for_their_volumes_are_nominated_and_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell(calm: Calm) -> None:
        slow_volumes(calm, monkeypatch, seconds=20.0)
        gang(calm, "a", 2, millis=700)
        await calm.after(0.5)
        assert nominated(calm) == {}, "not before it is clear that they are not bound at once"
        await calm.after(3)
        assert nominated(calm) == assumed(calm) != {}
        assert calm.process.scheduler.cluster.nominated == {}, "they count as assumed pods already"
        for number in range(3):
            calm.pod(f"other{number}", millis=300, priority=-1)
        await calm.after(3)
        assert len(assumed(calm)) == 4, "so much is left beside them, and not less"

    story(GANG, tell, cpus=(1, 1))


def test_who_takes_over_tries_the_nominated_nodes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(calm: Calm) -> None:
        slow_volumes(calm, monkeypatch, seconds=60.0)
        gang(calm, "a", 2)
        await calm.after(5)
        before = nominated(calm)
        assert len(before) == 2
        calm.restart()
        calm.server.set_node("n9", cpu=9, labels={})  # by far the best node by score
        await calm.after(10)
        assert calm.on_nodes() == ["a0", "a1"]
        assert {name: calm.server.pods[name]["spec"]["nodeName"] for name in before} == before
        assert nominated(calm) == {}, "the API server ends a nomination with the binding"

    story(GANG, tell, cpus=(1, 1))


@pytest.mark.parametrize("why", ["", "no such disk"])
def test_a_pod_that_waits_for_its_volumes_is_nominated_until_it_is_bound_or_fails(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(calm: Calm) -> None:
        slow_volumes(calm, monkeypatch, seconds=20.0, why=why)
        calm.pod("p")
        await calm.after(10)
        assert (calm.on_nodes(), nominated(calm)) == ([], {"p": "n0"})
        assert calm.process.scheduler.cluster.nominated == {}
        await calm.after(10.5)
        assert calm.on_nodes() == ([] if why else ["p"])
        assert nominated(calm) == {}

    story(GANG, tell, cpus=(1,))


def ending(calm: Calm, *names: str) -> None:
    """Delete pods, which do not end: as their user, so that nobody waits for them as for victims."""
    for name in names:
        calm.server.stuck.add(name)
        calm.server.delete_pod(name)


def test_a_pod_that_takes_the_nomination_of_another_one_does_not_try_again_because_of_that() -> None:
    """If it did, the other one would be nominated meanwhile, and both would go on like that in no time."""

    async def tell(calm: Calm) -> None:
        calm.pod("ends", millis=1000)
        await calm.after(1)
        ending(calm, "ends")
        calm.pod("low", millis=500, priority=1)
        await calm.after(1)
        assert nominated(calm) == {"low": "n0"}
        calm.pod("high", millis=500, priority=2)
        await calm.after(1)
        assert nominated(calm) == {"low": "n0", "high": "n0"}, "both fit there"
        assert calm.told.tries["high"] == 1

    story("score node.free.cpu\n", tell, cpus=(1,))


def test_a_gang_that_takes_the_nominations_of_others_does_not_try_again_because_of_that() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            calm.pod(f"ends{number}", millis=1000)
        await calm.after(1)
        ending(calm, "ends0", "ends1", "ends2")
        for number in range(3):
            calm.pod(f"low{number}", millis=600, priority=1)
        await calm.after(1)
        assert len(set(nominated(calm).values())) == 3
        for number in range(3):
            calm.pod(f"high{number}", millis=400, priority=2, job="high", size="3")
        await calm.after(5)
        assert {"high0", "high1", "high2"} <= set(nominated(calm))
        assert [calm.told.tries[f"high{number}"] for number in range(3)] == [1, 1, 1]

    story(GANG, tell, cpus=(1, 1, 1))
