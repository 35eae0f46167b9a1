"""The clock, as an input of the decision."""

import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Annotated, Any

from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.over_time import Line
from kube_policy_scheduler.lang.signature import Duration, Number, Truth, TypeSpec, Words, builtin
from kube_policy_scheduler.lang.types import Depends, Kind, Shape

_TIME = r"([01]?\d|2[0-3]):([0-5]\d)"


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    """Return a time zone of the tz database.

    Raises:
        ValueError: there is none of that name.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # reads how Python was built, 15 ms

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f'unknown time zone "{name}"; write for example "Europe/Berlin" or "UTC"') from error


def minute_of_day(text: str) -> int:
    """Return minutes since midnight of a time such as "22:30".

    Raises:
        ValueError: it is no time of day.
    """
    match = re.fullmatch(_TIME, text)
    if match is None:
        raise ValueError(f'"{text}" is not a time of day; {_time_meant(text)}')
    return int(match[1]) * 60 + int(match[2])


_HOURS = r"(?i)\s*(\d{1,2})(?:[:.h](\d{2}))?(?::\d{2})?\s*(?:h|uhr)?\s*([ap]\.?m\.?)?\s*"


def _time_meant(text: str) -> str:
    """Return what to write for a time of day in another spelling."""
    if text.strip() in ("24:00", "24"):
        return 'write "00:00" for midnight'
    match = re.fullmatch(_HOURS, text) if len(text) < 40 else None
    if match is not None:
        hours, minutes, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()[:1]
        if half and 1 <= hours <= 12:
            hours = hours % 12 + (12 if half == "p" else 0)
        if hours < 24 and minutes < 60:
            return f'write "{hours:02}:{minutes:02}"'
    return 'write for example "22:30"; hours are 00 to 23, minutes 00 to 59'


Zone = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=zone_named)]
"""The name of a time zone."""
TimeOfDay = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=minute_of_day)]


@builtin(depends=Depends.CLOCK, shape=Shape.DECISION, bounds=(0, 1e11), over_time=lambda now: Line(0.0, 1.0))
def now(frame: Frame) -> Duration:
    """Return the time of the decision, as time since 1970: `now() - pod.created > 1h`."""
    return frame.now


@builtin(depends=Depends.CLOCK, shape=Shape.DECISION, bounds=(0, 23))
def hour(frame: Frame, zone: Zone = UTC) -> Number:
    """Return the hour of the day, 0 to 23, in a time zone (the default is UTC)."""
    return float(datetime.fromtimestamp(frame.now, zone).hour)


@builtin(
    depends=Depends.CLOCK,
    shape=Shape.DECISION,
    bounds=(1, 7),
    words=Words(foreign=("today", "day", "dayofweek", "dow"), advice="write `weekday() == 1` for Monday, up to 7"),
)
def weekday(frame: Frame, zone: Zone = UTC) -> Number:
    """Return the day of the week, Monday 1 to Sunday 7, in a time zone (the default is UTC)."""
    return float(datetime.fromtimestamp(frame.now, zone).isoweekday())


@builtin(depends=Depends.CLOCK, shape=Shape.DECISION)
def between(frame: Frame, start: TimeOfDay, end: TimeOfDay, zone: Zone = UTC) -> Truth:
    """Return whether the time of day is in the range from start up to end, which may include midnight.

    `between("22:00", "06:00", "Asia/Shanghai")` is true at night.
    """
    moment = datetime.fromtimestamp(frame.now, zone)
    minute = moment.hour * 60 + moment.minute
    if start <= end:
        return bool(start <= minute < end)
    return bool(minute >= start or minute < end)
