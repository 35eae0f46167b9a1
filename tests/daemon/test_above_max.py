"""A `max` that is lowered: with `reclaim above max` pods are evicted one after the other, else they run on."""

from __future__ import annotations

import pytest

from tests.simulation.calm import Calm, story

QUEUE = "queue all max cpu {}\nreclaim{}\n"


@pytest.mark.parametrize(("statement", "left"), [(" above max", 2), ("", 4)])
def test_pods_above_a_lowered_max(statement: str, left: int) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"p{number}", millis=1000)
        await calm.after(5)
        assert len(calm.on_nodes()) == 4
        calm.process.scheduler.use_policies(calm.policies_of(QUEUE.format(2, statement)))
        await calm.after(10)
        assert len(calm.on_nodes()) == (3 if statement else 4), "the first goes at once, the next one in 30 s"
        await calm.after(60)
        assert len(calm.on_nodes()) == left
        assert calm.process.scheduler.above_max.evicted == 4 - left
        assert calm.told.told["evicted above a max"] == 4 - left

    story(QUEUE.format(4, ""), tell, cpus=(8,))


def test_a_pod_of_another_scheduler_goes_like_any_other_of_its_queue() -> None:
    """It counts there; while it stayed because it is not ours to place, nobody else went either."""

    async def tell(calm: Calm) -> None:
        for number in range(2):
            calm.pod(f"p{number}", millis=1000, priority=1)
        await calm.after(5)
        calm.server.place("theirs", "n0", millis=1000)
        await calm.after(5)
        calm.process.scheduler.use_policies(calm.policies_of(QUEUE.format(1, " above max")))
        await calm.after(60)
        assert len(calm.on_nodes()) == 1
        assert "theirs" not in calm.on_nodes()

    story(QUEUE.format(4, ""), tell, cpus=(8,))
