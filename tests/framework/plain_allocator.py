"""The search for devices as kube-scheduler 1.36 does it, candidate by candidate: what `allocator` must come to, faster.

Claims in order, their requests in order, the first alternative with a full solution. Depth first, and the
first full solution wins. Nothing is left out, nothing is kept, and it does not pause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_claims import DevicesInUse
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, Pool, PoolID, SlicedDevice, quantity_or_zero
from kube_policy_scheduler.cluster.search_work import UNLIMITED
from kube_policy_scheduler.framework.devices.allocator import (
    TIMED_OUT,
    Chosen,
    NodeAllocation,
    NoDevices,
    counters_left,
)
from kube_policy_scheduler.framework.devices.constraints import attribute_of
from kube_policy_scheduler.framework.devices.requests import (
    MAX_RESULTS,
    AllocationError,
    ClaimRequests,
    Request,
)
from kube_policy_scheduler.quantities.exact_quantity import Quantity


def plain_allocate(
    claims: Sequence[ClaimRequests],
    pools: Sequence[Pool],
    allocated: DevicesInUse,
    *,
    node_name: str,
    labels: Mapping[str, str],
    most_steps: int,
) -> NodeAllocation:
    """Return what claims get on a node; see `allocator.allocate_in_steps`."""
    search = _Search(claims, pools, allocated, node_name, labels, most_steps=most_steps)
    try:
        found = search.run()
    except AllocationError as error:
        return NodeAllocation(None, error=str(error))
    except _TooManySteps:
        return NodeAllocation(None, error=f"node {node_name}: {TIMED_OUT}")
    if found:
        return NodeAllocation(
            tuple(map(tuple, search.results)),
            alternatives=search.chosen_alternatives(),
            requests=tuple(claim.requests for claim in claims),
        )
    return NodeAllocation(
        None, NoDevices.INVALID_POOLS if any(pool.invalid for pool in pools) else NoDevices.CANNOT_ALLOCATE
    )


class _TooManySteps(Exception):
    """The search has tried more candidates than the limit."""


class _TooManyResults(Exception):
    """With this alternative a claim would get more devices than results can hold."""


class _Wanted(msgspec.Struct):
    """One request or alternative in the search."""

    request: Request
    count: int
    every: list[SlicedDevice]
    """The requested devices if it takes all."""
    unusable: bytearray
    """For each device of the node: 1 if it can never be used, 2 if selectors and capacity match."""
    amounts: dict[int, dict[str, Quantity] | None] = msgspec.field(default_factory=dict)
    """What the request would take of a device, by its index; None if the device is not suitable."""


class _Constraint(Protocol):
    def add(self, request: Request, device: SlicedDevice) -> bool: ...

    def remove(self, request: Request) -> None: ...


class _Search:
    def __init__(
        self,
        claims: Sequence[ClaimRequests],
        pools: Sequence[Pool],
        allocated: DevicesInUse,
        node_name: str,
        labels: Mapping[str, str],
        *,
        most_steps: int,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._allocated = allocated
        self._node = (node_name, labels)
        self._devices: list[tuple[SlicedDevice, Pool]] = [
            (device, pool) for pool in pools if not pool.incomplete and not pool.invalid for device in pool.devices
        ]
        self._wanted: list[list[list[_Wanted]]] = []
        self._constraints: list[list[_Constraint]] = []
        self.results: list[list[Chosen]] = [[] for _ in claims]
        self._taken: dict[tuple[int, int], int] = {}
        self._allocating: dict[DeviceID, set[int]] = {}
        self._consuming: dict[DeviceID, dict[str, Quantity]] = {}
        self._counters = _Counters(allocated)
        self._steps = most_steps

    def run(self) -> bool:
        """Return whether all claims can be allocated; `results` holds how.

        Raises:
            AllocationError: the result cannot be determined.
        """
        for claim in self._claims:
            least = 0
            alternatives = [[self._prepare(request) for request in requests] for requests in claim.requests]
            for one in alternatives:
                least += min(wanted.count for wanted in one)
            if least > MAX_RESULTS:
                text = f"number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
                raise AllocationError(f"claim {claim.key}: {text}")
            self._wanted.append(alternatives)
            self._constraints.append([_constraint(claim.key, i, one) for i, one in enumerate(claim.constraints)])
        try:
            return self._next_request(0, 0)
        except _TooManyResults:
            return False

    def chosen_alternatives(self) -> tuple[tuple[int, ...], ...]:
        """Return which alternative each request got."""
        return tuple(
            tuple(self._taken.get((place, number), 0) for number in range(len(claim.requests)))
            for place, claim in enumerate(self._claims)
        )

    def _prepare(self, request: Request) -> _Wanted:
        if not request.takes_all:
            return _Wanted(request, request.count, [], bytearray(len(self._devices)))
        every: list[SlicedDevice] = []
        for pool in self._pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                text = f"asks for all devices, but resource pool {pool.id} is currently {state}"
                raise AllocationError(f"claim {request.claim}, request {request.name}: {text}")
            for device in pool.devices:
                if self._selects(request, device):
                    amounts = request.consumes(device.device)
                    if amounts is not None and self._has_capacity(device, amounts):
                        every.append(device)
        return _Wanted(request, len(every), every, bytearray(len(self._devices)))

    # --- the order of the search ---------------------------------------------------------------------

    def _next_request(self, claim: int, number: int) -> bool:
        """Allocate a request of a claim and all after it."""
        if claim >= len(self._claims):
            return True
        requests = self._wanted[claim]
        if number >= len(requests):
            try:
                return self._next_request(claim + 1, 0)
            except _TooManyResults:
                return False
        alternatives = requests[number]
        if not alternatives[0].request.parent:
            return self._next_device(claim, number, alternatives[0], 0, 0)
        exceeded = True
        for place, wanted in enumerate(alternatives):
            try:
                found = self._next_device(claim, number, wanted, 0, 0)
            except _TooManyResults:
                continue
            exceeded = False
            if found:
                self._taken[claim, number] = place
                return True
        if exceeded:
            raise _TooManyResults
        return False

    def _next_device(self, claim: int, number: int, wanted: _Wanted, done: int, start: int) -> bool:
        """Allocate the devices of a request from the `done`th on, looking from `start` on, and then the rest."""
        request = wanted.request
        self._count_step()
        if request.takes_all and not wanted.every:
            return False
        if done >= wanted.count:
            return self._next_request(claim, number + 1)
        if len(self.results[claim]) + wanted.count - done > MAX_RESULTS:
            raise _TooManyResults
        if request.takes_all:
            device = wanted.every[done]
            undo = self._take(claim, wanted, device, self._pool_of(device), must=True)
            return undo is not None and self._go_on(undo, claim, number, wanted, done + 1, 0)
        unusable = wanted.unusable
        for place in range(start, len(self._devices)):
            if unusable[place] == 1:
                continue
            self._count_step()
            device, pool = self._devices[place]
            if request.admin:
                if claim in self._allocating.get(device.id, ()):
                    continue
            elif device.id in self._allocated:
                unusable[place] = 1
                continue
            elif self._allocating.get(device.id):
                continue
            if unusable[place] == 0:
                if not self._selects(request, device):
                    unusable[place] = 1
                    continue
                unusable[place] = 2
            amounts = wanted.amounts.get(place)
            if amounts is None:
                amounts = wanted.amounts[place] = request.consumes(device.device)
                if amounts is None:
                    unusable[place] = 1
                    continue
            if not self._has_capacity(device, amounts):
                continue
            undo = self._take(claim, wanted, device, pool, must=False)
            if undo is not None and self._go_on(undo, claim, number, wanted, done + 1, place + 1):
                return True
        return False

    def _go_on(self, undo: Callable[[], None], claim: int, number: int, wanted: _Wanted, done: int, start: int) -> bool:
        """Allocate the rest with a device taken, which is released if that fails."""
        try:
            found = self._next_device(claim, number, wanted, done, start)
        except (AllocationError, _TooManyResults):
            undo()
            raise
        if not found:
            undo()
        return found

    def _count_step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _TooManySteps

    # --- one device ----------------------------------------------------------------------------------

    def _pool_of(self, device: SlicedDevice) -> Pool:
        wanted = PoolID(device.id.driver, device.id.pool)
        return next(pool for pool in self._pools if pool.id == wanted)

    def _selects(self, request: Request, device: SlicedDevice) -> bool:
        if not request.selects(device, UNLIMITED):
            return False
        return not device.slice.slice.spec.per_device_node_selection or device.is_on(*self._node)

    def _has_capacity(self, device: SlicedDevice, amounts: Mapping[str, Quantity]) -> bool:
        if not amounts:
            return True
        used, using = self._allocated.consumed(device.id) or {}, self._consuming.get(device.id, {})
        for name, amount in amounts.items():
            nanos = amount.nanos
            if name in used:
                nanos += used[name].nanos
            if name in using:
                nanos += using[name].nanos
            if nanos > _value_nanos(device, name):
                return False
        return True

    def _take(
        self, claim: int, wanted: _Wanted, device: SlicedDevice, pool: Pool, *, must: bool
    ) -> Callable[[], None] | None:
        """Take a device for a claim; return what releases it, None if it is not available."""
        request, identity = wanted.request, device.id
        shared = bool(device.device.allow_multiple_allocations)
        if request.admin:
            if not shared and claim in self._allocating.get(identity, ()):
                return None
        elif identity in self._allocated or self._allocating.get(identity):
            return None
        if device.counters:
            in_shares = shared and (self._allocated.consumed(identity) is not None or identity in self._consuming)
            if not in_shares and not self._counters.take(device, pool):
                return None
        if not request.tolerates(device.device):
            return None
        constraints = self._constraints[claim]
        for place, constraint in enumerate(constraints):
            if not constraint.add(request, device):
                if must:
                    text = f"cannot add device {identity} because a claim constraint would not be satisfied"
                    raise AllocationError(f"claim {request.claim}, request {request.name}: {text}")
                for earlier in constraints[:place]:
                    earlier.remove(request)
                return None
        users = self._allocating.setdefault(identity, set())
        if not shared:
            users.add(claim)
        amounts = request.consumes(device.device)
        if amounts is None or not self._has_capacity(device, amounts):
            return None
        consumed = amounts if shared else None
        if shared:
            self._consume(identity, amounts)
        results = self.results[claim]
        before = len(results)
        results.append(Chosen(request, device, shared, consumed or None))

        def undo() -> None:
            for constraint in constraints:
                constraint.remove(request)
            users.discard(claim)
            if shared:
                if amounts:
                    self._give_back(identity, amounts)
            elif device.counters:
                self._counters.give_back(device, pool)
            del results[before:]

        return undo

    def _consume(self, identity: DeviceID, amounts: Mapping[str, Quantity]) -> None:
        using = self._consuming.setdefault(identity, {})
        for name, amount in amounts.items():
            using[name] = using[name].add(amount) if name in using else amount

    def _give_back(self, identity: DeviceID, amounts: Mapping[str, Quantity]) -> None:
        using = self._consuming.get(identity)
        if using is None:
            return
        for name, amount in amounts.items():
            if name in using:
                using[name] = using[name].sub(amount)
        if all(amount.value == 0 for amount in using.values()):
            del self._consuming[identity]


def _value_nanos(device: SlicedDevice, name: str) -> int:
    return quantity_or_zero((device.device.capacity or {})[name].value).nanos


class _Counters:
    """Shared counters of the pools of one search."""

    def __init__(self, allocated: DevicesInUse) -> None:
        self._allocated = allocated
        self._left: dict[PoolID, dict[tuple[str, str], int]] = {}
        """What is left after this search."""

    def take(self, device: SlicedDevice, pool: Pool) -> bool:
        """Take what a device needs; return whether there is enough, of every counter of the pool."""
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = counters_left(pool, self._allocated)
        self._change(device, left, -1)
        if min(left.values(), default=0) < 0:
            self._change(device, left, 1)
            return False
        return True

    def give_back(self, device: SlicedDevice, pool: Pool) -> None:
        """Release what a device took, or would have taken."""
        self._change(device, self._left.setdefault(pool.id, counters_left(pool, self._allocated)), 1)

    @staticmethod
    def _change(device: SlicedDevice, left: dict[tuple[str, str], int], step: int) -> None:
        for name, amounts in device.counters.items():
            for counter, amount in amounts.items():
                left[name, counter] += step * amount


# --- constraints ------------------------------------------------------------------------------------------

_Value = tuple[str, object]


def _constraint(claim: str, number: int, constraint: objects.DeviceConstraint) -> _Constraint:
    requests = frozenset(constraint.requests or ())
    if constraint.match_attribute is not None:
        return _MatchAttribute(requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return _DistinctAttribute(requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)")


class _AttributeConstraint:
    def __init__(self, requests: frozenset[str], name: str) -> None:
        self._requests = requests
        self._name = name
        self._devices = 0

    def _concerns(self, request: Request) -> bool:
        return not self._requests or request.base_name in self._requests or request.full_name in self._requests


class _MatchAttribute(_AttributeConstraint):
    """All devices have one value."""

    def __init__(self, requests: frozenset[str], name: str) -> None:
        super().__init__(requests, name)
        self._value: _Value | None = None

    def add(self, request: Request, device: SlicedDevice) -> bool:
        if not self._concerns(request):
            return True
        value = attribute_of(device, self._name)
        if value is None:
            return False
        if self._devices == 0:
            self._value = value
        elif not value[0] or value != self._value:
            return False
        self._devices += 1
        return True

    def remove(self, request: Request) -> None:
        if self._concerns(request):
            self._devices -= 1


class _DistinctAttribute(_AttributeConstraint):
    """No two requests have one value; of a request with several devices only the last one counts, as upstream."""

    def __init__(self, requests: frozenset[str], name: str) -> None:
        super().__init__(requests, name)
        self._values: dict[str, _Value] = {}

    def add(self, request: Request, device: SlicedDevice) -> bool:
        if not self._concerns(request):
            return True
        value = attribute_of(device, self._name)
        if value is None:
            return False
        if self._devices and (value in self._values.values() or (not value[0] and self._values)):
            return False
        self._values[request.base_name] = value
        self._devices += 1
        return True

    def remove(self, request: Request) -> None:
        if self._concerns(request):
            self._values.pop(request.base_name, None)
            self._devices -= 1
