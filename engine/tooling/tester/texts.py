"""Texts of tests: a part of a message, or `/a regular expression/`, held against messages; numbers and names shown."""

from __future__ import annotations

import re
from collections.abc import Iterable


def is_pattern(text: str) -> bool:
    """Return whether a text is `/a regular expression/`."""
    return len(text) > 2 and text[0] == text[-1] == "/"


def says(wanted: str | None, texts: Iterable[str]) -> bool:
    """Return whether one of the texts is what is wanted; None wants nothing."""
    if wanted is None:
        return True
    if is_pattern(wanted):
        return any(re.search(wanted[1:-1], text) for text in texts)
    return any(wanted in text for text in texts)


def number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:.10g}"


def names(several: Iterable[str]) -> str:
    """Return names in order."""
    return ", ".join(sorted(several)) or "none"
