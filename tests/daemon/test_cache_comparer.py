"""The cache comparer: differences are found, reported and corrected while the scheduler runs."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from kube_policy_scheduler.daemon.scheduling.cache_comparer import CacheComparer
from kube_policy_scheduler.framework.invariants import violations
from tests.simulation.calm import Calm, story

POLICY = "score node.free.cpu\n"


def comparer_of(
    calm: Calm, found: Counter[str], *, step_seconds: float = 0.0, is_current: Callable[[], bool] = lambda: True
) -> CacheComparer:
    scheduler = calm.process.scheduler
    steps = itertools.count()
    return CacheComparer(
        scheduler,
        is_current=is_current,
        found=lambda kind: found.update([kind]),
        stopwatch=lambda: next(steps) * step_seconds,
    )


def test_a_wrong_column_is_found_reported_and_recalculated(caplog: pytest.LogCaptureFixture) -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer = comparer_of(calm, found)
        calm.pod("a", millis=1000)
        calm.pod("b", millis=3000)
        await calm.after(3)
        comparer.look()
        assert not found
        cluster = calm.process.scheduler.cluster
        for column in (cluster.nodes.requested("cpu"), cluster.nodes.pod_count, cluster.nodes.allocatable("memory")):
            column[0] += 1
        cluster.priorities.update(0, 0, [("cpu", 500)], 1)
        assert violations(cluster, calm.process.scheduler.queue, {})
        comparer.look()
        assert found == {"node": 4}
        assert violations(cluster, calm.process.scheduler.queue, {}) == []
        calm.pod("c", millis=3000)
        await calm.after(3)
        assert calm.on_nodes() == ["a", "b", "c"]

    story(POLICY, tell, cpus=(4, 4))
    assert "n0: requested cpu is " in caplog.text
    assert "recalculated" in caplog.text


@pytest.mark.parametrize("is_known", [True, False], ids=["said to be on none", "not kept there"])
def test_a_pod_that_is_kept_in_the_wrong_place_is_found(is_known: bool) -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("a", millis=1000)
        await calm.after(3)
        scheduler = calm.process.scheduler
        cluster = scheduler.cluster
        assert violations(cluster, scheduler.queue, {}) == []
        ((uid, pod),) = cluster.pods.items()
        if is_known:
            cluster.on_unknown_nodes[uid] = pod
        else:
            cluster.on_node[cluster.node_of(uid) or ""].pop(uid)
        found = violations(cluster, scheduler.queue, {})
        said = "is said to be on no known node" if is_known else "is not kept there"
        assert [each for each in found if each.startswith(f"pod {uid} counts on n0") and said in each]

    story(POLICY, tell, cpus=(4,))


def test_room_that_a_waiting_pod_takes_is_given_back() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer = comparer_of(calm, found)
        calm.pod("big", millis=9000)
        await calm.after(3)
        scheduler = calm.process.scheduler
        (queued,) = scheduler.queue
        scheduler.cluster.place(queued.pod, "n0")  # as if a binding had broken and its room were forgotten
        comparer.look()
        assert found == {"pod": 1}
        await calm.after(3)
        calm.pod("a", millis=4000)
        await calm.after(3)
        assert calm.on_nodes() == ["a"]

    story(POLICY, tell, cpus=(4,))


def test_a_pod_that_is_missing_in_the_queue_is_reported() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer = comparer_of(calm, found)
        calm.process.scheduler.lead(False)
        calm.pod("a")
        await calm.after(3)
        comparer.look()
        assert not found
        (queued,) = calm.process.scheduler.queue
        calm.process.scheduler.queue._active.leave(queued)  # and it is put nowhere else
        comparer.look()
        assert found == {"queue": 1}
        assert calm.process.scheduler.queue.misplaced() == ["pod default/a says that it is active, and is not there"]

    story(POLICY, tell, cpus=(4,))


@pytest.mark.parametrize("was_bound", [True, False])
def test_a_pod_in_flight_without_a_task_is_reported_and_read_from_the_api_server(
    was_bound: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer = comparer_of(calm, found)
        scheduler = calm.process.scheduler
        scheduler.lead(False)
        calm.pod("lost", millis=3000)
        await calm.after(3)
        queued = scheduler.queue.pop(calm.server.now())
        assert queued is not None
        scheduler.cluster.assume(queued.pod, "n0", now=calm.server.now())
        assert "pod default/lost is in flight, and no task handles it" in violations(
            scheduler.cluster,
            scheduler.queue,
            scheduler.cluster.assumed,
            is_under_way=scheduler.is_under_way,
        )
        if was_bound:
            for stream in calm.process.connection.streams:
                stream.spoil("silence")
            calm.server.bind_pod("lost", "n0")
        comparer.look()
        assert found == {"binding": 1}
        await calm.after(3)
        comparer.look()
        assert found == {"binding": 1}
        assert calm.on_nodes() == ["lost"]
        assert not list(scheduler.queue)

    story(POLICY, tell, cpus=(4,))
    assert "an invariant does not hold" in caplog.text


def test_a_pod_in_flight_without_a_place_is_put_back() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer = comparer_of(calm, found)
        scheduler = calm.process.scheduler
        scheduler.lead(False)
        calm.pod("lost", millis=3000)
        await calm.after(3)
        assert scheduler.queue.pop(calm.server.now()) is not None
        comparer.look()
        assert found == {"binding": 1}
        scheduler.lead(True)
        await calm.after(15)
        assert calm.on_nodes() == ["lost"]

    story(POLICY, tell, cpus=(4,))


def test_a_binding_that_a_current_watch_does_not_show_is_reported_once() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        is_current = True
        comparer = comparer_of(calm, found, is_current=lambda: is_current)
        scheduler = calm.process.scheduler
        calm.pod("a")
        await calm.after(3)
        bound = scheduler.cluster.pods[calm.server.pods["a"]["metadata"]["uid"]]
        scheduler.cluster.assume(bound, "n0", now=calm.server.now())  # as if its event had been overlooked
        comparer.look()
        is_current = False
        for _ in range(10):
            await calm.after(200)
            comparer.look()
        assert not found
        is_current = True
        await calm.after(850)
        comparer.look()
        assert not found
        await calm.after(100)
        comparer.look()
        comparer.look()
        assert found == {"binding": 1}

    story(POLICY, tell, cpus=(4,))


def test_how_long_the_oldest_is_in_flight_and_assumed_is_known() -> None:
    async def tell(calm: Calm) -> None:
        scheduler = calm.process.scheduler
        in_flight, assumed = scheduler.in_flight, scheduler.cluster.assumed
        calm.process.connection.plan = lambda verb, path: "429 with Retry-After" if verb == "POST" else ""
        calm.pod("slow")
        await calm.after(30)
        calm.server.clock_ahead = 3600.0
        await calm.after(30)
        assert (len(in_flight), len(assumed)) == (1, 1)
        assert 55 < in_flight.oldest_seconds <= 60
        assert 55 < assumed.oldest_seconds(scheduler.context.clock()) <= 60
        calm.process.connection.plan = lambda verb, path: ""
        await calm.after(15)
        assert (in_flight.oldest_seconds, assumed.oldest_seconds(scheduler.context.clock())) == (0.0, 0.0)

    story(POLICY, tell, cpus=(4,))


def test_a_look_takes_no_longer_than_it_may_and_all_are_seen_in_the_end() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        await calm.after(3)
        comparer = comparer_of(calm, found, step_seconds=0.0009)  # three steps a look
        calm.process.scheduler.cluster.nodes.pod_count[7] += 1
        looks = 1
        while not comparer.look():
            looks += 1
        assert 3 <= looks <= 12
        while not comparer.look():
            pass
        assert found == {"node": 1}

    story(POLICY, tell, cpus=(4,) * 8)


def test_under_load_and_changes_there_is_nothing_to_find() -> None:
    async def tell(calm: Calm) -> None:
        found: Counter[str] = Counter()
        comparer, rounds = comparer_of(calm, found, step_seconds=0.0005), 0
        for number in range(60):
            calm.pod(f"p{number}", millis=500)
            if number % 3 == 0 and calm.on_nodes():
                calm.server.delete_pod(calm.on_nodes()[0])
            if number % 20 == 10:
                calm.server.delete_node("n1")
            if number % 20 == 15:
                calm.server.set_node("n1", cpu=4, labels={})
            for _ in range(5):
                rounds += comparer.look()
                await asyncio.sleep(0.02)
        assert rounds > 3
        assert not found

    story(POLICY, tell, cpus=(4, 4, 4))
