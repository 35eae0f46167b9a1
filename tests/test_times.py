"""Times as the API writes them, and durations as files, people and kubectl write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.times import (
    duration_text,
    human_duration,
    parse_duration,
    parse_rfc3339,
    rfc3339,
    short_duration,
    unix_seconds,
)


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 28), timezones=st.just(UTC)))
def test_a_time_comes_back_as_it_was_written(at: datetime) -> None:
    assert parse_rfc3339(rfc3339(at, "microseconds")) == at
    assert parse_rfc3339(rfc3339(at)) == at.replace(microsecond=0)


@given(
    st.floats(-1e9, 2.5e11) | st.integers(0, 10**16).map(lambda micros: micros / 1e6) | st.integers(0, 2**33),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
)
def test_unix_seconds_are_written_as_the_moment_that_they_are(
    at: float, digits: Literal["seconds", "milliseconds", "microseconds"]
) -> None:
    assert rfc3339(at, digits) == rfc3339(datetime.fromtimestamp(at, UTC), digits)


def test_times_are_written_in_utc() -> None:
    assert rfc3339(1_763_805_600.75) == "2025-11-22T10:00:00Z"
    assert rfc3339(1_763_805_600.75, "microseconds") == "2025-11-22T10:00:00.750000Z"
    assert rfc3339(datetime(2025, 11, 22, 12, tzinfo=timezone(timedelta(hours=2)))) == "2025-11-22T10:00:00Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01T00:00:10", 10.0),
        ("", None),
        (None, None),
        ("yesterday", None),
    ],
)
def test_a_time_that_cannot_be_read_is_none(text: str | None, seconds: float | None) -> None:
    assert unix_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("15s", 15), ("5m", 300), ("5min", 300), ("1h30min", 5400), ("1w2d", 777600)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**7).map(lambda ms: ms / 1000))
def test_a_duration_comes_back_as_it_was_written(seconds: float) -> None:
    assert parse_duration(duration_text(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (150, "2.5min"), (7300, "2.03h"), (1e6, "11.6d")]
)
def test_a_cell_has_one_unit(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "<invalid>"), (119, "119s"), (310, "5m10s"), (600, "10m"), (4 * 3600, "4h"), (76 * 3600, "3d4h")],
)
def test_kubectl_writes_two_units_where_the_second_matters(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
