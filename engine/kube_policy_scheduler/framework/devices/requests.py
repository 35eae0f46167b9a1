"""Claims as the allocator reads them: requests with their selectors compiled, constraints, tolerations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice, quantity_or_zero
from kube_policy_scheduler.cluster.search_work import Work
from kube_policy_scheduler.cluster.taints import TaintKey, tolerates
from kube_policy_scheduler.quantities.exact_quantity import BINARY_SI, Quantity, whole_units

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector

MAX_RESULTS = 32
"""Devices of one claim (`AllocationResultsMaxSize`)."""
ALL = "All"
EXACT_COUNT = "ExactCount"


class AllocationError(Exception):
    """The search cannot go on: it ends the whole attempt to schedule the pod, in kube-scheduler's words."""


class Request(msgspec.Struct, frozen=True, eq=False):
    """One request, or one alternative of a request with several."""

    claim: str
    """`namespace/name`, for errors."""
    name: str
    """Of the request, or of the alternative within it."""
    parent: str
    """Name of the request that it is an alternative of, "" if it is none."""
    device_class: objects.DeviceClass
    class_selectors: tuple[CompiledSelector, ...]
    selectors: tuple[CompiledSelector, ...]
    takes_all: bool
    count: int
    """Requested devices; not used if it takes all."""
    admin: bool
    admin_access: bool | None
    tolerations: tuple[objects.DeviceToleration, ...]
    capacity: Mapping[str, Quantity]
    """What it requests of capacities, by name."""

    @property
    def base_name(self) -> str:
        """Return the name of the whole request."""
        return self.parent or self.name

    @property
    def full_name(self) -> str:
        """Return the name in allocation results."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def selects(self, device: SlicedDevice, work: Work) -> bool | None:
        """Return whether the selectors of the class and of the request match; None: first others get their turn.

        work: pays for it.

        Raises:
            AllocationError: a selector cannot be compiled, or has no result.
        """
        for where, selectors in ((True, self.class_selectors), (False, self.selectors)):
            for number, selector in enumerate(selectors):
                error = f"CEL compile error: {selector.error}" if selector.error else ""
                match = None if error else device.try_match(selector, work)
                if match is None and not error:
                    return None
                if match is not None and not match.error:
                    if not match.matches:
                        return False
                    continue
                what = f"class {self.device_class.metadata.name}" if where else f"claim {self.claim}"
                raise AllocationError(f"{what}: selector #{number}: {error or (match.error if match else '')}")
        return True

    def tolerates(self, device: objects.Device) -> bool:
        """Return whether no taint of a device keeps it from being allocated."""
        for taint in device.taints or ():
            if taint.effect in ("NoSchedule", "NoExecute"):
                key = TaintKey(taint.key, taint.value, taint.effect)
                if not any(tolerates(_pod_toleration(one), key) for one in self.tolerations):
                    return False
        return True

    def consumes(self, device: objects.Device) -> dict[str, Quantity] | None:
        """Return what a share would take of each capacity of a device; None if the device is not suitable."""
        capacities = device.capacity or {}
        if any(name not in capacities for name in self.capacity):
            return None
        found: dict[str, Quantity] = {}
        for name, capacity in capacities.items():
            amount = _consumed(self.capacity.get(name), capacity)
            if capacity.request_policy is not None and _violates(amount, capacity.request_policy):
                return None
            found[name] = amount
        return found


def _pod_toleration(toleration: objects.DeviceToleration) -> objects.Toleration:
    return objects.Toleration(
        key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
    )


class ClaimRequests(msgspec.Struct, frozen=True, eq=False):
    """What one claim requests."""

    key: str
    """`namespace/name`"""
    requests: tuple[tuple[Request, ...], ...]
    """For each request its alternatives in order of preference; usually one."""
    constraints: tuple[objects.DeviceConstraint, ...]
    config: tuple[objects.DeviceConfiguration, ...]


ClassLookup = Callable[[str], objects.DeviceClass | None]


def read_claim(key: str, spec: objects.ResourceClaimSpec, find_class: ClassLookup) -> ClaimRequests:
    """Return a claim's requests, ready for the allocator.

    Raises:
        AllocationError: something in it is unknown to this version, or a class is missing.
    """
    devices = spec.devices
    return ClaimRequests(
        key,
        tuple(_alternatives(key, request, find_class) for request in devices.requests or ()),
        tuple(devices.constraints or ()),
        tuple(devices.config or ()),
    )


def _alternatives(key: str, request: objects.DeviceRequest, find_class: ClassLookup) -> tuple[Request, ...]:
    if request.first_available:
        return tuple(_request(key, sub, request.name, find_class) for sub in request.first_available)
    exactly = request.exactly
    if exactly is None:
        text = "missing device class name (unsupported request type?)"
        raise AllocationError(f"claim {key}, request {request.name}: {text}")
    return (_request(key, exactly, "", find_class, name=request.name, admin_access=exactly.admin_access),)


def _request(
    key: str,
    wanted: objects.ExactDeviceRequest | objects.DeviceSubRequest,
    parent: str,
    find_class: ClassLookup,
    *,
    name: str = "",
    admin_access: bool | None = None,
) -> Request:
    if isinstance(wanted, objects.DeviceSubRequest):
        name = wanted.name
    where = f"claim {key}, request {name}"
    for number, selector in enumerate(wanted.selectors or ()):
        if selector.cel is None:
            raise AllocationError(f"{where}, selector #{number}: CEL expression empty (unsupported selector type?)")
    class_name = wanted.device_class_name
    if not class_name:
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
    device_class = find_class(class_name)
    if device_class is None:
        text = f'deviceclass.resource.k8s.io "{class_name}" not found'
        raise AllocationError(f"{where}: could not retrieve device class {class_name}: {text}")
    if wanted.allocation_mode not in (ALL, EXACT_COUNT):
        raise AllocationError(f"{where}: unsupported count mode {wanted.allocation_mode}")
    requested = wanted.capacity.requests if wanted.capacity is not None else None
    return Request(
        claim=key,
        name=name,
        parent=parent,
        device_class=device_class,
        class_selectors=_compiled(device_class.spec.selectors),
        selectors=_compiled(wanted.selectors),
        takes_all=wanted.allocation_mode == ALL,
        count=wanted.count,
        admin=bool(admin_access),
        admin_access=True if admin_access else None,
        tolerations=tuple(wanted.tolerations or ()),
        capacity={name: quantity_or_zero(amount) for name, amount in (requested or {}).items()},
    )


def _compiled(selectors: list[objects.DeviceSelector] | None) -> tuple[CompiledSelector, ...]:
    if not selectors:
        return ()
    from kube_policy_scheduler.cluster.devices.device_selectors import compile_selector  # most clusters have no devices

    return tuple(compile_selector(one.cel.expression if one.cel is not None else "") for one in selectors)


# --- consumable capacity ----------------------------------------------------------------------------------


def _consumed(requested: Quantity | None, capacity: objects.DeviceCapacity) -> Quantity:
    """Return what a request takes of a capacity, rounded up as the device's policy has it."""
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return quantity_or_zero(capacity.value if default is None else default)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _in_range(requested, policy.valid_range)
    if policy.valid_values is not None:
        values = (quantity_or_zero(value) for value in policy.valid_values)
        return next((value for value in values if requested.compare(value) <= 0), requested)
    return requested


def _in_range(requested: Quantity, valid: objects.CapacityRange) -> Quantity:
    least = quantity_or_zero(valid.min or 0)
    if requested.compare(least) < 0:
        return least
    step = quantity_or_zero(valid.step).rounded_up() if valid.step is not None else 0
    if not step:
        return requested
    start = least.rounded_up()
    steps = -(-(requested.rounded_up() - start) // step)
    return whole_units(start + step * steps, BINARY_SI)


def _violates(amount: Quantity, policy: objects.CapacityRequestPolicy) -> bool:
    """Return whether the policy does not allow an amount."""
    if policy.default is not None and not amount.big and amount == quantity_or_zero(policy.default):
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.max is not None and amount.compare(quantity_or_zero(valid.max)) > 0:
            return True
        step = quantity_or_zero(valid.step).rounded_up() if valid.step is not None else 0
        start = quantity_or_zero(valid.min).rounded_up() if valid.min is not None else 0
        return bool(step) and (amount.rounded_up() - start) % step != 0
    if policy.valid_values:
        return all(amount.compare(quantity_or_zero(value)) != 0 for value in policy.valid_values)
    return False
