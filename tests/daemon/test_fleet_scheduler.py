"""The loop that decides over clusters: what a decision that breaks does to the others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kube_policy_scheduler.daemon.fleet.engine import Engine, FleetDecision
from kube_policy_scheduler.daemon.fleet.fleet_scheduler import FleetScheduler
from kube_policy_scheduler.fleet.waiting import Position, Waiting, Wake
from kube_policy_scheduler.times import Steady

NOW = 1000.0


class Work:
    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key


class BreakingEngine:
    """Cannot decide some objects."""

    def __init__(self, *names: str, breaking: str, unordered: str = "") -> None:
        self.maker = self
        self.waiting: Waiting[tuple[str, str]] = Waiting(self.position)
        self.breaking, self.unordered = breaking, unordered
        self.carried_out: list[str] = []
        self.ended = asyncio.Event()
        for name in names:
            self.waiting.wake(("shop", name), Wake.OWN, Steady(NOW))

    def position(self, key: tuple[str, str], now: Steady) -> Position:
        if key[1] == self.unordered:
            raise ValueError(key)
        return Position()

    def next(self, now: Steady) -> Work | None:
        key = self.waiting.next(now)
        if key is None:
            self.ended.set()
            return None
        if key[1] == self.breaking:
            raise ValueError(key)
        return Work(key)

    async def carry_out(self, work: Work) -> FleetDecision | None:
        self.carried_out.append(work.key[1])
        return None


@pytest.mark.parametrize("how", [{"breaking": "bad"}, {"breaking": "", "unordered": "bad"}], ids=["decided", "ordered"])
def test_an_object_that_cannot_be_decided_keeps_no_other_from_being_decided(
    how: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> BreakingEngine:
        engine = BreakingEngine("bad", "web", **how)
        made = FleetScheduler(cast(Engine, engine), view=cast(Any, lambda: True), parallel_writes=1, steady=lambda: NOW)
        made.lead(True)
        task = asyncio.create_task(made.run())
        await asyncio.wait({task, asyncio.create_task(engine.ended.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        task.cancel()
        await made.drained()
        return engine

    engine = asyncio.run(run())
    assert engine.carried_out == ["web"]
    assert (engine.waiting.failing, engine.waiting.attempts(("shop", "bad"))) == (1, 1)
    assert engine.waiting.next(Steady(NOW + 0.5)) is None
    engine.unordered = ""
    assert engine.waiting.next(Steady(NOW + 2.0)) == ("shop", "bad"), "it is tried again after a pause"
    assert "unexpected error while deciding on shop/bad" in caplog.text


def test_what_breaks_without_an_object_ends_the_loop() -> None:
    async def run() -> None:
        engine = BreakingEngine("web", breaking="")
        made = FleetScheduler(cast(Engine, engine), view=cast(Any, lambda: True), parallel_writes=1, steady=lambda: NOW)
        made.lead(True)
        assert await engine.carry_out(cast(Any, engine.next(Steady(NOW)))) is None

        def broken(now: Steady) -> Work | None:
            raise RuntimeError("no object")

        engine.next = broken  # type: ignore[method-assign]
        await made.run()

    with pytest.raises(RuntimeError, match="no object"):
        asyncio.run(run())
