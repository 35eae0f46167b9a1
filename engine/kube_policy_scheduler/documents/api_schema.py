"""The fields of every kind with their types, from a generated table. Pure except for reading that one file, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

import msgspec


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of one field: containers around a scalar or a named type, and how two lists of it merge."""

    name: str
    """A scalar (`string`, `quantity`, ...) or the name of a type."""
    containers: str = ""
    """What is around it, outermost first: `l` for a list, `m` for a map."""
    required: bool = False
    merge_key: str = ""
    """Lists with a key merge element by element in a strategic merge patch."""
    merges: bool = False
    """Whether lists merge; without a key they merge as sets."""
    retains_keys: bool = False
    list_keys: tuple[str, ...] = ()
    """By which keys elements are the same in server-side apply; empty: the list is one value, or a set."""
    is_set: bool = False
    numbers: tuple[int, ...] = ()
    """The protobuf number; several where JSON has a message inline."""
    wrapped: bool = False
    """Whether protobuf puts the list into a message of its own."""
    is_pointer: bool = False
    """Of scalars: whether zero (`0`, `""`, false) differs from absence, as it is a pointer in Kubernetes' own types."""

    @property
    def is_scalar(self) -> bool:
        """Whether the innermost type has no fields of its own."""
        return "." not in self.name

    def element(self) -> FieldType:
        """Return the type within the outermost container."""
        return FieldType(self.name, self.containers[1:])


Type = Mapping[str, FieldType]


@dataclass(frozen=True, slots=True)
class Schema:
    """All kinds and types."""

    kinds: Mapping[tuple[str, str], str]
    """The type of each apiVersion and kind."""
    types: Mapping[str, Type]


class _Raw(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str]]


@lru_cache(maxsize=1)
def load() -> Schema:
    """Return the schema that is part of this package."""
    raw = msgspec.json.decode(
        resources.files("kube_policy_scheduler.documents").joinpath("api_schema.json").read_bytes(), type=_Raw
    )
    kinds = {}
    for path, name in raw.kinds.items():
        version, _, kind = path.rpartition("/")
        kinds[version, kind] = name
    types = {
        name: {field.removesuffix("!"): _field(text, required=field.endswith("!")) for field, text in fields.items()}
        for name, fields in raw.types.items()
    }
    return Schema(kinds, types)


@cache
def _field(text: str, *, required: bool) -> FieldType:
    name, *facts = text.split(" ")
    containers = ""
    while name.startswith(("[]", "{}")):
        containers += "l" if name.startswith("[]") else "m"
        name = name[2:]
    keys = next((fact.removeprefix("keys=") for fact in facts if fact.startswith("keys=")), None)
    merge_key = next((fact.removeprefix("merge=") for fact in facts if fact.startswith("merge=")), "")
    return FieldType(
        name,
        containers,
        required=required,
        merge_key=merge_key,
        merges=bool(merge_key) or "set" in facts,
        retains_keys="retain" in facts,
        list_keys=tuple(filter(None, (keys or "").split(","))),
        numbers=tuple(int(part) for fact in facts if fact.startswith("#") for part in fact[1:].split(".")),
        wrapped="wrapped" in facts,
        is_pointer="pointer" in facts,
        is_set=keys == "" or (keys is None and "set" in facts),
    )


def type_name(api_version: str, kind: str) -> str | None:
    """Return the name of a kind's type, None for a kind that has no schema."""
    return load().kinds.get((api_version, kind))
