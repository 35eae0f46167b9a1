"""Answers that are not about nodes: what the cluster, or a value of a label, is found to have."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.signal_values import MAX_KEY_CHARACTERS, ValueTable, ValueTables, value_table
from kube_policy_scheduler.cluster.signals import About, Query, Reading, Series, Signals

NOW = 1_000.0
PRICE = Query("price", about=About.CLUSTER)
BUDGET = Query("budget", by="tenant", about=About.VALUES)
Given = tuple[Mapping[str, str], float]


def vector(*series: Given, promql: str = "budget", age: float = 0.0) -> Reading:
    return Reading(promql, tuple(Series(labels, value, NOW - age) for labels, value in series), NOW, NOW)


def values(table: ValueTable) -> dict[str, float | None]:
    found = {name: float(table.values[row]) for name, row in table.rows.items()}
    return {name: None if math.isnan(value) else value for name, value in found.items()}


@pytest.mark.parametrize(
    ("reading", "value", "problem"),
    [
        (Reading("price", (), NOW, NOW, scalar=30.0), 30.0, ""),
        (vector(({"region": "eu"}, 40.0)), 40.0, ""),
        (vector(), None, ""),
        (vector(({"a": "1"}, 40.0), ({"a": "2"}, 41.0)), None, "2 series"),
        (vector(({"a": "1"}, 40.0), ({"a": "2"}, 40.0)), None, "2 series"),
        (vector(({}, math.inf)), None, "not a finite number"),
        (vector(({}, 1e200)), None, ""),
    ],
    ids=["scalar", "one", "none", "two", "two that agree", "infinite", "too large to be real"],
)
def test_the_cluster_has_a_value_where_there_is_one_series(reading: Reading, value: float | None, problem: str) -> None:
    table = value_table(reading, PRICE)

    assert values(table) == {"": value}
    assert bool(table.problems) == bool(problem)
    assert problem in " ".join(table.problems)


@pytest.mark.parametrize(
    ("reading", "found", "problem"),
    [
        (vector(({"tenant": "red"}, 1.0), ({"tenant": "blue"}, 2.0)), {"red": 1.0, "blue": 2.0}, ""),
        (vector(({"tenant": "red", "x": "1"}, 1.0), ({"tenant": "red", "x": "2"}, 1.0)), {"red": 1.0}, ""),
        (vector(({"tenant": "red", "x": "1"}, 1.0), ({"tenant": "red", "x": "2"}, 3.0)), {"red": None}, "red: several"),
        (vector(({"tenant": "red"}, math.nan)), {"red": None}, "not a finite number"),
        (vector(({"node": "a"}, 1.0)), {}, "1 series without the label `tenant`"),
        (vector(({"tenant": "x" * (MAX_KEY_CHARACTERS + 1)}, 1.0)), {}, "without the label"),
        (Reading("budget", (), NOW, NOW, scalar=3.0), {}, "one number"),
        (vector(), {}, ""),
    ],
    ids=["each", "twice alike", "twice different", "nan", "other label", "too long", "scalar", "none"],
)
def test_each_value_of_the_label_has_the_value_of_its_series(
    reading: Reading, found: dict[str, float | None], problem: str
) -> None:
    table = value_table(reading, BUDGET)

    assert values(table) == found
    assert bool(table.problems) == bool(problem)
    assert problem in " ".join(table.problems)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1.0, 2.0, math.nan])), max_size=8))
def test_a_table_says_what_a_dictionary_would(series: list[tuple[str, float]]) -> None:
    table = value_table(vector(*(({"tenant": name}, value) for name, value in series)), BUDGET)

    said: dict[str, set[float | None]] = {}
    for name, value in series:
        said.setdefault(name, set()).add(None if math.isnan(value) else value)
    assert values(table) == {name: next(iter(all_)) if len(all_) == 1 else None for name, all_ in said.items()}


def test_samples_older_than_the_query_allows_are_missing() -> None:
    table = value_table(vector(({"tenant": "red"}, 1.0), age=100.0), BUDGET)

    assert table.missing(usable_age=120.0) == 0
    assert table.missing(usable_age=99.0) == 1


def test_a_table_is_made_once_for_each_reading_and_goes_with_its_query() -> None:
    tables, first = ValueTables(), Signals.of([vector(({"tenant": "red"}, 1.0))])

    made = tables.table(BUDGET, signals=first, now=NOW)
    again = tables.table(BUDGET, signals=first, now=NOW + 10)
    newer = tables.table(BUDGET, signals=Signals.of([vector(({"tenant": "red"}, 2.0))]), now=NOW)

    assert made is again
    assert newer is not None
    assert values(newer) == {"red": 2.0}
    assert tables.table(BUDGET, signals=first, now=NOW + 121) is None
    assert tables.table(PRICE, signals=first, now=NOW) is None


def test_columns_cannot_be_written() -> None:
    table = value_table(vector(({"tenant": "red"}, 1.0)), BUDGET)

    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = np.nan
