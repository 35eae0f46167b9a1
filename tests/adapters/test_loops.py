"""The endless loops of a process: one that breaks ends it with the reason, or begins again and is counted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from kube_policy_scheduler.adapters.process.loops import Loops
from tests.simulation.virtual_time import run


def story(tell: Callable[[Loops], Awaitable[None]]) -> None:
    async def main() -> None:
        loops = Loops()
        await tell(loops)
        await loops.end(*loops)

    run(main())


async def breaks() -> None:
    raise ZeroDivisionError("a fault")


def test_a_loop_that_breaks_begins_again_after_growing_pauses_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    began: list[float] = []

    async def broken() -> None:
        began.append(asyncio.get_running_loop().time())
        if len(began) < 8:
            raise ZeroDivisionError("a fault")
        await asyncio.Event().wait()

    async def tell(loops: Loops) -> None:
        loop = loops.start("signals", broken, restarts=True)
        await asyncio.sleep(0.1)
        assert "ZeroDivisionError('a fault')" in loop.problem
        await asyncio.sleep(300.0)
        assert (loop.breaks, loop.problem, loops.reason) == (7, "", "")
        pauses = [late - early for early, late in itertools.pairwise(began)]
        assert 0.5 <= pauses[0] <= 1.0
        assert 30.0 <= pauses[-1] <= 60.0

    story(tell)
    assert "unexpected error in loop signals" in caplog.text
    assert "restarting in " in caplog.text


def test_after_it_has_run_for_long_its_pauses_are_short_again() -> None:
    began: list[float] = []

    async def broken() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(100.0 if len(began) >= 7 else 0.0)
        raise ZeroDivisionError("a fault")

    async def tell(loops: Loops) -> None:
        loops.start("signals", broken, restarts=True)
        await asyncio.sleep(1000.0)
        assert 100.5 <= began[7] - began[6] <= 101.0

    story(tell)


@pytest.mark.parametrize("how", ["breaks", "ends", "ends with a reason"])
def test_a_loop_that_must_not_end_ends_the_process_with_its_reason(how: str) -> None:
    async def ends() -> str | None:
        if how == "breaks":
            await breaks()
        return "the lease was lost" if how == "ends with a reason" else None

    async def tell(loops: Loops) -> None:
        loops.start("other", asyncio.Event().wait, restarts=True)
        loops.start("broken", breaks, restarts=True)
        loop = loops.start("lease", ends, restarts=False)
        async with asyncio.timeout(1.0):
            assert await loops.lost() == loop.problem == loops.reason
        assert (
            loop.problem
            == {
                "breaks": "unexpected error in loop lease: ZeroDivisionError('a fault')",
                "ends": "loop lease has ended",
                "ends with a reason": "the lease was lost",
            }[how]
        )

    story(tell)


def test_it_is_known_when_a_loop_last_had_a_turn() -> None:
    touched = asyncio.Event()

    async def works() -> None:
        await asyncio.sleep(5.0)
        await touched.wait()
        async with asyncio.timeout(3.0):
            await asyncio.Event().wait()

    async def tell(loops: Loops) -> None:
        loop = loops.start("works", works, restarts=False)
        await asyncio.sleep(4.0)
        assert loop.idle_seconds == pytest.approx(4.0)
        await asyncio.sleep(3.0)
        assert loop.idle_seconds == pytest.approx(2.0)
        touched.set()
        await asyncio.sleep(1.0)
        assert loop.idle_seconds == pytest.approx(1.0)
        assert await loops.lost() == "unexpected error in loop works: TimeoutError()"
        assert loop.idle_seconds == pytest.approx(0.0)

    story(tell)


def test_a_loop_that_is_ended_cleans_up_and_ends_nothing_else() -> None:
    said: list[str] = []

    async def works() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2.0)
            said.append("cleaned up")

    async def tell(loops: Loops) -> None:
        first, second = (loops.start(name, works, restarts=name == "one") for name in ("one", "two"))
        await asyncio.sleep(1.0)
        await loops.end(first)
        assert said == ["cleaned up"]
        assert list(loops) == [second]
        await loops.end(second)
        await asyncio.sleep(100.0)
        assert said == ["cleaned up"] * 2
        assert loops.reason == ""

    story(tell)
