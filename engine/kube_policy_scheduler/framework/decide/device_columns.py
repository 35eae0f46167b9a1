"""Devices as columns over nodes, for policies: those of a class, and those that a pod's claims would get.

Kept from decision to decision; if devices, claims or a node change, that node is recomputed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import devices_taken
from kube_policy_scheduler.cluster.devices.resource_slices import DeviceID, SlicedDevice
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeInfo
from kube_policy_scheduler.cluster.object_store import key_of
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.devices.constraints import attribute_of
from kube_policy_scheduler.framework.devices.device_order import ClaimableDevices, DeviceFrame
from kube_policy_scheduler.framework.devices.pod_claims import claim_names
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import ClaimOutcome, ClaimState, DynamicResources
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector

_MOST_CLASSES = 64
"""Classes that columns are kept for: 17 bytes a node each."""
_STEPS_A_NODE, _STEPS_A_DEVICE = 8, 0.5
"""To count on a node, and each device there: see `search_work`."""
_PLUGIN = DynamicResources()


class ClassDevices:
    """How many devices of one class each node can use, and how many of these are entirely free.

    With an attribute, how many of the free ones have one value of it, at most.
    """

    def __init__(self, cluster: Cluster, name: str, attribute: str = "") -> None:
        self._cluster = cluster
        self._name = name
        self._attribute = attribute
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
        """Return `float64[nodes]` each: all, and those that are free.

        Raises:
            OutOfTurn: the turn of the attempt that is under way is over; ask again.
        """
        self._forget()
        work = search_work(self._cluster.store)
        for row in np.flatnonzero(~self._known).tolist():
            work.end_turn_if_over()
            looked_at = sum(len(pool.devices) for pool in self._cluster.resource_slices.pools_of(row))
            work.left_now -= _STEPS_A_NODE + looked_at * _STEPS_A_DEVICE
            devices = self._of_class(row)
            self._count[row], self._free[row] = len(devices), self._count_free(devices, _NONE)
            self._known[row] = True
        return self._count, self._free

    def free_without(self, row: int, taken: Set[DeviceID]) -> float:
        """Return how many are free on a node once some devices are taken."""
        return self._count_free(self._of_class(row), taken)

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

    def _of_class(self, row: int) -> list[SlicedDevice]:
        selectors = class_selectors(self._cluster, self._name)
        info = self._cluster.nodes.infos[row]
        return [device for device in devices_of(self._cluster, info) if is_of_class(device, selectors)]

    def _count_free(self, devices: Sequence[SlicedDevice], taken: Set[DeviceID]) -> int:
        allocated = self._cluster.resource_claims.allocated
        free = [one for one in devices if one.id not in taken and not allocated.is_allocated(one.id)]
        if not self._attribute:
            return len(free)
        groups = Counter(attribute_of(device, self._attribute) for device in free)
        del groups[None]
        return max(groups.values(), default=0)


_NONE: frozenset[DeviceID] = frozenset()


def devices_of(cluster: Cluster, info: NodeInfo) -> Iterator[SlicedDevice]:
    """Return the devices that a node can use, in use or not; pools that are incomplete or invalid have none."""
    for pool in cluster.resource_slices.pools_of(info.row):
        for device in pool.devices:
            if not device.slice.slice.spec.per_device_node_selection or device.is_on(info.name, info.labels):
                yield device


def class_selectors(cluster: Cluster, name: str) -> list[CompiledSelector] | None:
    """Return the selectors of a class, None if there is no such class."""
    from kube_policy_scheduler.cluster.devices.device_selectors import compile_selector  # most clusters have no devices

    found = cluster.get(objects.DeviceClass, name)
    if found is None:
        return None
    texts = [one.cel.expression if one.cel is not None else "" for one in found.spec.selectors or ()]
    return [compile_selector(text) for text in texts]


def is_of_class(device: SlicedDevice, selectors: Sequence[CompiledSelector] | None) -> bool:
    """Return whether a device has all that the selectors of a class ask for; not if they cannot be compiled."""
    if selectors is None or any(selector.error for selector in selectors):
        return False
    return all(device.match(selector).matches for selector in selectors)


def _size(key: tuple[str, str], found: ClassDevices) -> int:
    return sum(map(len, key)) + 17 * found.size


def class_devices(cluster: Cluster, name: str, attribute: str = "") -> ClassDevices:
    """Return what is kept of a class, and of an attribute of its devices."""
    kept: KeptView[tuple[str, str], ClassDevices] = cluster.view(
        "devices of classes", most=_MOST_CLASSES, size_of=_size
    )
    known = kept.get((name, attribute))
    if known is None:
        known = ClassDevices(cluster, name, attribute)
        kept.set((name, attribute), known)
    return known


def claimed_devices(frame: Frame) -> Iterator[tuple[int, int, Sequence[SlicedDevice]]]:
    """Yield the devices that the pod's claims would get: position in the frame, row of the node, devices.

    Nothing for nodes where it gets none: it claims none, has its devices already, or they are not available there.
    """
    prepared = _PLUGIN.pre_filter(frame)
    if not isinstance(prepared, Ready) or not prepared.state.unallocated:
        return
    state: ClaimState = prepared.state
    rows = frame.index()
    for position in np.flatnonzero(_PLUGIN.verdicts(frame, state) == ClaimOutcome.FITS).tolist():
        row = int(rows[position])
        reserved = _PLUGIN.allocation(frame, state, row)
        if reserved is not None and reserved.found.claims is not None:
            devices = [chosen.device for claim in reserved.found.claims for chosen in claim]
            if devices:
                yield position, row, devices


def names_of_devices(frame: Frame, decision: Decision) -> tuple[str, ...]:
    """Return the devices that a decided pod gets, by name; those shared by thousandths as RESOURCE/NUMBER."""
    if decision.host is None:
        return ()
    claimed: list[str] = []
    if has_claims(frame.template, frame.cluster):
        row = np.array([frame.cluster.nodes.rows[decision.host]])
        found = claimed_devices(frame.ordered(decision.device_order).at(row))
        claimed = [device.device.name for _, _, devices in found for device in devices]
    shared = [f"{resource}/{number}" for resource, numbers in decision.devices.items() for number in numbers]
    return (*claimed, *shared)


def held_devices(cluster: Cluster, pod: PodInfo) -> tuple[DeviceID, ...]:
    """Return the devices that the claims of a pod have."""
    claims = cluster.resource_claims
    found = [claims.get(key_of(pod.namespace, name)) for name in claim_names(pod)]
    found.append(claims.for_extended_resources(pod.uid))
    return tuple(device for claim in found for device in devices_taken(claim))


def preferred_devices(frame: Frame, decision: Decision, held: Sequence[DeviceID]) -> tuple[DeviceID, ...]:
    """Return the devices that a pod would get on its node instead of those that it has; none if these are as good.

    Args:
        frame: of the decision, with the pod off its node and its claims without devices.
        decision: on the node that the pod is on.
        held: the devices that it has.
    """
    order = decision.device_order
    if order is None or order.keys is None or decision.host is None or not held:
        return ()
    row = frame.cluster.nodes.rows[decision.host]
    wanted = [one.id for _, _, got in claimed_devices(frame.ordered(order).at(np.array([row]))) for one in got]
    there = [one for one in devices_of(frame.cluster, frame.cluster.nodes.infos[row]) if one.id in {*wanted, *held}]
    columns = ClaimableDevices(
        there, frame.cluster.resource_slices.pools_of(row), frame.cluster.resource_claims.allocated
    )
    keys = dict(zip((one.id for one in there), order.keys(DeviceFrame(columns)), strict=True))
    if set(wanted) == set(held) or not keys.keys() >= {*wanted, *held}:
        return ()
    is_better = sorted(keys[one] for one in wanted) < sorted(keys[one] for one in held)
    return tuple(wanted) if is_better else ()


def of_claimed(frame: Frame, measure: Callable[[int, Sequence[SlicedDevice]], float]) -> FloatArray:
    """Return `float64[rows]`: a measure of the devices that the pod's claims would get on each node.

    Missing (NaN) where it gets none. measure: takes the row of the node and the devices.
    """
    result: FloatArray = np.full(frame.size, np.nan)
    for position, row, devices in claimed_devices(frame):
        result[position] = measure(row, devices)
    return result
