"""Test files and the configuration: completion, hover and diagnostics from their schemas, also in broken files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.editor.cluster_words import words_in
from kube_policy_scheduler.editor.documents import (
    EditedDocument,
    edited_document,
    policies_of,
    queries_of,
    templates_of,
    value_of,
)
from kube_policy_scheduler.editor.yaml_texts import complete_in, hover_in, keys_below, scalars
from tests.editor.cursor import NAME, project

HEAD = "policy: card.policy\nnodes:\n- {name: a1, cpu: 4}\n"
CONFIGURATION = "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
NAMES = {
    "node": ["a1", "b1"],
    "clause": ["calm", "node.ready", "fits(cpu, mem)"],
    "query": ["cpu_usage", 'up{job="x"}'],
    "template": ["small"],
    "queue": ["research"],
    "policy file": ["card.policy"],
    "code": ["P0102"],
}


def edited(text: str, name: str = "card.test.yaml") -> EditedDocument:
    document = edited_document(Source(name, text))
    assert document is not None
    return document


def offered(text: str, name: str = "card.test.yaml") -> dict[str, str]:
    offset = text.index("|")
    document = edited(text[:offset] + text[offset + 1 :], name)
    items = complete_in(document.source, document.schema, offset, NAMES)
    return {item.label: item.text or item.label for item in items}


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("|", {"policy", "nodes", "cases", "invalid"}),
        ("policy: |", {"card.policy"}),
        (f"{HEAD}c|", {"cases", "cluster"}),
        (f"{HEAD}- {{name: b1, |}}", {"cpu", "zone", "labels"}),
        (f"{HEAD}- {{name: b1, |", {"cpu", "zone", "labels"}),
        (f"{HEAD}- {{name: b1, re|: true}}", {"region", "ready"}),
        (f"{HEAD}- {{name: b1, ready: |}}", {"true", "false"}),
        (f"{HEAD}cases:\n- name: x\n  |", {"pod", "expect", "each"}),
        (f"{HEAD}cases:\n- name: x\n  pod: |", {"small"}),
        (f"{HEAD}cases:\n- name: x\n  pod: {{cpu: 1}}\n  expect: {{no|", {"node", "node_in", "not_on"}),
        (f"{HEAD}cases:\n- name: x\n  pod: {{cpu: 1}}\n  expect:\n    |\n- name: y\n", {"node", "unschedulable"}),
        (f"{HEAD}cases:\n- name: x\n  pod: {{cpu: 1}}\n  expect: {{node: |}}\n", {"a1", "b1"}),
        (f"{HEAD}cases:\n- name: x\n  pod: {{cpu: 1}}\n  expect: {{filtered: {{|}}}}\n", {"a1", "b1"}),
        (f"{HEAD}cases:\n- name: x\n  expect: {{filtered: {{a1: {{clause: |}}}}}}\n", {"calm", "fits(cpu, mem)"}),
        (f"{HEAD}cases:\n- name: x\n  expect: {{unschedulable: {{clause: n|", {"node.ready"}),
        (f"{HEAD}cases:\n- name: x\n  expect: {{queue: {{|}}}}", {"research"}),
        (f"{HEAD}metrics: {{|}}", {"cpu_usage", "series", "outages"}),
        (f"{HEAD}metrics: {{cpu_usage: {{|}}}}", {"a1"}),
        (f"{HEAD}tie: |", {"ok", "fail"}),
        (f"{HEAD}cases:\n- name: x\n  pod: {{fr|", {"from"}),
        ("invalid:\n- text: filter\n  code: |", {"P0102"}),
    ],
)  # fmt: skip
def test_tests_are_completed(text: str, some: set[str]) -> None:
    assert some <= set(offered(text))


def test_what_is_there_is_not_offered_again() -> None:
    assert not {"policy", "nodes"} & set(offered(f"{HEAD}|"))
    assert "name" not in offered(f"{HEAD}cases:\n- name: x\n  |")


def test_texts_are_quoted_where_yaml_needs_it() -> None:
    found = offered(f"{HEAD}metrics: {{|}}")
    assert found['up{job="x"}'] == "'up{job=\"x\"}': "
    assert found["cpu_usage"] == "cpu_usage: "
    assert offered(f"{HEAD}cases:\n- expect: {{unschedulable: {{clause: |}}}}")["fits(cpu, mem)"] == "'fits(cpu, mem)'"


@pytest.mark.parametrize(
    ("text", "some"),
    [
        (f"{CONFIGURATION}|", {"mode", "schedulerNames", "prometheus"}),
        (f"{CONFIGURATION}mode: |", {"scheduler", "shadow", "extender"}),
        (f"{CONFIGURATION}leaderElection:\n  |", {"enabled", "leaseDuration"}),
        (f"{CONFIGURATION}policies:\n  owners:\n  - |", {"name", "namespaces"}),
    ],
)
def test_the_configuration_is_completed(text: str, some: set[str]) -> None:
    assert some <= set(offered(text, "config.yaml"))


def test_a_line_that_is_not_finished_hides_no_names_of_the_other_lines() -> None:
    text = f"{HEAD}cases:\n- name: x\n  expect: {{node: \n- name: y\n"
    offset = text.index("{node: ") + 7
    assert words_in([value_of(Source("card.test.yaml", text), written_at=offset)]).nodes == {"a1": 1}


@pytest.mark.parametrize("text", ["# pol|", "policy: card.policy # |"])
def test_nothing_is_offered_in_comments(text: str) -> None:
    assert not offered(text)


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (f"{HEAD}ti|e: ok\n", "x.test.yaml", "tie-break"),
        (f"{HEAD}tie: o|k\n", "x.test.yaml", "tie-break"),
        (f"{HEAD}cases:\n- name: x\n  expect: {{mar|gin: 3}}\n", "x.test.yaml", "exceeds the next"),
        (f"{CONFIGURATION}mo|de: shadow\n", "config.yaml", "places the pods"),
        (f"{CONFIGURATION}mode: shadow\n|", "config.yaml", ""),
    ],
)
def test_hover_says_what_a_key_means(text: str, name: str, said: str) -> None:
    offset = text.index("|")
    document = edited(text[:offset] + text[offset + 1 :], name)
    found = hover_in(document.source, document.schema, offset)
    assert said in (found.text if found is not None else "")
    assert (found is None) == (not said)


def test_problems_have_their_places() -> None:
    (found,) = edited(f"{HEAD}cases: []\n").problems()
    assert str(found.span) == "card.test.yaml:4:8"
    (found,) = edited(f"{CONFIGURATION}mod: shadow\n", "config.yaml").problems()
    assert "did you mean `mode`?" in found.help
    assert edited(f"{HEAD}cases: [\n").problems()


def test_files_of_others_are_left_alone() -> None:
    assert edited_document(Source("deployment.yaml", "kind: Deployment\n")) is None
    assert edited_document(Source("card.policy", "kind: PolicySchedulerConfiguration\n")) is None


def test_what_a_test_names() -> None:
    text = "policy:\n- ../a.policy\n- b.policy\ntemplates:\n  small: {cpu: 1}\n\n  big:\n    cpu: 9\ncases:\n- {"
    assert policies_of(Source("x.test.yaml", text)) == {"a.policy", "b.policy"}
    assert templates_of(Source("x.test.yaml", text)) == ("small", "big")
    found = project('metric load = promql("cpu_usage") default 50\nscore load + promql("other")\n')
    assert set(queries_of(found, NAME)) == {"cpu_usage", "other"}


def test_keys_below_a_key() -> None:
    source = Source("x.yaml", "a: {queue: {x: 1, 'y/z': 2}}\nqueue: 3\n")
    assert [(text, span.text) for text, span in keys_below(source, key="queue")] == [("x", "x"), ("y/z", "y/z")]


def test_scalars_behind_a_key() -> None:
    source = Source("x.yaml", "a: {clause: x}\nb:\n- clause: 'y'\n- {name: clause}\n")
    assert [(text, span.text) for text, span in scalars(source, key="clause")] == [("y", "'y'"), ("x", "x")]


def test_what_aliases_repeat_is_read_once() -> None:
    lines = ["a0: &a0 {clause: x}", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]
    source = Source("x.yaml", "\n".join(lines) + "\n")  # 2**59 times, if each alias were followed
    assert [text for text, _ in scalars(source, key="clause")] == ["x"]


TEXTS = [file.read_text() for file in sorted((Path(__file__).parents[2] / "policies").rglob("*.test.yaml"))[:8]]
PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ": ", "\n", "\n  ", "- ", "'", '"', "#", "\t", "*a", "&a ", "é", "\x00"]
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TEXTS), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 9), PIECES), max_size=4), st.data()
)
def test_no_edit_ends_with_an_exception(text: str, edits: list[tuple[int, int, str]], data: st.DataObject) -> None:
    text = text[:1000]
    for at, removed, added in edits:
        at = min(at, len(text))
        text = text[:at] + added + text[at + removed :]
    document = edited(text)
    offset = data.draw(st.integers(0, len(text)))
    hover_in(document.source, document.schema, offset)
    for item in complete_in(document.source, document.schema, offset, NAMES):
        assert item.start <= offset
    for problem in document.problems():
        assert 0 <= problem.span.start <= problem.span.end <= len(text)
    policies_of(document.source)
    templates_of(document.source)
