"""Diagnostics as workflow commands of GitHub Actions: printed by a step, they stand beside the lines of a change."""

from __future__ import annotations

from kube_policy_scheduler.diagnostics import Diagnostic, Severity

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
