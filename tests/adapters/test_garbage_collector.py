"""The garbage collector looks only once at what takes it long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from kube_policy_scheduler.adapters.process.garbage_collector import LONG_SECONDS, short_collections


@pytest.mark.parametrize(
    ("generation", "seconds", "frozen"),
    [(2, 2 * LONG_SECONDS, 1), (2, LONG_SECONDS / 2, 0), (1, 2 * LONG_SECONDS, 0)],
    ids=["long", "short", "of young objects"],
)
def test_what_a_long_collection_left_is_frozen(generation: int, seconds: float, frozen: int) -> None:
    times: Iterator[float] = iter([10.0, 10.0 + seconds])
    freezes = list[None]()
    with short_collections(stopwatch=lambda: next(times), freeze=lambda: freezes.append(None)):
        gc.collect(generation)
    gc.collect()

    assert len(freezes) == frozen


def test_what_is_in_use_for_a_short_time_is_seldom_looked_at() -> None:
    collections = list[int]()

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            collections.append(info["generation"])

    gc.collect()
    gc.callbacks.append(collected)
    try:
        with short_collections():
            for _ in range(100):
                in_flight = [[] for _ in range(1_000)]
                del in_flight
    finally:
        gc.callbacks.remove(collected)
    assert collections == []


def test_a_collector_that_goes_through_old_objects_bit_by_bit_does_so_as_fast_as_python_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[int, ...]]()
    monkeypatch.setattr(gc, "get_threshold", lambda: (2_000, 10, 0))
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: asked.append(numbers))
    with short_collections():
        pass
    assert [numbers[1:] for numbers in asked] == [(10, 0), (10, 0)]
    assert asked[-1] == (2_000, 10, 0)


def test_few_new_objects_are_looked_at_by_one_full_collection() -> None:
    looked_at = list[int]()

    def collected(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"]) == ("start", 2):
            looked_at.append(len(gc.get_objects()))

    others, kept = gc.get_threshold(), list[Any]()
    gc.set_threshold(700, 10, 10)  # Python's own: a command that was run in this process has set others
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.collect()  # Python waits with full collections until a quarter is new of what the last one has left
    gc.callbacks.append(collected)
    try:
        with short_collections(stopwatch=iter(range(10_000)).__next__):  # each takes long
            kept += ([] for _ in range(300_000))
    finally:
        gc.callbacks.remove(collected)
        after = gc.get_threshold()
        gc.set_threshold(*others)
    assert len(looked_at) > 4
    assert max(looked_at[1:]) < 50_000, "after the first, which looks at what was young before"
    assert after == before
