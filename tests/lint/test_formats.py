"""What machines read: SARIF by its own schema, workflow commands by GitHub's escaping."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic_sarif.model import (  # generated from the schema of OASIS; unknown properties are refused
    StaticAnalysisResultsFormatSarifVersion210JsonSchema as Sarif,
)

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Label, Severity, Source, Span
from kube_policy_scheduler.lint.formats import annotation, sarif
from kube_policy_scheduler.lint.runner import all_codes
from tests.lang.texts import said

BROKEN = sorted((Path(__file__).parents[1] / "lang" / "broken").glob("*.policy"))


def log(*diagnostics: Diagnostic) -> dict[str, Any]:
    made = sarif(diagnostics, codes=all_codes(), version="1.2.3")
    Sarif.model_validate(json.loads(json.dumps(made)))
    run: dict[str, Any] = made["runs"][0]
    return run


def at(text: str, part: str, **more: Any) -> Diagnostic:
    name, severity = more.pop("name", "a.policy"), more.pop("severity", Severity.ERROR)
    source = Source(name, text)
    start = text.index(part)
    return Diagnostic("P0102", severity, "unknown field", Span(source, start, start + len(part)), **more)


def test_every_finding_of_the_broken_policies_is_valid_sarif_with_its_rule() -> None:
    found = [diagnostic for file in BROKEN for diagnostic in said(file.read_text(encoding="utf-8"))]
    run = log(*found)
    rules = run["tool"]["driver"]["rules"]

    assert len(run["results"]) == len(found)
    assert {rule["id"] for rule in rules} == {diagnostic.code for diagnostic in found}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    for rule in rules:
        assert rule["help"]["text"].startswith(f"# {rule['id']}")
        assert rule["name"].isalnum()


def test_nothing_found_is_valid_sarif() -> None:
    assert log()["results"] == []


def test_a_region_counts_characters_from_one_and_ends_behind() -> None:
    run = log(at('let a = "😀"\nfilter node.x', "x"))

    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 2, "startColumn": 13, "endLine": 2, "endColumn": 14}
    assert run["columnKind"] == "unicodeCodePoints"


@pytest.mark.parametrize(
    ("name", "artifact"),
    [
        ("policies/a.policy", {"uri": "policies/a.policy", "uriBaseId": "%SRCROOT%"}),
        ("./a b.policy", {"uri": "a%20b.policy", "uriBaseId": "%SRCROOT%"}),
        ("/srv/ä.policy", {"uri": "file:///srv/%C3%A4.policy"}),
    ],
)
def test_a_path_is_a_uri(name: str, artifact: dict[str, str]) -> None:
    found = log(at("filter node.x", "x", name=name))["results"][0]["locations"][0]["physicalLocation"]
    assert found["artifactLocation"] == artifact


def test_help_notes_other_places_and_fixes_are_there() -> None:
    source = Source("a.policy", "filter node.x\nfilter node.y")
    fix = Fix("write ready", (Edit(Span(source, 12, 13), "ready"),))
    labels = (Label(Span(source, 26, 27), "said here"),)
    found = Diagnostic("P0102", Severity.WARNING, "odd", Span(source, 12, 13), "do this", labels, ("as is",), fix)

    result = log(found)["results"][0]

    assert result["level"] == "warning"
    assert result["message"] == {"text": "odd\nnote: as is\nhelp: do this"}
    assert result["relatedLocations"][0]["message"] == {"text": "said here"}
    change = result["fixes"][0]["artifactChanges"][0]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 1, "startColumn": 13, "endLine": 1, "endColumn": 14},
            "insertedContent": {"text": "ready"},
        }
    ]


# --- GitHub -----------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner of GitHub Actions does."""
    match = COMMAND.fullmatch(line)
    assert match is not None, line
    properties = dict(one.split("=", 1) for one in match[2].split(","))
    return match[1], {name: unquote(value) for name, value in properties.items()}, unquote(match[3])


def test_a_finding_is_one_line_that_the_runner_reads_back() -> None:
    found = at("filter node.x", "x", name="a,b: 100%.policy", help="write 80%\nor less")

    command, properties, message = read(annotation(found))

    assert command == "error"
    assert properties == {
        "file": "a,b: 100%.policy",
        "line": "1",
        "endLine": "1",
        "col": "13",
        "endColumn": "14",
        "title": "policyctl lint (P0102)",
    }
    assert message == "unknown field\nhelp: write 80%\nor less"


def test_a_finding_over_several_lines_names_no_columns() -> None:
    _, properties, _ = read(annotation(at("filter a\n  and b", "a\n  and b")))

    assert properties["line"] == "1"
    assert properties["endLine"] == "2"
    assert not properties.keys() & {"col", "endColumn"}


@pytest.mark.parametrize("severity", Severity)
def test_a_severity_is_the_command_that_github_has_for_it(severity: Severity) -> None:
    command, _, _ = read(annotation(at("filter a", "a", severity=severity)))
    assert command == {"error": "error", "warning": "warning", "note": "notice"}[severity.value]
