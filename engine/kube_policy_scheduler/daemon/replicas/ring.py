"""Who owns what among several replicas: the same answer everywhere, and little of it changes when one comes or goes.

Rendezvous hashing: each member gets a number for a key, the highest has it. Of two members that know each other one
always loses, whomever else they know: that is what hand-overs rest on.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

_MOST_KEPT = 65536


class Ring:
    """A set of members. Immutable, but for what it remembers."""

    __slots__ = ("_owners", "members")

    def __init__(self, members: Iterable[str] = ()) -> None:
        self.members = frozenset(members)
        self._owners: dict[str, str] = {}

    def owner(self, key: str) -> str | None:
        """Return the member that has a key; None where there are no members."""
        found = self._owners.get(key)
        if found is None and self.members:
            if len(self._owners) >= _MOST_KEPT:
                self._owners.clear()
            found = self._owners[key] = max(self.members, key=lambda member: (_number(member, key), member))
        return found


def _number(member: str, key: str) -> bytes:
    return blake2b(f"{member}\0{key}".encode(), digest_size=8).digest()
