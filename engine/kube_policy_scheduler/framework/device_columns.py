"""Devices as columns over nodes, for policies: those of a class, and those that a pod's claims would get.

Kept from decision to decision; if devices, claims or a node change, that node is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.bounded_cache import BoundedCache
from kube_policy_scheduler.cluster.cel.selector import Selector, compile_selector
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.exact_quantity import QuantityError, parse
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.cluster.resource_slices import SlicedDevice
from kube_policy_scheduler.framework.dynamic_resources.allocator import attribute_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimOutcome, ClaimState, DynamicResources

_MOST_CLASSES = 64
"""Classes that columns are kept for: 17 bytes a node each."""
_MOST_BYTES = 2**26
_PLUGIN = DynamicResources()


class ClassDevices:
    """How many devices of one class each node can use, and how many of these are entirely free."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._seen: tuple[int, ...] = ()
        self._slices = self._devices = 0
        self._known = np.zeros(0, np.bool_)
        self._count: FloatArray = np.zeros(0)
        self._free: FloatArray = np.zeros(0)

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return self._cluster.nodes.size

    def columns(self) -> tuple[FloatArray, FloatArray]:
        """Return `float64[nodes]` each: all, and those that are free."""
        self._forget()
        for row in np.flatnonzero(~self._known).tolist():
            self._count[row], self._free[row] = self._look(row)
        self._known[:] = True
        return self._count, self._free

    def _forget(self) -> None:
        cluster = self._cluster
        nodes, slices, allocated = cluster.nodes, cluster.resource_slices, cluster.resource_claims.allocated
        labels = nodes.version if slices.sees_labels else 0
        seen = (nodes.identity_version, cluster.store.version(objects.DeviceClass), labels)
        names, self._slices = slices.changed.since(self._slices), slices.changed.end
        devices, self._devices = allocated.changed.since(self._devices), allocated.changed.end
        if seen != self._seen or names is None or devices is None or None in names:
            self._seen = seen
            self._known = np.zeros(nodes.size, np.bool_)
            self._count, self._free = np.zeros(nodes.size), np.zeros(nodes.size)
            return
        self._known[[row for name in names if (row := nodes.rows.get(name or "")) is not None]] = False
        for device in devices:
            rows = slices.rows_of(device)
            self._known[slice(None) if rows is None else list(rows)] = False

    def holds(self, device: SlicedDevice) -> bool:
        """Return whether a device is free and of the class."""
        is_used = self._cluster.resource_claims.allocated.is_allocated(device.id)
        return not is_used and self._is_of_class(device, self._selectors())

    def _selectors(self) -> list[Selector] | None:
        """Return the selectors of the class, None if there is no such class."""
        found = self._cluster.get(objects.DeviceClass, self._name)
        if found is None:
            return None
        texts = [one.cel.expression if one.cel is not None else "" for one in found.spec.selectors or ()]
        return [compile_selector(text) for text in texts]

    @staticmethod
    def _is_of_class(device: SlicedDevice, selectors: list[Selector] | None) -> bool:
        if selectors is None or any(selector.error for selector in selectors):
            return False
        return all(device.match(selector).matches for selector in selectors)

    def _look(self, row: int) -> tuple[int, int]:
        selectors = self._selectors()
        info, allocated = self._cluster.nodes.infos[row], self._cluster.resource_claims.allocated
        count = free = 0
        for pool in self._cluster.resource_slices.pools_of(row):
            for device in pool.devices:
                own = device.slice.slice.spec.per_device_node_selection
                if own and not device.is_on(info.name, info.labels):
                    continue
                if self._is_of_class(device, selectors):
                    count += 1
                    free += not allocated.is_allocated(device.id)
        return count, free


def _size_of(name: str, kept: ClassDevices) -> int:
    return len(name) + 17 * kept.size


def class_devices(cluster: Cluster, name: str) -> ClassDevices:
    """Return what is kept of a class."""
    kept: BoundedCache[str, ClassDevices] = cluster.store.keep(
        "class-devices", None, lambda: BoundedCache(most=_MOST_CLASSES, most_bytes=_MOST_BYTES, size_of=_size_of)
    )
    known = kept.get(name)
    if known is None:
        known = ClassDevices(cluster, name)
        kept.set(name, known)
    return known


def of_claimed(frame: Frame, measure: Callable[[Sequence[SlicedDevice]], float]) -> FloatArray:
    """Return `float64[rows]`: a measure of the devices that the pod's claims would get on each node.

    Missing (NaN) where it gets none: it claims none, has its devices already, or they are not available there.
    """
    result: FloatArray = np.full(frame.size, np.nan)
    prepared = _PLUGIN.pre_filter(frame)
    if not isinstance(prepared, Ready) or not prepared.state.unallocated:
        return result
    state: ClaimState = prepared.state
    known: dict[int, float] = {}
    rows = frame.index()
    for position in np.flatnonzero(_PLUGIN.verdicts(frame, state) == ClaimOutcome.FITS).tolist():
        reserved = _PLUGIN.allocation(frame, state, int(rows[position]))
        if reserved is None or reserved.found.claims is None:
            continue
        found = reserved.found
        value = known.get(id(found))
        if value is None:
            devices = [chosen.device for claim in found.claims or () for chosen in claim]
            value = known[id(found)] = measure(devices) if devices else np.nan
        result[position] = value
    return result


def number_of(device: SlicedDevice, name: str) -> float:
    """Return a capacity of a device, or else an attribute that is a number or a bool; NaN if it has none."""
    capacities = device.device.capacity or {}
    capacity = capacities.get(name)
    if capacity is None:
        domain, _, own = name.partition("/")
        capacity = capacities.get(own) if own and domain == device.id.driver else None
    if capacity is not None:
        try:
            return float(parse(capacity.value).nanos) / 1e9
        except QuantityError:
            return np.nan
    found = attribute_of(device, name)
    value = found[1] if found is not None else None
    return float(value) if isinstance(value, int) else np.nan
