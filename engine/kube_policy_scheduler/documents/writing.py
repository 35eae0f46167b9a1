"""Values to the text of a YAML or JSON file that is read back as the same values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

_WIDTH = 118
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_OTHER_TYPES = re.compile(r"(null|true|false|yes|no|on|off|y|n)", re.IGNORECASE)
"""Words that one or another version of YAML does not take for text."""


class _Quick(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes whatever is not a plain word: `1e3`, `12:30` and `yes` are texts in one version of YAML only."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that nothing is written as an alias: people read these files."""
        return True


class _Dumper(yaml.SafeDumper):
    """As the quick one, with lists indented below their key."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that nothing is written as an alias."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _WORD.fullmatch(text) and not _OTHER_TYPES.fullmatch(text)
    style = None if plain else '"' if "'" in text or not text.isprintable() else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


for _each in (_Quick, _Dumper):
    _each.add_representer(str, _text)


def yaml_text(value: Any) -> str:
    """Return a value as YAML for people: keys in their order, what is small on one line."""
    dumped: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, width=_WIDTH, default_flow_style=None, allow_unicode=True
    )
    return dumped


def yaml_list_lines(objects: Iterable[Mapping[str, Any]], *, annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the text of a Kubernetes List as `kubectl get -o yaml` prints it, object by object."""
    yield yaml.dump(_head(annotations), Dumper=_Quick, sort_keys=False, width=_WIDTH)
    first = True
    for one in objects:
        if first:
            yield "items:\n"
            first = False
        yield yaml.dump([one], Dumper=_Quick, sort_keys=False, width=_WIDTH)
    if first:
        yield "items: []\n"


def json_list_lines(objects: Iterable[Mapping[str, Any]], *, annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield the text of a Kubernetes List as JSON, one object on a line."""
    head = json.dumps(_head(annotations), ensure_ascii=False)
    yield head[:-1] + ', "items": ['
    separator = "\n"
    for one in objects:
        yield separator + json.dumps(one, ensure_ascii=False, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


def _head(annotations: Mapping[str, str]) -> dict[str, Any]:
    head: dict[str, Any] = {"apiVersion": "v1", "kind": "List"}
    return {**head, "metadata": {"annotations": dict(annotations)}} if annotations else head
