"""The scheduler's books, counted again while it runs: what is wrong is found, told, and put right."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from engine.daemon.scheduling.recounting import Recounting
from engine.framework.invariants import violations
from tests.simulation.calm import Calm, story

POLICY = "score node.free.cpu\n"


def recounting_of(calm: Calm, found: Counter[str], *, step_seconds: float = 0.0) -> Recounting:
    scheduler = calm.process.scheduler
    steps = itertools.count()
    return Recounting(
        scheduler.cluster,
        scheduler.queue,
        informer=scheduler.informer,
        found=lambda kind: found.update([kind]),
        stopwatch=lambda: next(steps) * step_seconds,
    )


def test_a_column_that_is_wrong_is_found_told_and_counted_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        recounting = recounting_of(calm, found)
        calm.pod("a", millis=1000)
        calm.pod("b", millis=3000)
        await calm.after(3)
        recounting.look()
        assert not found
        cluster = calm.process.scheduler.cluster
        for column in (cluster.nodes.requested("cpu"), cluster.nodes.pod_count, cluster.nodes.allocatable("memory")):
            column[0] += 1
        cluster.priorities.update(0, 0, [("cpu", 500)], 1)
        assert violations(cluster, calm.process.scheduler.queue, {})
        recounting.look()
        assert found == {"node": 4}
        assert violations(cluster, calm.process.scheduler.queue, {}) == []
        calm.pod("c", millis=3000)
        await calm.after(3)
        assert calm.on_nodes() == ["a", "b", "c"]

    story(POLICY, tell, cpus=(4, 4))
    assert "n0: requested cpu is " in caplog.text
    assert "counted anew" in caplog.text


def test_room_that_a_waiting_pod_takes_is_given_back() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        recounting = recounting_of(calm, found)
        calm.pod("big", millis=9000)
        await calm.after(3)
        scheduler = calm.process.scheduler
        (queued,) = scheduler.queue
        scheduler.cluster.place(queued.pod, "n0")  # as if a binding had broken and its room were forgotten
        recounting.look()
        assert found == {"pod": 1}
        await calm.after(3)
        calm.pod("a", millis=4000)
        await calm.after(3)
        assert calm.on_nodes() == ["a"]

    story(POLICY, tell, cpus=(4,))


def test_a_pod_that_the_queue_would_never_find_is_told() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        recounting = recounting_of(calm, found)
        calm.process.scheduler.lead(False)
        calm.pod("a")
        await calm.after(3)
        recounting.look()
        assert not found
        (queued,) = calm.process.scheduler.queue
        queued.ticket += 1
        recounting.look()
        assert found == {"queue": 1}
        assert calm.process.scheduler.queue.misplaced() == ["pod default/a says that it is active, and is not there"]
        queued.ticket -= 1

    story(POLICY, tell, cpus=(4,))


def test_a_look_takes_no_longer_than_it_may_and_all_are_seen_in_the_end() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        await calm.after(3)
        recounting = recounting_of(calm, found, step_seconds=0.0009)  # three steps a look
        calm.process.scheduler.cluster.nodes.pod_count[7] += 1
        looks = 0
        while not recounting.rounds:
            recounting.look()
            looks += 1
        assert 3 <= looks <= 12
        while recounting.rounds < 2:
            recounting.look()
        assert found == {"node": 1}

    story(POLICY, tell, cpus=(4,) * 8)


def test_under_load_and_changes_there_is_nothing_to_find() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        recounting = recounting_of(calm, found, step_seconds=0.0005)
        for number in range(60):
            calm.pod(f"p{number}", millis=500)
            if number % 3 == 0 and calm.on_nodes():
                calm.server.delete_pod(calm.on_nodes()[0])
            if number % 20 == 10:
                calm.server.delete_node("n1")
            if number % 20 == 15:
                calm.server.set_node("n1", cpu=4, labels={})
            for _ in range(5):
                recounting.look()
                await asyncio.sleep(0.02)
        assert recounting.rounds > 3
        assert not found

    story(POLICY, tell, cpus=(4, 4, 4))
