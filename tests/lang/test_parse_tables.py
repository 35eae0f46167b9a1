"""The parser's tables that are kept beside the grammar are those of this grammar, and read the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lark import Lark, Transformer, UnexpectedInput

from kube_policy_scheduler.lang.reading import parse_tables

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "grammar" / "tables.json"
LINES = [
    line
    for file in sorted((ROOT / "policies").rglob("*.policy"))
    for line in file.read_text(encoding="utf-8").splitlines()
    if line and not line[0].isspace() and not line.startswith("#")
]


def made_anew(monkeypatch: pytest.MonkeyPatch) -> Lark:
    monkeypatch.setattr(parse_tables, "_fingerprint", lambda: "of another grammar, or another Lark")
    return parse_tables.parser(Transformer())


def test_the_tables_are_of_this_grammar_and_this_lark() -> None:
    kept = json.loads(TABLES.read_text(encoding="utf-8"))["made_from"]
    assert kept == json.loads(parse_tables.tables_text())["made_from"], "run: make reference"


def test_tables_of_another_grammar_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_tables.parser(Transformer()).source_path == "<deserialized>"
    assert made_anew(monkeypatch).source_path != "<deserialized>"


def test_both_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    by_tables = parse_tables.parser(Transformer())
    anew = made_anew(monkeypatch)
    assert len(LINES) > 50
    for line in [*LINES, *(line[: len(line) // 2] for line in LINES)]:
        assert outcome(by_tables, line) == outcome(anew, line)


def outcome(parser: Lark, line: str) -> object:
    try:
        return parser.parse(line)
    except UnexpectedInput as error:
        return type(error), error.line, error.column, getattr(error, "expected", None)


if __name__ == "__main__":
    text = parse_tables.tables_text()
    # the same tables can be written in many orders: they are left alone where they are of this grammar
    if json.loads(TABLES.read_text(encoding="utf-8"))["made_from"] != json.loads(text)["made_from"]:
        TABLES.write_text(text, encoding="utf-8")
