"""The devices that a request may get on a node, in order, found one after another as the search asks for them.

Most claims get their first devices, and most nodes see no more devices than they have themselves. But a pool may be
seen by every node, and have thousands: which of its devices a request selects is found once for all nodes that see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster.devices.resource_claims import DevicesInUse, is_in_use
from kube_policy_scheduler.cluster.devices.resource_slices import Pool, SlicedDevice
from kube_policy_scheduler.cluster.search_work import Work
from kube_policy_scheduler.framework.devices.requests import AllocationError, Request
from kube_policy_scheduler.quantities.exact_quantity import Quantity

_IN_USE_A_STEP = 8
"""Devices in use that are passed over in a step."""

NodeName: TypeAlias = tuple[str, Mapping[str, str]]
"""A node's name and labels."""


class CandidatesInPool:
    """The devices of a pool that a request may get, of those that were examined.

    Those in use are left out, unless the request is for admin access. Devices whose selector has no result are among
    them: the search that takes one of these has an error.
    """

    def __init__(
        self, request: Request, devices: Sequence[SlicedDevice], allocated: DevicesInUse, node: NodeName | None
    ) -> None:
        """node: for pools whose devices select nodes; None: all nodes may use them."""
        self._request, self._devices, self._allocated, self._node = request, devices, allocated, node
        self._looked_at = self._passed_over = 0
        self.found: list[SlicedDevice] = []
        self.errors: dict[int, AllocationError] = {}
        """Of selectors, by place in `found`."""
        self.left_out: set[str] = set()
        """Fields that kept devices from being candidates which the request selects: see `alpha_fields`."""

    @property
    def is_empty(self) -> bool:
        """Return whether it is known that there is none, and that none was left out."""
        return not self.found and not self.left_out and self._looked_at >= len(self._devices)

    def reach(self, place: int, work: Work) -> bool | None:
        """Return whether there is a candidate at a place; None: first other work gets its turn."""
        found, devices = self.found, self._devices
        hides = not self._request.admin
        while len(found) <= place:
            if self._looked_at >= len(devices):
                return False
            if work.left_now < 0:
                return None
            device = devices[self._looked_at]
            if hides and is_in_use(device, self._allocated):
                self._passed_over += 1
                if not self._passed_over % _IN_USE_A_STEP:
                    work.left_now -= 1
            else:
                work.left_now -= 1
                selects = self._selects(device, work)
                if selects is None:
                    return None
                if selects:
                    found.append(device)
            self._looked_at += 1
        return True

    def _selects(self, device: SlicedDevice, work: Work) -> bool | None:
        try:
            selects = self._request.selects(device, work)
        except AllocationError as error:
            self.errors[len(self.found)] = error
            return True
        if not selects:
            return selects
        if self._node is not None and device.slice.slice.spec.per_device_node_selection:
            selects = device.is_on(*self._node)
        if selects and device.alpha_field:
            self.left_out.add(device.alpha_field)
            return False
        return selects


class DeviceCandidates:
    """The devices that a request may get on a node."""

    def __init__(self, parts: Sequence[CandidatesInPool]) -> None:
        self._parts = parts
        self._part = self._next = 0
        self.found: list[SlicedDevice] = []
        self.errors: dict[int, AllocationError] = {}

    @property
    def left_out(self) -> set[str]:
        """Return the fields that kept the devices that were examined from being candidates."""
        return set[str]().union(*(part.left_out for part in self._parts))

    def reach(self, place: int, work: Work) -> bool | None:
        """Return whether there is a candidate at a place; None: first other work gets its turn."""
        found = self.found
        while len(found) <= place:
            if self._part >= len(self._parts):
                return False
            part = self._parts[self._part]
            there = part.reach(self._next, work)
            if there is None:
                return None
            if not there:
                work.left_now -= 1
                self._part += 1
                self._next = 0
                continue
            if self._next in part.errors:
                self.errors[len(found)] = part.errors[self._next]
            found.append(part.found[self._next])
            self._next += 1
        return True


class WantedDevices(msgspec.Struct):
    """One request or alternative in the search."""

    request: Request
    count: int
    every: list[SlicedDevice]
    """The requested devices if it takes all."""
    candidates: DeviceCandidates
    signs: list[int] | None = None
    """For each candidate a number, equal for devices that can stand for each other; None: nobody looked."""
    amounts: dict[int, dict[str, Quantity] | None] = msgspec.field(default_factory=dict)
    """What the request would take of a candidate, by its place; None if the device is not suitable."""

    def consumed_of(self, place: int) -> Mapping[str, Quantity] | None:
        """Return what the request would take of a candidate; None if the device is not suitable."""
        if place not in self.amounts:
            self.amounts[place] = self.request.consumes(self.candidates.found[place])
        return self.amounts[place]


KeptCandidates: TypeAlias = dict[tuple[int, Request], CandidatesInPool]
"""By pool and request: of pools that several nodes see. Until a device, a slice or a claim changes."""


class NodePools(msgspec.Struct, frozen=True):
    """A node, with the pools of devices that it sees."""

    name: str
    labels: Mapping[str, str]
    pools: Sequence[Pool]
    """In order."""

    @property
    def node(self) -> NodeName:
        """Return what tells the node apart."""
        return self.name, self.labels

    @property
    def has_invalid(self) -> bool:
        """Return whether slices of a pool contradict each other."""
        return any(pool.invalid for pool in self.pools)

    def devices(self) -> list[SlicedDevice]:
        """Return the devices of all pools that can be used."""
        return [device for pool in self.pools if not pool.incomplete and not pool.invalid for device in pool.devices]


def candidates_on(
    seen: NodePools, allocated: DevicesInUse, kept: KeptCandidates | None
) -> Callable[[Request], DeviceCandidates]:
    """Return what takes a request and returns its candidates on a node, in the order of the pools."""

    def of(request: Request) -> DeviceCandidates:
        parts = []
        for pool in seen.pools:
            if pool.incomplete or pool.invalid or not pool.devices:
                continue
            key = (id(pool), request)
            part = kept.get(key) if kept is not None and pool.is_alike else None
            if part is None:
                part = CandidatesInPool(request, pool.devices, allocated, None if pool.is_alike else seen.node)
                if kept is not None and pool.is_alike:
                    kept[key] = part
            if not part.is_empty:
                parts.append(part)
        return DeviceCandidates(parts)

    return of


def candidates_in_order(
    devices: Sequence[SlicedDevice], allocated: DevicesInUse, node: NodeName
) -> Callable[[Request], DeviceCandidates]:
    """Return what takes a request and returns its candidates on a node, in the order of the devices."""
    return lambda request: DeviceCandidates([CandidatesInPool(request, devices, allocated, node)])
