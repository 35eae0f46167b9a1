"""Constraints of a claim: what its devices must have in common, or must not."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice
from kube_policy_scheduler.framework.devices.requests import AllocationError, Request

Value: TypeAlias = tuple[str, object]
"""An attribute with its type."""


def attribute_of(device: SlicedDevice, name: str) -> Value | None:
    """Return a device's attribute with its type, by full name or, for the driver's own, by the name alone."""
    attributes = device.device.attributes or {}
    found = attributes.get(name)
    if found is None:
        domain, slash, own = name.partition("/")
        if not slash or domain != device.id.driver:
            return None
        found = attributes.get(own)
    if found is None:
        return None
    if found.string_value is not None:
        return "string", found.string_value
    if found.int_value is not None:
        return "int", found.int_value
    if found.bool_value is not None:
        return "bool", found.bool_value
    return ("version", found.version_value) if found.version_value is not None else ("", None)


class Constraint:
    """One constraint of a claim, with what it remembers of the devices that were taken."""

    def __init__(self, requests: frozenset[str], name: str) -> None:
        self._requests = requests
        self.name = name
        """Of the attribute."""
        self._values: list[Value] = []
        """Of the devices that were taken, in that order."""

    def concerns(self, request: Request) -> bool:
        """Return whether it is about the devices of a request."""
        return not self._requests or request.base_name in self._requests or request.full_name in self._requests

    @property
    def state(self) -> Hashable:
        """Return what decides which devices may still be taken."""
        raise NotImplementedError

    def allows(self, value: Value) -> bool:
        """Return whether a device with a value may be taken beside those that were."""
        raise NotImplementedError

    def add(self, request: Request, device: SlicedDevice) -> bool:
        """Take a device into account; return False, and leave it out, if it may not be taken."""
        if not self.concerns(request):
            return True
        value = attribute_of(device, self.name)
        if value is None or (self._values and not (value[0] and self.allows(value))):
            return False  # a value of a type that nobody knows can be the first, and never another
        self._values.append(value)
        return True

    def remove(self, request: Request) -> None:
        """Leave the device out again that was taken last, which is one of a request's."""
        if self.concerns(request):
            self._values.pop()


class MatchAttribute(Constraint):
    """All devices have one value."""

    @property
    def state(self) -> Hashable:
        """Return the value."""
        return self._values[0] if self._values else None

    def allows(self, value: Value) -> bool:
        """Return whether it is the same value."""
        return value == self._values[0]


class DistinctAttribute(Constraint):
    """No two devices have one value."""

    @property
    def state(self) -> Hashable:
        """Return the values that are taken."""
        return frozenset(self._values)

    def allows(self, value: Value) -> bool:
        """Return whether no other device has the value."""
        return value not in self._values


def read_constraint(claim: str, number: int, constraint: objects.DeviceConstraint) -> Constraint:
    """Return the constraint with a number in a claim, before any device is taken.

    Raises:
        AllocationError: it is of a type that this version does not know.
    """
    requests = frozenset(constraint.requests or ())
    if constraint.match_attribute is not None:
        return MatchAttribute(requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return DistinctAttribute(requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)")
