"""Columns give what one node at a time gives; missing values follow their truth tables."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube_policy_scheduler.builtins import numbers, texts
from kube_policy_scheduler.diagnostics import Source, render
from kube_policy_scheduler.lang import syntax, typed
from kube_policy_scheduler.lang.checked import Definition
from kube_policy_scheduler.lang.checking.inference import ANYWHERE, Inference
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from kube_policy_scheduler.lang.compiling.one_row import OneRow
from kube_policy_scheduler.lang.reading.parse import parse
from tests.lang.reference import Table, evaluate, plain, test_environment

ENVIRONMENT = test_environment(numbers, texts)


def infer(text: str) -> tuple[typed.Typed, Inference]:
    file, found = parse(Source("t.policy", f"let x = {text}"))
    assert not found, "\n".join(map(render, found))
    inference = Inference(ENVIRONMENT)
    tree = file.statements[0]
    assert isinstance(tree, syntax.Let)
    return inference.infer_root(tree.value, ANYWHERE), inference


def value_of(text: str, table: Table) -> list[Any]:
    """Return the expression's value on each row, evaluated over columns."""
    value, inference = infer(text)
    assert not inference.found, "\n".join(map(render, inference.found))
    result = Compiler(ENVIRONMENT.pods).compile(value)(table)
    return [plain(result, value.info, row) for row in range(table.size)]


ROWS = Table(
    nodes={
        "a": [0.0, 1.0, 2.5, -3.0],
        "b": [4.0, 0.0, 2.5, 1.0],
        "m": [None, 50.0, 0.0, None],
        "yes": [True, False, True, False],
        "name": ["n0", "n1", "n2", "n3"],
        "label k": ["red", None, "7", "blue"],
        "label l": [None, "red", "7", "red"],
    },
    pod={"x": 2, "m": None, "yes": True, "label k": "red", "label l": None},
)

CASES = [
    ("node.a + node.b", [4.0, 1.0, 5.0, -2.0]),
    ("node.a / node.b", [0.0, None, 1.0, -3.0]),
    ("node.a % node.b", [0.0, None, 0.0, 0.0]),
    ("-7 % 3 + 0 * node.a", [2.0] * 4),
    ("7 % -3 + 0 * node.a", [-2.0] * 4),
    ("node.a % -2", [0.0, -1.0, -1.5, -1.0]),
    ("9007199254740993 + 0 * node.a == 9007199254740992", [True] * 4),
    ("-node.a * 2", [0.0, -2.0, -5.0, 6.0]),
    ("node.m + 1", [None, 51.0, 1.0, None]),
    ("node.m ?? 7", [7.0, 50.0, 0.0, 7.0]),
    ("100 - node.m ?? 50", [50.0, 50.0, 100.0, 50.0]),
    ("node.m < 10", [None, False, True, None]),
    ("(node.m < 10) ?? true", [True, False, True, True]),
    ("node.m is missing", [True, False, False, True]),
    ("node.m is not missing and node.yes", [False, False, True, False]),
    ('node.label.k == "red"', [True, False, False, False]),
    ('node.label.k != "red"', [False, True, True, True]),
    ("node.label.k == node.label.l", [False, False, True, False]),
    ("node.label.k == pod.label.k", [True, False, False, False]),
    ("node.label.k == pod.label.l", [False, False, False, False]),
    ("node.label.k != pod.label.l", [True, True, True, True]),
    ('node.label.k in ["red", "blue"]', [True, False, False, True]),
    ('node.label.k not in ["red", "blue"]', [False, True, True, False]),
    ('pod.label.k in [node.label.k, "x"]', [True, False, False, False]),
    ("label k", [True, False, True, True]),
    ("label k=red", [True, False, False, False]),
    ("label k!=red", [False, True, True, True]),
    ("label k in (red, blue)", [True, False, False, True]),
    ("label k notin (red, blue)", [False, True, True, False]),
    ("node.label.k and node.yes", [True, False, True, False]),
    ("number(node.label.k)", [None, None, 7.0, None]),
    ("number(node.label.k) ?? 0 > 5", [False, False, True, False]),
    ('node.label.k matches "[a-z]+"', [True, False, False, True]),
    ('startswith(node.name, "n1")', [False, True, False, False]),
    ('node.label.k ?? "none"', ["red", "none", "7", "blue"]),
    ('split(node.name, "n")[1]', ["0", "1", "2", "3"]),
    ('lower(node.label.k) == "red"', [True, False, False, False]),
    ("if node.yes then node.a else node.m", [0.0, 50.0, 2.5, None]),
    ("if node.m > 10 then 1 else 2", [None, 1.0, 2.0, None]),
    ('(if node.yes then node.label.k else node.label.l) == "red"', [True, True, False, True]),
    ('node.label.k in (if node.yes then ["red", "7"] else ["blue"])', [True, False, True, True]),
    ('node.label.k in (if node.m > 10 then ["red"] else ["7"])', [False, False, True, False]),
    ('pod.label.k in (if node.yes then [node.label.k] else ["red"])', [True, True, False, True]),
    ('node.label.l in (if node.yes then [node.label.k, pod.label.l] else ["red"])', [False, True, True, True]),
    ('pod.label.l in (if node.yes then [pod.label.l] else ["red"])', [False] * 4),
    ('"red" in (if pod.m > 1 then ["red"] else ["blue"])', [False] * 4),
    ('"red" not in (if node.m > 10 then ["red"] else ["red"])', [True, False, False, True]),
    ("node.a in (if node.yes then [0, 1] else [1, 2])", [True, True, False, False]),
    ("node.a in (if node.m > 10 then [0, 1] else [2.5])", [None, True, True, None]),
    ("node.m in (if node.yes then [0] else [50, 1])", [None, True, True, None]),
    ("pod.x in (if node.yes then [node.m] else [2])", [None, True, False, True]),
    ("pod.x in (if pod.yes then [2] else [3])", [True] * 4),
    ("pod.x in (if pod.m > 1 then [2] else [3])", [None] * 4),
    ('(if node.yes then ["a", "b"] else [node.name])[0]', ["a", "n1", "a", "n3"]),
    ('(if pod.yes then split(node.name, "n") else ["x"])[1]', ["0", "1", "2", "3"]),
    ('(if not pod.yes then split(node.name, "n") else ["x", "y"])[1]', ["y"] * 4),
    ("[node.a, 7][0]", [0.0, 1.0, 2.5, -3.0]),
    ("[node.a, 7][1]", [7.0] * 4),
    ("[node.a, 7][2]", [None] * 4),
    ("(if node.yes then [node.a] else [7, 8])[1]", [None, 8.0, None, 8.0]),
    ("[node.name, node.label.k][1]", ["red", None, "7", "blue"]),
    ('length(if node.yes then ["a", "b"] else [])', [2.0, 0.0, 2.0, 0.0]),
    ("sum(i for i in (if node.yes then [1, 2] else [node.b]))", [3.0, 0.0, 3.0, 1.0]),
    ('count(i in (if node.yes then [node.label.k, "red"] else ["x"]) where i == "red")', [2.0, 0.0, 1.0, 0.0]),
    ('any(i is missing for i in (if node.yes then [node.label.l] else ["x"]))', [True, False, False, False]),
    ('split(node.label.k, "e") is missing', [False, True, False, False]),
    ('"red" in split(node.label.k, ",") ?? ["red"]', [True, True, False, False]),
    ('"x" in split(pod.label.l, ",") ?? ["x"]', [True] * 4),
    ('length(split(pod.label.l, ",") ?? [])', [0.0] * 4),
    ("node.a in [0, 2.5]", [True, False, True, False]),
    ("node.m in [0]", [None, False, True, None]),
    ("clamp(node.a, 0, 2)", [0.0, 1.0, 2.0, 0.0]),
    ("min(node.a, node.b, 1)", [0.0, 0.0, 1.0, -3.0]),
    ("max(node.a, node.m)", [None, 50.0, 2.5, None]),
    ("round(node.a)", [0.0, 1.0, 3.0, -3.0]),
    ("sqrt(node.a) ?? -1", [0.0, 1.0, math.sqrt(2.5), -1.0]),
    ("log(node.a) is missing", [True, False, False, True]),
    ("pod.x > 1 and pod.yes", [True] * 4),
    ("pod.m ?? 3", [3.0] * 4),
    ("pod.m > 1 or node.yes", [True, None, True, None]),
    ("pod.m > 1 and node.yes", [None, False, None, False]),
    ("not (pod.m > 1)", [None] * 4),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_an_expression_gives_the_expected_value_on_each_node(text: str, expected: list[Any]) -> None:
    assert expected == value_of(text, ROWS)


@pytest.mark.parametrize(
    ("items", "test", "expected"),
    [
        ('[node.label.k, "x"]', "pod.label.k in items", [True, False, False, False]),
        ("[node.a, node.b]", "pod.x / 2 in items", [False, True, False, True]),
        ('if node.yes then ["red"] else [node.label.l]', "node.label.k in items", [True, False, False, False]),
        ("[node.label.k, node.name]", "items[1]", ["n0", "n1", "n2", "n3"]),
        ("[node.a, node.b]", "max(i for i in items)", [4.0, 1.0, 2.5, 1.0]),
    ],
)
def test_a_list_with_a_name_is_the_same_list(items: str, test: str, expected: list[Any]) -> None:
    file, found = parse(Source("t.policy", f"let items = {items}\nlet x = {test}"))
    assert not found
    inference = Inference(ENVIRONMENT)
    lists, tree = file.statements
    assert isinstance(lists, syntax.Let)
    assert isinstance(tree, syntax.Let)
    inference.definitions["items"] = Definition(lists)
    value = inference.infer_root(tree.value, ANYWHERE)
    assert not inference.found, "\n".join(map(render, inference.found))
    result = Compiler(ENVIRONMENT.pods).compile(value)(ROWS)

    assert [plain(result, value.info, row) for row in range(ROWS.size)] == expected


# --- missing values: every operator, every combination ---------------------------------------------------

T, M, F = True, None, False
_TRUTHS = {T: "(1 < 2)", M: "(node.m < 1)", F: "(1 > 2)"}
_MISSING = Table(nodes={"m": [None], "a": [1.0]}, pod={"m": None})
KLEENE = [
    ("and", {(T, T): T, (T, M): M, (T, F): F, (M, M): M, (M, F): F, (F, F): F}),
    ("or", {(T, T): T, (T, M): T, (T, F): T, (M, M): M, (M, F): M, (F, F): F}),
    ("==", {(T, T): T, (T, M): M, (T, F): F, (M, M): M, (M, F): M, (F, F): T}),
    ("!=", {(T, T): F, (T, M): M, (T, F): T, (M, M): M, (M, F): M, (F, F): F}),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{_TRUTHS[pair[0]]} {operator} {_TRUTHS[pair[1]]}", result)
        for operator, table in KLEENE
        for given_pair, result in table.items()
        for pair in dict.fromkeys((given_pair, given_pair[::-1]))
    ],
)
def test_truth_follows_the_three_valued_tables(text: str, expected: bool | None) -> None:
    assert [expected] == value_of(text, _MISSING)


@pytest.mark.parametrize(("text", "expected"), [("not (node.m < 1)", M), ("not (1 < 2)", F), ("not (1 > 2)", T)])
def test_not_missing_is_missing(text: str, expected: bool | None) -> None:
    assert [expected] == value_of(text, _MISSING)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("sides", ["node.m {} 1", "1 {} node.m", "node.m {} node.m", "pod.m {} 1", "node.a {} pod.m"])
def test_arithmetic_and_comparison_with_a_missing_number_are_missing(operator: str, sides: str) -> None:
    assert value_of(sides.format(operator), _MISSING) == [None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if node.m < 1 then 1 else 2", None),
        ("if 1 < 2 then node.m else 2", None),
        ("if 1 > 2 then node.m else 2", 2.0),
        ("node.m ?? node.m", None),
        ("node.m ?? 1", 1.0),
        ("clamp(node.m, 0, 1)", None),
        ("clamp(node.a, node.m, 1)", None),
        ("clamp(node.a, 0, pod.m)", None),
        ("min(pod.m, 1)", None),
        ("max(1, pod.m)", None),
        ("abs(pod.m)", None),
        ("round(pod.m)", None),
    ],
)
def test_what_a_missing_value_does_in_functions_and_choices(text: str, expected: float | None) -> None:
    assert [expected] == value_of(text, _MISSING)


def test_a_number_too_large_is_missing_not_infinite() -> None:
    table = Table(nodes={"m": [1e100, 2.0]}, pod={})

    assert value_of("node.m * node.m * node.m * node.m", table) == [None, 16.0]


# --- the law ---------------------------------------------------------------------------------------------

_leaves = {
    "number": ["node.a", "node.b", "node.m", "pod.x", "pod.m", "0", "1", "2.5", "500m", "number(node.label.k)"],
    "truth": [
        "node.yes",
        "pod.yes",
        "true",
        "false",
        "(label k)",
        "(label k=red)",
        "(pod label k)",
        "(label l in (red, x))",
    ],
    "text": ["node.name", "node.label.k", "node.label.l", "pod.label.k", "pod.label.l", '"red"', '"7"'],
    "list": ['["red", "7"]', "[node.label.k]", '[pod.label.l, "x"]', 'split(node.name, "N")', "[]"],
}


def _grow(kind: str, depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(_leaves[kind])
    if depth == 0:
        return leaf
    number, truth, text, items = (_grow(k, depth - 1) for k in ("number", "truth", "text", "list"))
    same = _grow(kind, depth - 1)
    choices = [leaf, st.tuples(truth, same, same).map(lambda t: f"(if {t[0]} then {t[1]} else {t[2]})")]
    if kind == "number":
        choices += [
            st.tuples(number, st.sampled_from("+-*/%"), number).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(number, number).map(lambda t: f"(({t[0]} / {t[1]}) ?? {t[0]})"),
            st.tuples(number, number, number).map(lambda t: f"clamp({t[0]}, {t[1]}, {t[2]})"),
            st.tuples(number, number).map(lambda t: f"max({t[0]}, {t[1]})"),
            number.map(lambda n: f"(-{n})"),
            number.map(lambda n: f"sqrt({n})"),
            text.map(lambda t: f"length({t})"),
            items.map(lambda t: f"length({t})"),
        ]
    elif kind == "truth":
        compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
        choices += [
            st.tuples(number, compare, number).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(text, st.sampled_from(["==", "!="]), text).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(truth, st.sampled_from(["and", "or", "==", "!="]), truth).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            truth.map(lambda t: f"(not {t})"),
            st.one_of(number, truth, text, items).map(lambda t: f"(({t}) is missing)"),
            st.tuples(text, items).map(lambda t: f"({t[0]} in {t[1]})"),
            st.tuples(number, truth, number, number).map(
                lambda t: f"({t[0]} in (if {t[1]} then [{t[2]}, 1] else [{t[3]}]))"
            ),
            st.tuples(text, text, text).map(lambda t: f'({t[0]} in [{t[1]}, {t[2]}, "blue"])'),
            st.tuples(number, number).map(lambda t: f"({t[0]} not in [{t[1]}, 1])"),
            st.tuples(number, truth).map(lambda t: f"(({t[0]} < 1 / node.a) ?? {t[1]})"),
            st.tuples(text, text).map(lambda t: f"startswith({t[0]}, {t[1]})"),
        ]
    elif kind == "list":
        choices += [
            st.tuples(text, text).map(lambda t: f"[{t[0]}, {t[1]}]"),
            st.tuples(items, items).map(lambda t: f"({t[0]} ?? {t[1]})"),
            text.map(lambda t: f'split({t}, "e")'),
        ]
    else:
        choices += [text.map(lambda t: f"lower({t})"), items.map(lambda t: f"{t}[1]")]
    return st.one_of(choices)


_some = st.one_of(st.none(), st.sampled_from([0.0, 1.0, -1.0, 2.5, 50.0]))
_word = st.one_of(st.none(), st.sampled_from(["red", "blue", "7", "x"]))


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    size = draw(st.integers(1, 5))
    known = st.sampled_from([0.0, 1.0, -1.0, 2.5, 50.0])

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size))

    nodes = {
        "a": column(known),
        "b": column(known),
        "m": column(_some),
        "yes": column(st.booleans()),
        "name": [f"N{i}" for i in range(size)],
        "label k": column(_word),
        "label l": column(_word),
    }
    pod = {
        "x": draw(known),
        "m": draw(_some),
        "yes": draw(st.booleans()),
        "label k": draw(_word),
        "label l": draw(_word),
    }
    return Table(nodes, pod)


@given(st.one_of(_grow("truth", 3), _grow("number", 3)), _tables())
def test_columns_and_one_node_at_a_time_agree(text: str, table: Table) -> None:
    value, inference = infer(text)
    assume({d.code for d in inference.found} != {"P0118"})  # a default that is never used
    assert not inference.found, "\n".join(map(render, inference.found))
    result = Compiler(ENVIRONMENT.pods).compile(value)(table)

    for row in range(table.size):
        expected, got = evaluate(value, table, row), plain(result, value.info, row)
        same = expected == got or (isinstance(expected, float) and math.isclose(expected, got, rel_tol=1e-9))
        assert same, (text, row, expected, got)
        assert expected is not None or value.info.maybe, "what can't be missing was missing"
        if isinstance(expected, float) and value.info.type.kind.value == "number":
            assert value.info.low <= expected <= value.info.high, "outside its bounds"


@given(_grow("truth", 3), _tables())
def test_the_number_of_rows_looked_at_does_not_matter(text: str, table: Table) -> None:
    whole = value_of_any(text, table)

    for row in range(table.size):
        single = Table({path: [column[row]] for path, column in table.nodes.items()}, table.pod)
        assert value_of_any(text, single) == [whole[row]]


@given(st.one_of(_grow("truth", 3), _grow("number", 3), _grow("text", 3)), _tables())
def test_one_row_gives_what_columns_give_bit_by_bit(text: str, table: Table) -> None:
    assume(not infer(text)[1].found)
    same_by_row(text, table)


@pytest.mark.parametrize("text", [text for text, _ in CASES])
def test_one_row_gives_what_columns_give(text: str) -> None:
    same_by_row(text, ROWS)


LARGE = [1.7976931348623157e308, -1.75e308, 5e-324, 0.1, -0.0, 1e200, 2.0**53 + 2, 3.0]


@given(
    st.sampled_from(["node.m + node.a", "node.a - node.m", "node.a * node.b", "node.a / node.b", "node.a % node.b"]),
    st.lists(st.tuples(*[st.sampled_from(LARGE)] * 3), min_size=1, max_size=4),
)
def test_one_row_gives_what_columns_give_where_numbers_overflow(text: str, rows: list[tuple[float, ...]]) -> None:
    columns = dict(zip(("a", "b", "m"), map(list, zip(*rows, strict=True)), strict=True))
    same_by_row(f"({text}) * 10 - node.b", Table({**ROWS.nodes, **columns}, ROWS.pod))


def same_by_row(text: str, table: Table) -> None:
    """Fail where an expression differs between a table and each of its rows."""
    value, inference = infer(text)
    assert not inference.found
    compiler = Compiler(ENVIRONMENT.pods)
    whole, one_row = compiler.compile(value)(table), OneRow(compiler).compile(value)
    for row in range(table.size):
        single = Table({path: [column[row]] for path, column in table.nodes.items()}, table.pod)
        got = one_row(single)
        assert not isinstance(got, np.ndarray)
        assert not hasattr(got, "codes")
        assert repr(plain(got, value.info, 0)) == repr(plain(whole, value.info, row)), (text, row)


def value_of_any(text: str, table: Table) -> list[Any]:
    value, inference = infer(text)
    assume(not inference.found)
    result = Compiler(ENVIRONMENT.pods).compile(value)(table)
    return [plain(result, value.info, row) for row in range(table.size)]


def test_the_reference_itself_keeps_kleenes_laws() -> None:
    for (first, x), (second, y) in itertools.product(_TRUTHS.items(), repeat=2):
        both, _ = infer(f"{x} and {y}")
        neither, _ = infer(f"not (not {x} or not {y})")

        assert evaluate(both, _MISSING, 0) is evaluate(neither, _MISSING, 0), (first, second)
