"""Readings are laid over the nodes between decisions, and published when they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from kube_policy_scheduler.adapters.process import spare_time
from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.cluster.signals import Query, Reading, Series, Signals
from kube_policy_scheduler.daemon.observing.signal_feed import ReadyReadings
from tests.patience import PATIENCE_SECONDS

STEPS = 5


class Nodes:
    """Joins each reading in some steps, as a large cluster does."""

    def __init__(self) -> None:
        self.joined: list[Reading] = []
        self.published: list[Signals] = []

    def joining(self, queries: Sequence[Query], signals: Signals) -> Iterator[None]:
        for query in queries:
            reading = signals.reading(query)
            if reading is not None and not any(reading is one for one in self.joined):
                yield from [None] * STEPS
                self.joined.append(reading)

    def use(self, signals: Signals) -> None:
        self.published.append(signals)

    def values(self) -> dict[str, float]:
        return {promql: reading.series[0].value for promql, reading in self.published[-1].readings.items()}


def reading(promql: str, value: float) -> Reading:
    return Reading(promql, (Series({"node": "a"}, value, 0.0),), 0.0, 0.0)


def ready(nodes: Nodes, *names: str) -> ReadyReadings:
    found = ReadyReadings(publish=nodes.use, joining=nodes.joining, loops=Loops())
    found.use([Query(name) for name in names])
    return found


async def until_joined(nodes: Nodes, count: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(nodes.joined) < count:  # noqa: ASYNC110 - what is waited for is one of many steps
            await asyncio.sleep(0)


async def test_a_reading_is_published_once_it_is_laid_over_the_nodes_and_the_one_before_until_then() -> None:
    nodes = Nodes()
    async with ready(nodes, "m", "n") as readings:
        readings.take(Signals.of([reading("m", 1.0)]))
        assert nodes.values() == {}
        await until_joined(nodes, 1)
        assert nodes.values() == {"m": 1.0}

        readings.take(Signals.of([reading("m", 2.0), reading("n", 3.0)]))
        assert nodes.values() == {"m": 1.0}
        await until_joined(nodes, 3)
        assert nodes.values() == {"m": 2.0, "n": 3.0}


async def test_what_was_joined_ahead_is_published_at_once() -> None:
    nodes = Nodes()
    async with ready(nodes) as readings:
        signals = Signals.of([reading("m", 1.0)])
        await readings.join([Query("m")], signals)
        readings.use([Query("m")])
        readings.take(signals)
        assert nodes.values() == {"m": 1.0}


async def test_a_clock_that_was_set_makes_no_reading_old() -> None:
    nodes = Nodes()
    async with ready(nodes, "m") as readings:
        first = reading("m", 1.0)
        await readings.join([Query("m")], Signals.of([first]))
        readings.take(Signals.of([first]))
        later = msgspec.structs.replace(first, fetched_at=3600.0)
        readings.take(Signals.of([later]))
        assert nodes.published[-1].readings["m"] is later


async def test_others_have_their_turns_while_readings_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    nodes = Nodes()
    monkeypatch.setattr(spare_time, "TURN_SECONDS", 0.0)
    running = asyncio.create_task(others())
    try:
        async with ready(nodes, "m") as readings:
            await readings.join([Query("m")], Signals.of([reading("m", 1.0)]))
    finally:
        running.cancel()
    assert turns >= STEPS
