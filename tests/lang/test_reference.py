"""The language reference says what the compiler does: generated parts are up to date, examples are policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.lang.environment import Field
from kube_policy_scheduler.lang.statements import FORMS, STATEMENTS, WORKLOADS, StatementForm
from tests.lang.generated_reference import refreshed
from tests.lang.texts import checked, codes, said

REFERENCE = Path(__file__).parents[2] / "grammar" / "README.md"
EXAMPLES = re.findall(r"^```policy\n(.*?)^```", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_generated_parts_are_up_to_date() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert refreshed(text) == text, "run: make reference"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_policy_without_errors(example: str) -> None:
    assert [d for d in said(example) if d.severity.value == "error"] == []


def test_every_field_function_and_statement_is_in_an_example() -> None:
    text = "\n".join(EXAMPLES).replace("victim.", "pod.").replace(" p.", " pod.").replace("(p.", "(pod.")
    known = {**environment().fields, **environment().of(WORKLOADS).fields}
    fields = {path for path in known if not re.search(rf"\b{re.escape(path)}\b", text)}
    functions = {name for name in environment().builtins if not re.search(rf"\b{name}\(| {name} ", text)}
    statements = {each.keyword for each in STATEMENTS if not re.search(rf"^{each.keyword} ", text, re.MULTILINE)}

    assert (fields, functions, statements) == (set(), set(), set())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.written[:30])
def test_every_statements_example_can_be_read(form: StatementForm) -> None:
    example = form.example
    if form.subject == WORKLOADS and not example.startswith("for "):
        example = f"for workloads where true\n{example}"

    alone = {
        "P0203",
        "P0213",
        "P0308",
        "P0321",
        "P0343",
        "P0344",
        "P0348",
        "P0374",
        "P0376",
        "P0380",
        "P0383",
        "P0391",
        "P0392",
    }  # other lines would cure it
    assert set(codes(example)) <= alone, example


@pytest.mark.parametrize("name", sorted(environment().builtins))
def test_every_function_has_a_manual_entry(name: str) -> None:
    builtin = environment().builtins[name]

    assert builtin.doc.startswith("Return ")
    assert builtin.signature.startswith(f"{name}(")


@pytest.mark.parametrize("field", [*environment().fields.values(), *environment().of(WORKLOADS).fields.values()])
def test_every_field_has_a_manual_entry(field: Field) -> None:
    assert len(field.doc) > 10


def test_a_backquoted_example_in_a_manual_entry_can_be_read() -> None:
    snippets = {
        snippet
        for builtin in environment().builtins.values()
        for snippet in re.findall(r"`([^`]*\([^`]*\))`", builtin.doc)
    }
    assert len(snippets) >= 3

    for snippet in snippets:
        found = checked(f"let x = {snippet}\nscore 1 if x is missing").diagnostics
        assert [d for d in found if d.code < "P0101"] == [], snippet


if __name__ == "__main__":
    REFERENCE.write_text(refreshed(REFERENCE.read_text(encoding="utf-8")), encoding="utf-8")
