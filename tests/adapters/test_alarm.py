"""Who waits for an event is woken at a time, too; timers do not pile up in the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube_policy_scheduler.adapters.process.alarm import Alarm
from tests.simulation.virtual_time import run


def test_who_waits_is_woken_at_the_time_or_when_the_event_is_set() -> None:
    async def main() -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        alarm = Alarm(event)
        await alarm.wait(loop.time() + 5.0)
        assert (loop.time(), event.is_set()) == (5.0, True)
        event.clear()
        loop.call_later(1.0, event.set)
        await alarm.wait(loop.time() + 5.0)
        assert loop.time() == 6.0

    run(main())


def test_a_later_time_makes_no_timer_and_an_earlier_one_takes_the_place_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        loop, event, made = asyncio.get_running_loop(), asyncio.Event(), []
        alarm, call_at = Alarm(event), loop.call_at

        def note(when: float, *args: Any) -> asyncio.TimerHandle:
            made.append(when)
            return call_at(when, *args)

        monkeypatch.setattr(loop, "call_at", note)
        for until in (5.0, 5.0, 6.0, 2.0, 3.0):
            event.clear()
            loop.call_soon(event.set)
            await alarm.wait(until)
        assert made == [5.0, 2.0]
        event.clear()
        await alarm.wait(None)
        assert loop.time() == 2.0  # the timer that was kept

    run(main())


def test_without_a_time_only_the_event_wakes() -> None:
    async def main() -> None:
        event = asyncio.Event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60.0):
                await Alarm(event).wait(None)

    run(main())
