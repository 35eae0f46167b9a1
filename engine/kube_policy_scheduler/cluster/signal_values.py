"""From series to values that no node has: one of the cluster, or one for each value of a label. Pure.

What is not certain is missing, as for nodes: several series where one is expected, series of one value that disagree,
numbers that are not finite.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.signals import PAIR, About, Query, Reading, SeriesColumns, Signals
from kube_policy_scheduler.wording import one_line, plural, some

MAX_VALUE = 1e100
"""A metric beyond is missing: nothing real is, and sums and products of a few metrics can then not overflow."""
_STEP = 4096
"""Series that are looked up between two steps."""
MAX_KEY_CHARACTERS = 1024
"""Of a value that is looked up. A label of a pod has at most 63 characters; a longer value matches nothing."""


class ValueTable(msgspec.Struct, frozen=True, eq=False):
    """One reading by key; a value of the cluster has the key "". Row i of each column is the same key."""

    reading: Reading
    rows: Mapping[str, int]
    values: NDArray[np.float64]
    """`float64[keys]`, read-only; NaN where missing."""
    sample_ages: NDArray[np.float64]
    """`float64[keys]`, read-only: seconds between the sample and its evaluation."""
    oldest_sample_age: float
    problems: tuple[str, ...]
    """What an operator should know about the answer, one sentence each."""
    of_value: Mapping[str, Sequence[tuple[str, int]]] = MappingProxyType({})
    """Of pairs: by value, the names of nodes with their rows."""

    def missing(self, *, usable_age: float) -> int:
        """Return how many keys have no value that is young enough.

        Args:
            usable_age: the oldest that a sample may be when it was evaluated, seconds.
        """
        return int(np.count_nonzero(np.isnan(self.values) | (self.sample_ages > usable_age)))


def _making(reading: Reading, query: Query) -> Generator[None, None, ValueTable]:
    """Make the table in steps."""
    series = SeriesColumns.of(reading.series)
    if query.about is About.CLUSTER:
        return _of_cluster(reading, series)
    labels = (query.by or "",) if query.value_label is None else (query.by or "", query.value_label)
    label = ", ".join(labels)
    if reading.scalar is not None:
        problem = f"the answer is one number, expected series with the label `{label}`"
        return _table(reading, {}, np.zeros(0), np.zeros(0), [problem])
    rows: dict[str, int] = {}
    row_of = np.full(len(series), -1, np.int64)
    of_value: dict[str, list[tuple[str, int]]] = {}
    for number, texts in enumerate(series.labels.values_of(labels)):
        if all(texts) and sum(map(len, texts)) <= MAX_KEY_CHARACTERS:
            row = row_of[number] = rows.setdefault(PAIR.join(texts), len(rows))
            if len(texts) > 1 and row == len(rows) - 1:
                of_value.setdefault(texts[1], []).append((texts[0], int(row)))
        if number % _STEP == _STEP - 1:
            yield
    placed = np.flatnonzero(row_of >= 0)
    at, given = row_of[placed], series.values[placed]
    first = np.zeros(len(rows), np.int64)
    first[at[::-1]] = np.arange(len(at))[::-1]
    values = given[first] if len(rows) else np.zeros(0)
    agrees = (given == values[at]) | (np.isnan(given) & np.isnan(values[at]))
    conflicting = np.unique(at[~agrees])
    ages = np.zeros(len(rows))
    np.maximum.at(ages, at, reading.evaluated_at - series.timestamps[placed])
    values = values.copy()
    values[conflicting] = np.nan
    odd = np.setdiff1d(np.flatnonzero(~np.isfinite(values)), conflicting)
    names = list(rows)
    problems = []
    if len(conflicting):
        problems.append(
            f"{some(sorted(names[row] for row in conflicting))}: several series with different values;"
            f" aggregate in the query, for example sum by ({label}) (…)"
        )
    unlabelled = len(series) - len(placed)
    if unlabelled:
        problems.append(f"{plural(unlabelled, 'series', 'series')} without the label `{label}`")
    if len(odd):
        problems.append(f"{some(sorted(names[row] for row in odd))}: the value is not a finite number")
    values[np.abs(values) > MAX_VALUE] = np.nan
    return msgspec.structs.replace(_table(reading, rows, values, ages, problems), of_value=of_value)


def value_table(reading: Reading, query: Query) -> ValueTable:
    """Return the values of a reading by key, to a query about the cluster or about values of a label."""
    steps = _making(reading, query)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            table: ValueTable = end.value
            return table


def _of_cluster(reading: Reading, series: SeriesColumns) -> ValueTable:
    problems = []
    value, age = np.nan, 0.0
    if reading.scalar is not None:
        value = reading.scalar
    elif len(series) == 1:
        value, age = float(series.values[0]), float(reading.evaluated_at - series.timestamps[0])
    elif len(series):
        shown = one_line(f"such as {series[0]}", 120)
        problems.append(
            f"{len(series):,} series ({shown}), expected one for the cluster: aggregate, for example sum(…)"
        )
    if (reading.scalar is not None or len(series) == 1) and not np.isfinite(value):
        problems.append("the value is not a finite number")
    value = value if abs(value) <= MAX_VALUE else np.nan
    return _table(reading, {"": 0}, np.array([value]), np.array([age]), problems)


def _table(
    reading: Reading,
    rows: Mapping[str, int],
    values: NDArray[np.float64],
    ages: NDArray[np.float64],
    problems: Sequence[str],
) -> ValueTable:
    values.flags.writeable = False
    ages.flags.writeable = False
    return ValueTable(reading, rows, values, ages, float(ages.max(initial=0.0)), tuple(problems))


class ValueTables:
    """Makes the table of each reading once, so that a decision pays for none."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, About, str | None, str | None], list[ValueTable]] = {}
        """Of the two newest readings, the newest first: one is in use while the other's is being made."""

    def table(self, query: Query, *, signals: Signals, now: float) -> ValueTable | None:
        """Return the values at `now` (Unix seconds); None without an answer, or if the answer is too old."""
        reading = signals.reading(query)
        if reading is None or reading.age_seconds(now) > query.stale_after_seconds:
            return None
        return self.of(query, reading, signals)

    def of(self, query: Query, reading: Reading, signals: Signals) -> ValueTable:
        """Return the values of a reading, however old."""
        found = self._made(query, reading)
        if found is None:
            found = value_table(reading, query)
            self._keep(query, found, signals)
        return found

    def making(self, query: Query, *, signals: Signals) -> Iterator[None]:
        """Make the table of a query's reading in steps; if nothing is left to do, no step."""
        reading = signals.reading(query)
        if reading is not None and self._made(query, reading) is None:
            yield
            self._keep(query, (yield from _making(reading, query)), signals)

    def keep_only(self, queries: Container[str]) -> None:
        """Drop the tables of other queries than these, by their PromQL."""
        self._tables = {key: tables for key, tables in self._tables.items() if key[0] in queries}

    def _made(self, query: Query, reading: Reading) -> ValueTable | None:
        return next((one for one in self._tables.get(_key(query), ()) if one.reading is reading), None)

    def _keep(self, query: Query, table: ValueTable, signals: Signals) -> None:
        for gone in [each for each in self._tables if each[0] not in signals.readings]:
            del self._tables[gone]
        self._tables[_key(query)] = [table, *self._tables.get(_key(query), ())][:2]


def _key(query: Query) -> tuple[str, About, str | None, str | None]:
    return query.promql, query.about, query.by, query.value_label
