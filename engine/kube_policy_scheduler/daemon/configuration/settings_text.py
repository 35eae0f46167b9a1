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
from typing import Any, cast

from msgspec import NODEFAULT
from msgspec.inspect import (
    CustomType,
    Field,
    Metadata,
    NoneType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from kube_policy_scheduler.daemon.configuration.settings import (
    API_VERSION,
    KIND,
    Settings,
    settings_schema,
)
from kube_policy_scheduler.documents.shape import Duration
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
_SETTINGS = cast(StructType, type_info(Settings))


def defaults_text() -> str:
    """Return a configuration file with every key, its default and its meaning; it loads to the defaults."""
    head = [
        "# Everything that can be set, with its default: `policy-scheduler config --print-defaults`.",
        "# Only apiVersion and kind are required. Relative paths start at the folder of this file.",
    ]
    lines = [*head, *_head(), *_section(_SETTINGS, Settings(), indent="", comments=True)]
    return "\n".join(lines) + "\n"


def settings_text(settings: Settings) -> str:
    """Return a configuration file that loads to these settings."""
    return "\n".join([*_head(), *_section(_SETTINGS, settings, indent="", comments=False)]) + "\n"


def described_schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration file, with what each key means, for editors."""
    schema = copy.deepcopy(settings_schema())
    _describe(schema, _SETTINGS)
    return schema


def _describe(schema: dict[str, Any], section: StructType) -> None:
    docs = field_docs(section.cls)
    for field in section.fields:
        below, inner, items = schema["properties"][field.encode_name], _section_in(field), _items_of(field)
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


def _section(section: StructType, value: Any, *, indent: str, comments: bool) -> Iterator[str]:
    """Yield the lines of a section; value None: one that is not set, whose lines show what could be."""
    docs = field_docs(section.cls) if comments else {}
    for field in section.fields:
        key, inner, items = field.encode_name, _section_in(field), _items_of(field)
        about = docs.get(field.name) or (_docstring(inner) if inner is not None and comments else "")
        if comments and not indent:
            yield ""
        yield from (f"{indent}# {line}" for line in textwrap.wrap(about, WIDTH, break_on_hyphens=False))
        written = getattr(value, field.name) if value is not None else _default(section, field)
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
            yield f"{indent}{key}: {_scalar(field, written)}"
        elif written is not None:
            yield f"{indent}{key}:"
            yield from _section(inner, written, indent=indent + "  ", comments=comments)
        else:
            yield f"{indent}{key}: null"
            if comments:
                yield f"{indent}# {key}:"
                shown = _section(inner, None, indent="  ", comments=True)
                yield from (f"{indent}# {line}".rstrip() for line in shown)


def _item(section: StructType, value: Any, *, indent: str) -> Iterator[str]:
    """Yield the lines of one item of a list of sections; what is not set is left out."""
    dash = "- "
    for field in section.fields:
        if (written := getattr(value, field.name)) is None:
            continue
        key = f"{indent}{dash}{field.encode_name}:"
        dash = "  "
        inner, items = _section_in(field), _items_of(field)
        if inner is not None:
            yield key
            yield from _mapping(inner, written, indent=indent + "    ")
        elif items is not None and written:
            yield key
            for each in written:
                yield from _item(items, each, indent=indent + "    ")
        else:
            yield f"{key} {_scalar(field, written)}"


def _mapping(section: StructType, value: Any, *, indent: str) -> Iterator[str]:
    """Yield the lines of a section within an item; what is not set is left out."""
    for field in section.fields:
        if (written := getattr(value, field.name)) is not None:
            yield f"{indent}{field.encode_name}: {_scalar(field, written)}"


def _plain(kind: Type) -> Type:
    """Return a type without what `Meta` adds to it, and without null."""
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            kind = kind.type
        else:
            (kind,) = (one for one in kind.types if not isinstance(one, NoneType))
    return kind


def _section_in(field: Field) -> StructType | None:
    kind = _plain(field.type)
    return kind if isinstance(kind, StructType) else None


def _items_of(field: Field) -> StructType | None:
    """Return the section that a list consists of, None where it is no such list."""
    kind = _plain(field.type)
    item = _plain(kind.item_type) if isinstance(kind, VarTupleType) else None
    return item if isinstance(item, StructType) else None


def _default(section: StructType, field: Field) -> Any:
    if field.default is not NODEFAULT:
        return field.default
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return _PLACEHOLDERS.get(f"{section.cls.__name__}.{field.name}", _PLACEHOLDERS.get(field.name))


def _docstring(section: StructType) -> str:
    return " ".join((section.cls.__doc__ or "").split())


def _scalar(field: Field, value: Any) -> str:
    """Return a value on one line."""
    kind = _plain(field.type)
    is_duration = isinstance(kind, CustomType) and kind.cls is Duration
    return duration_text(value) if is_duration and value is not None else _text(value)


def _text(value: Any) -> str:
    """Return a value as JSON, which is YAML; plain words go without quotes."""
    if isinstance(value, tuple):
        return f"[{', '.join(_text(item) for item in value)}]"
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.replace("-", "a").replace("/", "a").replace("_", "a").isalpha():
        return value if value not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n") else text
    return text
