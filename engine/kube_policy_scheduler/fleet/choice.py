"""Which clusters are chosen by `choose`: the best, in enough different places, with enough room together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kube_policy_scheduler.wording import plural


class Option(msgspec.Struct, frozen=True):
    """A cluster that may be chosen; they come in the order of preference, the best first."""

    name: str
    runs: bool
    """Whether the workload runs there, and is to be kept."""
    most: int
    """Replicas that it may have in all."""
    place: str | None
    """Its region, zone, or whatever clusters are spread over; None if it has none."""


class Wanted(msgspec.Struct, frozen=True):
    """How many clusters are chosen."""

    fewest: int
    most: int
    places: int = 0
    """In how many different places they are at least; 0: that does not matter."""
    replicas: int = 0
    """For which they need room together; 0: that does not matter."""


class TooFewError(Exception):
    """There are not enough clusters; `str()` says of what."""


def choose(options: Sequence[Option], wanted: Wanted) -> list[str]:
    """Return the names of the clusters that are chosen: those that run it, then the best.

    More than `most` are chosen only if the workload runs in more.

    Raises:
        TooFewError: there are fewer clusters, or places, than are asked for.
    """
    able = [each for each in options if each.place is not None] if wanted.places else list(options)
    running = [each for each in able if each.runs]
    ordered = running + [each for each in able if not each.runs]
    if len(ordered) < wanted.fewest:
        raise TooFewError(f"{plural(wanted.fewest, 'cluster')} needed, {len(ordered)} can be chosen")
    different = len({each.place for each in ordered})
    if different < wanted.places:
        raise TooFewError(f"clusters in {wanted.places} different places needed, there are {different}")
    count = min(len(ordered), max(wanted.most, len(running)))
    chosen = list(running)
    for each in ordered[len(running) :]:
        if len({one.place for one in chosen}) >= wanted.places or len(chosen) >= count:
            break
        if each.place not in {one.place for one in chosen}:
            chosen.append(each)
    names = {each.name for each in chosen}
    rest = [each for each in ordered if each.name not in names]
    taken = max(0, count - len(chosen))
    return [each.name for each in _with_room(chosen + rest[:taken], rest[taken:], wanted)]


def _with_room(chosen: list[Option], rest: list[Option], wanted: Wanted) -> list[Option]:
    """Return the chosen ones, each of the last swapped for one with more room until there is enough.

    Those in which the workload runs stay, and the number of different places too.
    """
    total = sum(each.most for each in chosen)
    for at in range(len(chosen) - 1, -1, -1):
        if total >= wanted.replicas:
            break
        others = [each.place for place, each in enumerate(chosen) if place != at]
        fitting = [each for each in rest if len({*others, each.place}) >= wanted.places or not wanted.places]
        best = max(fitting, key=lambda each: each.most, default=None)
        if chosen[at].runs or best is None or best.most <= chosen[at].most:
            continue
        total += best.most - chosen[at].most
        rest[rest.index(best)], chosen[at] = chosen[at], best
    return chosen
