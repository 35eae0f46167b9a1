"""Changes one value of a cluster, or of the workload, in the text of a fleet; all other text stays as it is. Pure."""

from __future__ import annotations

import re
from typing import Any

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.documents.yaml_document import Document, DocumentError, parse_document
from kube_policy_scheduler.tooling.tester.suite_file import flow, scalar

TEXTS = frozenset({"region", "zone", "provider", "name", "namespace", "kind"})
"""Keys whose values are texts."""
AMOUNTS = frozenset({"cpu", "mem", "pods", "price", "replicas"})
"""Those whose values are numbers or quantities."""
OF_CLUSTERS = frozenset({"region", "zone", "provider", "cpu", "mem", "pods", "price", "ready", "labels"})
OF_WORKLOADS = frozenset({"kind", "namespace", "name", "replicas", "cpu", "mem", "labels"})
"""What can be edited, in the order of the page."""
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
    if key not in OF_CLUSTERS:
        raise EditError(f"`{key[:40]}` cannot be edited in the table: edit it in the text")
    wanted = dict(form)
    made = _changed(document, ("clusters", row), wanted, key, value)
    if made is None or _value(made, source).get("clusters") != [wanted if each is form else each for each in forms]:
        raise EditError(
            f"`{key}` of `{cluster[:200]}` is written in a form that the table cannot change: edit the text"
        )
    return made


def edited_workload(source: Source, key: str, value: str) -> str:
    """Return the text of a fleet with another value of the workload.

    Args:
        source: the fleet as YAML.
        key: one of `OF_WORKLOADS`.
        value: as people write it in a field; empty: the workload says nothing of it.

    Raises:
        DocumentError: the text is not YAML.
        EditError: there is no workload or no such key, or it has no such value.
    """
    document = parse_document(source)
    form: Any = document.value.get("workload") if isinstance(document.value, dict) else None
    if not isinstance(form, dict) or not form:
        raise EditError("there is no workload: write one below `workload:` in the text")
    if key not in OF_WORKLOADS:
        raise EditError(f"`{key[:40]}` of the workload cannot be edited in a field: edit it in the text")
    wanted = dict(form)
    made = _changed(document, ("workload",), wanted, key, value)
    if made is None or _value(made, source).get("workload") != wanted:
        raise EditError(f"`{key}` of the workload is written in a form that a field cannot change: edit the text")
    return made


def _changed(
    document: Document, path: tuple[str | int, ...], wanted: dict[str, Any], key: str, value: str
) -> str | None:
    """Return the text with another value, which is put into `wanted`; None: the last key would go.

    path: of the cluster or workload, whose keys and values `wanted` has.
    """
    written, source = _written(key, value.strip()), document.source
    if written is None and key not in wanted:
        return source.text
    if written is None and len(wanted) == 1:
        return None
    made = _spliced(document, path, key, written)
    wanted.pop(key, None)
    if written is not None:
        wanted[key] = parse_document(Source(source.name, written)).value
    return made


def _value(text: str, source: Source) -> dict[str, Any]:
    try:
        found: Any = parse_document(Source(source.name, text)).value
    except DocumentError:
        return {}
    return found if isinstance(found, dict) else {}


def _spliced(document: Document, path: tuple[str | int, ...], key: str, written: str | None) -> str:
    """Return the text with another value of a cluster or workload; whether it means that, the caller checks.

    path: of the cluster or workload.
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
    # behind its name, or behind its first key: the name of a workload may be left out
    beside = (*path, "name" if "name" in form else next(iter(form)))
    start, end = document.span(beside, key=True).start, _end(document.span(beside), text)
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
