"""Places in policies, `FILE:LINE:COLUMN`, with the line that stands there. Knows no files: it is given their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kube_policy_scheduler.diagnostics import printable


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of a policy."""

    place: str
    """`FILE:LINE:COLUMN`"""
    line: int
    before: str
    """What stands before the column."""
    text: str
    """From the column on."""


def excerpt(place: str, sources: Mapping[str, str]) -> Excerpt | None:
    """Return the line of a place; None where the place is none, or its text is not given.

    Args:
        place: `FILE:LINE:COLUMN`, both counted from 1.
        sources: texts by name.
    """
    name, _, rest = place.rpartition(":")
    name, _, number = name.rpartition(":")
    if name not in sources or not number.isdecimal() or not rest.isdecimal():
        return None
    lines = sources[name].splitlines()
    line, column = int(number), int(rest)
    if not 0 < line <= len(lines):
        return None
    text = lines[line - 1]
    return Excerpt(place, line, printable(text[: column - 1]), printable(text[column - 1 :]))
