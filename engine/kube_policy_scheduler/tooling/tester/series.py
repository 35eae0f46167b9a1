"""Samples over time as `promtool test rules` writes them: `90x10`, `1+2x5`, `5x2 _x8`, `3 stale`."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

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
    """When Prometheus was told that the series has ended."""

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
