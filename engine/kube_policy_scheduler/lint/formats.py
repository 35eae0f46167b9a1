"""Diagnostics for other programs: SARIF 2.1.0, which code scanning and editors read, and commands of GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube_policy_scheduler.diagnostics import Diagnostic, Fix, Severity, Source, Span
from kube_policy_scheduler.lang.codes import Code, page

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif(diagnostics: Sequence[Diagnostic], *, codes: Mapping[str, Code], version: str) -> dict[str, Any]:
    """Return a SARIF log of one run, ready for JSON.

    Args:
        diagnostics: the findings.
        codes: at least those of the findings; a rule is described for each code found.
        version: of this program.
    """
    found = sorted({diagnostic.code for diagnostic in diagnostics})
    driver = {
        "name": "policyctl lint",
        "version": version,
        "rules": [_rule(codes[id_]) for id_ in found],
    }
    index = {id_: at for at, id_ in enumerate(found)}
    run = {
        "tool": {"driver": driver},
        # ours count characters, not UTF-16 code units
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, index[diagnostic.code]) for diagnostic in diagnostics],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: Code) -> dict[str, Any]:
    shown = page(code)
    return {
        "id": code.id,
        "name": "".join(word.capitalize() for word in code.name.split("-")),
        "shortDescription": {"text": code.name.replace("-", " ")},
        "fullDescription": {"text": code.explanation.strip()},
        "help": {"text": shown, "markdown": shown},
        "defaultConfiguration": {"level": _LEVELS[code.severity]},
    }


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    lines = [diagnostic.message, *(f"note: {note}" for note in diagnostic.notes)]
    lines += [f"help: {diagnostic.help}"] if diagnostic.help else []
    done: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": "\n".join(lines)},
        "locations": [_location(diagnostic.span)],
    }
    if diagnostic.labels:
        done["relatedLocations"] = [
            {"id": at, **_location(label.span), "message": {"text": label.text}}
            for at, label in enumerate(diagnostic.labels, 1)
        ]
    if diagnostic.fix is not None:
        done["fixes"] = [_fix(diagnostic.fix)]
    return done


def _location(span: Span) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _artifact(span.source), "region": _region(span)}}


def _artifact(source: Source) -> dict[str, Any]:
    # a relative path is one from the root of what was checked out
    if source.name.startswith("/"):
        return {"uri": f"file://{_quoted(source.name)}"}
    return {"uri": _quoted(source.name.removeprefix("./")), "uriBaseId": "%SRCROOT%"}


def _quoted(path: str) -> str:
    """Return a path as it stands in a URI (RFC 3986)."""
    return "".join(chr(b) if chr(b) in _PLAIN else f"%{b:02X}" for b in path.encode("utf-8", "surrogateescape"))


def _region(span: Span) -> dict[str, int]:
    """Return the region of a span; as there, the end is the first place behind."""
    (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _fix(fix: Fix) -> dict[str, Any]:
    changes: dict[str, dict[str, Any]] = {}
    for edit in fix.edits:
        change = {"artifactLocation": _artifact(edit.span.source), "replacements": []}
        replacement = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}}
        changes.setdefault(edit.span.source.name, change)["replacements"].append(replacement)
    return {"description": {"text": fix.title}, "artifactChanges": list(changes.values())}


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def annotation(diagnostic: Diagnostic) -> str:
    """Return the workflow command of a finding: one line."""
    span = diagnostic.span
    (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
    properties = {"file": span.source.name, "line": line, "endLine": end_line}
    if end_line == line:  # columns of several lines are refused
        properties |= {"col": column, "endColumn": end_column}
    properties["title"] = f"policyctl lint ({diagnostic.code})"
    lines = [diagnostic.message, *(f"note: {note}" for note in diagnostic.notes)]
    lines += [f"help: {diagnostic.help}"] if diagnostic.help else []
    given = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[diagnostic.severity]} {given}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
