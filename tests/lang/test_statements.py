"""The table of statements says what the grammar says: nothing is missing in either."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lang.statements import BY_KEYWORD, CLAUSES, FORMS, STATEMENTS, WORDS, Statement

GRAMMAR = (Path(__file__).parents[2] / "grammar" / "policy.lark").read_text(encoding="utf-8")
TERMINALS = dict(re.findall(r"^([A-Z]+)(?:\.\d)?: /([a-z]+)(?:\\b|\(\?=)", GRAMMAR, re.MULTILINE))
"""Words, by the terminal that stands for them."""


def rule(name: str) -> str:
    """Return the right side of a rule of the grammar."""
    found = re.search(rf"^\??{name}: (.*\n(?:(?: +\|| *//).*\n)*)", GRAMMAR, re.MULTILINE)
    assert found is not None, name
    return found[1]


def words_of(text: str) -> set[str]:
    return {TERMINALS[name] for name in re.findall(r"\b[A-Z]+\b", text) if name in TERMINALS}


def test_every_statement_of_the_grammar_is_in_the_table() -> None:
    assert sorted(re.findall(r"\w+", rule("start"))) == sorted(name for each in STATEMENTS for name in each.rules)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.keyword)
def test_the_words_of_a_statement_are_those_of_its_rules(statement: Statement) -> None:
    said = "".join(rule(name) for name in statement.rules)
    if "order_key" in said:
        said += rule("order_key")
    if "division" in said:
        said += rule("division")
    if "metric_part" in said:
        said += rule("series_key")
    words = {statement.keyword, *statement.joins, *statement.words}
    written = {word for clause in statement.clauses for word in clause.split()}

    assert words_of(said) - written == words - written
    assert ("part*" in said) == bool(statement.clauses)
    assert all(rule(name).split()[0] == statement.keyword.upper() for name in statement.rules)


def test_every_clause_of_the_grammar_is_in_the_table() -> None:
    lines = re.findall(
        r"^(?:part:|\w+_part:| +\|) (.*?) +-> part_\w+$",
        GRAMMAR,
        re.MULTILINE,
    )
    behind = {word.upper() for statement in STATEMENTS for word in statement.behind.values()}
    words = ([name for name in line.split() if name in TERMINALS] for line in lines)
    said = (names[:-1] if names[-1] in behind else names for names in words)
    found = {" ".join(TERMINALS[name] for name in names) for names in said}

    assert found == set(CLAUSES)
    assert {clause for statement in STATEMENTS for clause in statement.clauses} == set(CLAUSES)


def test_every_word_of_the_grammar_is_in_the_table() -> None:
    assert set(TERMINALS.values()) == WORDS


WHOLE = {
    "metric": 'metric load = promql("cpu") for cluster for fleet every 30s stale after 2min default 50 by node',
    "hold": 'hold if pod.label.paused as waits if pod.label.b else "why"',
    "order": "order by pod.priority desc, pod.name strict as fair if pod.label.b",
    "require": 'require pod.label.a as needs if pod.label.b else "why" new nodes help',
    "filter": 'filter node.ready as fit if pod.label.b else "why" new nodes never help also running',
    "choose": "choose 2 to 3 clusters over zone at least 2 at most 3 each at most 1 if workload.label.b",
    "divide": "divide evenly at least 1 each at most 3 each partly if workload.label.b",
    "score": "score 1 as best if node.ready weight 2",
    "spread": "\n    ".join(
        (
            "spread by pod.qos",
            "over a",
            "target b 7%",
            "target by node.age",
            "max skew 1",
            "min domains 2",
            "counting all nodes",
            "as b",
            "if true",
            'else ""',
            "weight 2",
        )
    ),
    "pack": "pack by pod.label.a over rack as tight if pod.label.b weight 2",
    "limit": "\n    ".join(
        (
            "limit count()",
            "by pod.qos",
            "to 3",
            "over zone",
            "of pods where pod label b",
            "of workloads where c",
            "as quota",
            "if pod.label.b",
            'else "why"',
            "new nodes help",
        )
    ),
    "queue": "queue a of b by pod.qos min cpu 1, memory 2Gi max cpu 3 lend cpu 1 weight 2 remember 6h",
    "backfill": "backfill if pod.label.b lasts duration(pod.annotation.c) at most 6h",
    "rebalance": 'rebalance margin 10 at most 3 rest 1h if pod.label.b == "c"',
    "reclaim": 'reclaim fair above max after 30s rest 10min if pod.label.b evict where victim.label.c == "d"',
    "gang": "\n    ".join(
        (
            "gang by pod.qos",
            "size 3",
            "with 1 of b=c,",
            "2 of d",
            "within 5min",
            "within one a or any",
            "evict whole",
            "as x",
            "if pod.label.b",
        )
    ),
}
"""Statements with all of their clauses."""


@pytest.mark.parametrize("keyword", [each.keyword for each in STATEMENTS if each.clauses])
def test_all_clauses_are_read_and_written_in_the_order_of_the_table(keyword: str) -> None:
    text = f"{WHOLE[keyword]}\n"
    begins = len("hold if " if keyword == "hold" else keyword)
    at = [re.search(rf" {clause}\s", text[begins:]) for clause in BY_KEYWORD[keyword].clauses]
    places = [found.start() for found in at if found is not None]
    (statement,) = parse(Source("a.policy", text))[0].statements

    assert len(places) == len(at)
    assert places == sorted(places)
    assert all(getattr(statement, CLAUSES[clause]) is not None for clause in BY_KEYWORD[keyword].clauses)
    assert format_source(Source("a.policy", text)) == Formatted(text)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.written[:30])
def test_an_example_of_a_statement_stays_as_it_is_formatted(form: object) -> None:
    example = form.example  # type: ignore[attr-defined]

    assert format_source(Source("a.policy", f"{example}\n")) == Formatted(f"{example.removesuffix(' asc')}\n")


CONTINUED = [
    'let german = node.label.lang ==\n    language or node.label.lang == "de"',
    "let late = now() -\n    language - 3",
    "let x = (\n    language and node.ready\n)",
    "let x = 1 +\n    limit in [1, 2]",
    "filter node.ready and\n    score is missing",
    "let x = if node.ready then\n    policy else 3",
    "let x = node.label.a not in [\n    scheduler not in [],\n]",
]
"""Statements in which a line begins with the word of another statement, which is a name there."""


@pytest.mark.parametrize("text", CONTINUED)
def test_a_word_of_a_statement_can_be_a_name_at_the_beginning_of_a_line(text: str) -> None:
    file, found = parse(Source("test.policy", f"filter node.ready\n{text}\n"))

    assert found == ()
    assert [each.span.text for each in file.statements] == ["filter node.ready", text]
