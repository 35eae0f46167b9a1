"""Versions as programs, kernels and Kubernetes write them, and their order."""

from __future__ import annotations

import re
from typing import TypeAlias

from kube_policy_scheduler.remembered import remembered

_MOST_CHARACTERS = 128
_VERSION = r"(?a)(?:[a-z][a-z0-9-]{0,30}://)?[vV]?([0-9]{1,18}(?:\.[0-9]{1,18}){0,15})(?![0-9.])(.*)"
_PART = r"(?a)[0-9]{1,18}|[A-Za-z]+"
_BEFORE_RELEASE = frozenset({"alpha", "beta", "rc", "pre", "preview", "dev", "snapshot", "nightly", "canary", "m"})
"""Words after which a version is older than the release that it names."""

VersionKey: TypeAlias = tuple[tuple[int, ...], int, tuple[tuple[int, int, str], ...]]


def version_key(text: str) -> VersionKey | None:
    """Return what versions are compared by; None if the text is not a version.

    The numbers come first, from left to right; numbers that are left out are 0. A suffix such as `-rc.1` or `-alpha`
    makes it older than the release, any other, such as `-1051-aws`, newer. Suffixes are compared part by part, numbers
    as numbers, and before words. What follows a `+` does not count.
    """
    return _version_key(text) if len(text) <= _MOST_CHARACTERS else None


@remembered(most=1 << 14)
def _version_key(text: str) -> VersionKey | None:
    found = re.fullmatch(_VERSION, text.strip())
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    suffix = [part.lower() for part in re.findall(_PART, found[2].partition("+")[0])]
    released = not suffix or suffix[0] not in _BEFORE_RELEASE
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in suffix)
    return tuple(numbers), int(released), parts


_PLACES, _BASE = 16, 10**18


def release_number(text: str) -> int | None:
    """Return a number that orders releases as `version_key` does, for proofs; None for a version with a suffix."""
    known = version_key(text)
    if known is None or known[2]:
        return None
    padded = (*known[0], *(0,) * (_PLACES - len(known[0])))
    number: int = sum(part * _BASE ** (_PLACES - 1 - place) for place, part in enumerate(padded))
    return number
