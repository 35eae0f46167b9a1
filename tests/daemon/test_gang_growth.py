"""Gangs of any size, complete or not, many or few: work grows with the pods, never with their square."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from tests.daemon.gang_stage import GangStage, calls_of
from tests.simulation.virtual_time import run

Story = Callable[[int], Awaitable[object]]


async def one_member_is_missing(size: int) -> None:
    stage = GangStage(nodes=4, cpus=size)
    for number in range(size - 1):
        stage.pod(f"a{number}", job="a", size=size)
        if number % 16 == 0:
            await asyncio.sleep(1)
    await asyncio.sleep(120)
    stage.pod("last", job="a", size=size)
    await asyncio.sleep(5)
    assert stage.told.times["bound"] == size
    assert stage.told.times["held"] == size - 1, "each is told once, whoever comes after it"


async def every_member_asks_for_another_size(size: int) -> None:
    stage = GangStage(nodes=4, cpus=size)
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size + number)
    await asyncio.sleep(60)
    assert stage.told.times["bound"] == 0


async def there_is_room_for_half_of_it(size: int) -> None:
    stage = GangStage(nodes=size // 2, cpus=1)
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size)
    for _ in range(15):
        await asyncio.sleep(10)
        assert not stage.scheduler.cluster.assumed
    assert stage.told.times["bound"] == 0


async def there_is_room_for_all_of_it(size: int) -> None:
    stage = GangStage(nodes=size // 2, cpus=2)
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size)
    await asyncio.sleep(5)
    assert stage.told.times["bound"] == size


async def most_of_it_is_not_needed(size: int) -> None:
    stage = GangStage(nodes=size // 2, cpus=2)
    stage.pod("big", node="n0")
    for number in range(size - 1):
        stage.pod(f"a{number}", job="a", size=2)
    await asyncio.sleep(5)
    assert stage.told.times["bound"] == size - 1


async def the_cluster_changes_all_the_time_while_it_waits(size: int) -> None:
    stage = GangStage(nodes=size // 2, cpus=1)
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size)
    for turn in range(150):
        stage.pod(f"other{turn % 3}", node="elsewhere")
        await asyncio.sleep(1)
    assert stage.told.times["bound"] == 0


async def it_would_have_to_evict_more_than_there_are(size: int) -> None:
    stage = GangStage(nodes=size, cpus=1)
    for number in range(size):
        stage.pod(f"low{number}", node=f"n{number}")
    for number in range(size + 1):
        stage.pod(f"a{number}", job="a", size=size + 1, priority=10)
    await asyncio.sleep(30)
    assert stage.told.times["preempted"] == 0


async def it_has_to_evict_for_every_member(size: int) -> None:
    stage = GangStage(nodes=size, cpus=1)
    for number in range(size):
        stage.pod(f"low{number}", node=f"n{number}")
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size, priority=10)
    await asyncio.sleep(10)
    assert stage.told.times["preempted"] == size


async def many_gangs_lack_a_member(size: int) -> None:
    stage = GangStage(nodes=4, cpus=size)
    for number in range(size):
        stage.pod(f"a{number}", job=f"j{number}", size=2)
    await asyncio.sleep(60)
    for number in range(size):
        stage.pod(f"b{number}", job=f"j{number}", size=2)
    await asyncio.sleep(10)
    assert stage.told.times["bound"] == 2 * size


async def many_gangs_wait_in_vain(size: int) -> None:
    stage = GangStage(nodes=size, cpus=1)
    for number in range(size):
        stage.pod(f"a{number}", job=f"j{number}", size=2)
        stage.pod(f"big{number}", job=f"j{number}", size=2, priority=-number)
    await asyncio.sleep(30)


STORIES: list[Story] = [
    one_member_is_missing,
    every_member_asks_for_another_size,
    there_is_room_for_half_of_it,
    there_is_room_for_all_of_it,
    most_of_it_is_not_needed,
    the_cluster_changes_all_the_time_while_it_waits,
    it_would_have_to_evict_more_than_there_are,
    it_has_to_evict_for_every_member,
    many_gangs_lack_a_member,
    many_gangs_wait_in_vain,
]


@pytest.mark.long
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_four_times_the_size_is_about_four_times_the_work(story: Story) -> None:
    small, large = calls_of(story, 32), calls_of(story, 128)
    assert large < 7 * small, f"{small} calls became {large}"


def test_the_message_of_a_gang_that_does_not_fit_stays_the_same() -> None:
    async def tell() -> None:
        stage = GangStage(nodes=3, cpus=1)
        for number in range(6):
            stage.pod(f"a{number}", job="a", size=6)
            await asyncio.sleep(2)
        for turn in range(60):
            stage.pod(f"other{turn % 3}", node="elsewhere")  # something always changes
            await asyncio.sleep(10)
        for name, texts in stage.told.texts.items():
            if name.startswith("a"):
                assert len(set(texts)) <= 3, texts  # held, no room
                assert not any("of 6" in text for text in texts)

    run(tell())


def test_a_large_gang_is_let_in_by_its_plan_instead_of_asking_again_and_again_whether_it_is() -> None:
    size, cycles = 1_000, 0

    async def tell() -> None:
        nonlocal cycles
        stage = GangStage(nodes=size // 2, cpus=2)
        schedule_one = stage.scheduler.schedule_one

        def counted(queued: QueuedPod) -> None:
            nonlocal cycles
            cycles += 1
            schedule_one(queued)

        stage.scheduler.schedule_one = counted  # type: ignore[method-assign]
        for number in range(size):
            stage.pod(f"a{number}", job="a", size=size)
        await asyncio.sleep(5)
        assert stage.told.times["bound"] == size

    run(tell())
    assert cycles <= size + 40
