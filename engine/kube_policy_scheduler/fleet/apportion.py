"""Whole replicas for shares: Webster's method within bounds, and filling one after the other. Pure arithmetic."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import msgspec

_BISECTIONS = 64
"""Halvings of the divisor: the seats that are then still to be given are about as many as there are claims."""


class Claim(msgspec.Struct, frozen=True):
    """What a cluster, or a group of clusters, asks for."""

    votes: float
    """Its part is in proportion; 0 and less: no more than `least`."""
    least: int
    """Seats that it has in any case."""
    most: int
    """Seats that it may have; not below `least`."""

    @property
    def limit(self) -> int:
        """Return how many seats it can get."""
        return self.most if self.votes > 0 else self.least


def apportion(seats: int, claims: Mapping[str, Claim], places: Mapping[str, int]) -> dict[str, int]:
    """Return the seats of each claim: first `least`, then the next one always goes to the greatest votes/(2·seats+1).

    This is the method of Webster and Sainte-Laguë. Fewer seats are given if all have what they may have, and none
    beyond the sum of `least` if that is as many as there are.

    Args:
        seats: to be given; at least the sum of `least`.
        claims: by name.
        places: of each name among equals, the first one first.
    """
    given = {name: claim.least for name, claim in claims.items()}
    left = min(seats, sum(claim.limit for claim in claims.values())) - sum(given.values())
    if left > 4 * len(claims):
        given = _most_of(left + sum(given.values()), claims)
        left = min(seats, sum(claim.limit for claim in claims.values())) - sum(given.values())
    heap = [
        (-claim.votes / (2 * given[name] + 1), given[name], places[name], name)
        for name, claim in claims.items()
        if given[name] < claim.limit
    ]
    heapq.heapify(heap)
    for _ in range(max(0, left)):
        _, count, place, name = heap[0]
        count += 1
        given[name] = count
        if count < claims[name].limit:
            heapq.heapreplace(heap, (-claims[name].votes / (2 * count + 1), count, place, name))
        else:
            heapq.heappop(heap)
    return given


def _most_of(seats: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """Return seats that each claim has in any case, nearly all of them: those above one quotient for all, but one."""
    low, high = 0.0, max(claim.votes for claim in claims.values())
    found = {name: claim.least for name, claim in claims.items()}
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        given = {name: _down_to(claim, middle) for name, claim in claims.items()}
        if sum(given.values()) <= seats:
            high, found = middle, given
        else:
            low = middle
    return {name: max(claims[name].least, count - 1) for name, count in found.items()}


def _down_to(claim: Claim, quotient: float) -> int:
    """Return the seats of a claim whose votes/(2·seats-1) are not below a quotient, within its bounds."""
    wanted = (claim.votes / quotient + 1) / 2 if quotient > 0 else math.inf
    return claim.limit if wanted >= claim.limit else max(claim.least, math.floor(wanted))


def fill(seats: int, limits: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    """Return the seats of each name: first its least number, then as many as it may have, one name after the other.

    limits: name, least and most, the first to be filled first.
    """
    left = seats - sum(least for _, least, _ in limits)
    given: dict[str, int] = {}
    for name, least, most in limits:
        more = max(0, min(left, most - least))
        given[name] = least + more
        left -= more
    return given
