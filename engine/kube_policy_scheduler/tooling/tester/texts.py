"""Texts of tests: a part of a message, or `/a regular expression/`, held against messages; numbers and names shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kube_policy_scheduler.wording import listed, some

_MOST_NAMES = 12
"""More in a row nobody reads."""


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


def difference(wanted: frozenset[str], got: frozenset[str]) -> tuple[str, str]:
    """Return two sets of names as expected and got; of large ones, what they do not have in common."""
    if max(len(wanted), len(got)) <= _MOST_NAMES:
        return names(wanted), names(got)
    missing, more = sorted(wanted - got), sorted(got - wanted)
    parts = [f"without {some(missing, limit=_MOST_NAMES)}"] if missing else []
    parts += [f"with {some(more, limit=_MOST_NAMES)}"] if more else []
    return f"{len(wanted)} names", f"{len(got)} names, {listed(parts)}"
