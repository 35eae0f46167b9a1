"""Long answers in slices: one at a time, in a share of the time."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import count

import pytest

from kube_policy_scheduler.adapters.process.spare_time import SpareTime


def steps(many: int, made: list[int]) -> Generator[None, None, str]:
    for step in range(many):
        made.append(step)
        yield
    return "made"


async def test_between_slices_everything_else_runs() -> None:
    ticks = count()
    spare = SpareTime(slice_seconds=2.0, stopwatch=lambda: float(next(ticks)))
    made: list[int] = []
    seen: list[int] = []
    task = asyncio.create_task(spare.run(steps(7, made)))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        seen.append(len(made))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kube_policy_scheduler.adapters.process.spare_time.asyncio.sleep", sleep)
        assert await task == "made"
    assert made == list(range(7))
    assert seen == [2, 4, 6], "two steps of a second are a slice"
    assert slept == pytest.approx([18.0] * 3), "a tenth of the time"


async def test_answers_are_made_one_after_the_other() -> None:
    spare = SpareTime(slice_seconds=0.0)
    first: list[int] = []
    second: list[int] = []

    def watching() -> Generator[None, None, int]:
        found = len(first)
        yield from steps(3, second)
        return found

    one, other = spare.run(steps(5, first)), spare.run(watching())
    assert await asyncio.gather(one, other) == ["made", 5]


async def test_what_goes_wrong_is_raised_and_others_get_their_turn() -> None:
    spare = SpareTime()

    def broken() -> Generator[None, None, None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await spare.run(broken())
    assert await spare.run(steps(1, [])) == "made"


async def test_an_answer_without_a_waiting_caller_is_not_made() -> None:
    spare = SpareTime(slice_seconds=0.0)
    made: list[int] = []
    task = asyncio.create_task(spare.run(steps(10**9, made)))
    await asyncio.sleep(0.05)
    task.cancel()
    assert await spare.run(steps(1, [])) == "made"
    assert made
