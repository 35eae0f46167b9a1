"""Devices of Dynamic Resource Allocation: how many of a class a node has, and what a pod's claims would get there."""

import math
from collections.abc import Sequence

from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.decide.device_columns import claimed_devices, of_claimed
from kube_policy_scheduler.framework.decide.device_columns import class_devices as columns_of
from kube_policy_scheduler.framework.devices.constraints import attribute_of
from kube_policy_scheduler.framework.devices.device_order import number_of, text_of
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.compiling.columns import texts_of
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.signature import (
    ConstantText,
    MaybeNumberReader,
    MaybeQuantityReader,
    MaybeTextReader,
    NumberReader,
    Receives,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Shape

_CLASS = Depends.NODE | Depends.CLUSTER
_CLAIMED = Depends.POD | Depends.TEMPLATE | Depends.NODE | Depends.CLUSTER
_MOST = 1e6
_LARGEST = 1e18


@builtin(staged=True, shape=Shape.NODE, depends=_CLASS, bounds=(0, _MOST))
def class_devices(device_class: ConstantText) -> NumberReader:
    """Return the number of devices of a DeviceClass on the node, free or in use: `class_devices("gpu")`."""
    return lambda frame: columns_of(frame.cluster, device_class).columns()[0][frame.rows]


@builtin(staged=True, shape=Shape.NODE, depends=_CLASS, bounds=(0, _MOST))
def class_devices_free(device_class: ConstantText) -> NumberReader:
    """Return the number of devices of a DeviceClass on the node that no claim uses."""
    return lambda frame: columns_of(frame.cluster, device_class).columns()[1][frame.rows]


@builtin(staged=True, shape=Shape.NODE, depends=_CLASS, bounds=(0, _MOST))
def class_devices_together(device_class: ConstantText, attribute: ConstantText) -> NumberReader:
    """Return how many free devices of a DeviceClass on the node have one value of an attribute, at most.

    `class_devices_together("gpu", "nvlinkDomain")` is the size of the largest group that a pod can still get.
    """
    return lambda frame: columns_of(frame.cluster, device_class, attribute).columns()[1][frame.rows]


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED, bounds=(-_LARGEST, _LARGEST), receives=Receives.DEVICE_ORDER)
def claimed_least(name: ConstantText) -> MaybeQuantityReader:
    """Return the smallest value of a capacity or attribute among the devices that the pod's claims would get.

    Capacities are in bytes, or in the unit of the driver; a truth value is 1 or 0. Missing if a device does not have
    the capacity or attribute, or if the pod would get no devices: it has no claims, or they are already allocated.
    """

    def least(row: int, devices: Sequence[SlicedDevice]) -> float:
        values = [number_of(device, name) for device in devices]
        return math.nan if any(math.isnan(value) for value in values) else min(values)

    return lambda frame: of_claimed(frame, least)


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED, bounds=(-_LARGEST, _LARGEST), receives=Receives.DEVICE_ORDER)
def claimed_most(name: ConstantText) -> MaybeQuantityReader:
    """Return the largest value of a capacity or attribute among the devices that the pod's claims would get.

    Missing as for `claimed_least()`.
    """

    def most(row: int, devices: Sequence[SlicedDevice]) -> float:
        values = [number_of(device, name) for device in devices]
        return math.nan if any(math.isnan(value) for value in values) else max(values)

    return lambda frame: of_claimed(frame, most)


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED, receives=Receives.DEVICE_ORDER)
def claimed_text(attribute: ConstantText) -> MaybeTextReader:
    """Return an attribute that is a text or a version and the same for all devices that the pod's claims would get.

    To compare versions: `version(claimed_text("driverVersion")) >= version("550.54")`. Missing if two devices differ,
    if a device does not have the attribute, or if the pod would get no devices.
    """

    def read(frame: Frame) -> Texts:
        values: list[str | None] = [None] * frame.size
        for position, _, devices in claimed_devices(frame):
            found = {text_of(device, attribute) for device in devices}
            values[position] = found.pop() if len(found) == 1 else None
        return texts_of(values)

    return read


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED, bounds=(1, _MOST), receives=Receives.DEVICE_ORDER)
def claimed_kinds(attribute: ConstantText) -> MaybeNumberReader:
    """Return the number of different values of an attribute among the devices that the pod's claims would get.

    1 means that all devices are on one NUMA node, PCIe root or NVLink domain. Missing if a device does not have the
    attribute, or if the pod would get no devices.
    """

    def kinds(row: int, devices: Sequence[SlicedDevice]) -> float:
        values = [attribute_of(device, attribute) for device in devices]
        return math.nan if any(value is None for value in values) else float(len(set(values)))

    return lambda frame: of_claimed(frame, kinds)


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED | _CLASS, bounds=(0, _MOST), receives=Receives.DEVICE_ORDER)
def class_devices_left(device_class: ConstantText) -> NumberReader:
    """Return the number of devices of a DeviceClass that stay free on the node after the pod's claims are allocated."""
    return _left(device_class, "")


@builtin(staged=True, shape=Shape.NODE, depends=_CLAIMED | _CLASS, bounds=(0, _MOST), receives=Receives.DEVICE_ORDER)
def class_devices_together_left(device_class: ConstantText, attribute: ConstantText) -> NumberReader:
    """Return what `class_devices_together()` is after the pod's claims are allocated on the node."""
    return _left(device_class, attribute)


def _left(device_class: str, attribute: str) -> NumberReader:
    def read(frame: Frame) -> FloatArray:
        kept = columns_of(frame.cluster, device_class, attribute)
        left: FloatArray = kept.columns()[1][frame.rows].copy()
        for position, row, devices in claimed_devices(frame):
            left[position] = kept.free_without(row, {device.id for device in devices})
        return left

    return read
