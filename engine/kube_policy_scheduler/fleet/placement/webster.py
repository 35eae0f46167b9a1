"""Webster's method (Sainte-Laguë): whole replicas in proportion to votes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from kube_policy_scheduler.fleet.model import NOTHING

_FNV_OFFSET, _FNV_PRIME, _WORD = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def fnv1a_32(text: str) -> int:
    """Return the 32-bit hash of Fowler, Noll and Vo (1a) of a text in UTF-8."""
    value = _FNV_OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * _FNV_PRIME) & _WORD
    return value


def ranks(names: Mapping[str, object], uid: str) -> dict[str, int]:
    """Return the place of each name among equals: by name, or from the last one back if the uid's hash is odd."""
    back = bool(uid) and fnv1a_32(uid) % 2 == 1
    return {name: place for place, name in enumerate(sorted(names, reverse=back))}


def webster(
    seats: int, votes: Mapping[str, int], uid: str = "", *, most: Mapping[str, int] = NOTHING
) -> dict[str, int]:
    """Return how many seats each name gets: the next one always goes to the greatest votes / (2 · seats + 1).

    Among equals, the one with fewer seats comes first, then the order of `ranks`. A name without votes gets nothing.
    The work grows with the number of names, not with that of seats.

    Args:
        seats: to be given; fewer are if all have what `most` says, or nobody has votes.
        votes: whole and not negative.
        uid: of the workload.
        most: seats that a name may get at most; a name that is not in it, any number.
    """
    voters = {name: count for name, count in votes.items() if count > 0}
    limits = {name: min(seats, most.get(name, seats)) for name in voters}
    given = dict.fromkeys(votes, 0)
    given.update(_certain(seats, voters, limits))
    left = seats - sum(given.values())
    place = ranks(voters, uid)
    heap = [
        _claim(name, count, given[name], place[name]) for name, count in voters.items() if given[name] < limits[name]
    ]
    heapq.heapify(heap)
    while left > 0 and heap:
        name = heap[0][-1]
        given[name] += 1
        left -= 1
        if given[name] < limits[name]:
            heapq.heapreplace(heap, _claim(name, voters[name], given[name], place[name]))
        else:
            heapq.heappop(heap)
    return given


def _claim(name: str, votes: int, seats: int, place: int) -> tuple[float, int, int, str]:
    """Return the claim of a name to its next seat: the least one comes first."""
    return -(votes / (2 * seats + 1)), seats, place, name


def _certain(seats: int, votes: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """Return seats that each name has in any case, nearly all of them.

    With c names and a share q of n - c/2 seats, a name ends with at least q - 1/2 of them, by the divisor that the
    method amounts to. One less is given, as the claims are rounded. Limits only leave more for the others.
    """
    total, names = sum(votes.values()), len(votes)
    return {
        name: max(0, min(count * (2 * seats - names) // (2 * total) - 2, limits[name])) for name, count in votes.items()
    }
