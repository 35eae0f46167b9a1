"""Metrics as people write them in a test, to signals at a time: values, series as promtool has them, and outages."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec
import promql_parser

from kube_policy_scheduler.cluster.signals import Failure, Query, Reading, Series, Signals
from kube_policy_scheduler.patterns import Pattern, PatternError, label_pattern
from kube_policy_scheduler.times import parse_duration

LOOKBACK_SECONDS = 300.0
"""How far back Prometheus looks for the last sample of a series (`--query.lookback-delta`)."""
DEFAULT_INTERVAL_SECONDS = 60.0
"""As promtool's."""

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[iI]nf|[nN]a[nN]"
_ITEM = re.compile(rf"(?:(?P<first>{_NUMBER})(?P<step>[-+](?:{_NUMBER}))?|(?P<gap>_))(?:x(?P<times>[0-9]+))?")


class SeriesError(ValueError):
    """A text is not samples; it says what is wrong."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one series that are there, in order of time."""

    at_seconds: tuple[float, ...]
    """Since the clock's zero."""
    values: tuple[float, ...]
    stale_at_seconds: tuple[float, ...] = field(default=())
    """When the series ended, by its staleness marker."""

    def last(self, at_seconds: float) -> tuple[float, float] | None:
        """Return value and age of the sample that Prometheus finds at a time, None where it finds none."""
        count = bisect_right(self.at_seconds, at_seconds)
        if not count:
            return None
        sampled = self.at_seconds[count - 1]
        if at_seconds - sampled >= LOOKBACK_SECONDS:
            return None
        if any(sampled < stale <= at_seconds for stale in self.stale_at_seconds):
            return None
        return self.values[count - 1], at_seconds - sampled


def samples(text: str, *, interval_seconds: float) -> Samples:
    """Return samples from promtool's notation.

    `a` is one sample, `axN` N+1 of them, `a+bxN` N+1 that grow by b, `_` none, `_xN` N times none, `stale` ends.

    Raises:
        SeriesError: it is something else.
    """
    times: list[float] = []
    values: list[float] = []
    stale: list[float] = []
    index = 0
    for item in text.split():
        if item == "stale":
            stale.append(index * interval_seconds)
            index += 1
            continue
        found = _ITEM.fullmatch(item)
        if found is None:
            raise SeriesError(f"{item!r} is not a sample, expected such as 90, 90x10, 1+2x5, _ or _x8, stale")
        repeated = int(found["times"]) if found["times"] else 0
        if found["gap"]:
            index += repeated or 1
            continue
        first, step = float(found["first"]), float(found["step"] or 0)
        for number in range(repeated + 1):
            times.append(index * interval_seconds)
            values.append(first + number * step if step else first)
            index += 1
    return Samples(tuple(times), tuple(values), tuple(stale))


RESERVED = ("series", "absent", "interval", "outages")
"""Keys of `metrics` that are no queries."""
_UNANSWERED = ("timeout", "error")
_FAILURES = {"timeout": "no answer within the time limit", "error": "the server answered 503: service unavailable"}

_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


@dataclass(frozen=True, slots=True)
class Matcher:
    """What a selector asks of one label."""

    label: str
    operator: str
    value: str
    pattern: Pattern | None = None
    """The value as a regular expression, for `=~` and `!~`."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels has what is asked; a label that it lacks is empty."""
        text = labels.get(self.label, "")
        equal = text == self.value if self.pattern is None else self.pattern.fullmatch(text) is not None
        return equal == (self.operator in ("=", "=~"))


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name and matchers, as in `cpu_usage{job="node"}`."""

    name: str
    matchers: tuple[Matcher, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels is selected."""
        if self.name and labels.get("__name__") != self.name:
            return False
        return all(matcher.holds(labels) for matcher in self.matchers)


def _matcher(label: str, operator: str, value: str) -> Matcher:
    return Matcher(label, operator, value, label_pattern(value) if "~" in operator else None)


@lru_cache(maxsize=4096)
def selector(text: str) -> Selector | None:
    """Return a plain selector, None where the text is anything else, or Prometheus rejects it."""
    try:
        tree = promql_parser.parse(text)
    except ValueError:
        return None
    if not isinstance(tree, promql_parser.VectorSelector) or tree.offset is not None or tree.at is not None:
        return None
    if tree.matchers.or_matchers:
        return None
    try:
        matchers = tuple(_matcher(one.name, _OPERATORS[str(one.op)], one.value) for one in tree.matchers.matchers)
    except PatternError:
        return None
    return Selector(tree.name or "", matchers)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a query is not answered, or wrongly."""

    from_seconds: float
    """Since the clock's zero, as all times here."""
    to_seconds: float
    how: str | float
    """timeout, error, empty, nan, or the value that every series then has."""
    query: str | None
    """None: all queries."""

    def concerns(self, query: str, at_seconds: float) -> bool:
        """Return whether it is going on for a query at a time."""
        return self.query in (None, query) and self.from_seconds <= at_seconds < self.to_seconds


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a test says about metrics: the file's part, with a case's laid over it."""

    answers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """By the query's text: one value for all nodes, or values by node."""
    series: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """By the series' text."""
    absent: frozenset[str] = frozenset()
    """Queries that have no answer."""
    interval_seconds: float = DEFAULT_INTERVAL_SECONDS
    """Between two samples."""
    outages: tuple[Outage, ...] = ()

    def over(self, form: Mapping[str, Any]) -> Metrics:
        """Return these metrics with a form laid over them, query by query."""
        answers = {key: value for key, value in form.items() if key not in RESERVED}
        absent = frozenset(form.get("absent", ()))
        kept = {key: value for key, value in self.answers.items() if key not in absent}
        return Metrics(
            answers=kept | answers,
            series=dict(self.series) | form.get("series", {}),
            absent=(self.absent - answers.keys()) | absent,
            interval_seconds=parse_duration(form["interval"]) if "interval" in form else self.interval_seconds,
            outages=(*self.outages, *(_outage(one) for one in form.get("outages", ()))),
        )

    def says(self, query: Query) -> bool:
        """Return whether the test says anything of a query, be it that it has no answer."""
        text = query.promql
        if text in self.absent or text in self.answers:
            return True
        plain = selector(text)
        return plain is not None and any(plain.matches(series_labels(name)) for name in self.series)

    def reading(self, query: Query, *, now: float, start: float | None = None) -> Reading | None:
        """Return the answer to a query that the scheduler has at `now`, None where it has none.

        While the query is not answered, that is the last answer before: the scheduler asks as often as the query
        says, beginning at `start`.

        Args:
            query: what a policy reads.
            now: when it is read, unix seconds.
            start: the clock's zero; default: `now`.
        """
        start = now if start is None else start
        asked = now - start
        outage = self._unanswered(query, asked)
        while outage is not None:
            polls = -(-outage.from_seconds // query.every_seconds) - 1
            asked = polls * query.every_seconds
            if asked < 0.0:
                return None
            outage = self._unanswered(query, asked)
        return self._answered(query, asked, start)

    def signals(self, queries: Iterable[Query], *, now: float, start: float | None = None) -> Signals:
        """Return what the queries answer at `now`; arguments as for `reading`."""
        asked = tuple(queries)
        readings = (self.reading(query, now=now, start=start) for query in asked)
        failures = list(self._failures(asked, now, now if start is None else start))
        return Signals.of((reading for reading in readings if reading is not None), failures=failures)

    def _failures(self, queries: Iterable[Query], now: float, start: float) -> Iterator[Failure]:
        for query in queries:
            outage = self._unanswered(query, now - start)
            if outage is not None:
                attempts = int((now - start - outage.from_seconds) // query.every_seconds) + 1
                yield Failure(query.promql, _FAILURES[str(outage.how)], start + outage.from_seconds, attempts)

    def _unanswered(self, query: Query, at_seconds: float) -> Outage | None:
        going_on = (one for one in self.outages if one.how in _UNANSWERED and one.concerns(query.promql, at_seconds))
        return min(going_on, key=lambda outage: outage.from_seconds, default=None)

    def _answered(self, query: Query, at_seconds: float, start: float) -> Reading | None:
        text, now = query.promql, start + at_seconds
        if text in self.absent:
            return None
        if text in self.answers:
            made = self._answer(query, self.answers[text], at_seconds, now)
        else:
            plain = selector(text)
            labelled = [(series_labels(name), sample) for name, sample in self.series.items()]
            chosen = [(labels, sample) for labels, sample in labelled if plain is not None and plain.matches(labels)]
            if not chosen:
                return None
            found = ((labels, self._sample(sample, at_seconds)) for labels, sample in chosen)
            series = tuple(Series(labels, sample[0], now - sample[1]) for labels, sample in found if sample is not None)
            made = Reading(text, series, evaluated_at=now, fetched_at=now)
        return self._disturbed(made, at_seconds)

    def _answer(self, query: Query, value: Any, at_seconds: float, now: float) -> Reading:
        text = query.promql
        if not isinstance(value, dict) or _is_sample(value):
            sample = self._sample(value, at_seconds)
            if sample is None:
                return Reading(text, (), evaluated_at=now, fetched_at=now)
            number, age = sample
            return Reading(text, (), evaluated_at=now - age, fetched_at=now - age, scalar=number)
        samples = ((name, self._sample(sample, at_seconds)) for name, sample in value.items())
        series = tuple(
            Series(query.labels_of(name), found[0], now - found[1]) for name, found in samples if found is not None
        )
        return Reading(text, series, evaluated_at=now, fetched_at=now)

    def _sample(self, sample: Any, at_seconds: float) -> tuple[float, float] | None:
        """Return value and age in seconds."""
        if isinstance(sample, str):
            return _parsed(sample, self.interval_seconds).last(at_seconds)
        if isinstance(sample, dict):
            return float(sample["value"]), parse_duration(sample["age"])
        return float(sample), 0.0

    def _disturbed(self, reading: Reading, at_seconds: float) -> Reading:
        """Return what an outage makes of an answer."""
        for outage in self.outages:
            if outage.how in _UNANSWERED or not outage.concerns(reading.promql, at_seconds):
                continue
            if outage.how == "empty":
                return msgspec.structs.replace(reading, series=(), scalar=None)
            wrong = float(outage.how)
            series = tuple(msgspec.structs.replace(one, value=wrong) for one in reading.series)
            return msgspec.structs.replace(reading, series=series, scalar=None if reading.scalar is None else wrong)
        return reading


@lru_cache(maxsize=4096)
def _parsed(text: str, interval_seconds: float) -> Samples:
    return samples(text, interval_seconds=interval_seconds)


def _outage(form: Mapping[str, Any]) -> Outage:
    how = form.get("as", "timeout")
    end = parse_duration(form["to"]) if "to" in form else float("inf")
    return Outage(parse_duration(form["from"]), end, how, form.get("query"))


@lru_cache(maxsize=65536)
def series_labels(text: str) -> Mapping[str, str]:
    """Return the labels that a series' text names, its metric as `__name__`."""
    parsed = selector(text)
    labels = {} if parsed is None else {matcher.label: matcher.value for matcher in parsed.matchers}
    if parsed is not None and parsed.name:
        labels["__name__"] = parsed.name
    return labels


def is_series(text: str) -> bool:
    """Return whether a text names one series: a metric with labels and their values."""
    parsed = selector(text)
    return parsed is not None and bool(parsed.name) and all(one.operator == "=" for one in parsed.matchers)


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"value", "age"}
