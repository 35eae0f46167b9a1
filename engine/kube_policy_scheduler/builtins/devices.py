"""Devices such as GPUs, one by one: how many are free, how much room there is, what a placement would waste."""

from collections.abc import Callable

import numpy as np

from kube_policy_scheduler.cluster.devices.node_devices import WHOLE, Ask, DeviceTable, ask_of
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.fragmentation import fragmentation as fragmentation_of
from kube_policy_scheduler.lang.signature import MaybeNumberReader, NumberReader, ResourceWord, builtin
from kube_policy_scheduler.lang.types import Depends, Shape

DEFAULT_RESOURCE = "nvidia.com/gpu"
_STATIC = Depends.TEMPLATE | Depends.NODE
_ROW = _STATIC | Depends.ROW
_MOST = 1e6
_DEVICES = ("node.devices",)


def _reader(read: Callable[[DeviceTable, Ask, Frame], FloatArray], resource: str) -> Callable[[Frame], FloatArray]:
    """Return what evaluates a frame with the devices of a resource and what the pod wants of them."""
    return lambda frame: read(frame.cluster.devices.table(resource), ask_of(frame.template, resource), frame)


@builtin(staged=True, shape=Shape.DECISION, depends=Depends.TEMPLATE, reads=_DEVICES, bounds=(0, _MOST))
def devices_wanted(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return the number of devices that the pod requests: 2, or 0.46 for a share of one device."""
    return lambda frame: ask_of(frame.template, resource).amount


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, _MOST))
def devices(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return the number of devices of the node."""
    return _reader(lambda table, ask, frame: table.count[frame.rows].astype(np.float64), resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, _MOST))
def devices_free(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return the number of devices of the node that no pod uses."""
    return _reader(lambda table, ask, frame: (table.free[frame.rows] >= WHOLE).sum(axis=1).astype(np.float64), resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(-_MOST, _MOST))
def device_room(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return the free capacity of all devices of the node: 3.54 if three devices and 0.54 of a fourth are free."""
    return _reader(lambda table, ask, frame: table.free[frame.rows].sum(axis=1) / WHOLE, resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, 1))
def share_room(resource: ResourceWord = DEFAULT_RESOURCE) -> MaybeNumberReader:
    """Return the free capacity of the fullest device on which the pod's share fits: 1 for an unused device.

    Missing if the share fits on no device, or if the pod requests no share.
    """

    def read(table: DeviceTable, ask: Ask, frame: Frame) -> FloatArray:
        if not ask.share:
            return np.full(frame.size, np.nan)
        free = table.free[frame.rows]
        least: FloatArray = np.where(free >= ask.share, free, np.inf).min(axis=1, initial=np.inf) / WHOLE
        return np.where(np.isfinite(least), least, np.nan)

    return _reader(read, resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, _MOST))
def fragmentation(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return the free device capacity of the node that an average pod of the workload could not use.

    The unit is devices. The workload is the list of a simulation, or otherwise the pods that have a node. (Weng et al.,
    "Beware of Fragmentation", USENIX ATC 2023.)
    """
    return lambda frame: fragmentation_of(frame, resource).before(frame.rows) / WHOLE


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(-_MOST, _MOST))
def fragmentation_drop(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return how much the pod reduces `fragmentation()` of the node, on the best device; negative if it increases."""

    def read(frame: Frame) -> FloatArray:
        ways = fragmentation_of(frame, resource).drops(frame.template, frame.index())
        best: FloatArray = ways.max(axis=1, initial=-np.inf) / WHOLE
        return np.where(np.isfinite(best), best, -_MOST)

    return read
