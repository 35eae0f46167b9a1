"""Test files as programs write them: plain values to YAML that reads as if a person had written it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 100
"""A value that fits into a line of this many characters is written in one, `{cpu: 500m, mem: 1Gi}`."""
_ORDER = (
    "policy",
    "cluster",
    "now",
    "at",
    "seed",
    "tie",
    "nodes",
    "pods",
    "metrics",
    "templates",
    "cases",
    "forall",
    "invalid",
)
_CASE_ORDER = ("name", "skip", "todo", "each", "now", "at", "tie", "queued", "attempts", "nodes", "pods", "metrics")
_WRITTEN_OUT = frozenset({"nodes", "pods", "metrics", "templates", "cases", "forall", "invalid"})
"""Keys of a file whose entries stand in lines of their own."""
_WHOLE = 1e15
"""Below this, whole floats are written as whole numbers."""
_SCHEMA_LINE = "# yaml-language-server: $schema={}\n"
_PLAIN = re.compile(r"[A-Za-z_/.(][^#:,\[\]{}\"'&*!|>%@`\\\x00-\x1f\x7f-\x9f]*")
_PLAIN_WITH_MARKS = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_/.:+-]*[A-Za-z0-9_/.]")
"""Such as times and images: a colon that no blank follows is no mark."""
_NOT_A_TEXT = re.compile(
    r"~|null|true|false|yes|no|on|off|y|n|[-+]?[0-9._]+([eE][-+]?[0-9]+)?|0[ox][0-9a-fA-F]+|[-+]?\.(inf|nan)"
    r"|[-+]?[0-9]+(:[0-9]+)+(\.[0-9]*)?|=|<<",
    re.IGNORECASE,
)
"""What this or an older version of YAML takes for something else than a text."""


def suite_text(form: Mapping[str, Any], *, schema: str = "", comment: str = "") -> str:
    """Return the text of a test file.

    Args:
        form: the file's values, as the schema describes them; the order of its keys is that of the documentation.
        schema: where the schema is, for editors; "": not said.
        comment: what stands above, lines without `#`.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for key in _ordered(form, _ORDER):
        value = form[key]
        if lines and key in _WRITTEN_OUT:
            lines.append("")
        lines += _entry(key, value, written_out=key in _WRITTEN_OUT)
    return (_SCHEMA_LINE.format(schema) if schema else "") + "\n".join(lines) + "\n"


def _ordered(form: Mapping[str, Any], order: tuple[str, ...]) -> list[str]:
    return [*(key for key in order if key in form), *(key for key in form if key not in order)]


def _entry(key: str, value: Any, *, written_out: bool) -> Iterator[str]:
    """Yield the lines of one key of a file."""
    if not written_out or not isinstance(value, Mapping | list) or not value:
        yield from _lines(value, head=f"{scalar(key)}:", indent=0)
        return
    yield f"{scalar(key)}:"
    if isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _lines(item, head=f"  {scalar(inner)}:", indent=2)
        return
    for item in value:
        if key in ("cases", "forall") and isinstance(item, Mapping) and item:
            yield from _case(item)
        else:
            yield from _lines(item, head="-", indent=0)


def _case(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield a case: its name first, `expect` last."""
    keys = [key for key in _ordered(case, _CASE_ORDER) if key != "expect"]
    keys += [key for key in ("expect",) if key in case]
    mark = "-"
    for key in keys:
        yield from _lines(case[key], head=f"{mark} {scalar(key)}:", indent=2)
        mark = " "


def _lines(value: Any, *, head: str, indent: int) -> Iterator[str]:
    """Yield a value behind a head: in one line where it fits, below it where not."""
    line = f"{head} {flow(value)}"
    if len(line) <= WIDTH or not isinstance(value, Mapping | list) or not value:
        yield line
        return
    # a mapping that is an item of a list begins in the line of the dash
    dash = head.rstrip().endswith("-")
    pad = " " * (indent + 2)
    if not dash:
        yield head
    first = f"{head} " if dash else pad
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _lines(item, head=f"{first}{scalar(key)}:", indent=len(pad))
            first = pad
        return
    for item in value:
        yield from _lines(item, head=f"{first}-", indent=len(first))
        first = pad


def flow(value: Any) -> str:
    """Return a value in one line."""
    match value:
        case Mapping():
            inside = ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items())
            return f"{{{inside}}}"
        case list() | tuple():
            return f"[{', '.join(flow(item) for item in value)}]"
        case _:
            return scalar(value)


def scalar(value: Any) -> str:
    """Return a text, number, truth or null so that it is read as the same."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value != value or value in (float("inf"), float("-inf")):
            return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
        case int() | float():
            return f"{value:.0f}" if value == int(value) and abs(value) < _WHOLE else repr(value)
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or _PLAIN_WITH_MARKS.fullmatch(text)
    if plain and not _NOT_A_TEXT.fullmatch(text) and text == text.strip() and "  " not in text:
        return text
    if text.isprintable() and "'" not in text:
        return f"'{text}'"
    return f'"{"".join(_ESCAPES.get(one) or _escaped(one) for one in text)}"'


_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _escaped(character: str) -> str:
    """Return a character as it may stand between double quotes."""
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
