"""Fixes: the finding goes, what is read stays readable, and nothing is changed on a guess."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kube_policy_scheduler.diagnostics import (
    Diagnostic,
    Edit,
    Fix,
    Severity,
    Source,
    Span,
    apply_fixes,
    compatible,
    in_order,
)
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.lint.fixing import fixed
from kube_policy_scheduler.lint.runner import lint
from tests.lang.texts import ENVIRONMENT, said, sources

BROKEN = sorted((Path(__file__).parents[1] / "lang" / "broken").glob("*.policy"))


def look(policies: Sequence[Source]) -> tuple[Diagnostic, ...]:
    result = check_sources(policies, ENVIRONMENT)
    return in_order([*result.diagnostics, *lint(result)])


FIXES = {
    "a filter that is always true": ("filter node.ready\nfilter node.requested.cpu >= 0\n", "filter node.ready\n"),
    "a filter that follows from another": (
        "filter node.free.cpu > 4\nfilter node.free.cpu > 2 # twice\n",
        "filter node.free.cpu > 4\n# twice\n",
    ),
    "a name that nobody uses": ("let x = 1\nfilter node.ready\n", "filter node.ready\n"),
    "names that only unused names use": ("let x = 1\nlet y = x\nfilter node.ready\n", "filter node.ready\n"),
    "a dash in a label": (
        'filter node.label.disk-type == "ssd"\n',
        'filter node.label["disk-type"] == "ssd"\n',
    ),
    "an ignore above": ("# policy: ignore P0302 because old\nfilter node.ready\n", "filter node.ready\n"),
    "an ignore behind": ("filter node.ready  # policy: ignore P0302 because old\n", "filter node.ready\n"),
    "other ends of lines": ("let x = 1\r\nfilter node.ready\r\n", "filter node.ready\r\n"),
    "the last line": ("filter node.ready\nlet x = 1", "filter node.ready\n"),
}


@pytest.mark.parametrize(("before", "after"), FIXES.values(), ids=FIXES)
def test_a_fix_removes_the_problem_and_nothing_else(before: str, after: str) -> None:
    result = fixed([Source("test.policy", before)], look)

    assert [source.text for source in result.sources] == [after]
    assert [d for d in result.left if d.fix is not None] == []
    assert result.made
    assert not result.refused


GUESSES = {
    "a share above one": "filter node.used_fraction.cpu < 80\n",
    "a topology misspelt": "spread by pod.label.tenant over zones\n",
}


@pytest.mark.parametrize("text", GUESSES.values(), ids=GUESSES)
def test_a_guess_is_offered_and_not_made(text: str) -> None:
    result = fixed([Source("test.policy", text)], look)

    assert result.sources[0].text == text
    assert [d.fix.safe for d in result.left if d.fix is not None] == [False]


def test_each_fix_that_is_offered_can_be_read_and_takes_its_finding_away() -> None:
    texts = {file.stem: file.read_text(encoding="utf-8") for file in BROKEN}
    offered = [(name, text, d) for name, text in texts.items() for d in said(text) if d.fix is not None]
    assert len(offered) >= 50
    for name, text, diagnostic in offered:
        assert diagnostic.fix is not None
        after = apply_fixes(diagnostic.span.source, [diagnostic.fix])
        policies = [Source(s.name, after) if s == diagnostic.span.source else s for s in sources(text)]

        again = look(policies)

        assert len(parse(Source("x", after))[1]) <= len(parse(diagnostic.span.source)[1]), name
        same = [d for d in again if (d.code, d.message) == (diagnostic.code, diagnostic.message)]
        before = sum((d.code, d.message) == (diagnostic.code, diagnostic.message) for d in said(text))
        assert len(same) < before, name


def _fix(source: Source, *edits: tuple[int, int, str]) -> Fix:
    return Fix("fix", tuple(Edit(Span(source, start, end), text) for start, end, text in edits))


def test_of_fixes_that_overlap_the_first_is_made_as_a_whole_and_the_other_not_at_all() -> None:
    source = Source("a", "abcdef")
    first, second = _fix(source, (0, 2, "X"), (4, 5, "Y")), _fix(source, (2, 3, "Z"), (4, 6, "W"))

    assert compatible(source, [second, first]) == (first,)
    assert apply_fixes(source, [second, first, first]) == "XcdYf"


def test_of_two_insertions_at_one_place_one_is_made() -> None:
    source = Source("a", "ab")

    assert apply_fixes(source, [_fix(source, (1, 1, "X")), _fix(source, (1, 1, "Y"))]) == "aXb"


def test_a_fix_of_another_text_is_left_out() -> None:
    assert apply_fixes(Source("a", "ab"), [_fix(Source("b", "ab"), (0, 1, "X"))]) == "ab"


def test_a_fix_that_could_not_be_read_is_refused_and_the_text_stays() -> None:
    source = Source("a.policy", "filter node.ready\n")
    bad = _fix(source, (0, 6, "fil ter"))

    def broken(policies: Sequence[Source]) -> list[Diagnostic]:
        return [Diagnostic("P0302", Severity.WARNING, "odd", Span(s, 0, 6), fix=bad) for s in policies]

    result = fixed([source], broken)

    assert result.sources == (source,)
    assert "could not be parsed" in result.refused["a.policy"]
    assert not result.made


def test_a_fix_that_never_ends_is_made_a_limited_number_of_times() -> None:
    def again(policies: Sequence[Source]) -> list[Diagnostic]:
        source = policies[0]
        return [Diagnostic("P0302", Severity.WARNING, "odd", Span(source, 0, 0), fix=_fix(source, (0, 0, "#\n")))]

    assert len(fixed([Source("a.policy", "")], again).made) == 100
