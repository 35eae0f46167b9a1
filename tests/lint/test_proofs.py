"""What is proved of a condition is true: no example contradicts it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lint.facts import Facts, always, never
from kube_policy_scheduler.lint.facts import assume as follow
from tests.lang.reference import Table, evaluate
from tests.lang.test_evaluation import infer

_CLOSE = ["node.a", "node.b", "pod.x", "0", "1", "2.5"]
_TEXTS = ["node.label.k", "node.label.l", "pod.label.k", '"red"', '"blue"', "node.name"]


def _conditions(depth: int) -> st.SearchStrategy[str]:
    number = st.sampled_from([*_CLOSE, "(node.a + 1)", "(node.m ?? 1)", "node.m", "clamp(node.b, 0, 1)", "abs(node.a)"])
    text = st.sampled_from(_TEXTS)
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    leaf = st.one_of(
        st.tuples(number, compare, number).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(text, st.sampled_from(["==", "!="]), text).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(text, st.sampled_from(["in", "not in"])).map(lambda t: f'({t[0]} {t[1]} ["red", "7"])'),
        st.tuples(number, st.sampled_from(["in", "not in"])).map(lambda t: f"({t[0]} {t[1]} [0, 1])"),
        st.sampled_from(
            ["node.yes", "pod.yes", "(label k)", "(label k=red)", "(label k!=red)", "(label l in (red, x))"]
        ),
        st.sampled_from(["(node.label.k is missing)", "(node.label.k is not missing)", "true", "false"]),
    )
    if depth == 0:
        return leaf
    inner = _conditions(depth - 1)
    return st.one_of(
        leaf,
        st.lists(inner, min_size=2, max_size=4).map(lambda t: f"({' and '.join(t)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda t: f"({' or '.join(t)})"),
        inner.map(lambda t: f"(not {t})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} == {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"(if {t[0]} then {t[1]} else {t[2]})"),
    )


_numbers = st.sampled_from([0.0, 1.0, -1.0, 2.5, 0.5])
_words = st.sampled_from([None, "red", "blue", "7", "x"])


@st.composite
def _rows(draw: st.DrawFn) -> Table:
    nodes = {
        "a": [draw(_numbers)],
        "b": [draw(_numbers)],
        "m": [draw(st.one_of(st.none(), _numbers))],
        "yes": [draw(st.booleans())],
        "name": [draw(st.sampled_from(["red", "n1"]))],
        "label k": [draw(_words)],
        "label l": [draw(_words)],
    }
    pod = {"x": draw(_numbers), "m": None, "yes": draw(st.booleans()), "label k": draw(_words), "label l": None}
    return Table(nodes, pod)


@given(_conditions(3), st.lists(_rows(), min_size=10, max_size=10))
def test_what_never_holds_has_no_example_and_what_always_holds_no_exception(text: str, tables: list[Table]) -> None:
    value, inference = infer(text)
    assume(not inference.found)
    value = operators.truth(value, inference.found)
    truths = {evaluate(value, table, 0) for table in tables}

    assert not (never(value) and True in truths), text
    assert not (always(value) and truths - {True}), text


@given(_conditions(2), _conditions(2), st.lists(_rows(), min_size=10, max_size=10))
def test_what_follows_from_a_condition_holds_wherever_it_does(first: str, second: str, tables: list[Table]) -> None:
    cause, one = infer(first)
    effect, other = infer(second)
    assume(not one.found and not other.found)
    known = follow(cause, True)
    holding = [table for table in tables if evaluate(cause, table, 0) is True]
    if known is None:
        assert not holding
        return

    truths = {evaluate(effect, table, 0) for table in holding}
    assert not (never(effect, given=known) and True in truths), (first, second)
    assert not (always(effect, known) and truths - {True}), (first, second)


PROVED_NEVER = [
    "node.a > 2 and node.a < 1",
    "node.a > 2 and node.a <= 2",
    "node.a == 1 and node.a == 2",
    "node.a + 1 > 5 and node.a + 1 < 3",
    "1 > node.a and node.a > 2",
    "abs(node.a) < 0",
    "length(node.name) < 0",
    'node.label.k == "a" and node.label.k == "b"',
    'node.label.k in ["a", "b"] and node.label.k == "c"',
    "label k and not label k",
    "label k=a and node.label.k is missing",
    'node.label.k == "a" and node.label.k not in ["a", "b"]',
    "node.yes and not node.yes",
    "not (node.yes or not node.yes)",
    "node.yes and (node.a > 1 and node.a < 0 or not node.yes)",
    'node.label.k == pod.label.k and node.label.k == "a" and pod.label.k == "b"',
    "node.a in [1, 2] and node.a > 3",
    "node.a < node.a",
]
PROVED_ALWAYS = [
    "abs(node.a) >= 0",
    "length(node.name) >= 0",
    "node.yes or not node.yes",
    'node.label.k != "a" or node.label.k != "b"',
    "clamp(node.a, 0, 1) <= 1",
    "node.a == node.a",
    "not (node.a > 2 and node.a < 1)",
    "label k or not label k",
]
NOT_PROVED = [
    "node.a > 2",
    "node.a > 2 and node.b < 1",
    'node.label.k != "a" and node.label.k != "b"',
    'node.label.k == "a" or node.label.k == "b"',
    "node.m >= 0 or node.m < 0",  # it can be missing
    "node.a >= 2 and node.a <= 2",
    "label k and label l",
    "node.label.k == node.label.l",
]


@pytest.mark.parametrize("text", PROVED_NEVER)
def test_it_is_proved_that_this_never_holds(text: str) -> None:
    assert never(infer(text)[0])


@pytest.mark.parametrize("text", PROVED_ALWAYS)
def test_it_is_proved_that_this_always_holds(text: str) -> None:
    assert always(infer(text)[0])


@pytest.mark.parametrize("text", NOT_PROVED)
def test_nothing_is_claimed_of_what_can_be_either(text: str) -> None:
    value, _ = infer(text)

    assert not never(value)
    assert not always(value)


def test_what_is_known_under_one_condition_is_not_known_without_it() -> None:
    nothing = Facts()
    known = follow(infer("node.a > 2")[0], True, nothing)
    assert known is not None
    below, _ = infer("node.a < 1")

    assert never(below, given=known)
    assert not never(below, given=nothing)
    assert not never(below)
