"""Samples over time: promtool's notation, and which of them Prometheus finds."""

from __future__ import annotations

import math

import pytest

from kube_policy_scheduler.cluster.signals import Query
from kube_policy_scheduler.tooling.tester.metrics import Metrics, Samples, SeriesError, samples


@pytest.mark.parametrize(
    ("text", "at", "values"),
    [
        ("5", (0,), (5,)),
        ("1 2 3", (0, 30, 60), (1, 2, 3)),
        ("90x2", (0, 30, 60), (90, 90, 90)),
        ("1+2x3", (0, 30, 60, 90), (1, 3, 5, 7)),
        ("10-2x2", (0, 30, 60), (10, 8, 6)),
        ("1+0.5x1", (0, 30), (1, 1.5)),
        ("-1-1x1", (0, 30), (-1, -2)),
        ("1 _ 3", (0, 60), (1, 3)),
        ("5x2 _x3 7", (0, 30, 60, 180), (5, 5, 5, 7)),
        ("1 stale 3", (0, 60), (1, 3)),
        ("1e3 .5 Inf", (0, 30, 60), (1000, 0.5, math.inf)),
        ("_", (), ()),
        ("1x0", (0,), (1,)),
    ],
)
def test_are_written_as_for_promtool(text: str, at: tuple[float, ...], values: tuple[float, ...]) -> None:
    found = samples(text, interval_seconds=30)
    assert (found.at_seconds, found.values) == (at, values)


@pytest.mark.parametrize("text", ["a", "1+", "x5", "1x-2", "1,2", "1 + 2", "1+2x3x4"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(SeriesError, match="is not a sample"):
        samples(text, interval_seconds=30)


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (-1, None),
        (0, (1, 0)),
        (59, (1, 59)),
        (60, (2, 0)),
        (359, (2, 299)),
        (360, None),  # five minutes back Prometheus looks no further
    ],
)
def test_the_last_sample_counts_for_five_minutes(at: float, found: tuple[float, float] | None) -> None:
    assert samples("1 2", interval_seconds=60).last(at) == found


def test_a_stale_marker_ends_a_series_at_once_until_it_comes_back() -> None:
    series = samples("1 stale _ 2", interval_seconds=60)
    assert [series.last(at) for at in (59, 60, 179, 180)] == [(1, 59), None, None, (2, 0)]
    assert isinstance(series, Samples)


@pytest.mark.parametrize(
    ("query", "selected"),
    [
        ('load{job=~"[[:alpha:]]+"}', ["a", "b"]),
        ('load{job=~"(a+)+b"}', []),
        ('load{job!~"(a+)+b"}', ["a", "b", "c"]),
        ('load{job=~"node"}', ["a"]),
        ('load{job=~"node.*"}', ["a", "b"]),
        ('load{job!~"node.*"}', ["c"]),
        ('load{rack=~"|r1"}', ["a", "b", "c"]),  # a label that is not there is empty
        ('load{job=~"x{1001}"}', []),  # Prometheus refuses it
    ],
)
def test_matchers_select_as_in_prometheus(query: str, selected: list[str]) -> None:
    jobs = {"a": "node", "b": "nodes", "c": "a" * 50 + "1"}
    metrics = Metrics().over({"series": {f'load{{node="{node}", job="{job}"}}': 1 for node, job in jobs.items()}})
    asked = Query(query)
    reading = metrics.reading(asked, now=0.0)
    found = [dict(one.labels)["node"] for one in reading.series] if reading else []
    assert (metrics.says(asked), found) == (bool(selected), selected)


class TestOutages:
    """The scheduler queries every 15 seconds, from zero on; without a response it keeps the last one."""

    QUERY = Query("load", every_seconds=15.0)
    METRICS = Metrics().over(
        {
            "interval": "10s",
            "load": {"a": "0+1x100"},
            "outages": [{"from": "40s", "to": "90s"}, {"from": "200s", "to": "230s", "as": "empty"}],
        }
    )

    @pytest.mark.parametrize(
        ("at", "value", "age"),
        [(39, 3, 0), (40, 3, 10), (89, 3, 59), (90, 9, 0), (199, 19, 0), (230, 23, 0)],
    )
    def test_leave_the_last_answer(self, at: float, value: float, age: float) -> None:
        reading = self.METRICS.reading(self.QUERY, now=1000.0 + at, start=1000.0)
        assert reading is not None
        assert [series.value for series in reading.series] == [value]
        assert reading.age_seconds(1000.0 + at) == age

    def test_may_be_answers_without_series(self) -> None:
        reading = self.METRICS.reading(self.QUERY, now=1210.0, start=1000.0)
        assert reading is not None
        assert reading.series == ()

    def test_are_failures(self) -> None:
        signals = self.METRICS.signals([self.QUERY], now=1070.0, start=1000.0)
        failure = signals.failures["load"]
        assert (failure.text, failure.since, failure.attempts) == ("no answer within the time limit", 1040.0, 3)

    def test_from_the_beginning_leave_nothing(self) -> None:
        metrics = self.METRICS.over({"outages": [{"from": "0s", "to": "30s"}]})
        assert metrics.reading(self.QUERY, now=1010.0, start=1000.0) is None

    def test_that_follow_each_other_are_one(self) -> None:
        metrics = self.METRICS.over({"outages": [{"from": "20s", "to": "40s"}]})
        reading = metrics.reading(self.QUERY, now=1050.0, start=1000.0)
        assert reading is not None
        assert reading.fetched_at == 1015.0
