"""Devices for gangs that do not fit otherwise: each member takes as little as it can, so that enough is left for all.

kube-scheduler gives each pod the first devices that fit: a whole device where half of one would do, if that is listed
first. The second member of a gang then finds nothing, though both fit on two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.framework.devices.device_order import DeviceFrame

_MOST_ALTERNATIVES = 8
"""Of one request, as the API allows."""


class Thrifty(msgspec.Struct, frozen=True, eq=False):
    """An order of devices: those first that take the least of what devices share; a `DeviceOrder`."""

    skips: int
    """This many of the first alternatives of a request come last."""
    text: str = "what they take from others of their gang"
    rule: str | None = None
    values: tuple[tuple[str, Callable[[Any], Sequence[Any]]], ...] = ()

    @property
    def keys(self) -> Callable[[DeviceFrame], Sequence[tuple[Any, ...]]]:
        """Return what takes a `DeviceFrame` and returns what each device sorts by."""
        return _keys


def _keys(frame: DeviceFrame) -> Sequence[tuple[Any, ...]]:
    return [(share,) for share in frame.devices.taken().tolist()]


THRIFTY = tuple(map(Thrifty, range(_MOST_ALTERNATIVES)))
"""By how many alternatives they skip."""


def orders_for(specs: Sequence[objects.ResourceClaimSpec], *, take_counters: bool) -> Sequence[Thrifty]:
    """Return the orders in which claims may get other devices; the first leave their preferred alternatives in place.

    take_counters: whether any device takes of what others take of, too.
    """
    requests = [request for spec in specs for request in spec.devices.requests or ()]
    most = max((len(request.first_available or ()) for request in requests), default=0)
    return THRIFTY[0 if take_counters and requests else 1 : max(1, most)]


def without_first(spec: objects.ResourceClaimSpec, skips: int) -> objects.ResourceClaimSpec:
    """Return the same claim with the first alternatives of each request, so many of them, at the end."""
    requests = [
        msgspec.structs.replace(request, first_available=_rotated(request.first_available, skips))
        if request.first_available
        else request
        for request in spec.devices.requests or ()
    ]
    return msgspec.structs.replace(spec, devices=msgspec.structs.replace(spec.devices, requests=requests or None))


def _rotated(alternatives: list[objects.DeviceSubRequest], skips: int) -> list[objects.DeviceSubRequest]:
    at = min(skips, len(alternatives) - 1)
    return [*alternatives[at:], *alternatives[:at]]
