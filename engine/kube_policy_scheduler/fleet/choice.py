"""Which clusters are chosen by `choose`: the best, in enough different places, with enough room together."""

from __future__ import annotations

from collections import Counter
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
    most_places: int = 0
    """In how many different places they are at most; 0: that does not matter."""
    each: int = 0
    """How many of them are in one place at most; 0: that does not matter."""

    @property
    def looks_at_places(self) -> bool:
        """Return whether it matters where they are."""
        return bool(self.places or self.most_places or self.each)


class TooFewError(Exception):
    """There are not enough clusters; `str()` says of what."""


def choose(options: Sequence[Option], wanted: Wanted) -> list[str]:
    """Return the names of the clusters that are chosen: those that run it, then the best.

    More than `most` are chosen, or in more places, or more in one place, only if the workload runs in more.

    Raises:
        TooFewError: there are fewer clusters, or places, than are asked for.
    """
    able = [each for each in options if each.place is not None] if wanted.looks_at_places else list(options)
    running = [each for each in able if each.runs]
    ordered = running + [each for each in able if not each.runs]
    if len(ordered) < wanted.fewest:
        raise TooFewError(f"{plural(wanted.fewest, 'cluster')} needed, {len(ordered)} can be chosen")
    different = len({each.place for each in ordered})
    if different < wanted.places:
        raise TooFewError(f"clusters in {wanted.places} different places needed, {different} can be chosen")
    if wanted.places > max(wanted.most, len(running)):
        raise TooFewError(f"{plural(wanted.most, 'cluster')} cannot be in {wanted.places} different places")
    choice = _Choice(ordered, wanted)
    for each in running:
        choice.take(each)
    for is_new in (True, False):  # at first one of each further place that is needed, then the best
        for each in ordered[len(running) :]:
            if choice.is_full or (is_new and choice.places >= wanted.places):
                break
            if choice.may_take(each) and (not is_new or each.place not in choice.taken):
                choice.take(each)
    if len(choice.chosen) < wanted.fewest:
        within = f" in {plural(wanted.most_places, 'place')}" if wanted.most_places else ""
        within += f" with {wanted.each} in each at most" if wanted.each else ""
        raise TooFewError(f"{plural(wanted.fewest, 'cluster')}{within} needed, {choice.possible} can be chosen")
    names = {each.name for each in choice.chosen}
    rest = [each for each in ordered if each.name not in names]
    return [each.name for each in _with_room(choice.chosen, rest, wanted)]


class _Choice:
    """The clusters chosen so far, and whether enough can still be."""

    def __init__(self, options: Sequence[Option], wanted: Wanted) -> None:
        self.chosen: list[Option] = []
        self.taken: Counter[str | None] = Counter()
        """How many are chosen of each place."""
        self._wanted = wanted
        self._there = Counter(each.place for each in options)

    @property
    def places(self) -> int:
        """Return in how many places they are."""
        return len(self.taken)

    @property
    def possible(self) -> int:
        """Return how many can be chosen at most, by their places."""
        able = sorted((min(count, self._wanted.each or count) for count in self._there.values()), reverse=True)
        return sum(able[: self._wanted.most_places or len(able)])

    @property
    def is_full(self) -> bool:
        """Return whether no more are to be chosen."""
        return len(self.chosen) >= self._wanted.most

    def take(self, option: Option) -> None:
        """Choose a cluster."""
        self.chosen.append(option)
        self.taken[option.place] += 1

    def may_take(self, option: Option) -> bool:
        """Return whether a cluster may be chosen so that the fewest can still be reached."""
        wanted, place = self._wanted, option.place
        if option in self.chosen or (wanted.each and self.taken[place] >= wanted.each):
            return False
        if not wanted.looks_at_places:
            return True
        entered = {*self.taken, place}
        if wanted.most_places and len(entered) > max(wanted.most_places, self.places):
            return False
        if place in self.taken:
            return True
        able = {each: min(count, wanted.each or count) for each, count in self._there.items()}
        further = sorted((able[each] for each in able if each not in entered), reverse=True)
        if wanted.most_places:
            further = further[: max(0, wanted.most_places - len(entered))]
        return sum(max(able[each], self.taken[each]) for each in entered) + sum(further) >= wanted.fewest


def _with_room(chosen: list[Option], rest: list[Option], wanted: Wanted) -> list[Option]:
    """Return the chosen ones, each of the last swapped for one with more room until there is enough.

    Those in which the workload runs stay, and the number of different places too.
    """
    total = sum(each.most for each in chosen)
    for at in range(len(chosen) - 1, -1, -1):
        if total >= wanted.replicas:
            break
        others = Counter(each.place for place, each in enumerate(chosen) if place != at)
        fitting = [each for each in rest if _keeps_to(wanted, others, each.place, len({each.place for each in chosen}))]
        best = max(fitting, key=lambda each: each.most, default=None)
        if chosen[at].runs or best is None or best.most <= chosen[at].most:
            continue
        total += best.most - chosen[at].most
        rest[rest.index(best)], chosen[at] = chosen[at], best
    return chosen


def _keeps_to(wanted: Wanted, others: Counter[str | None], place: str | None, now: int) -> bool:
    """Return whether a cluster of a place goes with the other chosen ones. now: in how many places they are."""
    if not wanted.looks_at_places:
        return True
    places = len({*others, place})
    if places < wanted.places or (wanted.most_places and places > max(wanted.most_places, now)):
        return False
    return not wanted.each or others[place] < wanted.each
