"""`gang`: all members bind or none, nothing is held for those that are missing, no two gangs wait for each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.steps import UNFINISHED, in_turn
from kube_policy_scheduler.daemon.observing.observers import Decided, Observer
from kube_policy_scheduler.daemon.scheduling import schedule_one
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.groups import plan
from kube_policy_scheduler.framework.preempt.reclaim import Reclaimed
from kube_policy_scheduler.framework.queue import scheduling_queue
from tests.daemon.gang_stage import START, GangStage
from tests.simulation.calm import Calm, story
from tests.simulation.chaos import containers, policies_of
from tests.simulation.virtual_time import run

GANG = "gang by pod.label.job size number(pod.label.size) ?? 1 within 60s if pod.label.job\n"


def gang(calm: Calm, job: str, size: int, *, members: int | None = None, millis: int = 1000, priority: int = 0) -> None:
    for number in range(size if members is None else members):
        calm.pod(f"{job}{number}", job=job, size=str(size), millis=millis, priority=priority)


def test_members_bind_together_once_all_have_a_place() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 3)
        await calm.after(3)
        assert calm.on_nodes() == ["a0", "a1", "a2"]

    story(GANG, tell, cpus=(2, 2))


def test_nothing_is_held_before_enough_members_are_there() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 3, members=2)
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        assert calm.told.why["a0"] == (
            "waiting for minCount pods from a gang to appear in scheduling queue:"
            f' gang "default/a" starts with 3 pods (policy p: {GANG.strip()})'
        )
        calm.pod("a2", job="a", size="3")
        await calm.after(3)
        assert calm.on_nodes() == ["a0", "a1", "a2"]

    story(GANG, tell, cpus=(4,))


def test_a_gang_that_does_not_fit_holds_nothing_and_says_why() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 3)
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        scheduler = calm.process.scheduler
        (state,) = scheduler.waiting_pods.states(next(iter(scheduler.queue)))
        assert (state.size, state.placed, state.holding, state.pending, state.missing) == (3, 0, 0, 3, 0)
        assert state.sentence().startswith('gang "default/a": 0 of 3 members have a node, 3 are pending (')
        for number in range(3):
            assert 'gang "default/a" starts with 3 pods (policy p: gang by' in calm.told.why[f"a{number}"]
            assert "the nodes have no room for all pods that it needs at once" in calm.told.why[f"a{number}"]
        calm.pod("small")
        await calm.after(0.5)
        assert calm.on_nodes() == ["small"]
        calm.server.set_node("n1", cpu=2, labels={})
        await calm.after(15)
        assert calm.on_nodes() == ["a0", "a1", "a2", "small"]

    story(GANG, tell, cpus=(2,))


def test_a_gang_that_can_never_fit_delays_no_other() -> None:
    """Each of its members fits, and as many as there are nodes, for all that anybody can see one by one."""

    async def tell(calm: Calm) -> None:
        gang(calm, "huge", 12, millis=4000, priority=5)
        await calm.after(1)
        gang(calm, "fits", 3, millis=4000)
        await calm.after(1)
        assert calm.on_nodes() == ["fits0", "fits1", "fits2"]
        calm.pod("single", millis=4000)
        await calm.after(0.5)
        assert "single" in calm.on_nodes()

    story(GANG, tell, cpus=(4,) * 11)


def test_members_that_run_already_count() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 3)
        await calm.after(3)
        calm.server.finish_pod("a1")
        calm.pod("a1", job="a", size="3")
        await calm.after(3)
        assert calm.on_nodes() == ["a0", "a1", "a2"]

    story(GANG, tell, cpus=(3,))


def test_gangs_of_two_namespaces_or_jobs_do_not_count_for_each_other() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "a", 2, members=1)
        gang(calm, "b", 2, members=1)
        await calm.after(10)
        assert calm.on_nodes() == []

    story(GANG, tell, cpus=(4,))


def test_of_two_gangs_that_wait_the_more_important_one_gets_the_room() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "low", 3)
        await calm.after(5)
        gang(calm, "high", 3, priority=10)
        await calm.after(5)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        calm.server.set_node("n1", cpu=1, labels={})
        await calm.after(15)
        assert calm.on_nodes() == ["high0", "high1", "high2"]
        assert calm.waiting() == []

    story(GANG + "preempt never\n", tell, cpus=(2,))


def test_nobody_is_evicted_for_a_pod_because_of_a_gang_that_waits() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "low", 3)
        await calm.after(5)
        calm.pod("high", priority=10)
        await calm.after(0.5)
        assert calm.on_nodes() == ["high"]
        assert calm.told.told["preempted"] == 0
        calm.server.set_node("n1", cpu=3, labels={})
        await calm.after(20)
        assert calm.on_nodes() == ["high", "low0", "low1", "low2"]

    story(GANG, tell, cpus=(2,))


def test_a_size_without_a_value_is_reported() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("a", job="a")
        await calm.after(12)
        assert calm.on_nodes() == []
        assert "the size has no value for this pod" in calm.told.why["a"]

    story("gang by pod.label.job size number(pod.label.size)\n", tell, cpus=(3,))


def test_pods_are_evicted_for_a_gang_that_fits_then_all_of_them_at_once() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "high", 4, priority=10)
        await calm.after(1)
        gone = [name for name in ("low0", "low1", "low2") if is_going(calm, name)]
        assert len(gone) == 3, "the free cpu serves one member, the others evict at the same moment"
        await calm.after(60)
        assert calm.on_nodes() == ["high0", "high1", "high2", "high3"]

    story(GANG, tell, cpus=(2, 2))


def test_no_pod_is_evicted_for_a_part_of_a_gang() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(3):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "high", 4, priority=10)
        await calm.after(100)
        assert calm.on_nodes() == ["low0", "low1", "low2"]
        assert calm.told.told["preempted"] == 0
        assert any("because the gang does not fit as a whole" in why for why in calm.told.why.values())

    story(GANG, tell, cpus=(3,))


def test_no_more_are_evicted_than_the_gang_needs_to_start() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "high", 2, members=4, priority=10)
        await calm.after(1)
        assert sum(is_going(calm, f"low{number}") for number in range(4)) == 2

    story(GANG, tell, cpus=(4,))


def test_one_more_of_a_complete_gang_evicts_like_any_pod() -> None:
    async def tell(calm: Calm) -> None:
        gang(calm, "high", 2, priority=10)
        await calm.after(5)
        calm.pod("low")
        await calm.after(5)
        calm.pod("high2", job="high", size="2", priority=10)
        await calm.after(60)
        assert calm.on_nodes() == ["high0", "high1", "high2"]

    story(GANG, tell, cpus=(3,))


def test_a_gang_too_large_to_enter_the_queue_at_once_evicts_once_all_of_it_is_there() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(136):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "high", 136, priority=10)
        await calm.after(1)
        assert all(is_going(calm, f"low{number}") for number in range(136))
        await calm.after(30)
        assert calm.on_nodes() == sorted(f"high{number}" for number in range(136))

    story(GANG, tell, cpus=(8,) * 17)


def test_members_that_wake_before_the_watch_shows_that_their_victims_end_evict_no_others() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(80):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "high", 40, priority=10)
        await calm.after(60)
        assert len([name for name in calm.on_nodes() if name.startswith("high")]) == 40
        assert sum(is_going(calm, f"low{number}") for number in range(80)) == 40

    story(GANG, tell, cpus=(8,) * 10)


def lose_the_lead(stage: GangStage) -> None:
    stage.scheduler.lead(False)


def delete_the_gang(stage: GangStage) -> None:
    for name in [name for name in stage.pods if name.startswith("high")]:
        stage.delete(name)


@pytest.mark.parametrize("stop", [lose_the_lead, delete_the_gang])
def test_victims_that_were_not_evicted_yet_do_not_count_as_terminating(stop: Callable[[GangStage], None]) -> None:
    size = 256

    async def tell() -> None:
        stage = GangStage(nodes=size, cpus=1, tick=1e-3)
        for number in range(size):
            stage.pod(f"low{number}", node=f"n{number}")
        for number in range(size):
            stage.pod(f"high{number}", job="high", size=size, priority=10)
        await stage.told.has_evicted.wait()
        stop(stage)
        await asyncio.sleep(1)
        cluster, now = stage.scheduler.cluster, START + asyncio.get_running_loop().time()
        terminating = sum(cluster.is_going(cluster.pods[f"low{number}"], now) for number in range(size))
        assert 0 < stage.told.times["preempted"] < size
        assert terminating == stage.told.times["preempted"]

    run(tell())


async def some_are_assumed(size: int, *, nodes: int = 0) -> GangStage:
    """Return a stage where the plan of a gang is being carried out: some of its members are assumed, not all."""
    stage = GangStage(nodes=nodes or size, cpus=1, tick=1e-3)
    for number in range(size):
        stage.pod(f"a{number}", job="a", size=size)
    while len(stage.scheduler.waiting_pods.waiting) < size // 2:  # noqa: ASYNC110 (asked after each turn)
        await asyncio.sleep(0)
    assert len(stage.scheduler.waiting_pods.waiting) < size
    return stage


async def all_are_given_back(size: int) -> GangStage:
    """Return a stage where a gang gave its places back, and the first of its members is reported."""
    stage = await some_are_assumed(size)
    stage.delete(f"a{size - 1}")
    await stage.told.has_given_back.wait()
    return stage


def take_a_node(stage: GangStage) -> None:
    nodes = stage.scheduler.cluster.nodes
    name = next(iter(stage.scheduler.cluster.assumed.values()))
    stage.scheduler.event_handlers.node_deleted(nodes.infos[nodes.rows[name]].node)


def fill_a_node(stage: GangStage) -> str:
    """Let the watch show another pod on a free node, and return its name."""
    free = next(name for name in stage.scheduler.cluster.nodes.rows if not stage.scheduler.cluster.pods_on(name))
    other = f"other-on-{free}"
    stage.pod(other, node=free)
    return other


def reload(stage: GangStage) -> None:
    stage.scheduler.use_policies(policies_of(GANG))


def replace_a_member(stage: GangStage) -> None:
    stage.delete("a31")
    stage.pod("a32", job="a", size=32)


@pytest.mark.parametrize("change", [take_a_node, fill_a_node, reload, replace_a_member])
def test_what_changes_while_members_are_assumed_has_the_gang_planned_again(
    change: Callable[[GangStage], object],
) -> None:
    async def tell() -> None:
        stage = await some_are_assumed(32, nodes=34)
        change(stage)
        await asyncio.sleep(0.5)
        waiting = len(stage.scheduler.waiting_pods.waiting)
        assert (waiting, stage.told.times["bound"]) in ((0, 0), (0, 32)), "all or none, and nothing is held"
        await asyncio.sleep(30)
        assert stage.told.times["bound"] == 32

    run(tell())


def test_no_member_gets_a_node_that_another_pod_took_since_the_gang_was_planned() -> None:
    async def tell() -> None:
        stage = await some_are_assumed(32)
        other = fill_a_node(stage)
        await asyncio.sleep(0.5)
        assert (len(stage.scheduler.waiting_pods.waiting), stage.told.times["bound"]) == (0, 0)
        stage.delete(other)
        await asyncio.sleep(60)
        assert stage.told.times["bound"] == 32

    run(tell())


@pytest.mark.parametrize("rejections", [0, 5], ids=["all alike", "the others back off for longer"])
def test_a_gang_that_loses_a_node_backs_off_though_it_would_fit_elsewhere(rejections: int) -> None:
    """Planned again at once, it could lose a node again and again, and no other pod would be decided."""

    async def tell() -> None:
        stage = await some_are_assumed(32)
        waiting = stage.scheduler.waiting_pods.waiting
        _, *others = [queued for queued in stage.scheduler.queue if queued.pod.uid not in waiting]
        for queued in (*others, *(assumed.queued for assumed in waiting.values())):
            queued.rejections = rejections
        for number in range(32 - len(waiting)):
            fill_a_node(stage)
            stage.add_node(f"new-{number}", cpus=1)
        await asyncio.sleep(0.1)
        stage.scheduler.context.wakeups.requested.set()  # nothing is active, so a pod in backoff may be next
        await asyncio.sleep(0.4)
        assert (len(waiting), stage.told.times["bound"]) == (0, 0)
        await asyncio.sleep(60)
        assert stage.told.times["bound"] == 32

    run(tell())


def test_a_member_that_fails_on_the_way_gives_all_places_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assume, failed = Scheduler.assume, list[str]()

    def fails_once(scheduler: Any, queued: Any, decision: Any, host: str, requirements: Any, began: float) -> Any:
        if queued.pod.name == "a2" and not failed:
            failed.append(queued.pod.name)
            scheduler.queue.failed(queued, scheduler._clock())
            return None
        return assume(scheduler, queued, decision, host, requirements, began)

    async def tell(calm: Calm) -> None:
        gang(calm, "a", 4)
        await calm.after(0.6)
        assert (failed, calm.on_nodes(), calm.waiting()) == (["a2"], [], [])
        assert not calm.process.scheduler.cluster.assumed
        await calm.after(15)
        assert calm.on_nodes() == ["a0", "a1", "a2", "a3"]

    monkeypatch.setattr(Scheduler, "assume", fails_once)
    story(GANG, tell, cpus=(5,))


def test_members_that_give_their_places_back_are_reported_a_few_in_a_turn_and_free_them_at_once() -> None:
    size = 64

    async def tell() -> None:
        stage = await all_are_given_back(size)
        assert len(stage.told.given_back) < size / 8
        assert not stage.scheduler.cluster.assumed
        stage.delete(f"a{size - 2}")
        await asyncio.sleep(0.5)
        assert f"a{size - 2}" not in stage.told.given_back
        assert size // 2 - 1 <= len(set(stage.told.given_back)) < size
        assert not stage.scheduler.algorithm.awaiting_nodes.withdraw(f"a{size - 2}")

    run(tell())


def test_a_gang_is_planned_over_several_turns_and_starts_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    size, tried = 32, Counter[bool]()

    def counted(*arguments: Any, **more: Any) -> Any:
        found = in_turn(*arguments, **more)
        tried[found is UNFINISHED] += 1
        return found

    async def tell() -> None:
        stage = GangStage(nodes=size, cpus=1)
        for number in range(size):
            stage.pod(f"a{number}", job="a", size=size + 1)
        stage.pod("last", job="a", size=size + 1, priority=-1)
        await asyncio.sleep(10)
        assert not stage.told.times["bound"]
        stage.pod("alone")
        await asyncio.sleep(1)
        assert stage.told.times["bound"] == 1
        stage.add_node("more", cpus=1)
        stage.add_node("even more", cpus=1)
        await asyncio.sleep(60)
        assert stage.told.times["bound"] == 1 + size + 1

    monkeypatch.setattr(schedule_one, "WORK_IN_A_TURN", 70)
    monkeypatch.setattr(schedule_one, "in_turn", counted)
    run(tell())
    assert tried[True] > 1


def test_a_replica_that_loses_the_lead_reports_no_more_members_that_gave_their_places_back() -> None:
    size = 64

    async def tell() -> None:
        stage = await all_are_given_back(size)
        lose_the_lead(stage)
        before = len(stage.told.given_back)
        await asyncio.sleep(5)
        assert len(stage.told.given_back) == before < size

    run(tell())


def test_members_smaller_than_their_victims_share_the_room_of_one() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"low{number}", millis=4000)
        await calm.after(5)
        gang(calm, "high", 6, priority=10)
        await calm.after(60)
        assert len([name for name in calm.on_nodes() if name.startswith("high")]) == 6
        assert sum(is_going(calm, f"low{number}") for number in range(4)) == 2

    story(GANG, tell, cpus=(4,) * 4)


def test_room_that_others_evicted_for_is_left_to_them_by_a_gang_that_would_hold_it_in_vain() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(2):
            calm.pod(f"low{number}")
        await calm.after(5)
        gang(calm, "large", 4, priority=10)
        gang(calm, "small", 2, priority=5)
        for _ in range(60):
            await calm.after(1)
            assert calm.waiting() in ([], ["small0"], ["small1"])
        assert calm.on_nodes() == ["small0", "small1"]
        assert calm.told.told["preempted"] == 2

    story(GANG, tell, cpus=(2,))


def test_a_gang_that_does_not_fit_leaves_others_their_room_and_holds_no_other_nodes() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.set_node("n1", cpu=0, labels={})
        calm.pod("low", millis=2000)
        await calm.after(5)
        gang(calm, "large", 4, priority=10)
        calm.pod("single", millis=2000, priority=5)
        await calm.after(0.5)
        assert is_going(calm, "low")
        calm.server.set_node("n1", cpu=1, labels={})
        await calm.after(30)
        assert (calm.on_nodes(), calm.waiting()) == (["single"], [])

    story(GANG, tell, cpus=(2,))


def test_a_gang_of_higher_priority_that_fits_takes_the_room_that_is_kept_for_another_pod() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("low", millis=1500)
        await calm.after(5)
        calm.pod("mid", millis=2500, priority=5)
        await calm.after(0.5)
        assert is_going(calm, "low")
        gang(calm, "high", 2, priority=10)
        await calm.after(0.5)
        assert {"high0", "high1"} <= set(calm.on_nodes())

    story(GANG, tell, cpus=(3, 1))


def test_a_gang_that_waited_evicts_those_that_took_the_room_meanwhile() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("high", priority=20)
        await calm.after(5)
        gang(calm, "a", 2, priority=10)
        await calm.after(70)
        assert (calm.on_nodes(), calm.waiting()) == (["high"], [])
        calm.pod("low0")
        await calm.after(5)
        assert calm.on_nodes() == ["high", "low0"]
        calm.server.finish_pod("high")
        await calm.after(60)
        assert calm.on_nodes() == ["a0", "a1"]

    story(GANG, tell, cpus=(2,))


def is_going(calm: Calm, name: str) -> bool:
    pod = calm.server.pods.get(name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


@pytest.mark.timeout(300)  # it would end a task of the story, in whatever it does just then
@settings(max_examples=12, deadline=None)
@given(
    cpus=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    low=st.integers(0, 6),
    groups=st.lists(
        st.tuples(st.integers(2, 4), st.sampled_from((5, 10)), st.lists(st.integers(0, 12), min_size=4, max_size=4)),
        min_size=1,
        max_size=3,
    ),
)
@example(cpus=[2], low=4, groups=[(4, 10, [0, 0, 7, 0]), (3, 10, [0, 0, 7, 0]), (2, 5, [7, 0, 0, 0])])
@example(cpus=[2, 1], low=1, groups=[(2, 5, [0, 0, 0, 0]), (3, 10, [0, 0, 0, 0])])
def test_in_any_interleaving_evictions_serve_whole_gangs_only(
    cpus: list[int], low: int, groups: list[tuple[int, int, list[int]]]
) -> None:
    async def tell(calm: Calm) -> None:
        for number in range(low):
            calm.pod(f"low{number}")
        await calm.after(5)
        births = sorted(
            (at, f"g{number}", member, size, priority)
            for number, (size, priority, times) in enumerate(groups)
            for member, at in enumerate(times[:size])
        )
        now = 0
        for at, job, member, size, priority in births:
            await calm.after(at - now + 0.01)
            now = at
            calm.pod(f"{job}-{member}", job=job, size=str(size), priority=priority)
        await calm.after(400)
        bound = calm.on_nodes()
        for number, (size, priority, _) in enumerate(groups):
            running = sum(name.startswith(f"g{number}-") for name in bound)
            assert running in (0, size) or priority == 5, (
                "only a gang that gives way to another may lose one of its pods"
            )
        if min(size for size, _, _ in groups) > sum(cpus):
            assert calm.told.told["preempted"] == 0
        else:
            assert any(name.startswith("g") for name in bound)

    story(GANG, tell, cpus=tuple(cpus))


@pytest.mark.timeout(300)  # it would end a task of the story, in whatever it does just then
@settings(max_examples=8, deadline=None)
@given(
    cpus=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    groups=st.lists(
        st.tuples(st.integers(2, 4), st.integers(0, 1), st.lists(st.integers(0, 30), min_size=4, max_size=4)),
        min_size=2,
        max_size=4,
    ),
)
def test_in_any_interleaving_no_group_is_partly_bound_and_one_that_fits_gets_on(
    cpus: list[int], groups: list[tuple[int, int, list[int]]]
) -> None:
    async def tell(calm: Calm) -> None:
        births = sorted(
            (at, f"g{number}", member, size, priority)
            for number, (size, priority, times) in enumerate(groups)
            for member, at in enumerate(times[:size])
        )
        now = 0
        for at, job, member, size, priority in births:
            await calm.after(at - now + 0.01)
            now = at
            calm.pod(f"{job}-{member}", job=job, size=str(size), priority=priority * 10)
        await calm.after(400)
        bound = calm.on_nodes()
        for number, (size, _, _) in enumerate(groups):
            assert sum(name.startswith(f"g{number}-") for name in bound) in (0, size)
        if min(size for size, _, _ in groups) <= sum(cpus):
            assert bound

    story(GANG + "preempt never\n", tell, cpus=tuple(cpus))


# --- roles -------------------------------------------------------------------------------------------------

ROLES = "gang by pod.label.job size 3 with 1 of role=driver, 2 of role=worker within 60s if pod label job\n"


def test_workers_wait_for_their_driver_however_many_there_are() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(5):
            calm.pod(f"w{number}", job="a", size="3", role="worker")
        await calm.after(10)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        calm.pod("d", job="a", size="3", role="driver")
        await calm.after(10)
        assert calm.on_nodes() == ["d", "w0", "w1", "w2", "w3", "w4"]

    story(ROLES, tell, cpus=(8,))


def test_members_beyond_what_the_gang_needs_start_once_it_is_complete() -> None:
    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"w{number}", job="a", size="3", role="worker")
        calm.pod("d", job="a", size="3", role="driver", millis=4000)  # no node has so much yet
        await calm.after(5)
        assert (calm.on_nodes(), calm.waiting()) == ([], [])
        assert calm.told.why["w0"].startswith("no node for default/d: 0/2 nodes are available: 2 Insufficient cpu.")
        calm.server.set_node("n9", cpu=4, labels={})
        await calm.after(10)
        assert calm.on_nodes() == ["d", "w0", "w1", "w2", "w3"]

    story(ROLES, tell, cpus=(3, 2))


def test_all_members_beyond_a_gang_that_starts_late_are_woken() -> None:
    async def tell(calm: Calm) -> None:
        calm.pod("big", millis=6000)
        await calm.after(2)
        gang(calm, "a", 3, members=5)
        await calm.after(100)
        assert calm.on_nodes() == ["big"]
        calm.server.finish_pod("big")
        await calm.after(15)
        assert calm.on_nodes() == ["a0", "a1", "a2", "a3", "a4"]

    story(GANG, tell, cpus=(8,))


def test_a_member_that_joins_a_complete_gang_starts_at_once() -> None:
    async def tell(calm: Calm) -> None:
        for name, role in (("d", "driver"), ("w0", "worker"), ("w1", "worker")):
            calm.pod(name, job="a", size="3", role=role)
        await calm.after(5)
        calm.pod("w2", job="a", size="3", role="worker")
        calm.pod("x", job="a", size="3")
        await calm.after(5)
        assert calm.on_nodes() == ["d", "w0", "w1", "w2", "x"]

    story(ROLES, tell, cpus=(8,))


def test_a_second_driver_takes_no_room_that_the_gang_needs() -> None:
    async def tell(calm: Calm) -> None:
        calm.server.create_pod("low", {"priority": -1} | containers(1000), {})
        await calm.after(5)
        assert calm.on_nodes() == ["low"]
        for name in ("d0", "d1", "w0", "w1"):
            calm.pod(name, job="a", size="3", role="driver" if name[0] == "d" else "worker")
        await calm.after(60)
        assert calm.on_nodes() in (["d0", "w0", "w1"], ["d1", "w0", "w1"])

    story(ROLES, tell, cpus=(3,))


@pytest.mark.parametrize("cores", [(2, 2), (3, 1)])
def test_room_is_kept_for_a_gang_while_pods_are_evicted_for_it_by_reclaim(cores: tuple[int, ...]) -> None:
    queues = "queue a for pods where pod.label.job min cpu 5\nqueue b for pods where not pod.label.job\n"

    async def tell(calm: Calm) -> None:
        for number in range(6):
            calm.pod(f"b{number}")
        await calm.after(10)
        for number, each in enumerate(cores):
            calm.pod(f"g{number}", millis=1000 * each, job="g", size="2")
        calm.pod("borrows")
        await calm.after(60)
        there = calm.on_nodes()
        assert {"g0", "g1"} < set(there)
        assert "borrows" not in there, "more pods were evicted than the gang needed"
        assert len(there) == 4

    story(f"{GANG}{queues}reclaim\n", tell, cpus=(6,))


OVER_QUOTA = (
    "queue both for pods where pod label team max cpu 6\nqueue a of both for pods where pod label team=a min cpu 6\n"
    "queue b of both for pods where pod label team=b\nreclaim\n"
)


async def evicting_for_quota(calm: Calm) -> None:
    """Have pods nominated whose queue has no quota for their gang until the pod that was evicted for it is gone."""
    calm.pod("big", millis=6000, team="b")
    await calm.after(5)
    calm.server.stuck.add("big")
    for number in range(6):
        calm.pod(f"g{number}", job="g", size="6", team="a")
    await calm.after(10)


def test_that_pods_are_about_to_make_room_is_found_once_for_a_whole_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a gang of 70 took 20 s each time that its members were tried again."""
    asked, reclaim = list[str](), plan.reclaim

    def counted(frame: Frame, *rest: Any, **more: Any) -> Reclaimed:
        asked.append(frame.pod.name)
        return reclaim(frame, *rest, **more)

    monkeypatch.setattr(plan, "reclaim", counted)

    async def tell(calm: Calm) -> None:
        await evicting_for_quota(calm)
        assert len(asked) == 2, "once for the victim, and once whether it makes the room"
        assert calm.told.why["g5"].endswith("reclaim: waits until evicted pods are gone.")
        calm.server.release("big")
        await calm.after(5)
        assert calm.on_nodes() == [f"g{number}" for number in range(6)]

    story(GANG + OVER_QUOTA, tell, cpus=(7,))


def test_a_gang_that_is_let_in_little_by_little_keeps_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart: its first members are there before the rest."""
    monkeypatch.setattr(scheduling_queue, "ASKED_AT_ONCE", 1)

    async def tell(calm: Calm) -> None:
        await evicting_for_quota(calm)
        calm.restart()
        calm.pod("small", team="b")
        for _ in range(20):
            await calm.after(0.2)
        assert {name: len(there) for name, there in calm.process.scheduler.cluster.nominated.items()} == {"n0": 6}
        assert calm.told.why["g0"].endswith("reclaim: waits until evicted pods are gone.")
        assert calm.on_nodes() == ["big"]

    story(GANG + OVER_QUOTA, tell, cpus=(7,))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(2, 6))
@example([4, 1, 1], 5)
@example([1, 1, 1], 3)
@example([2, 2, 1, 2, 1], 8)
def test_a_gang_gets_what_its_queue_is_guaranteed_if_that_is_enough_for_members_that_complete_it(
    cores: list[int], guaranteed: int
) -> None:
    """Whatever members ask for that it can do without, and whichever of them comes first."""
    queues = f"queue a for pods where pod.label.job min cpu {guaranteed}\nqueue b for pods where not pod.label.job\n"

    async def tell(calm: Calm) -> None:
        for number in range(6):
            calm.pod(f"b{number}")
        await calm.after(5)
        for number, each in enumerate(cores):
            calm.pod(f"g{number}", millis=1000 * each, job="g", size="2")
        await calm.after(60)
        least = sum(sorted(cores)[:2])
        started = [int(name[1:]) for name in calm.on_nodes() if name.startswith("g")]
        assert bool(started) is (least <= guaranteed)
        assert sum(cores[number] for number in started) <= guaranteed
        assert sum(name.startswith("b") for name in calm.on_nodes()) + sum(cores[number] for number in started) <= 6

    story(f"{GANG}{queues}reclaim\n", tell, cpus=(6,))


@pytest.mark.parametrize("limit", ["", " max cpu 6"])
def test_nobody_goes_for_members_that_a_gang_can_do_without_before_it_starts(limit: str) -> None:
    """Whether members are in flight, as pods are evicted for them, or wait until these are gone."""
    queues = f"queue both for pods where true{limit}\nqueue a of both for pods where pod.label.job min cpu 4\n"
    queues += "queue b of both for pods where not pod.label.job\n"

    async def tell(calm: Calm) -> None:
        for number in range(6):
            calm.pod(f"b{number}")
        await calm.after(5)
        calm.server.stuck.update(calm.on_nodes())
        gang(calm, "g", 2, members=3)
        await calm.after(20)
        calm.pod("g3", job="g", size="2")
        await calm.after(20)
        going = [name for name, pod in calm.server.pods.items() if "deletionTimestamp" in pod["metadata"]]
        assert len(going) == 2
        for name in calm.on_nodes():
            calm.server.release(name)
        await calm.after(30)
        assert [name for name in calm.on_nodes() if name.startswith("g")] == ["g0", "g1", "g2", "g3"]

    story(f"{GANG}{queues}reclaim\n", tell, cpus=(8,) if limit else (6,))


def test_observers_see_the_nominations_that_the_decision_about_a_gang_saw() -> None:
    """Also those of pods that lose their room to its members."""
    queues = "queue a for pods where pod.label.job min cpu 2\nqueue b for pods where not pod.label.job\n"
    seen = list[tuple[set[str], set[str]]]()

    class Looks(Observer):
        def on_decided(self, decided: Decided) -> None:
            made = [decided.decision, *decided.others]
            if decided.decision.pod.labels.get("job") and any(
                each.preemption and each.preemption.victims for each in made
            ):
                nominated = decided.frame.cluster.nominated.get("n0", {})
                seen.append(({pod.name for pod in nominated.values()}, {each.pod.name for each in made}))

    async def tell(calm: Calm) -> None:
        for number in range(4):
            calm.pod(f"b{number}")
            calm.server.stuck.add(f"b{number}")
        await calm.after(5)
        calm.pod("high", priority=5)
        await calm.after(5)
        calm.process.observers.add(Looks())
        gang(calm, "g", 2)
        await calm.after(5)
        assert seen[0] == ({"high"}, {"g0", "g1"})
        assert {pod.name for pod in calm.process.scheduler.cluster.nominated["n0"].values()} >= {"g0", "g1"}

    story(f"{GANG}{queues}reclaim\n", tell, cpus=(4,))


@pytest.mark.parametrize("comes_first", [True, False])
def test_a_gang_is_in_the_rack_that_its_nodes_are_in_now(comes_first: bool) -> None:
    async def tell(calm: Calm) -> None:
        calm.server.set_node("n0", cpu=1, labels={"rack": "r1"})
        calm.server.set_node("n1", cpu=1, labels={"rack": "r1"})
        await calm.after(1)
        gang(calm, "job", 2, members=3 if comes_first else 2)
        await calm.after(5)
        assert calm.on_nodes() == ["job0", "job1"]
        calm.server.set_node("n0", cpu=2, labels={"rack": "r2"})
        calm.server.set_node("n2", cpu=2, labels={"rack": "r1"})
        await calm.after(1)
        if not comes_first:
            calm.pod("job2", job="job", size="2")
        await calm.after(60)
        assert "job2" not in calm.on_nodes(), "its gang is in two racks"
        calm.server.set_node("n1", cpu=1, labels={"rack": "r2"})
        await calm.after(15)
        assert calm.server.pods["job2"]["spec"]["nodeName"] == "n0"

    story("gang by pod.label.job size 2 within one rack if pod.label.job\n", tell, cpus=())


@pytest.mark.parametrize(("cpu", "started"), [(4, ["a0", "a1", "a2", "a3"]), (3, [])])
@pytest.mark.parametrize("taken", [False, True])
def test_a_gang_starts_with_as_many_as_each_of_those_that_start_asks_for(
    cpu: int, started: list[str], taken: bool
) -> None:
    async def tell(calm: Calm) -> None:
        if taken:
            calm.pod("low", priority=-1, millis=1000 * cpu)
        await calm.after(5)
        calm.pod("a0", job="a", size="2", priority=5)
        for number in range(1, 4):
            calm.pod(f"a{number}", job="a", size="4")
        calm.restart()
        await calm.after(60)
        assert calm.on_nodes() == (started or ["low"] * taken)

    story(GANG, tell, cpus=(cpu,))
