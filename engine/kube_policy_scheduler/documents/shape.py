"""Frozen structs as the definition of a YAML file: its JSON schema and its values come from them.

A field `bearer_token_file: Path | None = None` is the key `bearerTokenFile`; its default is the default, its type
the schema. What a type can't say, `Annotated` adds: `Annotated[int, Shape({"minimum": 1})]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import is_struct_type
from msgspec.structs import fields

from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.documents.schema import EXPECTED, HINTS
from kube_policy_scheduler.times import parse_duration

T = TypeVar("T", bound=msgspec.Struct)


class Shape(msgspec.Struct, frozen=True, eq=False):
    """What `Annotated` adds to a field's type: more schema, and how the written value becomes the field's."""

    schema: Mapping[str, Any]
    parse: Callable[[Any], Any] | None = None
    whole: bool = False
    """The schema replaces that of the type, because what is written has another type."""


DURATION_SECONDS = Shape(
    {
        "type": "string",
        "pattern": r"^(\d+(\.\d+)?(ms|s|min|h|d))+$",
        EXPECTED: "a duration such as 500ms, 15s, 2min or 1h30min",
        HINTS: {r"\dm(\d|$)": "write min for minutes: m means milli", r"^\d+$": "add a unit: 15s"},
    },
    parse=parse_duration,
    whole=True,
)
"""A duration as policies write it; `5m` is refused because it is milli there."""
Duration: TypeAlias = Annotated[float, DURATION_SECONDS]
"""In seconds; written `15s`, `2min`."""
PositiveDuration: TypeAlias = Annotated[
    float,
    DURATION_SECONDS,
    Shape(
        {"pattern": r"^(?=.*[1-9])(\d+(\.\d+)?(ms|s|min|h|d))+$", EXPECTED: "a duration above zero such as 15s or 2min"}
    ),
]
Name: TypeAlias = Annotated[
    str,
    Shape(
        {
            "pattern": r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
            EXPECTED: "a name as Kubernetes allows it: lower case letters, digits, - and .",
        }
    ),
]


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON schema of the files that a struct describes."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    hints = _hints(kind)
    for field in fields(kind):
        key = camel_case(field.name)
        properties[key] = _schema(hints[field.name])
        if field.required:
            required.append(key)
        else:  # a key with nothing behind it, as where every line of a section is commented out
            properties[key] = _nullable(properties[key])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def build(kind: type[T], value: Mapping[str, Any], *, folder: Path = Path()) -> T:
    """Return a value that its schema accepted as an instance of the struct.

    Args:
        kind: the struct.
        value: what was written; keys that are not there, or null, take the default.
        folder: relative paths in the value start here.
    """
    hints = _hints(kind)
    given = {}
    for field in fields(kind):
        written = value.get(camel_case(field.name))
        if written is not None:
            given[field.name] = _built(hints[field.name], written, folder=folder)
    return kind(**given)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _schema(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Annotated:
        inner, *shapes = get_args(hint)
        schema = _schema(inner)
        for shape in shapes:
            if isinstance(shape, Shape):
                schema = dict(shape.schema) if shape.whole else schema | dict(shape.schema)
        return schema
    if get_origin(hint) in (Union, UnionType):
        return _nullable(_schema(_without_none(hint)))
    if is_struct_type(hint):
        return schema_of(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0])}
    if hint is Path:
        return {"type": "string", "minLength": 1, EXPECTED: "a path"}
    return {"type": {str: "string", bool: "boolean", int: "integer", float: "number"}[hint]}


def _built(hint: Any, written: Any, *, folder: Path) -> Any:
    if get_origin(hint) is Annotated:
        inner, *shapes = get_args(hint)
        parsers = [shape.parse for shape in shapes if isinstance(shape, Shape) and shape.parse is not None]
        return parsers[0](written) if parsers else _built(inner, written, folder=folder)
    if get_origin(hint) in (Union, UnionType):
        return _built(_without_none(hint), written, folder=folder)
    if is_struct_type(hint):
        return build(hint, written, folder=folder)
    if get_origin(hint) is tuple:
        return tuple(_built(get_args(hint)[0], item, folder=folder) for item in written)
    if hint is Path:
        return folder / written
    return float(written) if hint is float else written


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], *([] if None in schema["enum"] else [None])]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": [*types, *([] if "null" in types else ["null"])]}


def _without_none(hint: Any) -> Any:
    (only,) = (one for one in get_args(hint) if one is not NoneType)
    return only
