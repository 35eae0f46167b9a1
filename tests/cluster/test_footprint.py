"""How many bytes kept things take: as many as Python gives them for columns, whatever classes they are in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from kube_policy_scheduler.cluster.footprint import Measured, Shared, footprint


class Part(Shared):
    __slots__ = ("column",)

    def __init__(self, size: int) -> None:
        self.column = np.zeros(size)


class Row(Measured, msgspec.Struct, frozen=True):
    name: str
    values: Any


class Whole(Measured):
    borrowed = frozenset({"lent"})

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


COLUMN = np.zeros(1_000)


def read_only() -> Any:
    column = np.zeros(1_000)
    column.flags.writeable = False
    return column


@pytest.mark.parametrize(
    ("thing", "taken"),
    [
        (COLUMN, 8_000),
        (COLUMN[:500], 0),
        (read_only(), 0),
        (np.broadcast_to(np.int64(3), (1_000,)), 0),
        (np.ones(1_000, np.bool_).nonzero()[0], 8_000),
        ("x" * 70, 70),
        (None, 0),
        (object(), 0),
        ([1] * 100, 864),
        ({number: number for number in range(100)}, 9_664),
        ({number: np.zeros(10) for number in range(100)}, 17_664),
        ((COLUMN, COLUMN), 8_080),
        (Row("ten digits", COLUMN), 8_010),
        ([Row("", np.zeros(10)) for _ in range(100)], 8_864),
        (set(range(100)), 64 + 48 * 100),
        (["ten digits"] * 100, 864 + 1_000),
        ({row: {row: 1.5, -row: 2.5} for row in range(1, 101)}, 64 + 100 * 96 + 100 * (64 + 2 * 96)),
        ([(1, 2, 3)] * 100, 64 + 100 * 8 + 100 * (64 + 3 * 8)),
        ([([COLUMN],)] + [()] * 99, 64 + 100 * 8 + 100 * 64 + 8 + 64 + 8 + 8_000),
        (Whole(column=COLUMN, same=COLUMN, lent=np.zeros(5)), 8_000),
        (Whole(of_another_class=Any, within=Whole(column=COLUMN)), 8_000),
    ],
)
def test_columns_and_items_count_once_where_they_are_kept(thing: object, taken: int) -> None:
    assert footprint(thing) == (taken, {})


def test_what_may_be_shared_is_named_with_its_own() -> None:
    inner = Part(10)
    outer = Part(100)
    outer.column = [inner, np.zeros(5)]  # type: ignore[assignment]

    taken, shared = footprint(Whole(parts=[outer, inner, outer]))

    assert (taken, shared) == (64 + 24, {outer: 64 + 8 * 2 + 8 * 5, inner: 80})
    assert footprint(inner) == (0, {inner: 80})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Whole(columns=[np.zeros(10_000) for _ in range(5)]),
        lambda: Whole(by_key={number: np.zeros(1_000, np.bool_) for number in range(50)}),
        lambda: [Row("x" * 10_000, np.zeros(100)) for _ in range(5)],
        lambda: {number * 1_000: float(number) for number in range(1, 5_000)},
    ],
)
def test_it_is_about_what_python_takes(make: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        thing = make()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert footprint(thing)[0] == pytest.approx(taken, rel=0.35)
