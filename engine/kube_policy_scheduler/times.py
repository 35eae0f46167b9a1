"""Times as the Kubernetes API writes them (RFC 3339), and durations as files and people write them; and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from types import MappingProxyType
from typing import Literal, NewType

from kube_policy_scheduler.remembered import remembered

Steady = NewType("Steady", float)
"""A moment on a clock that counts evenly and that nobody sets: what is to last some seconds is measured with it.

It reads as Unix seconds where nobody has set the clock since the process began. The time of the wall clock, which may
go back by hours, is a plain number of Unix seconds: for people, for what policies ask, and to be compared with times
that the API server wrote. Where a `Steady` is expected, mypy rejects it.
"""

UNIT_SECONDS: Mapping[str, float] = MappingProxyType(
    {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
)
"""The units of durations in policies and files. `m` is not one of them: in a quantity it is milli."""

_PART = r"([0-9.]+)(ms|min|s|m|h|d|w)"
_LONGEST_TIMESTAMP = 64
"""Characters: a moment in nanoseconds with an offset has 35."""
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 31536000
_FAR_SECONDS = 250_000_000_000.0
"""In the year 9892."""


def unix_seconds(text: str | None) -> float | None:
    """Return Unix seconds of an API timestamp, or None where there is none or it does not parse."""
    if not text or len(text) > _LONGEST_TIMESTAMP:
        return None
    return _unix_seconds(text)


@remembered(most=4096)
def _unix_seconds(text: str) -> float | None:
    """Return what `unix_seconds` does; in a list many pods have the same times."""
    try:
        return parse_rfc3339(text).timestamp()
    except ValueError:
        return None


def parse_rfc3339(text: str) -> datetime:
    """Return the moment of an API timestamp; without an offset it is UTC.

    Raises:
        ValueError: the text is not a timestamp.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def rfc3339(at: float | datetime, digits: Literal["seconds", "milliseconds", "microseconds"] = "seconds") -> str:
    """Return a time in UTC as the API writes it.

    Args:
        at: Unix seconds, or a moment with an offset.
        digits: "seconds" for `metav1.Time`, "microseconds" for `metav1.MicroTime`. What is finer is cut off.
    """
    if isinstance(at, datetime):
        moment = at.astimezone(UTC)
    elif 0.0 <= at < _FAR_SECONDS:
        fraction, whole = modf(at)  # each event has one: a `datetime` takes five times as long
        second, micros = int(whole), round(fraction * 1e6)
        if micros == 1_000_000:
            second, micros = second + 1, 0
        if digits == "microseconds":
            return f"{_date_and_second(second)}.{micros:06}Z"
        return (
            f"{_date_and_second(second)}.{micros // 1000:03}Z"
            if digits == "milliseconds"
            else f"{_date_and_second(second)}Z"
        )
    else:
        moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec=digits)[:-6] + "Z"


@lru_cache(maxsize=64)
def _date_and_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds")[:-6]


def date_and_time(at: float) -> str:
    """Return Unix seconds as people read them, in UTC: `2026-11-21 10:00:00`."""
    return rfc3339(at)[:-1].replace("T", " ")


def parse_duration(text: str) -> float:
    """Return the seconds of a text that a schema accepted as a duration: `500ms`, `15s`, `1h30min`.

    Where a schema allows it, `m` is minutes, as Prometheus writes them.
    """
    return sum(float(number) * UNIT_SECONDS.get(unit, 60.0) for number, unit in re.findall(_PART, text))


def duration_text(seconds: float) -> str:
    """Return seconds as files write them, exactly: `15s`, `5min`, `250ms`."""
    for unit in ("d", "h", "min", "s"):
        if seconds and seconds % UNIT_SECONDS[unit] == 0:
            return f"{seconds / UNIT_SECONDS[unit]:.0f}{unit}"
    return f"{1000 * seconds:.12g}ms" if seconds else "0s"


def duration(seconds: float) -> str:
    """Return a time span in words, with at most two units: `0.2 s`, `14 s`, `3 min`, `2 h 5 min`, `4 d 1 h`."""
    if 0 < seconds < 0.01:
        return f"{1000 * seconds:.2f} ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min" if minutes >= 10 or not rest else f"{minutes} min {rest} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def ago(seconds: float) -> str:
    """Return how long ago something was: `now`, `14 s ago`."""
    return "now" if seconds < 1 else f"{duration(seconds)} ago"


def short_duration(seconds: float) -> str:
    """Return a time span for a cell of a table, with one unit and three digits: `12s`, `2.5min`, `3h`, `4.2d`."""
    for limit, unit in ((2 * _MINUTE, "s"), (2 * _HOUR, "min"), (2 * _DAY, "h")):
        if seconds < limit:
            return f"{seconds / UNIT_SECONDS[unit]:.3g}{unit}"
    return f"{seconds / _DAY:.3g}d"


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl writes it (apimachinery, `duration.HumanDuration`): `90s`, `5m10s`, `3d4h`."""
    whole = int(seconds)
    if seconds < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two_units(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two_units(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two_units(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two_units(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two_units(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")
