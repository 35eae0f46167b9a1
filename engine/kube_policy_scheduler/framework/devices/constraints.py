"""Constraints of a claim: what its devices must have in common, or must not."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.resource_slices import SlicedDevice
from kube_policy_scheduler.framework.devices.requests import AllocationError, Request
from kube_policy_scheduler.kubernetes_rules import Feature, KubernetesRules

Value: TypeAlias = tuple[str, object]
"""An attribute with its type."""


Values: TypeAlias = frozenset[Value]
"""What an attribute counts for in a constraint; empty: it is of a type that does not count."""


def attribute_of(device: SlicedDevice, name: str) -> Value | None:
    """Return a device's attribute with its type, by full name or, for the driver's own, by the name alone.

    The type of a list is "", and its value None.
    """
    found = _published(device, name)
    if found is None:
        return None
    if found.string_value is not None:
        return "string", found.string_value
    if found.int_value is not None:
        return "int", found.int_value
    if found.bool_value is not None:
        return "bool", found.bool_value
    return ("version", found.version_value) if found.version_value is not None else ("", None)


def list_of(device: SlicedDevice, name: str) -> Values:
    """Return the values of a device's attribute that is a list; none if it is no list."""
    found = _published(device, name)
    if found is None:
        return frozenset()
    lists = {
        "string": found.string_values,
        "int": found.int_values,
        "bool": found.bool_values,
        "version": found.version_values,
    }
    return frozenset((kind, value) for kind, values in lists.items() for value in values or ())


def _published(device: SlicedDevice, name: str) -> objects.DeviceAttribute | None:
    attributes = device.device.attributes or {}
    found = attributes.get(name)
    if found is None:
        domain, slash, own = name.partition("/")
        if slash and domain == device.id.driver:
            found = attributes.get(own)
    return found


class Constraint:
    """One constraint of a claim, with what it remembers of the devices that were taken."""

    def __init__(self, requests: frozenset[str], name: str, *, counts_lists: bool) -> None:
        self._requests, self._counts_lists = requests, counts_lists
        self.name = name
        """Of the attribute."""
        self._states: list[Values] = []
        """For each device that was taken, in that order, what decides from then on which others may be."""

    def concerns(self, request: Request) -> bool:
        """Return whether it is about the devices of a request."""
        return not self._requests or request.base_name in self._requests or request.full_name in self._requests

    def values_of(self, device: SlicedDevice) -> Values | None:
        """Return the values of a device that count; None: it has no such attribute."""
        value = attribute_of(device, self.name)
        if value is None:
            return None
        if value[0]:
            return frozenset((value,))
        return list_of(device, self.name) if self._counts_lists else frozenset()

    @property
    def state(self) -> Hashable:
        """Return what decides which devices may still be taken."""
        return self._states[-1] if self._states else None

    def allows(self, before: Values, values: Values) -> bool:
        """Return whether a device with some values may be taken in a state."""
        raise NotImplementedError

    def joined(self, before: Values, values: Values) -> Values:
        """Return the state after a device with some values was taken."""
        raise NotImplementedError

    def add(self, request: Request, device: SlicedDevice) -> bool:
        """Take a device into account; return False, and leave it out, if it may not be taken."""
        if not self.concerns(request):
            return True
        values = self.values_of(device)
        if values is None:
            return False
        if not self._states:  # also a value of a type that does not count can be the first, and never another
            self._states.append(values)
            return True
        before = self._states[-1]
        if not values or not self.allows(before, values):
            return False
        self._states.append(self.joined(before, values))
        return True

    def remove(self, request: Request) -> None:
        """Leave the device out again that was taken last, which is one of a request's."""
        if self.concerns(request):
            self._states.pop()


class MatchAttribute(Constraint):
    """All devices have one value in common."""

    def allows(self, before: Values, values: Values) -> bool:
        """Return whether there is a value that all have."""
        return not before.isdisjoint(values)

    def joined(self, before: Values, values: Values) -> Values:
        """Return the values that all have."""
        return before & values


class DistinctAttribute(Constraint):
    """No two devices have a value in common."""

    def allows(self, before: Values, values: Values) -> bool:
        """Return whether no other device has one of the values."""
        return before.isdisjoint(values)

    def joined(self, before: Values, values: Values) -> Values:
        """Return the values that are taken."""
        return before | values


def read_constraint(
    claim: str, number: int, constraint: objects.DeviceConstraint, rules: KubernetesRules
) -> Constraint:
    """Return the constraint with a number in a claim, before any device is taken.

    Raises:
        AllocationError: it is of a type that this version does not know.
    """
    requests, counts_lists = frozenset(constraint.requests or ()), Feature.DRA_LIST_TYPE_ATTRIBUTES in rules
    if constraint.match_attribute is not None:
        return MatchAttribute(requests, constraint.match_attribute, counts_lists=counts_lists)
    if constraint.distinct_attribute is not None:
        return DistinctAttribute(requests, constraint.distinct_attribute, counts_lists=counts_lists)
    raise AllocationError(f"claim {claim}, constraint #{number}: empty constraint (unsupported constraint type?)")
