"""Reports for programs: plain values for JSON, with the keys that Kubernetes would use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec


def report_values(thing: Any) -> Any:
    """Return plain values of a report: a dataclass or struct becomes an object with camelCase keys, an enum its value.

    Keys of mappings are data, such as the names of nodes and resources, and stay as they are.
    """
    if is_dataclass(thing):
        return {camel_case(field.name): report_values(getattr(thing, field.name)) for field in fields(thing)}
    if isinstance(thing, msgspec.Struct):
        return {camel_case(name): report_values(getattr(thing, name)) for name in thing.__struct_fields__}
    match thing:
        case Enum():
            return thing.value
        case Mapping():
            return {key: report_values(value) for key, value in thing.items()}
        case str():
            return thing
        case Sequence() | frozenset():
            return [report_values(item) for item in thing]
    return thing


def camel_case(name: str) -> str:
    """Return a name of Python as Kubernetes writes it: `could_be_better` as `couldBeBetter`, `use_TLS` as `useTLS`."""
    first, *others = name.split("_")
    return first + "".join(word if word.isupper() else word.capitalize() for word in others)
