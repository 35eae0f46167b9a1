"""Which units of a queue are guaranteed, and by which resource; the others are borrowed.

A unit is what starts and is evicted together: a pod, a gang at its size, or one member beyond that. It is guaranteed
whole or not at all: with amounts, a pod that is larger than what is left of the guarantee would be half protected.

In a queue a unit is led by the strongest resource that it requests and that the queue guarantees (`by_strength`): a pod
that holds a guaranteed GPU needs its cpu, too. The units are walked by lead, priority and start. One whose request of
its lead fits what is left of the `min` is guaranteed, with the lead as its rank; the rest is borrowed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.cluster.steps import now

Parts = tuple[tuple[Quota, Amounts], ...]
"""What a unit counts for, by the queue of its pods."""
WALKED_AT_ONCE = 256
"""Units that a walk in steps looks at before other work gets its turn: 1 ms."""


class Unit(msgspec.Struct, frozen=True, eq=False):
    """Pods that are guaranteed, borrowed and evicted together."""

    pods: tuple[PodInfo, ...]
    """By uid."""
    parts: Parts
    priority: int
    """The highest."""
    started: float
    """When the last of them started, Unix seconds; of nominated ones, the present; of those that ask, infinite."""
    gang: Hashable | None = None
    """The gang that they are in; None: a pod alone."""
    is_surplus: bool = False
    """Whether the gang has its size without them."""
    is_placed: bool = True
    """Whether all of them are on nodes; else some are nominated."""

    @property
    def queue(self) -> Quota:
        """Return the queue of the first pod."""
        return self.parts[0][0]

    @property
    def uid(self) -> str:
        """Return the first uid."""
        return self.pods[0].uid

    def within(self, queue: Quota) -> Amounts:
        """Return what it counts for in a queue and those below it."""
        return within(self.parts, queue)


def within(parts: Parts, queue: Quota) -> Amounts:
    """Return what parts count for in a queue and those below it."""
    if len(parts) == 1:
        of, amounts = parts[0]
        return amounts if is_below(of, queue) else ()
    total: dict[int, int] = {}
    for of, amounts in parts:
        if is_below(of, queue):
            for resource, amount in amounts:
                total[resource] = total.get(resource, 0) + amount
    return tuple(sorted(total.items()))


def is_below(queue: Quota, above: Quota) -> bool:
    """Return whether a queue is another one, or below it."""
    found: Quota | None = queue
    while found is not None and found.depth > above.depth:
        found = found.parent
    return found is above


def lead(usage: QuotaUsage, queue: Quota, amounts: Amounts) -> int | None:
    """Return the place of the strongest resource that is requested and that a queue guarantees; None: it has none."""
    strength, minimum = usage.tree.strength, queue.minimum
    return min((r for r, _ in amounts if minimum[r] > 0), key=lambda r: strength[r], default=None)


class Guarantees:
    """The ranks of units, on the cluster as it is when a queue is first asked about."""

    def __init__(self, usage: QuotaUsage, units_of: Callable[[Quota], Sequence[Unit]]) -> None:
        """Know nothing yet.

        Args:
            usage: of the queues.
            units_of: returns the units of a queue and of all below it that run or are nominated, and do not leave.
        """
        self.usage, self.units_of = usage, units_of
        self._walks: dict[Quota, Mapping[Unit, int]] = {}
        self._leads: dict[tuple[Parts, Quota], int | None] = {}
        self._without: dict[tuple[Unit, Quota], _WalkWithout] = {}

    def rank(self, unit: Unit, queue: Quota) -> int | None:
        """Return the place of the resource by which a unit is guaranteed in a queue; None: it is borrowed there."""
        first = self.leads(unit, queue)
        if first is None:
            return None
        if not unit.is_surplus and queue.will(first) <= queue.minimum[first]:
            return first  # all that request it fit
        return self._walk(queue).get(unit)

    def rank_alike(self, unit: Unit, queue: Quota) -> bool:
        """Return whether all units that count for the same as one have its rank in a queue now.

        Of surplus members of gangs that is not known.
        """
        first = self.leads(unit, queue)
        return first is None or (not unit.is_surplus and queue.will(first) <= queue.minimum[first])

    def leads(self, unit: Unit, queue: Quota) -> int | None:
        """Return the resource that leads a unit in a queue, see `lead`; None: none does, so it is borrowed there."""
        key = unit.parts, queue
        if key not in self._leads:
            self._leads[key] = lead(self.usage, queue, unit.within(queue))
        return self._leads[key]

    def strongest(self, unit: Unit, queues: Iterable[Quota]) -> int | None:
        """Return the strongest rank of a unit in some queues; None: it is borrowed in all of them."""
        ranks = [rank for queue in queues if (rank := self.rank(unit, queue)) is not None]
        return min(ranks, key=lambda rank: self.usage.tree.strength[rank], default=None)

    def rank_after(self, new: Unit, queue: Quota, gone: Collection[Unit]) -> int | None:
        """Return the rank that a unit would have in a queue if it ran there, and others had gone."""
        first = lead(self.usage, queue, new.within(queue))
        if first is None:
            return None
        units = [unit for unit in self.units_of(queue) if unit not in gone]
        return walk(self.usage, queue, [*units, new]).get(new)

    def rank_without(self, new: Unit, queue: Quota, gone: Collection[Unit], victim: Unit) -> int | None:
        """Return `rank_after` with a victim gone, too: of each victim of many, in much less time."""
        known = self._without.get((new, queue))
        if known is None:
            known = self._without[new, queue] = _WalkWithout(self.usage, queue, self.units_of(queue), new)
        return known.rank(frozenset(gone), victim)

    def of(self, queue: Quota) -> Mapping[Unit, int | None]:
        """Return all units of a queue and of those below it, with their ranks, in the order of the walk."""
        ranks = self._walk(queue)
        return {unit: ranks.get(unit) for unit, _, _ in _in_order(self.usage, queue, self.units_of(queue))}

    def preparing(self, queue: Quota) -> Generator[None, None, None]:
        """Walk a queue in steps, ahead of time: later questions for ranks in it find the walk done."""
        if queue not in self._walks and any(queue.minimum):
            self._walks[queue] = yield from walking(self.usage, queue, self.units_of(queue))

    def _walk(self, queue: Quota) -> Mapping[Unit, int]:
        found = self._walks.get(queue)
        if found is None:
            found = self._walks[queue] = walk(self.usage, queue, self.units_of(queue))
        return found


def walk(usage: QuotaUsage, queue: Quota, units: Iterable[Unit]) -> Mapping[Unit, int]:
    """Return the units that are guaranteed in a queue, with their ranks."""
    return now(walking(usage, queue, units))


def walking(usage: QuotaUsage, queue: Quota, units: Iterable[Unit]) -> Generator[None, None, Mapping[Unit, int]]:
    """Return what `walk` does, in steps."""
    left, ranks = list(queue.minimum), dict[Unit, int]()
    guaranteed: set[Hashable] = set()
    for place, (unit, amounts, first) in enumerate((yield from _ordering(usage, queue, units))):
        if first is None:
            break
        if place % WALKED_AT_ONCE == WALKED_AT_ONCE - 1:
            yield
        if (unit.is_surplus and unit.gang not in guaranteed) or dict(amounts)[first] > left[first]:
            continue
        ranks[unit] = first
        if not unit.is_surplus:
            guaranteed.add(unit.gang)
        for resource, amount in amounts:
            left[resource] = max(0, left[resource] - amount)
    return ranks


def _in_order(usage: QuotaUsage, queue: Quota, units: Iterable[Unit]) -> Iterable[_Placed]:
    """Return units in the order of the walk, with what they count for and their lead; those without one last."""
    return now(_ordering(usage, queue, units))


def _ordering(usage: QuotaUsage, queue: Quota, units: Iterable[Unit]) -> Generator[None, None, Iterable[_Placed]]:
    """Return what `_in_order` does, in steps."""
    strength, weakest = usage.tree.strength, len(usage.tree.resources)
    entries: list[tuple[int, int, bool, float, bool, str, Unit, Amounts, int | None]] = []
    alike: dict[Parts, tuple[int, Amounts, int | None]] = {}
    for place, unit in enumerate(units):
        if place % WALKED_AT_ONCE == WALKED_AT_ONCE - 1:
            yield
        known = alike.get(unit.parts)
        if known is None:
            amounts = unit.within(queue)
            first = lead(usage, queue, amounts)
            known = alike[unit.parts] = strength[first] if first is not None else weakest, amounts, first
        weak, amounts, first = known
        waits = not unit.is_placed  # what runs started before, though it be at the same moment
        order = weak, -unit.priority, waits, unit.started, unit.is_surplus, unit.pods[0].uid
        entries.append((*order, unit, amounts, first))
    entries.sort(key=itemgetter(0, 1, 2, 3, 4, 5))
    return (entry[6:] for entry in entries)


_Placed = tuple[Unit, Amounts, int | None]
"""A unit in the order of the walk, with what it counts for there, and its lead."""
_Left = tuple[int, ...]
"""What is left of the guaranteed amounts, by place of the resource; below 0 where units took more along."""


class _WalkWithout:
    """The walk of a queue up to a unit that would run there, without units that have gone, and without one more.

    If that one is borrowed, nothing changes. Else all behind it stay as they are up to the first one that now fits;
    what becomes of the rest depends only on which one that is. So it is walked once for all victims before that one.
    """

    def __init__(self, usage: QuotaUsage, queue: Quota, units: Iterable[Unit], new: Unit) -> None:
        self._new, self._minimum = new, tuple(queue.minimum)
        self._before: list[tuple[Unit, Amounts, int]] = []
        """The units that come before it, with what they count for and their lead."""
        self._lead: int | None = None
        for unit, amounts, first in _in_order(usage, queue, [*units, new]):
            if first is None:
                break
            if unit is new:
                self._lead, self._amount = first, dict(amounts)[first]
                break
            self._before.append((unit, amounts, first))
        self._places = {unit: place for place, (unit, _, _) in enumerate(self._before)}
        self._has_surplus = new.is_surplus or any(unit.is_surplus for unit, _, _ in self._before)
        self._gone: frozenset[Unit] | None = None

    def rank(self, gone: frozenset[Unit], victim: Unit) -> int | None:
        """Return the rank of the unit that would run."""
        if self._lead is None:
            return None
        if gone != self._gone:
            self._begin(gone)
        place = self._places.get(victim)
        if place is None or place not in self._taken:
            return self._lead if self._is_guaranteed else None
        amounts = self._before[place][1]
        flips = self._flips(amounts)
        number = bisect_right(flips, place)
        if self._has_surplus and victim.gang is not None and not victim.is_surplus:
            found = self._walk(place, self._left[place], frozenset((*gone, victim)))
        elif number == len(flips):
            found = self._walk(len(self._before), self._plus(len(self._before), amounts), gone)
        else:
            key = amounts, flips[number]
            if key not in self._known:
                self._known[key] = self._walk(flips[number], self._plus(flips[number], amounts), gone)
            found = self._known[key]
        return self._lead if found else None

    def _begin(self, gone: frozenset[Unit]) -> None:
        """Walk without those that have gone."""
        self._gone = gone
        self._left: list[_Left] = []
        """By place, what is left before it."""
        self._taken: set[int] = set()
        self._borrowed: list[int] = []
        """The places of those that would be guaranteed if they fitted."""
        self._known: dict[tuple[Amounts, int], bool] = {}
        self._flips_of: dict[Amounts, list[int]] = {}
        self._is_guaranteed = self._walk(0, self._minimum, gone, notes=True)

    def _walk(self, start: int, left: _Left, gone: frozenset[Unit], *, notes: bool = False) -> bool:
        """Walk on from a place with what is left there; return whether the unit that would run is guaranteed."""
        guaranteed: set[Hashable] = set()
        """Gangs whose surplus may be guaranteed, too."""
        if self._has_surplus:
            taken = (self._before[place][0] for place in self._taken if place < start)
            guaranteed.update(unit.gang for unit in taken if unit.gang is not None and unit not in gone)
        for place in range(start, len(self._before)):
            unit, amounts, first = self._before[place]
            if notes:
                self._left.append(left)
            elif not self._has_surplus and left == self._left[place]:
                return self._is_guaranteed
            if unit in gone or (unit.is_surplus and unit.gang not in guaranteed):
                continue
            if self._fits(first, dict(amounts)[first], left):
                if unit.gang is not None and not unit.is_surplus:
                    guaranteed.add(unit.gang)
                left = _changed(left, amounts, -1)
                if notes:
                    self._taken.add(place)
            elif notes:
                self._borrowed.append(place)
        if notes:
            self._left.append(left)
        assert self._lead is not None
        is_eligible = not self._new.is_surplus or self._new.gang in guaranteed
        return is_eligible and self._fits(self._lead, self._amount, left)

    def _flips(self, amounts: Amounts) -> list[int]:
        """Return the places of those that would fit if so much more was left; ascending."""
        found = self._flips_of.get(amounts)
        if found is None:
            found = self._flips_of[amounts] = []
            for place in self._borrowed:
                _, wanted, first = self._before[place]
                if self._fits(first, dict(wanted)[first], self._plus(place, amounts)):
                    found.append(place)
        return found

    def _plus(self, place: int, amounts: Amounts) -> _Left:
        return _changed(self._left[place], amounts, 1)

    @staticmethod
    def _fits(first: int, amount: int, left: _Left) -> bool:
        return amount <= left[first]


def _changed(left: _Left, amounts: Amounts, step: int) -> _Left:
    found = list(left)
    for resource, amount in amounts:
        found[resource] += step * amount
    return tuple(found)
