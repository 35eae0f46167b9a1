"""What an expression reads of a device: devices that are equal in it get the same result.

Most selectors read one or two attributes, and thousands of devices have the same values there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kube_policy_scheduler.cel.syntax import Call, Comprehension, Constant, Ident, ListOf, MapOf, Node, Select
from kube_policy_scheduler.cluster import objects

ATTRIBUTES = "device.attributes"
CAPACITY = "device.capacity"


class Reference(NamedTuple):
    """One reference: an attribute or capacity, all of a domain (no name), or all there are (no domain)."""

    kind: str
    """Such as `device.attributes` or `device.driver`."""
    domain: str | None = None
    name: str | None = None


def references(root: Node) -> tuple[Reference, ...]:
    """Return what an expression reads, each once."""
    return tuple(dict.fromkeys(_read(root)))


def _read(node: Node) -> Iterator[Reference]:
    match node:
        case Constant():
            return
        case Ident("device"):
            yield from (Reference(ATTRIBUTES), Reference(CAPACITY))
            yield from (Reference("device.driver"), Reference("device.allowMultipleAllocations"))
        case Ident(name):
            if name.startswith("device."):
                yield Reference(name)
        case Select(operand, field, _):
            yield from _member(operand, field)
        case Call("_[_]" | "_?._" | "_[?_]", (operand, Constant(str(field)))):
            yield from _member(operand, field)
        case Call("@in" | "_in_", (Constant(str(field)), operand)):
            yield from _member(operand, field)
        case Call(_, arguments):
            for argument in arguments:
                yield from _read(argument)
        case ListOf(elements, _):
            for element in elements:
                yield from _read(element)
        case MapOf(entries):
            for key, value, _ in entries:
                yield from (*_read(key), *_read(value))
        case Comprehension():
            for part in (node.over, node.start, node.condition, node.step, node.result):
                yield from _read(part)


def _member(operand: Node, name: str) -> Iterator[Reference]:
    domain = _domain(operand)
    if domain is not None:
        yield Reference(*domain, name)
        return
    if isinstance(operand, Ident) and operand.name in (ATTRIBUTES, CAPACITY):
        yield Reference(operand.name, name)
        return
    yield from _read(operand)


def _domain(node: Node) -> tuple[str, str] | None:
    """Return the kind and domain of `device.attributes["domain"]`, None for anything else."""
    match node:
        case Call("_[_]", (Ident(kind), Constant(str(domain)))) | Select(Ident(kind), domain, False):
            return (kind, domain) if kind in (ATTRIBUTES, CAPACITY) else None
    return None


def values(found: tuple[Reference, ...], driver: str, device: objects.Device) -> tuple[object, ...]:
    """Return the values of a device that are read: equal for devices with the same result."""
    return tuple(_value(one, driver, device) for one in found)


def _value(one: Reference, driver: str, device: objects.Device) -> object:
    match one.kind:
        case "device.driver":
            return driver
        case "device.allowMultipleAllocations":
            return bool(device.allow_multiple_allocations)
    entries = (device.attributes if one.kind == ATTRIBUTES else device.capacity) or {}
    if one.name is None:
        return driver, tuple((name, _plain(value)) for name, value in entries.items())
    own = _plain(entries.get(one.name)) if one.domain == driver else None
    return own, _plain(entries.get(f"{one.domain}/{one.name}"))


def _plain(value: objects.DeviceAttribute | objects.DeviceCapacity | None) -> object:
    if isinstance(value, objects.DeviceAttribute):
        scalars = value.int_value, value.bool_value, value.string_value, value.version_value
        lists = value.int_values, value.bool_values, value.string_values, value.version_values
        if scalars != _NONE:
            return scalars
        return tuple(None if one is None else tuple(one) for one in lists)
    return None if value is None else value.value


_NONE = (None, None, None, None)
