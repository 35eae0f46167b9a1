"""A check that takes over what the one before it found is equal to one from the beginning, in every part and place."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.diagnostics import Source, Span
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Test as CheckedTest
from kube_policy_scheduler.lang.checking import check as checking
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.lang.compiling.policy import compile_policy
from kube_policy_scheduler.lang.load import Checked, check_sources
from kube_policy_scheduler.lang.memo import Memo

NAME = "team/a.policy"
SHARED = "team/shared.policy"
FIRST = (
    "let w = 2 * node.free.cpu / 1core",
    "let v = node.free.mem / 1Gi",
    "let w2 = if node.ready then 1 else 0",
    "let spare = 20%",
    "def half(x) = x / 2 + v",
    "def twice(x) = x * 2",
    'metric load = promql("load") default 2',
)
DEFINITIONS = (
    *FIRST,
    "let w = 3",
    "let w = v + 1",
    "let v = w2 * 2",
    "let w2 = twice(3)",
    "let spare = 20% from 5% to 50%",
    "def half(x) = twice(x) / 4",
    "def twice(x) = x + x",
    'metric load = promql("load") default 3',
)
TESTS = (
    "filter node.ready and fits(cpu, mem)",
    "filter node.free.cpu > 1 and w > 0 as roomy",
    "filter half(v) > 1",
    'filter v > half(twice(w)) if pod.label.app == "a"',
    'score w if node.label.pool == "p1"',
    'score w if node.label.pool == "p1"',
    "score half(w) weight 2",
    'score 5 if node.label.disk == "ssd"',
    "score max(w, v) + (load ?? 0)",
    "require pod.request.cpu < 4",
    "hold if pod.priority < 3",
    'hold if pod.label.queue == "q" and pod.priority < 3',
    "spread by pod.label.app max skew 1",
    "order by pod.priority desc",
    "limit 3 by pod.label.app",
    "priority 5",
    "# only a comment",
    "score count(p in node.pods where p.label.app == pod.label.app) * -1",
    'use "shared.policy"',
    "score nonsense",
    "filter node.free.cpu >",
)
LINES = st.sampled_from(DEFINITIONS + TESTS)
EDITS = st.one_of(
    st.tuples(st.just("define"), st.just(0), st.sampled_from(DEFINITIONS)),
    st.tuples(st.sampled_from(("insert", "swap", "space")), st.integers(0, 30), st.sampled_from(TESTS)),
    st.tuples(st.sampled_from(("replace", "delete")), st.integers(0, 30), LINES),
)


def edited(lines: list[str], how: str, at: int, line: str) -> list[str]:
    at %= len(lines) + 1
    match how:
        case "define":
            name = re.split(r"[ (]", line)[:2]
            return [line if re.split(r"[ (]", each)[:2] == name else each for each in lines]
        case "insert":
            return [*lines[:at], line, *lines[at:]]
        case "delete":
            return lines[:at] + lines[at + 1 :]
        case "swap":
            return [*lines[:at], *reversed(lines[at : at + 2]), *lines[at + 2 :]]
        case "space":
            return [*lines[:at], f"  # {line}", "", *lines[at:]]
        case _:
            return [*lines[:at], line, *lines[at + 1 :]]


def flat(value: Any, known: dict[int, int]) -> Any:
    """Return all of a checked policy as plain values; what is compared by identity by its first place."""
    if isinstance(value, Span):
        return value.source.name, value.source.text, value.start, value.end
    if isinstance(value, enum.Enum | str | int | float | bool | frozenset | type(None) | Source):
        return repr(value) if isinstance(value, float) else value
    if isinstance(value, typed.Binder) or type(value) is object:
        return "identity", known.setdefault(id(value), len(known))
    if isinstance(value, Mapping):
        return [(flat(key, known), flat(each, known)) for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [flat(each, known) for each in value]
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name != "origin"]
        found = known.get(id(value))
        if isinstance(value, typed.Reference) or found is None:
            known[id(value)] = len(known)
        return type(value).__name__, [flat(getattr(value, name), known) for name in names]
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, [flat(getattr(value, each.name), known) for each in fields(value)]
    return getattr(value, "__qualname__", type(value).__qualname__)


def shape(checked: Checked) -> Any:
    return [flat(policy, {}) for policy in checked.policies], checked.diagnostics


def compiled(clause: CompiledClause) -> Any:
    kept = [(part.span, part.info) for part in clause.parts()]
    own = [(name, getattr(clause, name)) for name in clause.__struct_fields__ if name != "parts"]
    return flat([own, kept], {})


def sources(lines: list[str], shared: list[str]) -> list[Source]:
    return [Source(NAME, "\n".join(lines) + "\n"), Source(SHARED, "\n".join(shared) + "\n")]


@given(
    st.lists(st.sampled_from(TESTS[:-4]), max_size=10).map(lambda tests: [*FIRST, *tests]),
    st.permutations(("let extra = w * 2", "let other = 4", "score other")),
    st.lists(st.tuples(EDITS, st.integers(0, 5).map(lambda number: not number)), min_size=1, max_size=6),
)
def test_a_check_with_the_one_before_is_a_check(
    lines: list[str], shared: list[str], edits: list[tuple[tuple[str, int, str], bool]]
) -> None:
    memo, names = Memo(), environment()
    check_sources(sources(lines, shared), names, memo=memo)
    made: dict[str, Any] = {}
    for (how, at, line), of_shared in edits:
        if of_shared:
            shared = edited(shared, how, at, line)
        else:
            lines = edited(lines, how, at, line)
        memo = Memo(memo.known)
        now = check_sources(sources(lines, shared), names, memo=memo)
        afresh = check_sources(sources(lines, shared), names)
        assert shape(now) == shape(afresh)
        if now.failed:
            continue
        for policy, fresh in zip(now.policies, afresh.policies, strict=True):
            again = made[policy.name] = compile_policy(policy, names, before=made.get(policy.name))
            new = compile_policy(fresh, names)
            assert [*map(compiled, again.clauses)] == [*map(compiled, new.clauses)]
            assert (again.inputs, again.name, again.priority) == (new.inputs, new.name, new.priority)


def test_only_what_changed_is_checked_again(monkeypatch: Any) -> None:
    lines = [f"let w{at} = {at} * node.free.cpu / 1core\nscore w{at} if node.ready" for at in range(20)]
    memo, names = Memo(), environment()
    check_sources(sources(lines, []), names, memo=memo)
    asked: list[str] = []
    whole = checking._Checker.test

    def counted(self: Any, tree: Any, name: str) -> CheckedTest:
        asked.append(tree.span.text)
        return whole(self, tree, name)

    monkeypatch.setattr(checking._Checker, "test", counted)
    lines[3] = lines[3].replace("3 *", "33 *")
    check_sources(sources(["# one line more", *lines], []), names, memo=Memo(memo.known))
    assert asked == ["score w3 if node.ready"]
