"""For how many members of a gang each node has the devices that they claim.

A claim for a number of devices of one kind counts like a resource: members with other numbers of the same kind share
them. All other claims of a pod count as a whole: for how many pods like it, one after another, the devices suffice. So
does every claim where devices share counters: a claim for three may take the small ones, and one for one the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.device_classes import class_by_resource, may_be_provided
from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.framework.devices.allocations import Allocations, allocations
from kube_policy_scheduler.framework.devices.requests import EXACT_COUNT
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.wording import plural, some

_encode = msgspec.msgpack.Encoder().encode
_PLUGIN = DynamicResources()


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices of which pods claim some number, or what the claims of a pod request as a whole."""

    key: bytes
    """Equal for equal kinds."""
    specs: tuple[objects.ResourceClaimSpec, ...] = field(compare=False)
    """The claims that one of it is for."""
    name: str = field(compare=False)
    """The class of devices, or what is requested as a whole, for people."""
    is_counted: bool = field(compare=False)
    """Whether pods request a number of them."""

    def text(self, number: int) -> str:
        """Return this many of them, for people."""
        return _devices_text(number, self.name) if self.is_counted else self.name

    def free(self, cluster: Cluster) -> IntArray:
        """Return `int64[nodes]`: how many are free. Devices that several nodes can use count on each. Read-only."""
        return self._allocations(cluster).places()

    def offered(self, cluster: Cluster) -> IntArray:
        """Return `int64[nodes]`: how many there are, in use or not. Read-only."""
        return self._allocations(cluster).places_offered()

    def _allocations(self, cluster: Cluster) -> Allocations:
        return allocations(cluster).of(self.specs)


def claimed_kinds(frame: Frame) -> tuple[tuple[DeviceKind, int], ...]:
    """Return the devices that the pod claims for itself and has not got yet, by kind; as `Members.devices` has them.

    Claims that several pods share do not count: the first of these pods gets the devices.
    """
    if not frame.template.spec.resource_claims:
        return ()
    prepared = _PLUGIN.pre_filter(frame)
    if not isinstance(prepared, Ready):
        return ()
    state, uid = prepared.state, frame.pod.uid
    specs = tuple(
        claim.spec
        for claim in state.unallocated
        if claim is not state.extended
        and any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references or ())
    )
    requests = [request for spec in specs for request in spec.devices.requests or ()]
    if not requests:
        return ()
    is_alone = len(specs) == len(requests) == 1
    counted = _counted(specs[0], requests[0]) if is_alone and not frame.cluster.resource_slices.take_counters else None
    if counted is not None:
        return (counted,)
    name = some(list(map(_request_text, requests)))
    return ((DeviceKind(_encode(specs), specs, name, is_counted=False), 1),)


def thrifty_orders(frame: Frame) -> Sequence[Thrifty]:
    """Return the orders of devices in which a pod may leave more to others; see `DynamicResources.thrifty_orders`."""
    return _PLUGIN.thrifty_orders(frame)


def kind_of_class(name: str) -> DeviceKind:
    """Return the devices of a class."""
    exactly = objects.ExactDeviceRequest(device_class_name=name, allocation_mode=EXACT_COUNT, count=1)
    return _kind(exactly)


def provided_kind(cluster: Cluster, resource: str) -> DeviceKind | None:
    """Return the devices that serve an extended resource on nodes without a device plugin for it; None: none do."""
    if not may_be_provided(resource):
        return None
    name = class_by_resource(cluster.store).get(resource)
    return kind_of_class(name) if name is not None else None


def _counted(spec: objects.ResourceClaimSpec, request: objects.DeviceRequest) -> tuple[DeviceKind, int] | None:
    """Return a claim as a number of devices of a kind; None if it is something else."""
    exactly = request.exactly
    if exactly is None or request.first_available or spec.devices.constraints:
        return None
    if exactly.allocation_mode != EXACT_COUNT or exactly.admin_access or exactly.capacity or exactly.count < 1:
        return None
    return _kind(exactly), exactly.count


def _kind(exactly: objects.ExactDeviceRequest) -> DeviceKind:
    one = msgspec.structs.replace(exactly, count=1)
    spec = objects.ResourceClaimSpec(
        devices=objects.DeviceClaim(requests=[objects.DeviceRequest(name="devices", exactly=one)])
    )
    return DeviceKind(_encode(spec), (spec,), exactly.device_class_name, is_counted=True)


def _request_text(request: objects.DeviceRequest) -> str:
    texts = []
    for one in (request.exactly,) if request.exactly is not None else request.first_available or ():
        takes_all = one.allocation_mode != EXACT_COUNT
        texts.append(_devices_text(None if takes_all else one.count, one.device_class_name))
    return f"one of ({some(texts)})" if len(texts) > 1 else texts[0]


def _devices_text(number: int | None, class_name: str) -> str:
    return f"{'all devices' if number is None else plural(number, 'device')} of {class_name}"
