"""Hover, colours, outline, fixes, and that nothing of it ends with an exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source, apply_fixes
from kube_policy_scheduler.editor import outline
from kube_policy_scheduler.editor.cluster_words import ClusterWords
from kube_policy_scheduler.editor.completion import complete, open_call
from kube_policy_scheduler.editor.fixes import fixes
from kube_policy_scheduler.editor.hover import hover
from kube_policy_scheduler.editor.names import symbol_at
from kube_policy_scheduler.editor.project import look_at
from kube_policy_scheduler.lang.model_card import InputCard, ModelCard, OutcomeCard
from tests.editor.cursor import NAME, at_cursor, project
from tests.fakes.trained_model import CARDS, names_with_model
from tests.lang.test_broken import FILES as BROKEN
from tests.lang.texts import ENVIRONMENT
from tests.shipped import POLICIES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fil|ter node.ready", "A node passes if the condition is true"),
        ("score node.fr|ee.cpu", "cpu"),
        ("score node.free.c|pu", "cpu"),
        ("score count(p in zone.pods where p.node.la|bel.pool == \"a\")", "A label of the node"),
        ("score count(p in zone.pods where p.anno|tation.x == \"a\")", "An annotation of the pod"),
        ("filter node.re|ady", "Ready"),
        ("score cl|amp(1, 2, 3)", "clamp(x: amount"),
        ("let room = node.free.mem\nscore ro|om / 1Gi", "bytes"),
        ("let ro|om = node.free.mem\nscore room / 1Gi", "let room = node.free.mem"),
        ("score 10 - nu|m\nlet num = 3", "let num = 3"),
        ("filter count(p in node.pods where p.la|bel.x == \"y\") == 0", "label"),
        ("queue top min cpu 8\nqueue a of to|p\nqueue b of top", "2 queues below it: `a`, `b`"),
        ("queue top\nqueue m of top\nqueue a| of m min cpu 4", "below `m`, `top`"),
        ("queue top min cpu 8\nqueue a of to|p", "queue top min cpu 8"),
        ("filter node.ready as al|ive", "filter node.ready as alive"),
        ('score promql("x") |?? 5', ""),
        ("reclaim fair re|st 10min", "[rest DURATION]"),
        ("reclaim above m|ax", "reclaim above max [evict where CONDITION]"),
        ("order by pod.queued str|ict", "[strict]"),
        ("backfill lasts pod.waiting at mo|st 3h", "at most DURATION"),
        ("gang by pod.label.job size 2 evict who|le", "evict whole"),
        ("filter node.ready a|nd node.ready", ""),
        ("for workloads where workload.ki|nd == \"a\"", "The kind of the workload"),
        ("for workloads where true\nfilter cluster.ro|om > 3", "How many more replicas of the workload fit"),
        ("for workloads where true\nfilter any(c in region.clusters where c.rea|dy)", "condition Ready of the cluster"),
        ("for workloads where true\ndivide by cluster.room part|ly", "[partly]"),
        ("for workloads where true\nke|ep nothing", "keep running|nothing"),
    ],
)  # fmt: skip
def test_hover_says_what_a_word_means(text: str, said: str) -> None:
    found = hover(*at_cursor(text))
    assert said in (found.text if found is not None else "")
    assert (found is None) == (not said)


def test_colours_tell_names_from_each_other() -> None:
    found = project("def f(a) = a\nscore f(clamp(node.free.cpu, 0, 8)) # why\n")
    text = found.sources[NAME].text
    seen = [(text[each.start : each.end], each.colour.value, each.defines) for each in outline.colours(found, NAME)]
    assert seen == [
        ("def", "keyword", False),
        ("f", "function", True),
        ("a", "parameter", True),
        ("=", "operator", False),
        ("a", "parameter", False),
        ("score", "keyword", False),
        ("f", "function", False),
        ("clamp", "function", False),
        ("node", "variable", False),
        ("free", "property", False),
        ("cpu", "property", False),
        ("0", "number", False),
        ("8", "number", False),
        ("# why", "comment", False),
    ]


def test_the_outline_has_each_statement() -> None:
    found = project("let x = 3\nfilter node.ready as alive\nscore x +\n  1\n# a\n# b\n")
    assert [(each.name, each.kind) for each in outline.symbols(found, NAME)] == [
        ("x", "let"),
        ("alive", "filter"),
        ("score x + 1", "score"),
    ]
    text = found.sources[NAME].text
    assert [(text[a:b], kind) for a, b, kind in outline.folds(found, NAME)] == [
        ("score x +\n  1", "region"),
        ("# a\n# b", "comment"),
    ]


MESSAGES = Path(__file__).parents[1] / "lang" / "__snapshots__" / "test_broken"
SUGGESTING = [
    file
    for file in BROKEN
    if "did you mean `" in (MESSAGES / f"test_the_message_reads_well[{file.stem}].txt").read_text(encoding="utf-8")
]
"""By the recorded messages, since each worker would look at all of them before its first test."""


@pytest.mark.parametrize("file", SUGGESTING, ids=lambda file: file.stem)
def test_what_is_suggested_can_be_done(file: Path) -> None:
    """After it, that suggestion is not made again there."""
    source = Source(NAME, file.read_text())
    before = look_at([source], ENVIRONMENT).diagnostics[NAME]
    for diagnostic in before:
        if "did you mean `" not in diagnostic.help:
            continue
        fix = next(fixes(diagnostic))
        text = apply_fixes(source, [fix])
        after = look_at([Source(NAME, text)], ENVIRONMENT).diagnostics[NAME]
        assert (diagnostic.message, diagnostic.span.start) not in {(d.message, d.span.start) for d in after}, text


def test_there_are_suggestions() -> None:
    assert len(SUGGESTING) > 20


def test_one_hopeless_file_does_not_silence_the_others() -> None:
    found = project("filter node.redy", bad="((((\n" * 200, fine="filter node.ready\nscore 4Gi + 2\n")
    assert [d.code for d in found.diagnostics[NAME]] == ["P0102"]
    assert next(d.code for d in found.diagnostics["team/fine.policy"]) == "P0105"
    assert found.diagnostics["team/bad.policy"]


def test_rules_speak_of_policies_without_errors_while_another_has_some() -> None:
    text = "score 0 * node.free.cpu / 1\nfilter true\n"
    alone = [d.code for d in project(text).diagnostics[NAME]]
    assert alone
    assert [d.code for d in project(text, other="filter (").diagnostics[NAME]] == alone


PIECES = st.sampled_from(
    ['"', "(", ")", "[", "\n", "\r\n", "\t", " ", ".", "#", "filter ", "node.", "label ", "let x = ",
     "use \"x.policy\"", "é",
     "𝔸", "\x00", "\ufeff", ":", "and ", "count(p in node.pods where p.", "1Gi", "??", "as ", "by "]
)  # fmt: skip
SEEDS = st.sampled_from(
    [file.read_text(encoding="utf-8") for file in POLICIES[:12]] + [file.read_text() for file in BROKEN[::25]]
)


@given(SEEDS, st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 20), PIECES), max_size=6), st.data())
def test_no_edit_ends_with_an_exception(text: str, edits: list[tuple[int, int, str]], data: st.DataObject) -> None:
    look = None
    for at, removed, added in edits:
        at = min(at, len(text))
        text = text[:at] + added + text[at + removed :]
        look = look_at([Source(NAME, text), Source("team/x.policy", "let y = 3")], ENVIRONMENT, before=look)
    look = look or look_at([Source(NAME, text)], ENVIRONMENT)
    afresh = look_at(list(look.sources.values()), ENVIRONMENT)
    assert look.diagnostics == afresh.diagnostics
    assert [each.span for each in look.files[NAME].statements] == [each.span for each in afresh.files[NAME].statements]
    offset = data.draw(st.integers(0, len(text)))
    outline.colours(look, NAME)
    outline.symbols(look, NAME)
    list(outline.folds(look, NAME))
    hover(look, NAME, offset)
    symbol_at(look, NAME, offset)
    open_call(look, NAME, offset)
    for item in complete(look, NAME, offset, ClusterWords()):
        assert item.start <= offset
    for diagnostic in look.diagnostics[NAME]:
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        for fix in fixes(diagnostic):
            apply_fixes(look.sources[NAME], [fix])


# --- trained models ----------------------------------------------------------------------------------------

CARD = ModelCard(
    (InputCard("load", low=0.02, high=0.97, edges=(), shares=(1.0,)),),
    rows=5321,
    outcome=OutcomeCard("node_load1", after_seconds=600.0, mean_absolute_error=0.06),
)


@pytest.mark.parametrize("call", ['mo|del("load.onnx", load)', 'model("lo|ad.onnx", load)'])
def test_hover_on_a_model_says_what_it_was_trained_on(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'metric load = promql("node_load1")\nscore {call}'
    offset = text.index("|")
    project = look_at([Source(NAME, text.replace("|", ""))], names_with_model())
    without = hover(project, NAME, offset)
    assert without is None or "trained" not in without.text
    monkeypatch.setitem(CARDS, "load.onnx", CARD)
    found = hover(project, NAME, offset)
    assert found is not None
    assert found.text.endswith(
        "trained on 5,321 decisions, with these inputs:\n\n- `load`: 0.02 to 0.97\n\n"
        "predicts `node_load1`, 10min after the decision; mean error 0.06"
    )
