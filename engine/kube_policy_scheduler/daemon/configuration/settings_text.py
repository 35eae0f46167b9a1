"""Settings written as a configuration file, with what each key means as comments. Knows no key by name.

The texts are the docstrings below the fields of `daemon.configuration.settings`; they are read from its source.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT
from msgspec.inspect import is_struct_type
from msgspec.structs import FieldInfo, fields

from kube_policy_scheduler.daemon.configuration.settings import (
    API_VERSION,
    KIND,
    Settings,
    settings_schema,
)
from kube_policy_scheduler.documents.report import camel_case
from kube_policy_scheduler.documents.shape import Duration, PositiveDuration
from kube_policy_scheduler.times import duration_text

WIDTH = 112
"""Of comments, without their indentation."""
_PLACEHOLDERS = {
    "url": "http://prometheus.monitoring:9090",
    "endpoint": "http://collector.monitoring:4318",
    "name": "team-a",
    "ManagedResource.name": "example.com/gpu",
    "url_prefix": "http://gpu-extender.kube-system:8888/scheduler",
    "path": "/etc/policy-owners/team-a",
    "namespaces": ("team-a", "team-a-*"),
}
"""What stands for a value that has no default, in a section that is commented out."""


def defaults_text() -> str:
    """Return a configuration file with every key, its default and its meaning; it loads to the defaults."""
    head = [
        "# Everything that can be set, with its default: `policy-scheduler config --print-defaults`.",
        "# Only apiVersion and kind are required. Relative paths start at the folder of this file.",
    ]
    lines = [*head, *_head(), *_section(Settings, Settings(), indent="", comments=True)]
    return "\n".join(lines) + "\n"


def settings_text(settings: Settings) -> str:
    """Return a configuration file that loads to these settings."""
    return "\n".join([*_head(), *_section(Settings, settings, indent="", comments=False)]) + "\n"


def described_schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration file, with what each key means, for editors."""
    schema = copy.deepcopy(settings_schema())
    _describe(schema, Settings)
    return schema


def _describe(schema: dict[str, Any], kind: type) -> None:
    hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
    for field in fields(kind):
        hint, below = hints[field.name], schema["properties"][camel_case(field.name)]
        inner, items = _struct_in(hint), _items_of(hint)
        about = docs.get(field.name) or (_docstring(inner) if inner is not None else "")
        below |= {"description": about} if about else {}
        if inner is not None:
            _describe(below, inner)
        elif items is not None:
            _describe(below["items"], items)


def schema_text() -> str:
    """Return what `documents/configuration.schema.json` is to hold."""
    return json.dumps(described_schema(), indent=2, ensure_ascii=False) + "\n"


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a struct, in one line each; `None` is written as YAML does."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value)
            docs[before.target.id] = " ".join(text.split()).replace("None:", "null:")
    return docs


def _head() -> list[str]:
    return [f"apiVersion: {API_VERSION}", f"kind: {KIND}"]


def _section(kind: type, value: Any, *, indent: str, comments: bool) -> Iterator[str]:
    """Yield the lines of a section; value None: one that is not set, whose lines show what could be."""
    hints = get_type_hints(kind, include_extras=True)
    docs = field_docs(kind) if comments else {}
    for field in fields(kind):
        hint = hints[field.name]
        key = camel_case(field.name)
        inner = _struct_in(hint)
        about = docs.get(field.name) or (_docstring(inner) if inner is not None and comments else "")
        if comments and not indent:
            yield ""
        yield from (f"{indent}# {line}" for line in textwrap.wrap(about, WIDTH, break_on_hyphens=False))
        written = getattr(value, field.name) if value is not None else _default(kind, field)
        items = _items_of(hint)
        if items is not None and (written or comments):
            yield f"{indent}{key}:{'' if written else ' []'}"
            for item in written:
                yield from _item(items, item, indent=indent + "  ")
            if comments:
                yield f"{indent}# {key}:"
                yield f"{indent}#   -"
                lines = _section(items, None, indent="      ", comments=True)
                yield from (f"{indent}# {line}".rstrip() for line in lines)
        elif inner is None:
            yield f"{indent}{key}: {_scalar(hint, written)}"
        elif written is not None:
            yield f"{indent}{key}:"
            yield from _section(inner, written, indent=indent + "  ", comments=comments)
        else:
            yield f"{indent}{key}: null"
            if comments:
                yield f"{indent}# {key}:"
                shown = _section(inner, None, indent="  ", comments=True)
                yield from (f"{indent}# {line}".rstrip() for line in shown)


def _item(kind: type, value: Any, *, indent: str) -> Iterator[str]:
    """Yield the lines of one item of a list of sections; what is not set is left out."""
    dash = "- "
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        written, hint = getattr(value, field.name), hints[field.name]
        if written is None:
            continue
        key = f"{indent}{dash}{camel_case(field.name)}:"
        dash = "  "
        items = _items_of(hint)
        if _struct_in(hint) is not None:
            yield key
            yield from _mapping(written, indent=indent + "    ")
        elif items is not None and written:
            yield key
            for each in written:
                yield from _item(items, each, indent=indent + "    ")
        else:
            yield f"{key} {_scalar(hint, written)}"


def _mapping(value: Any, *, indent: str) -> Iterator[str]:
    """Yield the lines of a section within an item; what is not set is left out."""
    hints = get_type_hints(type(value), include_extras=True)
    for field in fields(value):
        if (written := getattr(value, field.name)) is not None:
            yield f"{indent}{camel_case(field.name)}: {_scalar(hints[field.name], written)}"


def _items_of(hint: Any) -> type | None:
    """Return the struct that a list consists of, None where it is no such list."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    return inner if is_struct_type(inner) else None


def _default(kind: type, field: FieldInfo) -> Any:
    if field.default is not NODEFAULT:
        return field.default
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return _PLACEHOLDERS.get(f"{kind.__name__}.{field.name}", _PLACEHOLDERS.get(field.name))


def _struct_in(hint: Any) -> type | None:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    return hint if is_struct_type(hint) else None


def _docstring(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _scalar(hint: Any, value: Any) -> str:
    """Return a value on one line. JSON is YAML; plain words go without quotes."""
    if value is not None and _is_duration(hint):
        return duration_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_scalar(None, item) for item in value)}]"
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.replace("-", "a").replace("/", "a").replace("_", "a").isalpha():
        return value if value not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n") else text
    return text


def _is_duration(hint: Any) -> bool:
    return hint in (Duration, PositiveDuration)
