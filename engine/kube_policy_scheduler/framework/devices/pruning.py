"""What is known of a search before it is begun: that it finds nothing, or which devices it need not try.

Each rule leaves the first full solution in the order of the plain search as it is:

- A request that has too few devices which it could take makes the claims impossible, and so do requests that together
  want more devices than there are of which all of theirs must be. A device that is given in shares counts as often as
  its capacity allows; devices that take of the same counter count at most as often as there is enough of it.
- For `matchAttribute`, a value counts only if all requests that must have it, together, have enough devices with it.
- For `distinctAttribute`, the requests together need as many values as devices.
- Devices that can stand for each other (the same requests can take them, and the attributes that constraints look at
  and the counters are equal) are one kind: where one of them led to nothing, so will the others.
- What failed once with as many devices of each kind taken fails again.

The last two need a search in which no device is taken twice: see `Pruned.is_clean`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, SlicedDevice
from kube_policy_scheduler.cluster.search_work import Work
from kube_policy_scheduler.framework.devices.candidates import DeviceCandidates, WantedDevices
from kube_policy_scheduler.framework.devices.constraints import (
    Constraint,
    DistinctAttribute,
    MatchAttribute,
    Value,
)

_MOST_KINDS = 256
"""Of devices: with more of them, what failed is not remembered."""
_MOST_FAILED = 20_000

Supply = TypeVar("Supply", bound=Hashable)


class CounterRoom(msgspec.Struct, frozen=True):
    """What a pool has left of the counter that is the first to be short if devices like one are taken."""

    counter: Hashable
    left: int
    takes: int
    """How much the device takes of it; more than 0."""


class Pruned(msgspec.Struct):
    """What is known of a search."""

    is_hopeless: bool = False
    """Whether it finds nothing, and comes to no error before."""
    is_clean: bool = False
    """Whether no device is taken twice, as in shares and by admin access, so that equal devices are one kind."""
    sign_of: dict[DeviceID, int] = msgspec.field(default_factory=dict)
    """The kind of each device that may be taken, if it is clean."""
    kinds: int = 0


class Dead:
    """What failed, by how many devices of each kind were taken."""

    def __init__(self, pruned: Pruned) -> None:
        self._sign_of = pruned.sign_of
        self._used = [0] * pruned.kinds
        self._failed: dict[Hashable, int] = {}
        self._is_kept = pruned.kinds <= _MOST_KINDS

    def take(self, device: DeviceID, step: int) -> None:
        """Count a device as taken (1), or no longer (-1)."""
        self._used[self._sign_of[device]] += step

    def key(self, *place: Hashable) -> Hashable:
        """Return what names a state of the search: where it is, and what is taken; None: it is not kept."""
        return (place, *self._used) if self._is_kept else None

    def knows(self, key: Hashable, start: int) -> bool:
        """Return whether a state is known to fail, with the devices from a place on."""
        return self._failed.get(key, start + 1) <= start

    def note(self, key: Hashable, start: int) -> None:
        """Note that a state failed."""
        if key is not None and len(self._failed) < _MOST_FAILED:
            self._failed[key] = min(start, self._failed.get(key, start))


class _Option:
    """One request or alternative, with the devices that it could take."""

    def __init__(self, wanted: WantedDevices, number: int, constraints: Sequence[Constraint]) -> None:
        self.wanted, self.number = wanted, number
        self.matching = [one for one in constraints if isinstance(one, MatchAttribute) and one.concerns(wanted.request)]
        self.concerning = [one for one in constraints if one.concerns(wanted.request)]
        self.usable: list[SlicedDevice] = []

    def by_value(self, rule: MatchAttribute) -> dict[Value, list[SlicedDevice]]:
        """Return the devices that it could take by their value of an attribute, where there are enough."""
        found: dict[Value, list[SlicedDevice]] = {}
        for device in self.usable:
            for value in _counted(rule, device):
                found.setdefault(value, []).append(device)
        return {value: devices for value, devices in found.items() if len(devices) >= self.wanted.count}

    @property
    def is_dead(self) -> bool:
        return len(self.usable) < self.wanted.count or (self.wanted.request.takes_all and not self.wanted.every)


class Pruning:
    """Looks at all devices of a node once."""

    def __init__(
        self,
        claims: Sequence[Sequence[Sequence[WantedDevices]]],
        constraints: Sequence[Sequence[Constraint]],
        times: Callable[[WantedDevices, SlicedDevice], float],
        room: Callable[[SlicedDevice], CounterRoom | None],
        work: Work,
    ) -> None:
        """Prepare it.

        Args:
            claims: for each claim and request its alternatives.
            constraints: of each claim.
            times: how often a request could take a device that it selects if nothing else were taken; constraints
                aside. More than once: in shares.
            room: what is left of counters for a device; None: it takes of none.
            work: pays for it.
        """
        numbers = iter(range(sum(len(each) for claim in claims for each in claim)))
        self._claims = [
            [[_Option(wanted, next(numbers), rules) for wanted in alternatives] for alternatives in claim]
            for claim, rules in zip(claims, constraints, strict=True)
        ]
        self._rules = constraints
        self._times, self._room, self._work = times, room, work
        self._most_times: dict[DeviceID, float] = {}
        """How often each device could be taken at most."""
        self._devices: dict[DeviceID, SlicedDevice] = {}

    def look(self) -> Generator[None, None, Pruned]:
        """Return what is known. Yields where other work should get its turn."""
        may_fail, is_clean = False, True
        for option in self._options():
            wanted, request = option.wanted, option.wanted.request
            if request.takes_all:
                may_fail |= bool(option.concerning)
                for device in wanted.every:
                    if (yield from self._usable(option, device)):
                        option.usable.append(device)
                considered = wanted.every
            else:
                place = 0
                while (yield from self._reach(wanted.candidates, place)):
                    device = wanted.candidates.found[place]
                    if place in wanted.candidates.errors:
                        may_fail = True
                    elif (yield from self._usable(option, device)):
                        option.usable.append(device)
                    place += 1
                considered = wanted.candidates.found
            is_clean &= not request.admin and not any(device.is_shared for device in considered)
        if may_fail:
            return Pruned()
        if (yield from self._is_hopeless()):
            return Pruned(is_hopeless=True)
        return (yield from self._with_kinds()) if is_clean else Pruned()

    def _options(self) -> Iterator[_Option]:
        return (option for claim in self._claims for alternatives in claim for option in alternatives)

    def _reach(self, candidates: DeviceCandidates, place: int) -> Generator[None, None, bool]:
        while (there := candidates.reach(place, self._work)) is None:
            yield
        return there

    def _usable(self, option: _Option, device: SlicedDevice) -> Generator[None, None, bool]:
        self._work.left_now -= 1
        if self._work.left_now < 0:
            yield
        if any(one.values_of(device) is None for one in option.concerning):
            return False
        times = self._times(option.wanted, device)
        if not times:
            return False
        self._devices[device.id] = device
        self._most_times[device.id] = max(times, self._most_times.get(device.id, 0.0))
        return True

    # --- whether there can be a solution -------------------------------------------------------------

    def _is_hopeless(self) -> Generator[None, None, bool]:
        changed = True
        while changed:
            changed = False
            for claim, rules in zip(self._claims, self._rules, strict=True):
                if any(all(option.is_dead for option in alternatives) for alternatives in claim):
                    return True
                for rule in rules:
                    self._work.left_now -= sum(len(option.usable) for each in claim for option in each)
                    if self._work.left_now < 0:
                        yield
                    if isinstance(rule, DistinctAttribute):
                        if self._has_too_few_values(claim, rule):
                            return True
                    elif isinstance(rule, MatchAttribute):
                        values = yield from self._possible_values(claim, rule)
                        if values is not None and not values:
                            return True
                        changed |= values is not None and _keep_only(claim, rule, values)
        wants = (
            [(option, option.usable) for option in _alive(alternatives)]
            for claim in self._claims
            for alternatives in claim
        )
        return self._want_too_many(wants)

    def _want_too_many(self, requests: Iterable[Sequence[tuple[_Option, Sequence[SlicedDevice]]]]) -> bool:
        """Return whether requests together want more devices than there are of which all of theirs must be.

        requests: for each its alternatives, with the devices that they could take.
        """
        wants: Counter[frozenset[DeviceID]] = Counter()
        for alternatives in requests:
            if not any(option.wanted.request.admin for option, _ in alternatives):
                devices = frozenset(device.id for _, usable in alternatives for device in usable)
                self._work.left_now -= len(devices)
                wants[devices] += min(option.wanted.count for option, _ in alternatives)
        return self._exceed(wants, self._most_of)

    def _exceed(self, wants: Counter[frozenset[Supply]], most_of: Callable[[frozenset[Supply]], float]) -> bool:
        """Return whether more is wanted of some things than there is.

        Args:
            wants: how many things, by those that they may be.
            most_of: how many of some things there are.
        """
        for within in {*wants, frozenset[Supply]().union(*wants)}:
            self._work.left_now -= len(wants)
            if sum(count for things, count in wants.items() if things <= within) > most_of(within):
                return True
        return False

    def _most_of(self, devices: frozenset[DeviceID]) -> float:
        """Return how often some devices can be taken together, at most."""
        most = 0.0
        by_counter: dict[Hashable, tuple[int, int, int]] = {}
        for each in devices:
            times, device = self._most_times[each], self._devices[each]
            room = self._room(device) if device.counters and not device.is_shared else None
            if room is None:
                most += times
            else:
                _, least, number = by_counter.get(room.counter, (0, room.takes, 0))
                by_counter[room.counter] = room.left, min(least, room.takes), number + 1
        return most + sum(min(number, left // least) for left, least, number in by_counter.values())

    def _possible_values(
        self, claim: Sequence[Sequence[_Option]], rule: MatchAttribute
    ) -> Generator[None, None, set[Value] | None]:
        """Return the values of an attribute that all devices may have in common; None: any, it is about no request."""
        joined: list[list[tuple[_Option, dict[Value, list[SlicedDevice]]]]] = []
        possible: set[Value] | None = None
        for alive in map(_alive, claim):
            if all(rule in option.matching for option in alive):
                joined.append([(option, option.by_value(rule)) for option in alive])
                values = {value for _, by_value in joined[-1] for value in by_value}
                possible = values if possible is None else possible & values
                if self._work.left_now < 0:
                    yield
        if possible is None or len(joined) == 1:
            return possible
        found: set[Value] = set()
        for value in possible:
            alternatives = ([(option, known[value]) for option, known in each if value in known] for each in joined)
            if not self._want_too_many(alternatives):
                found.add(value)
            if self._work.left_now < 0:
                yield
        return found

    def _has_too_few_values(self, claim: Sequence[Sequence[_Option]], rule: DistinctAttribute) -> bool:
        """Return whether requests whose devices must all differ in an attribute have too few values of it together."""
        wants: Counter[frozenset[Value]] = Counter()
        for alive in map(_alive, claim):
            if all(rule in option.concerning for option in alive):
                values = frozenset[Value]().union(
                    *(_counted(rule, device) for option in alive for device in option.usable)
                )
                wants[values] += min(option.wanted.count for option in alive)
        return self._exceed(wants, len)

    # --- devices that can stand for each other -------------------------------------------------------

    def _with_kinds(self) -> Generator[None, None, Pruned]:
        by_name = {rule.name: rule for rules in self._rules for rule in rules}
        takers: dict[DeviceID, list[int]] = {}
        devices: dict[DeviceID, SlicedDevice] = {}
        for option in self._options():
            if option.is_dead:
                option.usable = option.wanted.every = []
            self._work.left_now -= len(option.usable)
            if self._work.left_now < 0:
                yield
            for device in option.usable:
                devices[device.id] = device
                takers.setdefault(device.id, []).append(option.number)
        numbers: dict[Hashable, int] = {}
        signs: dict[DeviceID, int] = {}
        for identity, device in devices.items():
            key = (
                tuple(takers[identity]),
                tuple(rule.values_of(device) for rule in by_name.values()),
                (device.slice.pool, _frozen(device)) if device.counters else None,
            )
            signs[identity] = numbers.setdefault(key, len(numbers))
        for option in self._options():
            wanted = option.wanted
            if not wanted.request.takes_all:
                wanted.candidates = DeviceCandidates(())
                wanted.candidates.found = option.usable
                wanted.signs = [signs[device.id] for device in option.usable]
                wanted.amounts.clear()
        return Pruned(is_clean=True, sign_of=signs, kinds=len(numbers))


def _frozen(device: SlicedDevice) -> Hashable:
    return tuple(
        sorted((name, counter, amount) for name, one in device.counters.items() for counter, amount in one.items())
    )


_OF_NO_TYPE: Value = ("", None)


def _counted(rule: Constraint, device: SlicedDevice) -> frozenset[Value]:
    """Return the values of a device that a constraint counts, one that nobody else has if its type does not count."""
    return rule.values_of(device) or frozenset((_OF_NO_TYPE,))


def _alive(alternatives: Sequence[_Option]) -> list[_Option]:
    return [option for option in alternatives if not option.is_dead]


def _keep_only(claim: Sequence[Sequence[_Option]], rule: MatchAttribute, values: set[Value]) -> bool:
    """Leave out devices with other values; return whether there were any."""
    changed = False
    for alternatives in claim:
        for option in alternatives:
            if rule in option.matching and not option.wanted.request.takes_all:
                left = [device for device in option.usable if not values.isdisjoint(_counted(rule, device))]
                changed |= len(left) < len(option.usable)
                option.usable = left
    return changed
