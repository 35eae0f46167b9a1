"""Metrics that change in virtual time: recorded samples of queries, from CSV or from Prometheus' range queries.

A query has the answer of the newest time in its recording. A series is part of that answer until its own next sample is
due. So a value holds until the next sample; where the recording has a gap, the answer grows older, and a value counts
as missing after the time that its query allows, as in the scheduler.

Times are Unix seconds. Those below `RELATIVE_BELOW` are seconds from the beginning of the simulation.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NoReturn

import msgspec
import numpy as np
import promql_parser
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.signals import About, LabelSets, Query, Reading, SeriesColumns, Signals
from kube_policy_scheduler.diagnostics import Diagnostic, Source, Span, closest
from kube_policy_scheduler.documents.codes import NOT_METRICS
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.times import rfc3339, unix_seconds
from kube_policy_scheduler.tooling.tester.metrics import selector
from kube_policy_scheduler.wording import one_line

RELATIVE_BELOW = 1e8
"""Unix seconds of March 1973: no recording is that old."""
MOST_BYTES = 256 * 2**20
"""Of a file."""
MOST_SERIES = 200_000
"""Of a query."""
MOST_SAMPLES = 20_000_000
"""Of all queries."""
MOST_LAID = 2_000_000_000
"""Series times times of a query: each time has a value for each series, and takes about a nanosecond for it."""
_MAX_ERRORS = 20
_TIME = ("time", "timestamp")
_LAST_SECOND = 253_402_300_800.0  # the year 10000

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedQuery:
    """The samples of one query, in order of time."""

    promql: str
    labels: LabelSets
    at: FloatArray
    """`float64[samples]`"""
    series: IntArray
    """`int64[samples]`: which series each is of."""
    values: FloatArray
    """`float64[samples]`; NaN and infinite ones count as missing."""
    times: FloatArray
    """`float64[times]`: when there are samples."""
    interval: float
    """Between two times, as a rule; infinite for a single one, whose values hold for ever."""
    due: FloatArray
    """`float64[series]`: seconds after a sample of each until the next one is due."""
    is_scalar: bool
    """Whether it is one value for all nodes."""

    @classmethod
    def of(cls, query: Query, labels: Sequence[Mapping[str, str]], samples: Samples) -> RecordedQuery:
        """Return a recording of samples in any order."""
        at, series, values = samples
        order = np.lexsort((series, at))
        at, series, values = at[order], series[order], values[order]
        times = np.unique(at)
        gaps = _usual_gaps(at, series, len(labels))
        known = gaps[np.isfinite(gaps)]
        interval = float(np.median(known)) if len(known) else math.inf
        gaps[~np.isfinite(gaps)] = interval
        steps = np.diff(times)
        is_aligned = not len(steps) or float(steps.min()) >= interval / 2
        # times of scrapes differ a little from series to series, those of range queries do not
        due = gaps if is_aligned else 1.5 * gaps
        is_scalar = _is_scalar(query.promql) or (
            query.about is About.NODES and len(labels) == 1 and not labels[0] and samples.is_plain
        )
        return cls(query.promql, LabelSets.of(labels), at, series, values, times, interval, due, is_scalar)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples as columns."""

    at: FloatArray
    series: IntArray
    values: FloatArray
    is_plain: bool = False
    """Whether they come from a table without labels: a value is for all nodes then."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.at, self.series, self.values))


def _usual_gaps(at: FloatArray, series: IntArray, count: int) -> FloatArray:
    """Return `float64[series]`: the median of the seconds between samples; NaN where there is one sample."""
    order = np.lexsort((at, series))
    ordered, of = at[order], series[order]
    gaps, same = np.diff(ordered), of[1:] == of[:-1]
    gaps, owners = gaps[same], of[1:][same]
    order = np.lexsort((gaps, owners))
    gaps, owners = gaps[order], owners[order]
    result = np.full(count, np.nan)
    first = np.searchsorted(owners, np.arange(count))
    numbers = np.searchsorted(owners, np.arange(count), side="right") - first
    having = numbers > 0
    result[having] = gaps[first[having] + (numbers[having] - 1) // 2]
    return result


def syntax_problem(promql: str) -> str:
    """Return what is wrong with the text of a query, "" where it is PromQL."""
    try:
        promql_parser.parse(promql)
    except ValueError as error:
        return str(error)
    return ""


def _is_scalar(promql: str) -> bool:
    try:
        return _type_is_scalar(promql_parser.parse(promql))
    except ValueError:
        return False


def _type_is_scalar(tree: Any) -> bool:
    match tree:
        case promql_parser.NumberLiteral():
            return True
        case promql_parser.Call(func=function):
            return function.name in ("scalar", "time", "pi")
        case promql_parser.ParenExpr(expr=inner) | promql_parser.UnaryExpr(expr=inner):
            return _type_is_scalar(inner)
        case promql_parser.BinaryExpr(lhs=left, rhs=right):
            return _type_is_scalar(left) and _type_is_scalar(right)
        case _:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class MetricsOverTime:
    """What was recorded of the queries that policies read."""

    recorded: tuple[RecordedQuery, ...]

    @property
    def first(self) -> float:
        """Return when the first sample was taken."""
        return min((float(each.times[0]) for each in self.recorded), default=0.0)

    @property
    def last(self) -> float:
        """Return when the last sample was taken."""
        return max((float(each.times[-1]) for each in self.recorded), default=0.0)

    @property
    def is_relative(self) -> bool:
        """Return whether the times are seconds from the beginning."""
        return self.last < RELATIVE_BELOW

    def names(self) -> set[str]:
        """Return the queries that have samples."""
        return {each.promql for each in self.recorded}

    def beginning(self, at: float) -> MetricsOverTime:
        """Return the metrics with times that count from the beginning as Unix seconds; at: the beginning."""
        if not self.is_relative:
            return self
        moved = (replace(each, at=each.at + at, times=each.times + at) for each in self.recorded)
        return MetricsOverTime(tuple(moved))

    def only(self, queries: Iterable[Query]) -> MetricsOverTime:
        """Return the recordings of some queries."""
        wanted = {query.promql for query in queries}
        return MetricsOverTime(tuple(each for each in self.recorded if each.promql in wanted))

    def changes(self, queries: Iterable[Query]) -> list[float]:
        """Return when answers change, or become too old for a query, in order."""
        asked = {(query.promql, query.stale_after_seconds) for query in queries}
        found: set[float] = set()
        for each in self.recorded:
            times = each.times
            found.update(times.tolist())
            following = np.append(times[1:], math.inf)
            for promql, stale_after in asked if math.isfinite(each.interval) else ():
                ends = times + each.interval + stale_after + _JUST_AFTER
                found.update(ends[ends < following].tolist() if promql == each.promql else ())
        return sorted(found)


_JUST_AFTER = 1e-3


class Playback:
    """Plays recorded metrics: time goes forward only."""

    def __init__(self, metrics: MetricsOverTime, queries: Iterable[Query]) -> None:
        self._changes = metrics.changes(queries)
        self._tracks = [_Track(each) for each in metrics.recorded]
        self._place = 0

    def next_change(self) -> float | None:
        """Return when the metrics change next; None: never again."""
        return self._changes[self._place] if self._place < len(self._changes) else None

    def advance(self, now: float) -> Signals | None:
        """Go on to a time; return what queries answer from then on, None where that is what it was."""
        place = bisect_right(self._changes, now)
        if place == self._place:
            return None
        self._place = place
        readings = (track.advance(now) for track in self._tracks)
        return Signals.of(reading for reading in readings if reading is not None)


class _Track:
    """One query while it is played."""

    def __init__(self, recorded: RecordedQuery) -> None:
        self._of = recorded
        count = len(recorded.labels)
        self._values, self._sampled = np.full(count, np.nan), np.full(count, -math.inf)
        self._done = 0
        self._reading: Reading | None = None
        self._present: IntArray | None = None
        self._labels = recorded.labels

    def advance(self, now: float) -> Reading | None:
        of = self._of
        until = int(np.searchsorted(of.at, now, side="right"))
        if until == self._done:
            return self._reading
        new = slice(self._done, until)
        self._values[of.series[new]] = of.values[new]
        self._sampled[of.series[new]] = of.at[new]
        self._done = until
        at = float(of.at[until - 1])
        present = np.flatnonzero(at - self._sampled < of.due)
        if self._present is None or not np.array_equal(present, self._present):
            self._present = present
            self._labels = of.labels if len(present) == len(of.labels) else of.labels.take(present)
        fresh_until = at + of.interval if math.isfinite(of.interval) else at
        held_at = None if math.isfinite(of.interval) else at
        if of.is_scalar:
            value = float(self._values[present[0]]) if len(present) else math.nan
            self._reading = Reading(of.promql, (), at, fresh_until, scalar=value, held_at=held_at)
        else:
            columns = SeriesColumns(self._labels, self._values[present], self._sampled[present])
            self._reading = Reading(of.promql, columns, at, fresh_until, held_at=held_at)
        return self._reading


# --- files -----------------------------------------------------------------------------------------------


class _Builder:
    """Collects the samples of one query."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.places: dict[tuple[tuple[str, str], ...], int] = {}
        self.at: list[FloatArray] = []
        self.series: list[IntArray] = []
        self.values: list[FloatArray] = []
        self.is_plain = False

    def place(self, labels: Mapping[str, str]) -> int:
        return self.places.setdefault(tuple(sorted(labels.items())), len(self.places))

    def add(self, place: int, at: FloatArray, values: FloatArray) -> None:
        self.at.append(at)
        self.values.append(values)
        self.series.append(np.full(len(at), place, np.int64))

    def recorded(self) -> RecordedQuery | None:
        """Return the recording; None without a sample."""
        if not self.at or not sum(map(len, self.at)):
            return None
        samples = Samples(
            np.concatenate(self.at), np.concatenate(self.series), np.concatenate(self.values), self.is_plain
        )
        return RecordedQuery.of(self.query, [dict(labels) for labels in self.places], samples)


class TooMuchError(ValueError):
    """There are too many series or samples; it says how many are allowed."""


def _finished(builders: Iterable[_Builder]) -> MetricsOverTime:
    found = []
    for each in builders:
        recorded = each.recorded()
        if recorded is None:
            continue
        if len(recorded.labels) * len(recorded.times) > MOST_LAID:
            raise TooMuchError(
                f"{one_line(each.query.promql, 80)}: {len(recorded.labels):,} series with samples at"
                f" {len(recorded.times):,} different times: round the times, or aggregate the series"
            )
        found.append(recorded)
    return MetricsOverTime(tuple(found))


def is_table(name: str) -> bool:
    """Return whether a file of this name holds metrics as CSV."""
    return name.lower().endswith((".csv", ".csv.gz"))


def _fail(source: Source, line: int, message: str, *, advice: str = "") -> NoReturn:
    raise DocumentError([_problem(source, line, message, advice=advice)])


def _problem(source: Source, line: int, message: str, *, advice: str = "") -> Diagnostic:
    text = source.line(line) if source.text else ""
    start = sum(map(len, islice(io.StringIO(source.text, newline="\n"), line - 1)))
    return NOT_METRICS.at(Span(source, start, start + len(text)), message, help=advice)


def parse_table(source: Source, queries: Sequence[Query]) -> MetricsOverTime:
    """Return metrics from CSV: a column `time`, columns of labels, and a column of values for each query.

    A column is of values if its name is the text of a query, or the name of the metric that a plain query selects.

    Raises:
        DocumentError: it is no such table, or too large; up to 20 lines are reported.
    """
    if len(source.text) > MOST_BYTES:
        _fail(source, 1, f"the table is larger than {MOST_BYTES >> 20} MiB")
    reader = csv.reader(io.StringIO(source.text, newline="\n"), skipinitialspace=True, strict=True)
    problems: list[Diagnostic] = []
    head: _Head | None = None
    columns: dict[int, _Column] = {}
    samples = 0
    try:
        for cells in reader:
            line = reader.line_num
            if not any(cells):
                continue
            if head is None:
                head = _head(source, [cell.strip() for cell in cells], line, queries)
                columns = {place: _Column() for place in head.values}
                continue
            problem = head.read(cells, columns)
            if problem:
                problems.append(_problem(source, line, f"line {line}{problem}"))
                if len(problems) >= _MAX_ERRORS:
                    break
            samples += len(columns)
            if samples > MOST_SAMPLES:
                _fail(source, line, f"more than {MOST_SAMPLES:,} samples")
    except csv.Error as error:
        _fail(source, max(1, reader.line_num), f"line {reader.line_num}: not CSV: {error}")
    if problems:
        raise DocumentError(problems)
    if head is None:
        _fail(source, 1, "the table is empty; its first line names the columns: time, labels, and queries")
    builders = []
    for query, place, labelled in head.wanted(queries):
        builder = _Builder(query)
        columns[place].fill(builder, head.label_sets, labelled)
        builder.is_plain = not head.labels
        if len(builder.places) > MOST_SERIES:
            _fail(source, 1, f"column {head.names[place]}: more than {MOST_SERIES:,} series")
        builders.append(builder)
    try:
        return _finished(builders)
    except TooMuchError as error:
        _fail(source, 1, str(error))


class _Column:
    """The samples of one column of values."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.rows: list[int] = []
        self.values: list[float] = []

    def fill(
        self,
        builder: _Builder,
        label_sets: Mapping[tuple[str, ...], int],
        labelled: Callable[[tuple[str, ...]], dict[str, str] | None],
    ) -> None:
        places = np.full(len(label_sets), -1, np.int64)
        for key, row in label_sets.items():
            labels = labelled(key)
            if labels is not None:
                places[row] = builder.place(labels)
        rows = places[np.array(self.rows, np.int64)] if self.rows else np.zeros(0, np.int64)
        kept = rows >= 0
        builder.at.append(np.array(self.at, np.float64)[kept])
        builder.series.append(rows[kept])
        builder.values.append(np.array(self.values, np.float64)[kept])


@dataclass(slots=True)
class _Head:
    """What the columns of a table are."""

    names: list[str]
    time: int
    labels: list[int]
    values: list[int]
    label_sets: dict[tuple[str, ...], int]
    """The values of the label columns that were seen, numbered."""

    def read(self, cells: list[str], columns: Mapping[int, _Column]) -> str:
        """Take a line; return what is wrong with it, or ""."""
        if len(cells) != len(self.names):
            return f": expected {len(self.names)} columns as in the first line, found {len(cells)}"
        text = cells[self.time].strip()
        try:
            at = float(text)
        except ValueError:
            at = unix_seconds(text) or math.nan
        if not 0 <= at < _LAST_SECOND:
            milliseconds = at >= _LAST_SECOND and at / 1000 < _LAST_SECOND
            what = "these are milliseconds, expected seconds" if milliseconds else "expected RFC 3339 or Unix seconds"
            return f", column {self.names[self.time]}: {what}, found {one_line(repr(text), 40)}"
        key = tuple([cells[place].strip() for place in self.labels])
        row = self.label_sets.setdefault(key, len(self.label_sets))
        for place, column in columns.items():
            cell = cells[place]
            if not cell:
                continue
            try:
                value = float(cell)
            except ValueError:
                if not cell.strip():
                    continue
                found = one_line(repr(cell), 40)
                return f", column {one_line(self.names[place], 40)}: expected a number or nothing, found {found}"
            column.at.append(at)
            column.rows.append(row)
            column.values.append(value)
        return ""

    def wanted(
        self, queries: Sequence[Query]
    ) -> Iterator[tuple[Query, int, Callable[[tuple[str, ...]], dict[str, str] | None]]]:
        """Yield each query that has a column, with the column and what gives the labels of a line, None: not asked."""
        named = [self.names[place] for place in self.labels]
        for query in queries:
            place = _place_of(query, self.names, self.values)
            if place is None:
                continue
            plain = selector(query.promql) if self.names[place] != query.promql else None

            def labelled(
                key: tuple[str, ...], *, plain: Any = plain, name: str = self.names[place]
            ) -> dict[str, str] | None:
                labels = {label: text for label, text in zip(named, key, strict=True) if text}
                return labels if plain is None or plain.matches({**labels, "__name__": name}) else None

            yield query, place, labelled


def _place_of(query: Query, names: Sequence[str], places: Iterable[int]) -> int | None:
    plain = selector(query.promql)
    by_text = next((place for place in places if names[place] == query.promql), None)
    if by_text is not None or plain is None:
        return by_text
    return next((place for place in places if names[place] == plain.name), None)


def _head(source: Source, names: list[str], line: int, queries: Sequence[Query]) -> _Head:
    time = next((place for place, name in enumerate(names) if name.lower() in _TIME), None)
    if time is None:
        advice = "the first line names the columns: time, labels such as node, and a column for each query"
        _fail(source, line, f"line {line}: there is no column `time`", advice=advice)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        _fail(source, line, f"line {line}: the column {one_line(twice[0], 40)} appears {names.count(twice[0])} times")
    others = [place for place in range(len(names)) if place != time]
    values = sorted({place for query in queries if (place := _place_of(query, names, others)) is not None})
    if queries and not values:
        asked = [query.promql for query in queries]
        meant = next((found for name in names if (found := closest(name, asked))), None)
        wanted = one_line(", ".join(asked), 200)
        advice = f"did you mean `{meant}`?" if meant else "a column has the text of a query as its name"
        _fail(
            source,
            line,
            f"line {line}: no column is a query that the policies read; they read: {wanted}",
            advice=advice,
        )
    labels = [place for place in others if place not in values]
    return _Head(names, time, labels, values, {})


class _Series(msgspec.Struct, gc=False):
    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _ReadSeries(msgspec.Struct, gc=False):
    """The same, read already."""

    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct):
    data: _Data | None = None
    error: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESULT = msgspec.json.Decoder(list[_Series])
_VALUES = msgspec.json.Decoder(list[tuple[float, str]])


def is_range_answer(text: str) -> bool:
    """Return whether a text is an answer of a range query, or some by the text of their queries."""
    return text.lstrip()[:1] == "{" and '"resultType"' in text[:65536]


def parse_answers(source: Source, queries: Sequence[Query]) -> MetricsOverTime:
    """Return metrics from saved answers of `/api/v1/query_range`: one answer, or an object of answers by query.

    A single answer is to the query whose metric its series name, or to the only query that the policies read.

    Raises:
        DocumentError: it is something else, or too large.
    """
    if len(source.text) > MOST_BYTES:
        _fail(source, 1, f"the answer is larger than {MOST_BYTES >> 20} MiB")
    text = source.text.encode()
    try:
        top = _OBJECT.decode(text)
        answers = {"": _ANSWER.decode(text)} if "data" in top else {
            promql: _ANSWER.decode(raw) for promql, raw in top.items()
        }  # fmt: skip
    except (ValueError, RecursionError) as error:
        _fail(source, 1, f"not answers of Prometheus: {one_line(str(error), 200)}")
    builders: dict[str, _Builder] = {}
    left = MOST_SAMPLES
    try:
        for promql, answer in answers.items():
            asked = [query for query in queries if query.promql == promql] if promql else queries
            left = _read_answer(answer, asked, builders, is_named=bool(promql), left=left)
        return _finished(builders.values())
    except (TooMuchError, WrongAnswerError) as error:
        _fail(source, 1, str(error))


class WrongAnswerError(ValueError):
    """An answer is not one of a range query; the text says what it is."""


def _read_answer(
    answer: _Answer, asked: Sequence[Query], builders: dict[str, _Builder], *, is_named: bool, left: int
) -> int:
    """Add the samples of an answer to those of the queries that it answers; return how many may still come."""
    if answer.data is None:
        raise WrongAnswerError(f"the answer is an error: {one_line(answer.error or 'no data', 200)}")
    if answer.data.result_type != "matrix":
        kind = one_line(answer.data.result_type, 40)
        raise WrongAnswerError(
            f"the answer is a {kind}, expected a matrix: save what /api/v1/query_range answers, not /api/v1/query"
        )
    try:
        found = _RESULT.decode(answer.data.result)
    except (ValueError, RecursionError) as error:
        raise WrongAnswerError("the answer is not a valid matrix") from error
    return _read_series(found, asked, builders, is_named=is_named, left=left)


def _read_series(
    found: Sequence[_Series | _ReadSeries],
    asked: Sequence[Query],
    builders: dict[str, _Builder],
    *,
    is_named: bool,
    left: int,
) -> int:
    """Add the samples of series to those of the queries that they answer; return how many may still come."""
    if len(found) > MOST_SERIES:
        raise TooMuchError(f"more than {MOST_SERIES:,} series: aggregate, for example by (node)")
    for one in found:
        queries = asked if is_named else _answered(one.metric, asked)
        if not queries:
            continue
        try:
            values = _VALUES.decode(one.values) if isinstance(one, _Series) else one.values
            columns = np.array([(at, float(text)) for at, text in values], np.float64).reshape(-1, 2)
        except (ValueError, RecursionError) as error:
            raise WrongAnswerError("the answer is not a valid matrix: expected samples as [seconds, text]") from error
        if not ((columns[:, 0] >= 0) & (columns[:, 0] < _LAST_SECOND)).all():
            raise WrongAnswerError("the answer has a sample with a time that is not in Unix seconds")
        left -= len(columns)
        if left < 0:
            raise TooMuchError(f"more than {MOST_SAMPLES:,} samples")
        for query in queries:
            builder = builders.setdefault(query.promql, _Builder(query))
            builder.add(builder.place(one.metric), columns[:, 0], columns[:, 1])
    return left


def _answered(labels: Mapping[str, str], queries: Sequence[Query]) -> list[Query]:
    """Return the queries that a series of an answer without a query's text may answer."""
    if "__name__" in labels:
        plain = [(query, selector(query.promql)) for query in queries]
        found = [query for query, wanted in plain if wanted is not None and wanted.matches(labels)]
        if found:
            return found
    if len(queries) > 1:
        raise WrongAnswerError(
            f"the answer does not say which query it is for, and the policies read {len(queries)}:"
            ' write {"QUERY": ANSWER, ...}'
        )
    return list(queries)


def of_results(results: Iterable[tuple[Query, list[Any]]]) -> MetricsOverTime:
    """Return metrics from the results of range queries, of which one query may have several.

    Raises:
        WrongAnswerError: a result is not one of a range query.
        TooMuchError: there are too many series or samples.
    """
    builders: dict[str, _Builder] = {}
    left = MOST_SAMPLES
    for query, result in results:
        try:
            found = msgspec.convert(result, list[_ReadSeries])
        except msgspec.ValidationError as error:
            raise WrongAnswerError("the answer is not a valid matrix") from error
        left = _read_series(found, [query], builders, is_named=True, left=left)
    return _finished(builders.values())


def covers(metrics: MetricsOverTime, *, begins: float, ends: float) -> str:
    """Return what people should know where samples do not cover a simulation, "" where they do."""
    if not metrics.recorded:
        return ""
    if metrics.first > ends or metrics.last < begins:
        return (
            f"no metric has a sample in the time that is simulated: the samples are from {rfc3339(metrics.first)}"
            f" to {rfc3339(metrics.last)}, the pods arrive from {rfc3339(begins)} to {rfc3339(ends)}; specify --now"
        )
    return ""
