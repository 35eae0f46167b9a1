"""Long turns of the event loop: measured, named, counted once, and said while they go on."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from kube_policy_scheduler.adapters.process.turn_watch import (
    JOIN_SECONDS,
    RECENT_SECONDS,
    SAID_SECONDS,
    LongTurn,
    TurnWatch,
)


@pytest.mark.parametrize("joins", [False, True])
def test_a_loop_with_other_work_looks_for_what_has_come_once_in_the_time_for_which_turns_are_joined(
    joins: bool,
) -> None:
    machine = Machine()
    watch = machine.watch()
    step = JOIN_SECONDS / 4 * 1.01
    here, there = socket.socketpair()
    seen_at = list[int]()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            here.recv(1)
            seen_at.append(round(machine.passed / step))

        loop.add_reader(here, read)
        for _ in range(20):
            there.send(b"x")
            machine.work(step)
            await asyncio.sleep(0)
        loop.remove_reader(here)

    watch.joins = lambda: joins
    try:
        with asyncio.Runner(loop_factory=watch.new_loop) as runner:
            runner.run(main())
    finally:
        here.close()
        there.close()

    assert {later - earlier for earlier, later in pairwise(seen_at)} == {4 if joins else 1}


class Machine:
    """CPU time and time of day that a test spends."""

    def __init__(self) -> None:
        self.cpu = self.passed = 0.0

    def work(self, seconds: float) -> None:
        self.cpu += seconds
        self.passed += seconds

    def watch(self) -> TurnWatch[object]:
        watch: TurnWatch[object] = TurnWatch(cpu=lambda: self.cpu, steady=lambda: self.passed)
        watch.arm()
        return watch


def run(watch: TurnWatch[object], main: Callable[[], Awaitable[None]]) -> list[LongTurn[object]]:
    """Run a coroutine on a loop that is watched; return the turns that were long."""
    found: list[LongTurn[object]] = []
    watch.on_long = found.append

    async def awaited() -> None:
        await main()

    with asyncio.Runner(loop_factory=watch.new_loop) as runner:
        runner.run(awaited())
    return found


def test_a_long_turn_is_reported_with_the_step_that_took_longest() -> None:
    machine = Machine()
    watch = machine.watch()

    async def main() -> None:
        for name, seconds in (("a", 0.01), ("evil", 0.3), ("b", 0.02)):
            watch.begin("deciding", name, name)
            machine.work(seconds)
            watch.end()
        await asyncio.sleep(0)
        machine.work(0.05)

    (turn,) = run(watch, main)

    assert (turn.step, turn.name, turn.thing) == ("deciding", "evil", "evil")
    assert turn.seconds == pytest.approx(0.33)
    assert turn.step_seconds == pytest.approx(0.3)


def test_turns_below_the_limit_are_not_added_up() -> None:
    machine = Machine()

    async def main() -> None:
        for _ in range(20):
            machine.work(0.09)
            await asyncio.sleep(0)

    assert run(machine.watch(), main) == []


def test_time_in_which_others_have_the_processor_is_nobodys_fault() -> None:
    machine = Machine()

    async def main() -> None:
        machine.passed += 5.0

    assert run(machine.watch(), main) == []


def test_before_it_is_armed_nothing_is_reported() -> None:
    machine = Machine()
    watch: TurnWatch[object] = TurnWatch(cpu=lambda: machine.cpu, steady=lambda: machine.passed)

    async def main() -> None:
        watch.begin("deciding", "a", "a")
        machine.work(3.0)
        watch.end()

    assert run(watch, main) == []


def test_each_is_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    watch = machine.watch()

    async def main() -> None:
        for _ in range(100):
            machine.work(0.2)
            await asyncio.sleep(0)

    turns = run(watch, main)

    assert len(turns) == 100
    assert len(caplog.records) == int(100 * 0.2 / SAID_SECONDS)


def test_the_longest_of_the_last_minutes_is_known() -> None:
    machine = Machine()
    watch = machine.watch()
    seen: list[float] = []

    async def main() -> None:
        for seconds in (0.2, 0.7, 0.3):
            machine.work(seconds)
            await asyncio.sleep(0)
            seen.append(watch.longest_seconds())
        machine.passed += RECENT_SECONDS + 0.1
        seen.append(watch.longest_seconds())
        assert watch.recent() == ""

    run(watch, main)

    assert seen == pytest.approx([0.2, 0.7, 0.7, 0.0])


def test_a_turn_that_does_not_end_is_said_once_with_the_pod_and_the_function(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    watch = machine.watch()

    def look_twice() -> None:
        watch.look()
        machine.passed += 2.0
        watch.look()
        watch.look()

    def a_search_without_an_end() -> None:
        looking = threading.Thread(target=look_twice)  # as the thread of the watch does
        looking.start()
        looking.join()

    async def main() -> None:
        watch.begin("deciding", "team-a/evil", "evil")
        a_search_without_an_end()
        watch.end()

    run(watch, main)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert (record.__dict__["step"], record.__dict__["pod"]) == ("deciding", "team-a/evil")
    assert record.__dict__["seconds"] == 2.0
    assert "a_search_without_an_end (test_turn_watch.py:" in record.__dict__["where"]


def test_a_loop_that_waits_does_not_hang(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    watch = machine.watch()
    watch.begin_turn()
    watch.end_turn()
    machine.passed += 100.0
    watch.look()

    assert caplog.records == []


def test_the_thread_looks_by_itself_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    with TurnWatch[object]() as watch:
        assert any(thread.name == "turn-watch" for thread in threading.enumerate())
        watch.arm()
    assert not any(thread.name == "turn-watch" for thread in threading.enumerate())


def test_a_report_that_fails_ends_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    watch = machine.watch()

    def fails(turn: LongTurn[object]) -> None:
        raise RuntimeError("oops")

    async def main() -> None:
        watch.on_long = fails
        machine.work(1.0)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=watch.new_loop) as runner:
        runner.run(main())

    assert "unexpected error in a report" in caplog.text


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("timer_seconds", [None, JOIN_SECONDS / 2, 10.0])
def test_what_comes_soon_after_is_handled_in_the_same_turn_where_turns_are_joined(
    joins: bool, timer_seconds: float | None
) -> None:
    """A loop that has a timer to mind soon waits for nothing else."""
    paused = list[float]()

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        there[1].send(b"x")

    watch: TurnWatch[object] = TurnWatch(sleep=sleep)
    turns = list[str]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        both = asyncio.Event()

        def read(name: str) -> None:
            here[name == "second"].recv(1)
            turns.append(name)
            loop.call_soon(turns.append, "later turn")
            if name == "first" and not paused:
                there[1].send(b"x")
            if name == "second":
                both.set()

        for name, end in zip(("first", "second"), here, strict=True):
            loop.add_reader(end, read, name)
        await asyncio.sleep(0)
        if timer_seconds is not None:
            loop.call_later(timer_seconds, lambda: None)
        there[0].send(b"x")
        watch.joins = lambda: joins
        await both.wait()
        watch.joins = lambda: False
        for end in here:
            loop.remove_reader(end)

    pairs = [socket.socketpair() for _ in range(2)]
    here, there = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    try:
        with asyncio.Runner(loop_factory=watch.new_loop) as runner:
            runner.run(main())
    finally:
        for pair in pairs:
            for end in pair:
                end.close()

    is_joined = joins and timer_seconds != JOIN_SECONDS / 2
    assert paused == ([JOIN_SECONDS] if is_joined else [])
    together = turns[:2]
    assert sorted(together) == (["first", "second"] if is_joined else ["first", "later turn"])
