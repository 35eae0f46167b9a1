"""Durations in test files: as policies write them, and with `5m` as Prometheus does. Here nothing is milli."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9.]+)(ms|s|min|m|h|d)")


def seconds(text: str) -> float:
    """Return the seconds of a text that the schema accepted as a duration."""
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
