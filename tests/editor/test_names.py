"""Definitions, references and rename, through `use`."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.editor.names import NameKind, RenameError, renamed, symbol_at
from kube_policy_scheduler.editor.project import Project, look_at
from tests.editor.cursor import NAME, at_cursor, project
from tests.lang.texts import ENVIRONMENT

COMMON = 'let busy = load > 80\nmetric load = promql("cpu_usage") default 50\ndef twice(x) = 2 * x\n'


def places(text: str, **others: str) -> list[str]:
    symbol = symbol_at(*at_cursor(text, **others))
    return [str(each.span).removeprefix("team/") for each in symbol.places] if symbol is not None else []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("let x = 3\nscore |x + x", ["test.policy:1:5", "test.policy:2:7", "test.policy:2:11"]),
        ("let |x = 3\nscore x", ["test.policy:1:5", "test.policy:2:7"]),
        ("def f(x) = x\nlet x = 3\nscore f(x|)", ["test.policy:2:5", "test.policy:3:9"]),
        ('use "common.policy"\nscore tw|ice(load)', ["common.policy:3:5", "test.policy:2:7"]),
        ('use "common.policy"\nscore twice(|load)',
         ["common.policy:2:8", "common.policy:1:12", "test.policy:2:13"]),
        ("filter node.ready as al|ive", ["test.policy:1:22"]),
        ('use "|common.policy"', ["common.policy:1:1", "test.policy:1:5"]),
        ("canary of st|able for 10%", ["stable.policy:1:8", "test.policy:1:11"]),
        ("queue to|p\nqueue a of top\nqueue b of top",
         ["test.policy:1:7", "test.policy:2:12", "test.policy:3:12"]),
        ("queue a of to|p\nqueue top", ["test.policy:2:7", "test.policy:1:12"]),
        ("score count(p in node.pods where |p.priority > 1)", []),
        ("score node.|free.cpu", []),
        ("score cl|amp(1, 2, 3)", []),
    ],
)  # fmt: skip
def test_places_of_a_name(text: str, where: list[str]) -> None:
    assert places(text, common=COMMON, stable="policy stable\nfilter node.ready") == where


def test_a_name_of_another_policy_is_another_name() -> None:
    assert places("let |x = 3\nscore x", other="let x = 4\nscore x") == ["test.policy:1:5", "test.policy:2:7"]


def test_users_of_one_file_share_its_names() -> None:
    """Both define what the common file needs: they can only be renamed together."""
    found = places(
        'use "common.policy"\nlet |limit = 3',
        common="filter node.free.cpu > limit",
        other='use "common.policy"\nlet limit = 4',
    )
    assert sorted(found) == ["common.policy:1:24", "other.policy:2:5", "test.policy:2:5"]


def applied(before: Project, edits: tuple[tuple[Span, str], ...]) -> Project:
    texts = {name: source.text for name, source in before.sources.items()}
    for span, text in sorted(edits, key=lambda each: -each[0].start):
        name = span.source.name
        texts[name] = texts[name][: span.start] + text + texts[name][span.end :]
    return look_at([Source(name, text) for name, text in texts.items()], ENVIRONMENT)


@pytest.mark.parametrize(
    "text",
    [
        'use "common.policy"\nscore |load if not busy',
        'use "common.policy"\nscore load if not |busy',
        'use "common.policy"\nscore |twice(3) as name',
        'use "common.policy"\nscore twice(3) as |name',
        "policy |here\nfilter node.ready",
        'let |rack = "x/rack"\nscore count(p in domain(rack).pods) if node.label[rack] == "a"\npack by "a" over rack',
    ],
)
def test_a_rename_keeps_the_meaning(text: str) -> None:
    before, name, offset = at_cursor(text, common=COMMON)
    symbol, edits = renamed(before, name, offset, "new_name")
    after = applied(before, edits)
    said = [d.message for found in before.diagnostics.values() for d in found]
    assert [d.message.replace("new_name", symbol.name) for found in after.diagnostics.values() for d in found] == said
    assert len(edits) == len(symbol.places)


@pytest.mark.parametrize(
    ("text", "new", "why"),
    [
        ("let |x = 3\nscore x", "1x", "cannot be a name"),
        ("let |x = 3\nscore x", "a b", "cannot be a name"),
        ("let |x = 3\nlet y = 4\nscore x + y", "y", "taken"),
        ("let |x = 3\nscore x", "clamp", "taken"),
        ("let |x = 3\nscore x", "node", "taken"),
        ("let |x = 3\nscore x", "zone", "taken"),
        ("let |x = 3\nscore x", "cluster", "taken"),
        *(
            ("let |x = 3\nscore x", word, "a word of the language")
            for word in ("and", "if", "true", "notin", "is", "not", "else")
        ),
        ("let |x = 3\ndef f(a) = a + x\nscore f(x)", "a", "taken"),
        ("score |node.free.cpu", "y", "only names"),
        ("filter node.ready as |a\nfilter fits() as b", "b", "taken"),
    ],
)
def test_a_rename_that_would_change_the_meaning_is_refused(text: str, new: str, why: str) -> None:
    with pytest.raises(RenameError, match=why):
        renamed(*at_cursor(text), new)


def test_kinds() -> None:
    found = project('let a = 1\nmetric m = promql("q")\ndef f(x) = x\nfilter node.ready as ok\n')
    kinds = {
        word: getattr(symbol_at(found, NAME, found.sources[NAME].text.index(f" {word}") + 1), "kind", None)
        for word in ("a ", "m ", "f(", "ok")
    }
    assert list(kinds.values()) == [NameKind.LET, NameKind.METRIC, NameKind.DEF, NameKind.CLAUSE]


def test_a_queue_is_renamed_with_its_children_in_all_policies() -> None:
    before, name, offset = at_cursor("queue to|p\nqueue a of top", other="queue b of top")
    symbol, edits = renamed(before, name, offset, "company")
    assert symbol.kind is NameKind.QUEUE
    after = applied(before, edits)
    assert [source.text for source in after.sources.values()] == [
        "queue company\nqueue a of company", "queue b of company"
    ]  # fmt: skip
    with pytest.raises(RenameError, match="taken"):
        renamed(before, name, offset, "b")
