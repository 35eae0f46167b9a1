"""Metrics as people write them in a test, to signals. Knows plain selectors of PromQL, no functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from engine.cluster.signals import Query, Reading, Series, Signals
from engine.documents.shape import parse_duration_seconds

RESERVED = ("series", "absent")
"""Keys of `metrics` that are no queries."""

_SELECTOR = re.compile(r"\s*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(?:\{(?P<matchers>.*)\})?\s*", re.DOTALL)
_MATCHER = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)"""
)


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name and matchers, as in `cpu_usage{job="node"}`."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series with these labels is selected."""
        if self.name and labels.get("__name__") != self.name:
            return False
        return all(_matches(labels.get(label, ""), operator, value) for label, operator, value in self.matchers)


def _matches(text: str, operator: str, value: str) -> bool:
    match operator:
        case "=":
            return text == value
        case "!=":
            return text != value
        case "=~":
            return re.fullmatch(value, text) is not None
        case _:
            return re.fullmatch(value, text) is None


def selector(text: str) -> Selector | None:
    """Return a plain selector, None where the text is anything else."""
    found = _SELECTOR.fullmatch(text)
    if found is None or not (found["name"] or found["matchers"]):
        return None
    matchers, at, inside = [], 0, (found["matchers"] or "").strip()
    while at < len(inside):
        matcher = _MATCHER.match(inside, at)
        if matcher is None:
            return None
        matchers.append((matcher["label"], matcher["operator"], re.sub(r"\\(.)", r"\1", matcher["value"])))
        at = matcher.end()
    return Selector(found["name"] or "", tuple(matchers))


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a test says about metrics: the file's part, with a case's laid over it."""

    answers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """By the query's text: one value for all nodes, or values by node."""
    series: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """By the series' text."""
    absent: frozenset[str] = frozenset()
    """Queries that have no answer."""

    def over(self, form: Mapping[str, Any]) -> Metrics:
        """Return these metrics with a form laid over them, query by query."""
        answers = {key: value for key, value in form.items() if key not in RESERVED}
        absent = frozenset(form.get("absent", ()))
        kept = {key: value for key, value in self.answers.items() if key not in absent}
        return Metrics(
            answers=kept | answers,
            series=dict(self.series) | form.get("series", {}),
            absent=(self.absent - answers.keys()) | absent,
        )

    def reading(self, query: Query, *, now: float) -> Reading | None:
        """Return the answer to a query, None where the test says nothing of it or says that there is none."""
        text = query.promql
        if text in self.absent:
            return None
        if text in self.answers:
            return _answer(query, self.answers[text], now=now)
        plain = selector(text)
        if plain is None:
            return None
        made = (_series(name, sample, now) for name, sample in self.series.items())
        found = tuple(series for series in made if plain.matches(series.labels))
        return Reading(text, found, evaluated_at=now, fetched_at=now) if found else None

    def signals(self, queries: Iterable[Query], *, now: float) -> Signals:
        """Return what the queries answer at `now`."""
        readings = (self.reading(query, now=now) for query in queries)
        return Signals.of(reading for reading in readings if reading is not None)


def _answer(query: Query, value: Any, *, now: float) -> Reading:
    text = query.promql
    if not isinstance(value, dict) or _is_sample(value):
        number, age = _sample(value)
        return Reading(text, (), evaluated_at=now - age, fetched_at=now - age, scalar=number)
    label = query.by or "node"
    samples = ((node, *_sample(sample)) for node, sample in value.items())
    series = tuple(Series({label: node}, number, now - age) for node, number, age in samples)
    return Reading(text, series, evaluated_at=now, fetched_at=now)


def _series(text: str, sample: Any, now: float) -> Series:
    number, age = _sample(sample)
    parsed = selector(text)
    labels = {} if parsed is None else {label: value for label, _, value in parsed.matchers}
    if parsed is not None and parsed.name:
        labels["__name__"] = parsed.name
    return Series(labels, number, now - age)


def is_series(text: str) -> bool:
    """Return whether a text names one series: a metric with labels and their values."""
    parsed = selector(text)
    return parsed is not None and bool(parsed.name) and all(operator == "=" for _, operator, _ in parsed.matchers)


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"value", "age"}


def _sample(value: Any) -> tuple[float, float]:
    """Return value and age in seconds."""
    if isinstance(value, dict):
        return float(value["value"]), parse_duration_seconds(value["age"])
    return float(value), 0.0
