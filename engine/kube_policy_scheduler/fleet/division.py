"""How many replicas each cluster gets by `divide`: levels of groups, bounds, and what runs already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kube_policy_scheduler.fleet.apportion import Claim, apportion, fill

TIERS = "tiers"
"""The word of a level whose groups are filled one after the other, in the order of their names."""
EVENLY, BEST_FIRST = "evenly", "best first"


class Member(msgspec.Struct, frozen=True):
    """A cluster among which replicas are divided; they come in the order of preference, the best first."""

    name: str
    has: int
    """Replicas that it has now."""
    most: int
    """Replicas that it may have in all, by its room and by `at most`; not below what it may keep."""
    floor: int
    """Replicas that it has at least, if it has any: `at least`."""
    groups: tuple[str, ...]
    """Its group at each level but the last one."""
    votes: tuple[float, ...]
    """Its part at each level; of a group, they add up."""


class Level(msgspec.Struct, frozen=True):
    """How replicas are divided among groups of clusters, or at the last level among clusters."""

    word: str
    """evenly, best first, tiers; empty: in proportion to votes, or by `targets`."""
    targets: Mapping[str, float]
    """Shares of groups, 0 to 1; the others share the rest evenly."""


class Bounds(msgspec.Struct, frozen=True):
    """Between which numbers each cluster is."""

    least: dict[str, int]
    most: dict[str, int]


class Together(msgspec.Struct, frozen=True):
    """Between which numbers some clusters have replicas together, whatever the levels are."""

    clusters: frozenset[str]
    most: int
    """What they keep stays, even if it is more."""
    least: int = 0


def divide(
    replicas: int,
    members: Sequence[Member],
    levels: Sequence[Level],
    places: Mapping[str, int],
    *,
    keep: bool,
    together: Sequence[Together] = (),
) -> dict[str, int]:
    """Return the replicas of each cluster; fewer in all than asked for if there is no room for more.

    Args:
        replicas: of the workload.
        members: the clusters, the best first.
        levels: from the outermost to that of the clusters.
        places: of each cluster among equals, the first one first.
        keep: whether only the difference to what runs is placed or taken away.
        together: further bounds of several clusters. Where clusters would break one, they get its part by the same
            rule, and what is left or missing goes to, or comes from, the others.
    """
    bounds = bounds_of(replicas, members, keep=keep, together=together)

    def among(some: Sequence[Member], seats: int) -> dict[str, int]:
        able = sum(bounds.most[each.name] for each in some)
        return _divided(min(seats, able), some, levels, bounds, places, depth=0) if some else {}

    places_of = {member.name: place for place, member in enumerate(members)}
    inside = [
        (each, [members[place] for place in sorted(places_of[name] for name in each.clusters if name in places_of)])
        for each in together
        if len(each.clusters) > 1 or each.least
    ]
    while True:
        found = among(members, replicas)
        # a bound that is met is met for good: its clusters can have no more, or get no fewer, from then on
        if not any(_met(bound, some, found, bounds, among, replicas) for bound, some in inside):
            return found


def _met(
    bound: Together,
    some: Sequence[Member],
    found: Mapping[str, int],
    bounds: Bounds,
    among: Callable[[Sequence[Member], int], dict[str, int]],
    replicas: int,
) -> bool:
    """Have a bound met that was broken; return whether it was, and can be."""
    count, kept = sum(found[each.name] for each in some), sum(bounds.least[each.name] for each in some)
    if count > max(bound.most, kept):
        bounds.most.update(among(some, max(bound.most, kept)))
        return True
    if count >= bound.least or sum(bounds.least.values()) + bound.least - kept > replicas:
        return False
    raised = among(some, bound.least)
    bounds.least.update(raised)
    return sum(raised.values()) > kept


def bounds_of(replicas: int, members: Sequence[Member], *, keep: bool, together: Sequence[Together] = ()) -> Bounds:
    """Return the bounds of each cluster: what runs, `at least` as far as the replicas go, and the room."""
    running = sum(member.has for member in members)
    shrinks = keep and running > replicas
    base = {member.name: member.has if keep and not shrinks else 0 for member in members}
    most = {member.name: member.has if shrinks else max(member.most, base[member.name]) for member in members}
    left = replicas - sum(base.values())
    if shrinks or not keep:
        left = replicas
    least = dict(base)
    spare = [max(0, each.most - sum(base.get(name, 0) for name in each.clusters)) for each in together]
    within_of: dict[str, list[int]] = {}
    for number, bound in enumerate(together):
        for name in bound.clusters:
            within_of.setdefault(name, []).append(number)
            if len(bound.clusters) == 1 and name in most:
                most[name] = max(min(most[name], bound.most), base[name])
    has_floor = False
    for member in members:
        within = within_of.get(member.name, [])
        floor = min(member.floor, member.has) if shrinks else member.floor
        need = floor - base[member.name]
        if need <= 0:
            has_floor = has_floor or floor > 0
        elif need <= min((left, *(spare[number] for number in within))) and floor <= most[member.name]:
            least[member.name] += need
            left -= need
            for number in within:
                spare[number] -= need
            has_floor = True
        elif base[member.name] == 0:
            most[member.name] = min(most[member.name], 0)
    if not has_floor and members and any(member.floor for member in members):
        # fewer replicas than any cluster is to have: one cluster gets them all
        first = next((member for member in members if member.most > 0 or member.has > 0), members[0])
        most[first.name] = first.has if shrinks else first.most
    return Bounds(least, most)


def _divided(
    seats: int,
    members: Sequence[Member],
    levels: Sequence[Level],
    bounds: Bounds,
    places: Mapping[str, int],
    *,
    depth: int,
) -> dict[str, int]:
    level = levels[depth]
    if depth == len(levels) - 1:
        return _among_clusters(seats, members, level, bounds, places, depth)
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.groups[depth], []).append(member)
    limits = {
        name: (sum(bounds.least[each.name] for each in inside), sum(bounds.most[each.name] for each in inside))
        for name, inside in groups.items()
    }
    if level.word == TIERS:
        given = fill(seats, [(name, *limits[name]) for name in sorted(groups)])
    else:
        votes = _votes_of_groups(level, groups, depth)
        first = {name: min(places[each.name] for each in inside) for name, inside in groups.items()}
        claims = {name: Claim(votes[name], *limits[name]) for name in groups}
        given = apportion(seats, claims, first)
    found: dict[str, int] = {}
    for name, inside in groups.items():
        found |= _divided(given[name], inside, levels, bounds, places, depth=depth + 1)
    return found


def _among_clusters(
    seats: int, members: Sequence[Member], level: Level, bounds: Bounds, places: Mapping[str, int], depth: int
) -> dict[str, int]:
    if level.word == BEST_FIRST:
        return fill(seats, [(each.name, bounds.least[each.name], bounds.most[each.name]) for each in members])
    votes = {each.name: 1.0 if level.word == EVENLY else each.votes[depth] for each in members}
    claims = {name: Claim(votes[name], bounds.least[name], bounds.most[name]) for name in votes}
    return apportion(seats, claims, places)


def _votes_of_groups(level: Level, groups: Mapping[str, Sequence[Member]], depth: int) -> dict[str, float]:
    if level.targets:
        others = [name for name in groups if name not in level.targets]
        rest = max(0.0, 1.0 - sum(level.targets.values()))
        return {name: level.targets.get(name, rest / len(others) if others else 0.0) for name in groups}
    if level.word == EVENLY:
        return dict.fromkeys(groups, 1.0)
    return {name: sum(max(0.0, each.votes[depth]) for each in inside) for name, inside in groups.items()}
