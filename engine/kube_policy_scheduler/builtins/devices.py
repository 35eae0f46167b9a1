"""Devices such as GPUs, one by one: how many are free, how much room there is, what a placement would waste."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kube_policy_scheduler.cluster.devices import WHOLE, Ask, DeviceTable, ask_of
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.fragmentation import fragmentation as fragmentation_of
from kube_policy_scheduler.framework.frame import Frame
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
    """Return how many devices the pod wants: 2, or 0.46 where it wants a share of one."""
    return lambda frame: ask_of(frame.template, resource).amount


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, _MOST))
def devices(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return how many devices the node has."""
    return _reader(lambda table, ask, frame: table.count[frame.rows].astype(np.float64), resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, _MOST))
def devices_free(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return how many devices of the node nobody has a part of."""
    return _reader(lambda table, ask, frame: (table.free[frame.rows] >= WHOLE).sum(axis=1).astype(np.float64), resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(-_MOST, _MOST))
def device_room(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return how much is free on all devices of the node together: 3.54 where three are free and 0.54 of a fourth."""
    return _reader(lambda table, ask, frame: table.free[frame.rows].sum(axis=1) / WHOLE, resource)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(0, 1))
def share_room(resource: ResourceWord = DEFAULT_RESOURCE) -> MaybeNumberReader:
    """Return how much is free on the fullest device that the pod's share fits on, before it: 1 on an unused one.

    Missing where it fits on none, and where the pod wants no share.
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
    """Return how much of the free room on the node's devices a pod of the workload could not use, on average.

    In devices. The workload is what a simulation says, or else the pods that are on nodes. (Weng et al.,
    "Beware of Fragmentation", USENIX ATC 2023.)
    """
    return lambda frame: fragmentation_of(frame, resource).before(frame.rows) / WHOLE


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, reads=_DEVICES, bounds=(-_MOST, _MOST))
def fragmentation_drop(resource: ResourceWord = DEFAULT_RESOURCE) -> NumberReader:
    """Return by how much the pod lowers `fragmentation()` on the node, its share on the best device; else negative."""

    def read(frame: Frame) -> FloatArray:
        ways = fragmentation_of(frame, resource).drops(frame.template, frame.index())
        best: FloatArray = ways.max(axis=1, initial=-np.inf) / WHOLE
        return np.where(np.isfinite(best), best, -_MOST)

    return read
