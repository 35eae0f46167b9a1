"""Memory stays flat while pods come and go; `python -m tests.faults.churn` goes on for 200,000 of them."""

from __future__ import annotations

import logging

import pytest

from tests.faults.churn import Churn, resident_mb, sizes
from tests.faults.conftest import Size

EMPTY_AT_THE_END = (
    "pods",
    "placed on",
    "pods on unknown nodes",
    "queue",
    "active heaps",
    "back-off heap",
    "held",
    "groups",
    "waiting for",
    "assumed",
    "returns",
    "foreign",
    "counted templates",
    "statuses",
)
BOUNDED = {
    "recent templates": 4096,
    "counters": 4096,
    "terms that came or went": 1024,
    "log": 2000,
    "log by pod": 2000,
    "gangs planned": 3000,
}
MOST_GROWTH_MB = 15.0


@pytest.mark.timeout(1800)
async def test_nothing_is_kept_of_pods_that_are_gone(size: Size[int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    pods = size(9_000, 200_000)
    churn = Churn()
    resident: list[float] = []

    def told(made: int) -> None:
        resident.append(resident_mb())
        print(f"{made:,} of {pods:,} pods came and went, {resident[-1]:.0f} MB", flush=True)

    await churn.run(pods, told=told, every=pods // 6 // 50 * 50)
    kept = sizes(churn)
    assert {name: kept[name] for name in EMPTY_AT_THE_END} == dict.fromkeys(EMPTY_AT_THE_END, 0)
    assert {name: kept[name] for name, most in BOUNDED.items() if kept[name] > most} == {}
    grown = resident[-1] - resident[len(resident) // 2]
    print(f"grew by {grown:.1f} MB over the second half; kept: {kept}")
    assert grown < MOST_GROWTH_MB
