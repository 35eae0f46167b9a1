"""The search for devices on one node: kube-scheduler's "incubating" allocator, step by step.

Claims in order, their requests in order, the first alternative with a full solution. Depth first, and the
first full solution wins. A candidate that is rejected leaves nothing behind. In kube-scheduler up to 1.36.2 its
counters stay taken for the rest of the search, and `distinctAttribute` forgets values; which devices a claim may
have does not depend on that, so a server of those versions gets the repaired rules, too.

Long work is a generator: it yields where other work should get its turn, and its caller decides whether it does. What
takes more than a few steps is looked at as a whole first, see `pruning`: the answer is the same, and comes sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from math import inf
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.devices.alpha_fields import COMPATIBILITY_GROUPS, with_gate
from kube_policy_scheduler.cluster.devices.resource_claims import DevicesInUse, TriedDevices, is_in_use
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, Pool, PoolID, SlicedDevice
from kube_policy_scheduler.cluster.search_work import UNLIMITED, Work
from kube_policy_scheduler.framework.devices.candidates import (
    DeviceCandidates,
    KeptCandidates,
    NodePools,
    WantedDevices,
    candidates_in_order,
    candidates_on,
)
from kube_policy_scheduler.framework.devices.constraints import Constraint, read_constraint
from kube_policy_scheduler.framework.devices.pruning import CounterRoom, Dead, Pruning
from kube_policy_scheduler.framework.devices.requests import (
    MAX_RESULTS,
    AllocationError,
    ClaimRequests,
    NodeRejected,
    Request,
)
from kube_policy_scheduler.kubernetes_rules import Feature
from kube_policy_scheduler.quantities.exact_quantity import Quantity


class NoDevices(StrEnum):
    """Why the claims of a pod get no devices of a node, in kube-scheduler's words."""

    CANNOT_ALLOCATE = "cannot allocate all claims"
    INVALID_POOLS = "invalid resource pools were encountered"


TIMED_OUT = "timed out trying to allocate devices"
MOST_STEPS = 400_000
"""Candidates that are tried on one node; kube-scheduler stops after 10 s instead."""
_STEPS_UNPRUNED = 200
"""Candidates that are tried before all devices are looked at together: most claims need fewer."""
_PASSED_OVER = 0.125
"""Steps for a candidate that is passed over, because one that is equal led to nothing."""

Rank: TypeAlias = Callable[[Sequence[SlicedDevice]], Sequence[tuple[Any, ...]]]
"""From devices to what each sorts by."""


class Chosen(msgspec.Struct, frozen=True):
    """One device for one request."""

    request: Request
    device: SlicedDevice
    shared: bool
    """Whether others may use it too."""
    consumed: Mapping[str, Quantity] | None
    """What is consumed of its capacities, if it is shared."""


class NodeAllocation(msgspec.Struct, frozen=True):
    """What the claims of a pod get on a node, or why they get nothing."""

    claims: tuple[tuple[Chosen, ...], ...] | None
    """For each claim its devices in the order of results; None if not all claims can be allocated."""
    rejection: str = ""
    """Why this node has nothing for them: a `NoDevices`, or other words."""
    error: str = ""
    """What ends the whole attempt to schedule the pod."""
    alternatives: tuple[tuple[int, ...], ...] = ()
    """For each claim and request, which alternative was taken."""
    requests: tuple[tuple[tuple[Request, ...], ...], ...] = ()
    """For each claim its requests, with their alternatives."""
    is_long: bool = False
    """Whether the devices had to be looked at together before it was known that they do not suffice."""


_REJECTED = {
    (rejection, is_long): NodeAllocation(None, rejection, is_long=is_long)
    for rejection in NoDevices
    for is_long in (False, True)
}


def allocate_in_steps(
    claims: Sequence[ClaimRequests],
    node: NodePools,
    allocated: DevicesInUse,
    *,
    rank: Rank | None = None,
    most_steps: int = MOST_STEPS,
    work: Work = UNLIMITED,
    kept: KeptCandidates | None = None,
    steps_unpruned: int | None = None,
) -> Generator[None, None, NodeAllocation]:
    """Return what claims get on a node. Yields where `work` is used up: go on, or give it up.

    Args:
        claims: the unallocated claims, in order.
        node: with its pools.
        allocated: devices in use by any claim of the cluster.
        rank: what each device of the node sorts by, the smallest is tried first; None: the order of the pools.
        most_steps: candidates to try.
        work: pays for everything.
        kept: what other nodes found in the pools that they see, too; None: nothing is kept.
        steps_unpruned: candidates to try before the devices are looked at together; None: as many as usual.
    """
    candidates = candidates_on(node, allocated, kept)
    if rank is not None:
        devices = node.devices()
        work.left_now -= len(devices)
        keys = rank(devices)
        in_order = [devices[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]
        candidates = candidates_in_order(in_order, allocated, node.node)
    search, is_long = _Search(claims, node, allocated, candidates, work), False
    try:
        first = yield from search.first_fit()
        if first is not None:
            return NodeAllocation((first,), alternatives=_FIRST, requests=(claims[0].requests,))
        try:
            found = yield from search.run(
                min(most_steps, _STEPS_UNPRUNED if steps_unpruned is None else steps_unpruned)
            )
        except _TooManySteps:
            search = _Search(claims, node, allocated, candidates, work)
            is_long = True
            found = yield from search.run(most_steps, prunes=True)
    except AllocationError as error:
        return NodeAllocation(None, error=str(error))
    except NodeRejected as rejected:
        return NodeAllocation(None, str(rejected), is_long=is_long)
    except _TooManySteps:
        return NodeAllocation(None, error=f"node {node.name}: {TIMED_OUT}")
    except RecursionError:
        return NodeAllocation(None, error=f"node {node.name}: too many devices are requested at once")
    if found:
        return NodeAllocation(
            tuple(map(tuple, search.results)),
            alternatives=search.chosen_alternatives(),
            requests=tuple(claim.requests for claim in claims),
        )
    if node.has_invalid:
        return _REJECTED[NoDevices.INVALID_POOLS, is_long]
    if left_out := search.left_out():
        return NodeAllocation(None, _needing(left_out), is_long=is_long)
    return _REJECTED[NoDevices.CANNOT_ALLOCATE, is_long]


def _needing(fields: set[str]) -> str:
    """Return why devices are no choice that have fields of alpha feature gates."""
    named = ", ".join(map(with_gate, sorted(fields)))
    return f"{NoDevices.CANNOT_ALLOCATE}: devices with {named} are left out"


ANY_NUMBER = 2**31
"""Of pods: devices suffice for more than are counted."""
_MOST_PLACES = 64
"""Pods that are tried one after another on one node."""


def places_in_steps(
    claims: Sequence[ClaimRequests],
    node: NodePools,
    allocated: DevicesInUse | None,
    *,
    rank: Rank | None = None,
    work: Work = UNLIMITED,
) -> Generator[None, None, int]:
    """Return for how many pods with such claims, one after another, a node has the devices.

    `ANY_NUMBER` if that takes too long, or if they take nothing from each other.

    allocated: devices in use; None: none is. Others as in `allocate_in_steps`.
    """
    tried = TriedDevices(allocated)
    search = _Search(claims, node, tried, candidates_on(node, tried, None), work)
    found = yield from search.first_fits()
    if found is not None:
        return found
    for number in range(_MOST_PLACES):
        one = yield from allocate_in_steps(claims, node, tried, rank=rank, most_steps=_MOST_STEPS_AGAIN, work=work)
        if one.claims is None:
            return number if not one.error else ANY_NUMBER
        taken = [chosen for claim in one.claims for chosen in claim if not chosen.request.admin]
        if not any(not chosen.shared or chosen.consumed for chosen in taken):
            break  # they take nothing from others
        for chosen in taken:
            tried.take(chosen.device.id, chosen.consumed, shared=chosen.shared)
    return ANY_NUMBER


_MOST_STEPS_AGAIN = 4_000
"""Candidates that are tried on one node for each of several pods."""
_FIRST = ((0,),)
"""The alternatives taken for one claim with one request."""


class _TooManySteps(Exception):
    """The search has tried more candidates than the limit."""


class _TooManyResults(Exception):
    """With this alternative a claim would get more devices than results can hold."""


class _Search:
    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        node: NodePools,
        allocated: DevicesInUse,
        candidates: Callable[[Request], DeviceCandidates],
        work: Work,
    ) -> None:
        self._claims, self._node = claims, node.node
        self._pools = {pool.id: pool for pool in node.pools}
        self._allocated = allocated
        self._candidates, self._work = candidates, work
        self._wanted: list[list[list[WantedDevices]]] = []
        self._constraints: list[list[Constraint]] = []
        self.results: list[list[Chosen]] = [[] for _ in claims]
        self._taken: dict[tuple[int, int], int] = {}
        self._allocating: dict[DeviceID, set[int]] = {}
        self._consuming = _Consuming()
        self._counters = _Counters(allocated, work)
        self._left_out: set[str] = set()
        """Fields that kept devices from being all that a request wants: see `alpha_fields`."""
        self._steps = 0
        self._dead: Dead | None = None
        """What is known to fail; None: nothing is kept."""

    def first_fit(self) -> Generator[None, None, tuple[Chosen, ...] | None]:
        """Return the first devices that one request gets, if nothing can make the search go back; None: ask `run`.

        That is what most claims are: one request for a number of devices, without constraints, and devices without
        shares and counters. It finds what `run` finds, in a fraction of the time.

        Raises:
            AllocationError: a selector has no result.
        """
        request, found = self._only_request(), list[SlicedDevice]()
        if request is None:
            return None
        is_sure = yield from self._find_first(request, request.count, found)
        if not is_sure or len(found) < request.count:
            return None
        return tuple(Chosen(request, device, False, None) for device in found)

    def first_fits(self) -> Generator[None, None, int | None]:
        """Return how often the claims fit one after another, if `first_fit` can tell; None: it can't.

        A selector without a result on some device ends the count there, as it ends the attempt of the next pod.
        """
        request, found = self._only_request(), list[SlicedDevice]()
        if request is None:
            return None
        try:
            is_sure = yield from self._find_first(request, None, found)
            if not is_sure:
                return None
        except AllocationError:
            pass
        return len(found) // request.count

    def _only_request(self) -> Request | None:
        """Return the request of the claims if there is one, for a number of devices and without constraints."""
        if len(self._claims) != 1 or len(self._claims[0].requests) != 1 or self._claims[0].constraints:
            return None
        request = self._claims[0].requests[0][0]
        if request.parent or request.takes_all or request.admin or request.capacity:
            return None
        return request if 0 < request.count <= MAX_RESULTS else None

    def _find_first(self, request: Request, most: int | None, found: list[SlicedDevice]) -> Generator[None, None, bool]:
        """Add the first devices for a request, at most this many; return False if some before have shares or counters.

        Raises:
            AllocationError: a selector has no result.
        """
        candidates, place = self._candidates(request), 0
        while True:
            while (there := candidates.reach(place, self._work)) is None:
                yield
            if not there:
                return True
            device = candidates.found[place]
            if place in candidates.errors:
                raise candidates.errors[place]
            if not device.is_plain:
                return False
            if request.tolerates(device):
                found.append(device)
                if len(found) == most:
                    return True
            place += 1

    def run(self, most_steps: int, *, prunes: bool = False) -> Generator[None, None, bool]:
        """Return whether all claims can be allocated; `results` holds how.

        Args:
            most_steps: candidates to try.
            prunes: whether to look at all devices first.

        Raises:
            AllocationError: the result cannot be determined.
            _TooManySteps: it is not known after this many.
        """
        self._steps = most_steps
        for claim in self._claims:
            least = 0
            alternatives: list[list[WantedDevices]] = []
            for requests in claim.requests:
                one = []
                for request in requests:
                    one.append((yield from self._prepare(request)))
                alternatives.append(one)
                least += min(wanted.count for wanted in one)
            if least > MAX_RESULTS:
                text = f"number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
                raise AllocationError(f"claim {claim.key}: {text}")
            self._wanted.append(alternatives)
            self._constraints.append(
                [read_constraint(claim.key, i, one, claim.rules) for i, one in enumerate(claim.constraints)]
            )
        if prunes:
            looked_at = Pruning(self._wanted, self._constraints, self._times, self._room, self._work)
            pruned = yield from looked_at.look()
            if pruned.is_hopeless:
                return False
            if pruned.is_clean:
                self._dead = Dead(pruned)
        try:
            return (yield from self._next_request(0, 0))
        except _TooManyResults:
            return False

    def left_out(self) -> set[str]:
        """Return the fields that kept the devices that were examined from being candidates."""
        candidates = [one.candidates for claim in self._wanted for each in claim for one in each]
        return self._left_out.union(self._counters.left_out, *(one.left_out for one in candidates))

    def chosen_alternatives(self) -> tuple[tuple[int, ...], ...]:
        """Return which alternative each request got."""
        return tuple(
            tuple(self._taken.get((place, number), 0) for number in range(len(claim.requests)))
            for place, claim in enumerate(self._claims)
        )

    def _prepare(self, request: Request) -> Generator[None, None, WantedDevices]:
        if not request.takes_all:
            return WantedDevices(request, request.count, [], self._candidates(request))
        every, left_out = list[SlicedDevice](), set[str]()
        for pool in self._pools.values():
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                text = f"asks for all devices, but resource pool {pool.id} is currently {state}"
                rejects = Feature.BROKEN_POOLS_REJECT_NODES in request.rules
                raise (NodeRejected if rejects else AllocationError)(
                    f"claim {request.claim}, request {request.name}: {text}"
                )
            for device in pool.devices:
                while (selects := self._selects(request, device)) is None:
                    yield
                if selects and device.alpha_field:
                    left_out.add(device.alpha_field)
                elif selects:
                    amounts = request.consumes(device)
                    if amounts is not None and self._has_capacity(device, amounts):
                        every.append(device)
        if left_out:  # then it cannot have all
            self._left_out |= left_out
            every.clear()
        return WantedDevices(request, len(every), every, DeviceCandidates(()))

    def _times(self, wanted: WantedDevices, device: SlicedDevice) -> float:
        """Return how often a request could take a device that it selects, if this search took nothing else."""
        request, identity = wanted.request, device.id
        if not request.admin and is_in_use(device, self._allocated):
            return 0
        amounts = request.consumes(device)
        if amounts is None or not self._has_capacity(device, amounts) or not request.tolerates(device):
            return 0
        if device.is_shared:
            used = self._allocated.consumed(identity) or {}
            return min(
                (
                    (device.capacity(name).nanos - (used[name].nanos if name in used else 0)) // amount.nanos
                    for name, amount in amounts.items()
                    if amount.nanos > 0
                ),
                default=inf,
            )
        return not device.counters or self._counters.could_take(device, self._pools[device.slice.pool])

    def _room(self, device: SlicedDevice) -> CounterRoom | None:
        return self._counters.room(device, self._pools[device.slice.pool])

    # --- the order of the search ---------------------------------------------------------------------

    def _next_request(self, claim: int, number: int) -> Generator[None, None, bool]:
        """Allocate a request of a claim and all after it."""
        if claim >= len(self._claims):
            return True
        requests = self._wanted[claim]
        if number >= len(requests):
            try:
                return (yield from self._next_request(claim + 1, 0))
            except _TooManyResults:
                return False
        alternatives = requests[number]
        if not alternatives[0].request.parent:
            return (yield from self._next_device(claim, number, alternatives[0], 0, 0))
        exceeded = True
        for place, wanted in enumerate(alternatives):
            try:
                found = yield from self._next_device(claim, number, wanted, 0, 0)
            except _TooManyResults:
                continue
            exceeded = False
            if found:
                self._taken[claim, number] = place
                return True
        if exceeded:
            raise _TooManyResults
        return False

    def _next_device(
        self, claim: int, number: int, wanted: WantedDevices, done: int, start: int
    ) -> Generator[None, None, bool]:
        """Allocate the devices of a request from the `done`th on, looking from `start` on, and then the rest."""
        request = wanted.request
        self._count_step()
        if request.takes_all and not wanted.every:
            return False
        if done >= wanted.count:
            return (yield from self._next_request(claim, number + 1))
        if len(self.results[claim]) + wanted.count - done > MAX_RESULTS:
            raise _TooManyResults
        if request.takes_all:
            undo = self._take(claim, wanted, wanted.every[done], must=True)
            if undo is None:
                return False
            try:
                is_done = yield from self._next_device(claim, number, wanted, done + 1, 0)
            except (AllocationError, _TooManyResults):
                undo()
                raise
            if not is_done:
                undo()
            return is_done
        key = self._state(claim, number, wanted, done)
        if self._dead is not None and self._dead.knows(key, start):
            return False
        candidates, signs = wanted.candidates, wanted.signs
        found, work = candidates.found, self._work
        failed: set[int] = set()
        for place in count(start):
            while place >= len(found) and (there := candidates.reach(place, work)) is not True:
                if there is False:
                    break
                yield
            if place >= len(found):
                break
            if signs is not None:
                if len(found) - place < wanted.count - done:
                    break
                if signs[place] in failed:
                    work.left_now -= _PASSED_OVER
                    continue
            self._count_step()
            if work.left_now < 0:
                yield
            device = found[place]
            if self._is_taken(claim, request, device.id):
                continue
            if place in candidates.errors:
                raise candidates.errors[place]
            amounts = wanted.consumed_of(place)
            if amounts is None or not self._has_capacity(device, amounts):
                continue
            undo = self._take(claim, wanted, device, must=False)
            if undo is not None:
                try:
                    is_done = yield from self._next_device(claim, number, wanted, done + 1, place + 1)
                except (AllocationError, _TooManyResults):
                    undo()
                    raise
                if is_done:
                    return True
                undo()
            if signs is not None:
                failed.add(signs[place])
        if self._dead is not None:
            self._dead.note(key, start)
        return False

    def _state(self, claim: int, number: int, wanted: WantedDevices, done: int) -> Hashable:
        """Return what names a state of the search; None: it is not kept."""
        if self._dead is None:
            return None
        rules = tuple(one.state for one in self._constraints[claim])
        self._work.left_now -= 1
        return self._dead.key(claim, number, id(wanted), done, len(self.results[claim]), rules)

    def _is_taken(self, claim: int, request: Request, device: DeviceID) -> bool:
        """Return whether this search took a device already, so that a request cannot have it."""
        users = self._allocating.get(device)
        return users is not None and bool(users) and (not request.admin or claim in users)

    def _count_step(self) -> None:
        self._steps -= 1
        self._work.left_now -= 1
        if self._steps < 0:
            raise _TooManySteps

    # --- one device ----------------------------------------------------------------------------------

    def _selects(self, request: Request, device: SlicedDevice) -> bool | None:
        if self._work.left_now < 0:
            return None
        self._work.left_now -= 1
        selects = request.selects(device, self._work)
        if not selects or not device.slice.slice.spec.per_device_node_selection:
            return selects
        return device.is_on(*self._node)

    def _has_capacity(self, device: SlicedDevice, amounts: Mapping[str, Quantity]) -> bool:
        if not amounts:
            return True
        used = self._allocated.consumed(device.id) or {}
        for name, amount in amounts.items():
            nanos = amount.nanos + self._consuming.nanos(device.id, name)
            if name in used:
                nanos += used[name].nanos
            if nanos > device.capacity(name).nanos:
                return False
        return True

    def _take(
        self, claim: int, wanted: WantedDevices, device: SlicedDevice, *, must: bool
    ) -> Callable[[], None] | None:
        """Take a device for a claim; return what releases it, None if it is not available."""
        request = wanted.request
        if self._is_unavailable(claim, request, device) or not self._take_counters(device):
            return None
        amounts = self._enter(claim, request, device, must=must)
        if amounts is None:
            self._give_back_counters(device)
            return None
        identity, shared = device.id, device.is_shared
        users = self._allocating.setdefault(identity, set())
        if shared:
            self._consuming.take(identity, amounts)
        else:
            users.add(claim)
        results = self.results[claim]
        before = len(results)
        results.append(Chosen(request, device, shared, amounts if shared and amounts else None))
        if self._dead is not None:
            self._dead.take(identity, 1)

        def undo() -> None:
            for constraint in self._constraints[claim]:
                constraint.remove(request)
            users.discard(claim)
            if shared:
                self._consuming.give_back(identity)
            self._give_back_counters(device)
            if self._dead is not None:
                self._dead.take(identity, -1)
            del results[before:]

        return undo

    def _is_unavailable(self, claim: int, request: Request, device: SlicedDevice) -> bool:
        """Return whether a request cannot have a device, whatever else it takes."""
        if request.admin:
            is_used = not device.is_shared and claim in self._allocating.get(device.id, ())
        else:
            is_used = is_in_use(device, self._allocated) or bool(self._allocating.get(device.id))
        return is_used or not request.tolerates(device)

    def _enter(
        self, claim: int, request: Request, device: SlicedDevice, *, must: bool
    ) -> Mapping[str, Quantity] | None:
        """Enter a device into the constraints of a claim; return what it takes of its capacities.

        None, and it is in none of them, if one does not allow it or the capacities do not suffice.
        """
        constraints = self._constraints[claim]
        for place, constraint in enumerate(constraints):
            if not constraint.add(request, device):
                if must:
                    text = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                    raise AllocationError(f"claim {request.claim}, request {request.name}: {text}")
                for earlier in constraints[:place]:
                    earlier.remove(request)
                return None
        amounts = request.consumes(device)
        if amounts is None or not self._has_capacity(device, amounts):
            for constraint in constraints:
                constraint.remove(request)
            return None
        return amounts

    def _take_counters(self, device: SlicedDevice) -> bool:
        """Take what a device needs of counters, if its first share does not yet; return whether there is enough."""
        return not self._pays(device) or self._counters.take(device, self._pools[device.slice.pool])

    def _give_back_counters(self, device: SlicedDevice) -> None:
        if self._pays(device):
            self._counters.give_back(device, self._pools[device.slice.pool])

    def _pays(self, device: SlicedDevice) -> bool:
        """Return whether taking a device takes of counters: of one that is shared, only the first share does."""
        return bool(device.counters) and not (
            device.is_shared and (self._allocated.in_shares(device.id) or device.id in self._consuming)
        )


class _Consuming:
    """The shares that a search has taken."""

    def __init__(self) -> None:
        self._shares: dict[DeviceID, list[Mapping[str, Quantity]]] = {}

    def __contains__(self, device: DeviceID) -> bool:
        """Return whether a share of a device is taken."""
        return device in self._shares

    def nanos(self, device: DeviceID, name: str) -> int:
        """Return how much is taken of a capacity, in billionths."""
        return sum(amounts[name].nanos for amounts in self._shares.get(device, ()))

    def take(self, device: DeviceID, amounts: Mapping[str, Quantity]) -> None:
        """Take a share."""
        self._shares.setdefault(device, []).append(amounts)

    def give_back(self, device: DeviceID) -> None:
        """Give the last share of a device back."""
        shares = self._shares[device]
        shares.pop()
        if not shares:
            del self._shares[device]


_COUNTERS_A_STEP = 8
"""Counters, or devices that may have taken of them, that are looked at in a step."""


class _Counters:
    """Shared counters of the pools of one search."""

    def __init__(self, allocated: DevicesInUse, work: Work) -> None:
        self._allocated, self._work = allocated, work
        self._left: dict[PoolID, dict[tuple[str, str], int]] = {}
        """What is left after this search."""
        self._closed: dict[PoolID, frozenset[str]] = {}
        """Counter sets that devices with compatibility groups take of, which nobody can say the others go with."""
        self.left_out: set[str] = set()
        """Fields that kept devices from being taken: see `alpha_fields`."""

    def take(self, device: SlicedDevice, pool: Pool) -> bool:
        """Take what a device needs; return whether there is enough, of every counter of the pool."""
        left = self._left_of(pool)
        if not self._closed[pool.id].isdisjoint(device.counters):
            self.left_out.add(COMPATIBILITY_GROUPS)
            return False
        self._change(device, left, -1)
        if min(left.values(), default=0) < 0:
            self._change(device, left, 1)
            return False
        return True

    def could_take(self, device: SlicedDevice, pool: Pool) -> bool:
        """Return whether there is enough for a device."""
        could = self.take(device, pool)
        if could:
            self.give_back(device, pool)
        return could

    def room(self, device: SlicedDevice, pool: Pool) -> CounterRoom | None:
        """Return what is left of the counter that is the first to be short if devices like one are taken."""
        left = self._left_of(pool)
        rooms = (
            CounterRoom((pool.id, name, counter), left[name, counter], amount)
            for name, amounts in device.counters.items()
            for counter, amount in amounts.items()
            if amount > 0
        )
        return min(rooms, key=lambda one: one.left // one.takes, default=None)

    def give_back(self, device: SlicedDevice, pool: Pool) -> None:
        """Release what a device took, or would have taken."""
        self._change(device, self._left_of(pool), 1)

    def _left_of(self, pool: Pool) -> dict[tuple[str, str], int]:
        left = self._left.get(pool.id)
        if left is None:
            self._work.left_now -= (len(pool.devices) + len(pool.elsewhere)) // _COUNTERS_A_STEP
            left = self._left[pool.id] = counters_left(pool, self._allocated)
            self._closed[pool.id] = frozenset(
                name
                for device in (*pool.devices, *pool.elsewhere)
                if device.alpha_field == COMPATIBILITY_GROUPS and self._allocated.is_allocated(device.id)
                for name in device.counters
            )
        self._work.left_now -= len(left) // _COUNTERS_A_STEP
        return left

    @staticmethod
    def _change(device: SlicedDevice, left: dict[tuple[str, str], int], step: int) -> None:
        for name, amounts in device.counters.items():
            for counter, amount in amounts.items():
                left[name, counter] += step * amount


def counters_left(pool: Pool, allocated: DevicesInUse) -> dict[tuple[str, str], int]:
    """Return what devices in use leave of a pool's counters, in billionths, by counter set and counter."""
    left = {(name, counter): amount for name, one in pool.counters.items() for counter, amount in one.items()}
    for device in (*pool.devices, *pool.elsewhere):
        if device.counters and allocated.is_allocated(device.id):
            for name, amounts in device.counters.items():
                for counter, amount in amounts.items():
                    left[name, counter] -= amount
    return left
