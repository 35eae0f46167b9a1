"""Claims as the allocator reads them: requests with their selectors compiled, constraints, tolerations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.capacity_names import by_capacity_key
from kube_policy_scheduler.cluster.devices.device_taints import KEEPING_AWAY
from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice, quantity_or_zero
from kube_policy_scheduler.cluster.search_work import Work
from kube_policy_scheduler.cluster.taints import TaintKey, tolerates
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules
from kube_policy_scheduler.quantities.exact_quantity import BINARY_SI, Quantity, counted

if TYPE_CHECKING:
    from kube_policy_scheduler.cluster.devices.device_selectors import CompiledSelector, Match

MAX_RESULTS = 32
"""Devices of one claim (`AllocationResultsMaxSize`)."""
_MISSING_KEY_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
    " fields"
)
ALL = "All"
EXACT_COUNT = "ExactCount"


class AllocationError(Exception):
    """The search cannot go on: it ends the whole attempt to schedule the pod, in kube-scheduler's words."""


class NodeRejected(Exception):
    """The devices of a node are no choice for the claims, in words that hold for this node alone."""


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
    """What it requests of capacities, by the names that it uses."""
    rules: KubernetesRules
    """Of the Kubernetes whose pods are decided."""

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
                if match is None:
                    raise AllocationError(f"{what}: selector #{number}: {error}")
                raise AllocationError(f"{what}: selector #{number}{self._on(device, match)}")
        return True

    def _on(self, device: SlicedDevice, match: Match) -> str:
        """Return the error of a selector on a device, and what to do about it."""
        if Feature.SELECTOR_ERRORS_NAME_DEVICES not in self.rules:
            return f": {match.error}"
        return f" on device {device.id}: {match.error}{_MISSING_KEY_HINT if match.misses_key else ''}"

    def tolerates(self, device: SlicedDevice) -> bool:
        """Return whether no taint of a device keeps it from being allocated."""
        return self.untolerated_taint(device) is None

    def untolerated_taint(self, device: SlicedDevice) -> objects.DeviceTaint | None:
        """Return the first taint that keeps a device from being allocated; None: none does."""
        for taint in device.taints:
            if taint.effect in KEEPING_AWAY:
                key = TaintKey(taint.key, taint.value, taint.effect)
                if not any(tolerates(_pod_toleration(one), key) for one in self.tolerations):
                    return taint
        return None

    def consumes(self, device: SlicedDevice) -> dict[str, Quantity] | None:
        """Return what a share would take of each of a device's capacities; None if the device is not suitable."""
        requested = by_capacity_key(self.capacity, device.id.driver, self.rules)
        if any(name not in device.capacities for name in requested):
            return None
        found: dict[str, Quantity] = {}
        for name, capacity in device.capacities.items():
            amount = _consumed(requested.get(name), capacity, self.rules)
            if capacity.request_policy is not None and _violates(amount, capacity.request_policy, self.rules):
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
    rules: KubernetesRules
    """Of the Kubernetes whose pods are decided."""


ClassLookup = Callable[[str], objects.DeviceClass | None]


def read_claim(
    key: str, spec: objects.ResourceClaimSpec, find_class: ClassLookup, rules: KubernetesRules
) -> ClaimRequests:
    """Return a claim's requests, ready for the allocator.

    Args:
        key: `namespace/name` of the claim, for errors.
        spec: of the claim.
        find_class: returns a DeviceClass by its name.
        rules: of the Kubernetes whose pods are decided.

    Raises:
        AllocationError: something in it is unknown to this version, or a class is missing.
    """
    devices = spec.devices
    return ClaimRequests(
        key,
        tuple(_alternatives(key, request, find_class, rules) for request in devices.requests or ()),
        tuple(devices.constraints or ()),
        rules,
    )


def _alternatives(
    key: str, request: objects.DeviceRequest, find_class: ClassLookup, rules: KubernetesRules
) -> tuple[Request, ...]:
    if request.first_available:
        return tuple(_request(key, sub, request.name, find_class, rules) for sub in request.first_available)
    exactly = request.exactly
    if exactly is None:
        text = "missing device class name (unsupported request type?)"
        raise AllocationError(f"claim {key}, request {request.name}: {text}")
    return (_request(key, exactly, "", find_class, rules, name=request.name, admin_access=exactly.admin_access),)


def _request(
    key: str,
    wanted: objects.ExactDeviceRequest | objects.DeviceSubRequest,
    parent: str,
    find_class: ClassLookup,
    rules: KubernetesRules,
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
        rules=rules,
    )


def _compiled(selectors: list[objects.DeviceSelector] | None) -> tuple[CompiledSelector, ...]:
    if not selectors:
        return ()
    from kube_policy_scheduler.cluster.devices.device_selectors import compile_selector  # most clusters have no devices

    return tuple(compile_selector(one.cel.expression if one.cel is not None else "") for one in selectors)


# --- consumable capacity ----------------------------------------------------------------------------------


def _consumed(requested: Quantity | None, capacity: objects.DeviceCapacity, rules: KubernetesRules) -> Quantity:
    """Return what a request takes of a capacity, rounded up as the device's policy has it."""
    policy = capacity.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return quantity_or_zero(capacity.value if default is None else default)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _Range(policy.valid_range, rules).rounded_up(requested)
    if policy.valid_values is not None:
        values = (quantity_or_zero(value) for value in policy.valid_values)
        return next((value for value in values if requested.compare(value) <= 0), requested)
    return requested


def _violates(amount: Quantity, policy: objects.CapacityRequestPolicy, rules: KubernetesRules) -> bool:
    """Return whether the policy does not allow an amount."""
    if policy.default is not None and not amount.big and amount == quantity_or_zero(policy.default):
        return False
    if policy.valid_range is not None:
        return not _Range(policy.valid_range, rules).allows(amount)
    if policy.valid_values:
        return all(amount.compare(quantity_or_zero(value)) != 0 for value in policy.valid_values)
    return False


class _Range:
    """The amounts of a `validRange`: from a minimum on in steps, up to a maximum."""

    def __init__(self, valid: objects.CapacityRange, rules: KubernetesRules) -> None:
        self._least = quantity_or_zero(valid.min or 0)
        self._most = quantity_or_zero(valid.max) if valid.max is not None else None
        step = quantity_or_zero(valid.step) if valid.step is not None else None
        bounds = [one for one in (self._least, self._most, step) if one is not None]
        is_fractional = Feature.DRA_FRACTIONAL_CAPACITY_RANGE in rules and not all(one.is_whole for one in bounds)
        self._digits = 3 if is_fractional else 0
        """Decimal digits of the unit in which amounts are counted."""
        self._step = step.rounded_up(self._digits) if step is not None else 0

    def rounded_up(self, requested: Quantity) -> Quantity:
        """Return the least of the amounts that is not below a requested one."""
        if requested.compare(self._least) < 0:
            return self._least
        if not self._step:
            return requested
        start = self._least.rounded_up(self._digits)
        steps = -(-(requested.rounded_up(self._digits) - start) // self._step)
        return counted(start + self._step * steps, self._digits, BINARY_SI)

    def allows(self, amount: Quantity) -> bool:
        """Return whether it is one of the amounts; below the minimum, only the steps count."""
        if self._most is not None and amount.compare(self._most) > 0:
            return False
        beyond = amount.rounded_up(self._digits) - self._least.rounded_up(self._digits)
        return not self._step or beyond % self._step == 0
