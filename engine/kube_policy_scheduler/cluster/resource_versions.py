"""Resource versions as numbers, if they are numbers: what the API server calls opaque and compares by value itself."""

from __future__ import annotations

MOST_DIGITS = 64
"""etcd's revisions have 19 at most; `int` rejects more than 4,300."""


def version_number(text: str) -> int:
    """Return a resource version as a number to compare with others of its collection; 0 if it is not a number."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else 0
