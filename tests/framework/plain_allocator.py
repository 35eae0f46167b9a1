"""The search for devices as kube-scheduler does it, candidate by candidate: `allocator` must find the same, faster.

Claims in order, their requests in order, the first alternative with a full solution. Depth first, and the
first full solution wins. It prunes nothing and does not pause. It remembers only what it has taken, and recomputes what
is left for each candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_claims import DevicesInUse, is_in_use
from kube_policy_scheduler.cluster.devices.resource_slices import Pool, PoolID, SlicedDevice
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
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules
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


class _Taken(msgspec.Struct, frozen=True):
    """One device that was taken."""

    claim: int
    request: Request
    device: SlicedDevice
    amounts: dict[str, Quantity]
    """Of its capacities."""


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
        self._devices = [
            device for pool in pools if not pool.incomplete and not pool.invalid for device in pool.devices
        ]
        self._wanted: list[list[list[_Wanted]]] = []
        self._taken: list[_Taken] = []
        """In the order in which they were taken: all that the search remembers."""
        self._alternatives: dict[tuple[int, int], int] = {}
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
            for number, rule in enumerate(claim.constraints):
                if rule.match_attribute is None and rule.distinct_attribute is None:
                    text = f"constraint #{number}: empty constraint (unsupported constraint type?)"
                    raise AllocationError(f"claim {claim.key}, {text}")
        try:
            return self._next_request(0, 0)
        except _TooManyResults:
            return False

    @property
    def results(self) -> list[list[Chosen]]:
        """Return what each claim gets."""
        found: list[list[Chosen]] = [[] for _ in self._claims]
        for one in self._taken:
            shared = one.device.is_shared
            found[one.claim].append(
                Chosen(one.request, one.device, shared, one.amounts if shared and one.amounts else None)
            )
        return found

    def chosen_alternatives(self) -> tuple[tuple[int, ...], ...]:
        """Return which alternative each request got."""
        return tuple(
            tuple(self._alternatives.get((place, number), 0) for number in range(len(claim.requests)))
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
                    amounts = request.consumes(device)
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
                self._alternatives[claim, number] = place
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
        if sum(one.claim == claim for one in self._taken) + wanted.count - done > MAX_RESULTS:
            raise _TooManyResults
        if request.takes_all:
            taken = self._may_take(claim, request, wanted.every[done], must=True)
            return taken is not None and self._go_on(taken, number, wanted, done + 1, 0)
        unusable = wanted.unusable
        for place in range(start, len(self._devices)):
            if unusable[place] == 1:
                continue
            self._count_step()
            device = self._devices[place]
            if self._is_in_use(claim, request, device):
                continue
            if unusable[place] == 0:
                if not self._selects(request, device):
                    unusable[place] = 1
                    continue
                unusable[place] = 2
            amounts = wanted.amounts.get(place)
            if amounts is None:
                amounts = wanted.amounts[place] = request.consumes(device)
                if amounts is None:
                    unusable[place] = 1
                    continue
            if not self._has_capacity(device, amounts):
                continue
            taken = self._may_take(claim, request, device, must=False)
            if taken is not None and self._go_on(taken, number, wanted, done + 1, place + 1):
                return True
        return False

    def _go_on(self, taken: _Taken, number: int, wanted: _Wanted, done: int, start: int) -> bool:
        """Allocate the rest with a device taken, which is released if that fails."""
        self._taken.append(taken)
        before = len(self._taken)
        found = False
        try:
            found = self._next_device(taken.claim, number, wanted, done, start)
        finally:
            if not found:
                del self._taken[before - 1 :]
        return found

    def _count_step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _TooManySteps

    # --- one device ----------------------------------------------------------------------------------

    def _selects(self, request: Request, device: SlicedDevice) -> bool:
        if not request.selects(device, UNLIMITED):
            return False
        return not device.slice.slice.spec.per_device_node_selection or device.is_on(*self._node)

    def _is_in_use(self, claim: int, request: Request, device: SlicedDevice) -> bool:
        takers = {one.claim for one in self._taken if one.device.id == device.id and not device.is_shared}
        if request.admin:
            return claim in takers
        return bool(takers) or is_in_use(device, self._allocated)

    def _has_capacity(self, device: SlicedDevice, amounts: Mapping[str, Quantity]) -> bool:
        used = self._allocated.consumed(device.id) or {}
        for name, amount in amounts.items():
            there = [one.amounts[name] for one in self._taken if one.device.id == device.id and one.device.is_shared]
            there += [used[name]] if name in used else []
            if amount.nanos + sum(one.nanos for one in there) > device.capacity(name).nanos:
                return False
        return True

    def _may_take(self, claim: int, request: Request, device: SlicedDevice, *, must: bool) -> _Taken | None:
        """Return a device as taken for a request, None if that is not possible beside what is taken."""
        if self._is_in_use(claim, request, device) or not request.tolerates(device):
            return None
        if not self._has_counters(device):
            return None
        if any(self._breaks(rule, claim, request, device) for rule in self._claims[claim].constraints):
            if must:
                text = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                raise AllocationError(f"claim {request.claim}, request {request.name}: {text}")
            return None
        amounts = request.consumes(device)
        if amounts is None or not self._has_capacity(device, amounts):
            return None
        return _Taken(claim, request, device, amounts)

    def _has_counters(self, device: SlicedDevice) -> bool:
        """Return whether there is enough of each counter; several shares of one device take of them once."""
        paid = {one.device.id: one.device for one in self._taken if one.device.is_shared}
        paid = {name: one for name, one in paid.items() if not self._allocated.in_shares(name)}
        takers = [one.device for one in self._taken if not one.device.is_shared] + list(paid.values())
        if device.is_shared and (device.id in paid or self._allocated.in_shares(device.id)):
            return True
        pool = next(one for one in self._pools if one.id == PoolID(device.id.driver, device.id.pool))
        left = counters_left(pool, self._allocated)
        for one in (*takers, device):
            for name, amounts in one.counters.items() if one.slice.pool == pool.id else ():
                for counter, amount in amounts.items():
                    left[name, counter] -= amount
        return not device.counters or min(left.values(), default=0) >= 0

    def _breaks(self, rule: objects.DeviceConstraint, claim: int, request: Request, device: SlicedDevice) -> bool:
        names = set(rule.requests or ())

        def concerns(one: Request) -> bool:
            return not names or one.base_name in names or one.full_name in names

        if not concerns(request):
            return False
        name = rule.match_attribute or rule.distinct_attribute or ""
        there = [one.device for one in self._taken if one.claim == claim and concerns(one.request)]
        if attribute_of(device, name) is None:
            return True
        mine, *others = (_values_of(each, name, request.rules) for each in (device, *there))
        if others and not mine:
            return True
        if rule.match_attribute is not None:
            return bool(others) and not mine.intersection(*others)
        return any(mine & other for other in others)


def _values_of(device: SlicedDevice, name: str, rules: KubernetesRules) -> set[object]:
    """Return what an attribute counts for: one value, all those of a list if lists count, else nothing."""
    value = attribute_of(device, name)
    if value is not None and value[0]:
        return {value}
    own = name.removeprefix(f"{device.id.driver}/")
    attribute = (device.device.attributes or {}).get(own)
    if attribute is None or Feature.DRA_LIST_TYPE_ATTRIBUTES not in rules:
        return set()
    return {("int", each) for each in attribute.int_values or ()} | {
        ("string", each) for each in attribute.string_values or ()
    }
