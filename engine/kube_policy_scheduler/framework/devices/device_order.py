"""Which of several devices that fit a pod gets: the order in which the devices of a node are tried.

The same for devices that claims are allocated from and for devices that are shared by thousandths
(`node_devices`). The order never decides which node fits: a node without a solution in this order keeps the one
that kube-scheduler would find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.devices.node_devices import WHOLE, RoomArray
from kube_policy_scheduler.cluster.devices.resource_claims import DevicesInUse, is_in_use
from kube_policy_scheduler.cluster.devices.resource_slices import Pool, PoolID, SlicedDevice
from kube_policy_scheduler.cluster.hashed_rows import hash_of
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.devices.allocator import counters_left
from kube_policy_scheduler.framework.devices.constraints import attribute_of
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.quantities.exact_quantity import QuantityError, parse

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
"""The attribute that Kubernetes defines for the PCIe root of a device."""


class DeviceRule(Enum):
    """How one of the devices that fit is chosen; the value is the word in a policy."""

    FULLEST = "fullest"
    """The device with the least free capacity."""
    EMPTIEST = "emptiest"
    """The device with the most free capacity."""
    FRAGMENTATION = "fragmentation"
    """For a share, the device that lowers the node's fragmentation most. For a claim, a device that is partly in use,
    then one whose PCIe root has the fewest free devices."""
    RANDOM = "random"
    """By a seeded hash of the pod."""


class NodeDevices(Protocol):
    """The devices of one node, as columns."""

    @property
    def size(self) -> int:
        """Return how many there are."""

    def numbers(self, name: str) -> FloatArray:
        """Return `float64[devices]`: a capacity, or else an attribute that is a number or a truth; NaN is missing."""

    def texts(self, name: str) -> list[str | None]:
        """Return an attribute that is a text or a version."""

    def free(self, capacity: str = "") -> FloatArray:
        """Return `float64[devices]`: which share of each is free, 0 to 1; of one capacity, NaN if it has none."""

    def free_in_group(self, attribute: str) -> FloatArray:
        """Return `float64[devices]`: how many with the same value of an attribute are in no use; NaN without it."""

    def taken(self) -> FloatArray:
        """Return `float64[devices]`: which share each takes of what it shares with others, 0 to 1."""


class DeviceFrame(msgspec.Struct, frozen=True):
    """What the values of `devices by` read: the devices of one node, as rows."""

    devices: NodeDevices

    @property
    def size(self) -> int:
        """Return the number of devices."""
        return self.devices.size


def number_of(device: SlicedDevice, name: str) -> float:
    """Return a capacity of a device, or else an attribute that is a number or a bool; NaN if it has none."""
    capacity = _capacity_key(device, name)
    if capacity is not None:
        try:
            return float(parse(device.capacities[capacity].value).nanos) / 1e9
        except QuantityError:
            return np.nan
    found = attribute_of(device, name)
    value = found[1] if found is not None else None
    return float(value) if isinstance(value, int) else np.nan


def text_of(device: SlicedDevice, name: str) -> str | None:
    """Return an attribute of a device that is a text or a version; None if it has none."""
    found = attribute_of(device, name)
    return found[1] if found is not None and isinstance(found[1], str) else None


def _capacity_key(device: SlicedDevice, name: str) -> str | None:
    """Return which of its `capacities` a device has by a name; those of the driver also with the driver before it."""
    domain, _, own = name.partition("/")
    names = [name, f"{device.id.driver}/{name}", *([own] if domain == device.id.driver else [])]
    return next((each for each in names if each in device.capacities), None)


class ClaimableDevices:
    """The devices of one node that claims are allocated from."""

    def __init__(self, devices: Sequence[SlicedDevice], pools: Sequence[Pool], allocated: DevicesInUse) -> None:
        self._devices = devices
        self._pools = {pool.id: pool for pool in pools}
        self._allocated = allocated

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self._devices)

    def numbers(self, name: str) -> FloatArray:
        """Return `float64[devices]`: see `NodeDevices`."""
        return np.array([number_of(device, name) for device in self._devices], np.float64)

    def texts(self, name: str) -> list[str | None]:
        """Return an attribute that is a text or a version."""
        return [text_of(device, name) for device in self._devices]

    def free(self, capacity: str = "") -> FloatArray:
        """Return `float64[devices]`: see `NodeDevices`. Without a name, of the scarcest capacity or counter."""
        if capacity:
            return np.array([self._free_of(device, capacity) for device in self._devices], np.float64)
        return self._free

    def free_in_group(self, attribute: str) -> FloatArray:
        """Return `float64[devices]`: see `NodeDevices`."""
        values = [attribute_of(device, attribute) for device in self._devices]
        counts: dict[object, int] = {}
        for device, value in zip(self._devices, values, strict=True):
            if value is not None and not self._allocated.is_allocated(device.id):
                counts[value] = counts.get(value, 0) + 1
        return np.array([np.nan if value is None else counts.get(value, 0) for value in values], np.float64)

    def taken(self) -> FloatArray:
        """Return `float64[devices]`: see `NodeDevices`. Of several counters, the one of which it takes most."""
        return np.array([self._most_taken(device) for device in self._devices], np.float64)

    def _most_taken(self, device: SlicedDevice) -> float:
        counters = self._pools[PoolID(device.id.driver, device.id.pool)].counters
        shares = (
            _share(amount, counters[set_name][counter])
            for set_name, amounts in device.counters.items()
            for counter, amount in amounts.items()
        )
        return max(shares, default=0.0)

    def ids(self) -> list[str]:
        """Return what names each in the cluster."""
        return [str(device.id) for device in self._devices]

    @cached_property
    def _free(self) -> FloatArray:
        left = {identity: counters_left(pool, self._allocated) for identity, pool in self._pools.items()}
        return np.array([self._least_free(device, left) for device in self._devices], np.float64)

    def _free_of(self, device: SlicedDevice, name: str) -> float:
        own = _capacity_key(device, name)
        if own is None:
            return np.nan
        if is_in_use(device, self._allocated):
            return 0.0
        total = device.capacity(own).nanos
        used = (self._allocated.consumed(device.id) or {}).get(own)
        return _share(total - (used.nanos if used is not None else 0), total)

    def _least_free(self, device: SlicedDevice, left: Mapping[PoolID, Mapping[tuple[str, str], int]]) -> float:
        if is_in_use(device, self._allocated):
            return 0.0
        pool = self._pools[PoolID(device.id.driver, device.id.pool)]
        shares = [self._free_of(device, name) for name in self._allocated.consumed(device.id) or {}]
        shares += [
            _share(left[pool.id][set_name, counter], pool.counters[set_name][counter])
            for set_name, amounts in device.counters.items()
            for counter, amount in amounts.items()
            if amount
        ]
        return min((share for share in shares if share == share), default=1.0)


def _share(part: int, total: int) -> float:
    return max(0.0, part / total) if total > 0 else 0.0


class SharedDevices:
    """The devices of one node that are shared by thousandths: they have no attributes and no capacities."""

    def __init__(self, free: RoomArray, count: int) -> None:
        """Make it from free thousandths, `int32[devices]`, of which the first `count` exist."""
        self._free = free[:count]

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self._free)

    def numbers(self, name: str) -> FloatArray:
        """Return `float64[devices]`: all missing."""
        return np.full(self.size, np.nan)

    def texts(self, name: str) -> list[str | None]:
        """Return a missing value for each."""
        return [None] * self.size

    def free(self, capacity: str = "") -> FloatArray:
        """Return `float64[devices]`: which share of each is free."""
        return self.numbers(capacity) if capacity else np.clip(self._free / WHOLE, 0.0, 1.0)

    def free_in_group(self, attribute: str) -> FloatArray:
        """Return `float64[devices]`: all missing."""
        return self.numbers(attribute)

    def taken(self) -> FloatArray:
        """Return `float64[devices]`: what is free of each, as a part of the fullest takes least from others."""
        return self.free()


def ranks(order: DeviceOrder, devices: ClaimableDevices, *, pod_uid: str) -> Sequence[tuple[Any, ...]]:
    """Return what each of the devices that claims are allocated from sorts by; the first is tried first.

    pod_uid: of the pod; only `random` reads it.
    """
    if order.keys is not None:
        return order.keys(DeviceFrame(devices))
    match DeviceRule(order.rule):
        case DeviceRule.FULLEST:
            return [(share,) for share in devices.free().tolist()]
        case DeviceRule.EMPTIEST:
            return [(-share,) for share in devices.free().tolist()]
        case DeviceRule.RANDOM:
            return [(hash_of(f"{pod_uid}/{name}"),) for name in devices.ids()]
        case DeviceRule.FRAGMENTATION:
            groups = np.nan_to_num(devices.free_in_group(PCIE_ROOT), nan=np.inf)
            return list(zip((devices.free() >= 1.0).tolist(), groups.tolist(), strict=True))


def is_by_pod(order: DeviceOrder) -> bool:
    """Return whether two pods with equal claims can get different devices."""
    return order.rule == DeviceRule.RANDOM.value
