"""Changes one value of a cluster in the text of a fleet, and leaves all other text as it is. Pure."""

from __future__ import annotations

import re
from typing import Any

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document
from kube_policy_scheduler.tooling.tester.suite_file import flow, scalar

TEXTS = frozenset({"region", "zone", "provider"})
"""Keys of a cluster whose values are texts."""
AMOUNTS = frozenset({"cpu", "mem", "pods", "price"})
"""Those whose values are numbers or quantities."""
FLAGS = frozenset({"ready"})
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")


class EditError(ValueError):
    """The edit cannot be made; the text says why, and what to do."""


def edited(source: Source, cluster: str, key: str, value: str) -> str:
    """Return the text of a fleet with another value of a cluster.

    Args:
        source: the fleet as YAML.
        cluster: its name.
        key: one of `TEXTS`, `AMOUNTS`, `FLAGS`, or `labels`.
        value: as people write it in a cell; empty: the cluster says nothing of it.

    Raises:
        DocumentError: the text is not YAML.
        EditError: there is no such cluster or key, or it has no such value.
    """
    document = parse_document(source)
    forms: Any = document.value.get("clusters") if isinstance(document.value, dict) else None
    rows = list(enumerate(forms)) if isinstance(forms, list) else []
    found = next(((row, form) for row, form in rows if isinstance(form, dict) and form.get("name") == cluster), None)
    if found is None:
        raise EditError(f"there is no cluster `{cluster[:200]}`: the text was changed meanwhile, edit it there")
    row, form = found
    written = _written(key, value.strip())
    if written is None and key not in form:
        return source.text
    made = _spliced(document, ("clusters", row), key, written)
    wanted = [dict(each) if each is form else each for each in forms]
    wanted[row].pop(key, None)
    if written is not None:
        wanted[row][key] = parse_document(Source(source.name, written)).value
    try:
        now: Any = parse_document(Source(source.name, made)).value
    except DocumentError:
        now = {}
    if now.get("clusters") != wanted:
        raise EditError(
            f"`{key}` of `{cluster[:200]}` is written in a form that the table cannot change: edit the text"
        )
    return made


def _spliced(document: Document, path: tuple[str | int, ...], key: str, written: str | None) -> str:
    """Return the text with another value of a cluster; whether it means that, the caller checks.

    path: of the cluster.
    """
    text = document.source.text
    form: Any = document.value
    for step in path:
        form = form[step]
    if written is None:
        return _without(document, (*path, key), text)
    if key in form:
        span = document.span((*path, key))
        return text[: span.start] + written + text[_end(span, text) :]
    start, end = document.span((*path, "name"), key=True).start, _end(document.span((*path, "name")), text)
    if text[document.span(path).start] == "{":
        return f"{text[:end]}, {key}: {written}{text[end:]}"
    indent = " " * (start - text.rfind("\n", 0, start) - 1)
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    return f"{text[:stop]}\n{indent}{key}: {written}{text[stop:]}"


def _written(key: str, value: str) -> str | None:
    """Return a value as YAML; None: it is empty."""
    if not value:
        return None
    if not value.isprintable():
        raise EditError(f"{key} has characters that cannot be printed")
    if key in TEXTS:
        return scalar(value)
    if key in AMOUNTS:
        return value if _NUMBER.fullmatch(value) else scalar(value)
    if key in FLAGS:
        if value not in ("true", "false"):
            raise EditError(f"{key} is true or false, got `{value[:40]}`")
        return value
    if key == "labels":
        return flow(_labels(value))
    raise EditError(f"`{key[:40]}` cannot be edited in the table: edit it in the text")


def _labels(value: str) -> dict[str, str]:
    """Return labels that are written as `a=b, c=d`."""
    found = {}
    for part in filter(None, (each.strip() for each in value.split(","))):
        key, mark, text = part.partition("=")
        if not mark or not key.strip():
            raise EditError(f"expected labels such as `tier=prod, disk=ssd`, got `{part[:40]}`")
        found[key.strip()] = text.strip()
    return found


def _end(span: Span, text: str) -> int:
    """Return where a value ends."""
    return span.start + len(text[span.start : span.end].rstrip())


def _without(document: Document, path: tuple[str | int, ...], text: str) -> str:
    """Return the text without a key and its value."""
    start, end = document.span(path, key=True).start, _end(document.span(path), text)
    if text[document.span(path[:-1]).start] == "{":
        after = text[end:].lstrip()
        if after.startswith(","):
            return text[:start] + after[1:].lstrip()
        return text[:start].rstrip().removesuffix(",") + text[end:]
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip():  # alone in its lines
        stop = text.find("\n", end)
        return text[:line] + ("" if stop < 0 else text[stop + 1 :])
    return text[:start] + text[end:].lstrip()  # behind the dash: the next key takes its place
