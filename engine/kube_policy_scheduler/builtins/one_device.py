"""One device of a node, for `devices by`: its attributes and capacities, how much of it is free, what is around it.

Elsewhere there is no such device; the checks of the language refuse these functions there.
"""

from typing import Any

import numpy as np

from kube_policy_scheduler.framework.devices.device_order import DeviceFrame
from kube_policy_scheduler.lang.compiling.columns import as_texts, texts_of
from kube_policy_scheduler.lang.signature import (
    ConstantText,
    MaybeNumberReader,
    MaybeQuantityReader,
    MaybeTextReader,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Shape

_LARGEST = 1e18
_MOST = 1e6


def _nothing(frame: Any) -> Any:
    return np.full(frame.size, np.nan)


@builtin(staged=True, shape=Shape.NODE, depends=Depends.DEVICE, bounds=(-_LARGEST, _LARGEST))
def device_value(name: ConstantText) -> MaybeQuantityReader:
    """Return a capacity of a device, or else an attribute that is a number: `device_value("memory")`.

    Use it in `devices by`. Capacities are in bytes, or in the unit of the driver; a truth value is 1 or 0. Missing if
    the device does not have it; a device that pods share by thousandths never has one.
    """
    return lambda frame: frame.devices.numbers(name) if isinstance(frame, DeviceFrame) else _nothing(frame)


@builtin(staged=True, shape=Shape.NODE, depends=Depends.DEVICE)
def device_text(attribute: ConstantText) -> MaybeTextReader:
    """Return an attribute of a device that is a text or a version: `device_text("model")`. Use it in `devices by`.

    Missing if the device does not have it.
    """

    def read(frame: Any) -> Any:
        if not isinstance(frame, DeviceFrame):
            return as_texts(None, frame.size)
        return texts_of(frame.devices.texts(attribute))

    return read


@builtin(staged=True, shape=Shape.NODE, depends=Depends.DEVICE, bounds=(0, 1))
def device_free(capacity: ConstantText = "") -> MaybeNumberReader:
    """Return how much of a device is free, from 0 to 1: 1 if no pod uses it. Use it in `devices by`.

    With a capacity, how much of that. Without one, the scarcest counts: of the capacities that pods share, and of the
    counters that a partition takes from its device. Missing if the device does not have the capacity.
    """
    return lambda frame: frame.devices.free(capacity) if isinstance(frame, DeviceFrame) else _nothing(frame)


@builtin(staged=True, shape=Shape.NODE, depends=Depends.DEVICE, bounds=(0, _MOST))
def device_group_free(attribute: ConstantText) -> MaybeNumberReader:
    """Return how many devices of the node with the same value of an attribute are free. Use it in `devices by`.

    By `device_group_free("nvlinkDomain")`, the smallest group is taken first, and the largest one stays whole.
    Missing if the device does not have the attribute.
    """
    return lambda frame: frame.devices.free_in_group(attribute) if isinstance(frame, DeviceFrame) else _nothing(frame)
