"""Structs as the definition of a YAML file: msgspec makes its JSON schema and its values from them.

A field `bearer_token_file: Path | None = None` of a `Section` is the key `bearerTokenFile`; its default is the default,
its type the schema. What a type can't say, `msgspec.Meta` adds: `Annotated[int, Meta(ge=1), expected("a count")]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.inspect import is_struct_type

from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.documents.schema import EXPECTED, HINTS
from kube_policy_scheduler.times import parse_duration

T = TypeVar("T")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=camel_case):
    """A mapping in a file, with the keys of Kubernetes: `lease_name` is `leaseName`."""


class Duration(float):
    """In seconds; written `15s`, `2min`. `5m` is refused because it is milli in policies."""


DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|min|h|d))+$"


def expected(text: str) -> Meta:
    """Return what a message says that was expected, such as "a duration such as 15s"."""
    return Meta(extra_json_schema={EXPECTED: text})


EACH_ONCE = Meta(extra_json_schema={"uniqueItems": True})
"""Of a list."""
PositiveDuration: TypeAlias = Annotated[
    Duration,
    Meta(extra_json_schema={"pattern": r"^(?=.*[1-9])(\d+(\.\d+)?(ms|s|min|h|d))+$"}),
    expected("a duration above zero such as 15s or 2min"),
]
Name: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"),
    expected("a name as Kubernetes allows it: lower case letters, digits, - and ."),
]

WRITTEN: Mapping[type, Mapping[str, Any]] = {
    Duration: {
        "type": "string",
        "pattern": DURATION_PATTERN,
        EXPECTED: "a duration such as 500ms, 15s, 2min or 1h30min",
        HINTS: {r"\dm(\d|$)": "write min for minutes: m means milli", r"^\d+$": "add a unit: 15s"},
    },
    Path: {"type": "string", "minLength": 1, EXPECTED: "a path"},
}
"""The schemas of the types that msgspec does not know."""


def seconds(default: float) -> Any:
    """Return a field whose default is so many seconds; msgspec takes only types it knows as plain defaults."""
    return msgspec.field(default_factory=lambda: Duration(default))


def schema_of(kind: type[Section]) -> dict[str, Any]:
    """Return the JSON schema of the files that a struct describes."""
    (schema,), parts = msgspec.json.schema_components([kind], schema_hook=lambda of: dict(WRITTEN[of]))
    choices = {frozenset(words): list(words) for words in _choices(kind)}
    return _plain(schema, parts, choices)


def build(kind: type[T], value: Mapping[str, Any], *, folder: Path = Path()) -> T:
    """Return a value that its schema accepted as an instance of the struct.

    Args:
        kind: the struct.
        value: what was written; keys that are not there, or null, take the default.
        folder: relative paths in the value start here.
    """

    def read(of: type, written: Any) -> Any:
        return folder / written if of is Path else Duration(parse_duration(written))

    return msgspec.convert(_given(value), kind, dec_hook=read)


def _plain(
    schema: Mapping[str, Any], parts: Mapping[str, Any], choices: Mapping[frozenset[Any], Any]
) -> dict[str, Any]:
    """Return a schema of msgspec without references, titles and defaults, and with null for what may be left out.

    Null is a key with nothing behind it, as where every line of a section is commented out. Words stand in the order of
    their type, where msgspec sorts them.
    """
    if "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]] | {key: schema[key] for key in schema.keys() - {"$ref"}}
    if "anyOf" in schema:  # `… | None`: the only unions of these files
        (only,) = (one for one in schema["anyOf"] if one != {"type": "null"})
        return _nullable(_plain(only, parts, choices))
    plain = {key: value for key, value in schema.items() if key not in ("title", "description", "default")}
    if "enum" in plain:
        plain["enum"] = choices[frozenset(plain["enum"])]
    if "items" in plain:
        plain["items"] = _plain(plain["items"], parts, choices)
    if "properties" in plain:
        properties = {key: _plain(value, parts, choices) for key, value in plain["properties"].items()}
        plain["properties"] = {
            key: value if key in plain["required"] else _nullable(value) for key, value in properties.items()
        }
    return plain


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        return schema | {"enum": list(dict.fromkeys([*schema["enum"], None]))}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": list(dict.fromkeys([*types, "null"]))}


def _choices(hint: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the words of each `Literal` in a type."""
    if get_origin(hint) is Literal:
        yield get_args(hint)
        return
    for inner in get_type_hints(hint).values() if is_struct_type(hint) else get_args(hint):
        yield from _choices(inner)


def _given(value: Any) -> Any:
    """Return what was written without keys that have nothing behind them, and `1.0` as the whole number it is."""
    if isinstance(value, Mapping):
        return {key: _given(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_given(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
