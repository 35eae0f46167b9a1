"""Filters whose conditions rule out that a value is missing need no `??`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.lang.checking.missing import missing_part
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from tests.lang.reference import Table, plain
from tests.lang.test_evaluation import ENVIRONMENT, infer
from tests.lang.texts import codes

LOAD = 'metric load = promql("x")\n'
FILLED = 'metric filled = promql("y") default 50\n'


@pytest.mark.parametrize(
    "filter_",
    [
        "load is missing or load < 40",
        "load < 40 or load is missing",
        "load is not missing and load < 40",
        "load < 40 if load is not missing",
        "not (load is missing) and load < 40",
        "if load is missing then node.ready else load < 40",
        "if load is not missing then load < 40 else node.ready",
        "load is missing or (node.ready and load < 40)",
        "load is missing or load + 1 < 40 or load * load > 9",
        "load is missing or load == 0 or 5 / load > 3",
        "node.used_fraction.cpu > 0 and 5 / node.used_fraction.cpu < 30",
        "0 < node.used_fraction.cpu and 5 / node.used_fraction.cpu < 30",
        'promql("a") is missing or promql("a") < 3',
        'node.free["a.b/c"] is missing or node.free["a.b/c"] > 3',
        "label size and length(node.label.size) > 3",
        "node.label.size is not missing and number(node.label.size) ?? 0 > 3",
        "known and load < 40",
        "predicted(filled, 5) < 40",
        "predicted(load ?? 50, 5) < 40",
        "load is missing or predicted(load, 5) < 40",
    ],
)
def test_a_filter_that_always_has_an_answer_is_accepted(filter_: str) -> None:
    given = f"{LOAD}{FILLED}let known = load is not missing\n"

    assert codes(f"{given}filter {filter_}", select={"P0111"}) == []


@pytest.mark.parametrize(
    "filter_",
    [
        "load < 40",
        "load is missing and load < 40",
        "load < 40 if load is missing",
        "load is not missing or load < 40",
        "load < 40 or node.ready",
        "load > 1 and load < 40",
        'load is missing or promql("y") < 40',
        "5 / load < 3 if load is not missing",
        "if load is missing then load < 40 else node.ready",
        "load >= 0 and 5 / node.used_fraction.cpu < 3",
        "node.used_fraction.cpu >= 0 and 5 / node.used_fraction.cpu < 3",
        "label size and number(node.label.size) > 3",
        "predicted(load, 5) < 40",
    ],
)
def test_a_filter_that_may_have_none_is_refused(filter_: str) -> None:
    assert codes(f"{LOAD}filter {filter_}") == ["P0111"]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("score load if load is not missing", []),
        ("score if load is missing then 5 else load", []),
        ("score load if load is missing", ["P0322"]),
        ("score 100 - load if label a=b", ["P0322"]),
    ],
)
def test_a_score_follows_its_condition(score: str, expected: list[str]) -> None:
    assert codes(LOAD + score, select={"P0322"}) == expected


def _conditions(depth: int = 3) -> st.SearchStrategy[str]:
    atoms = st.sampled_from(
        ["node.m is missing", "node.m is not missing", "node.m < 10", "node.m > 0", "pod.m > 1", "pod.m is missing",
         "1 / node.a < 3", "node.a != 0", "node.a > 0", "node.m / node.a < 2", "node.yes", "(node.m < 10) ?? true"]
    )  # fmt: skip
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda all_: f"({' and '.join(all_)})"),
            st.lists(inner, min_size=2, max_size=3).map(lambda all_: f"({' or '.join(all_)})"),
            inner.map(lambda one: f"not ({one})"),
            st.tuples(inner, inner, inner).map(lambda each: f"(if {each[0]} then {each[1]} else {each[2]})"),
        ),
        max_leaves=2**depth,
    )


_NUMBERS = [None, 0.0, 1.0, 20.0]
TABLE = Table(
    nodes={
        "m": [m for m in _NUMBERS for _ in range(6)],
        "a": [0.0, 1.0, -2.0] * 8,
        "yes": [True, True, True, False, False, False] * 4,
    },
    pod={"m": None},
)
OTHER = Table(nodes=TABLE.nodes, pod={"m": 2})


@given(_conditions())
def test_what_is_said_to_have_an_answer_has_one(condition: str) -> None:
    value, inference = infer(condition)
    assert not inference.found
    if missing_part(value) is None:
        for table in (TABLE, OTHER):
            result = Compiler(ENVIRONMENT.pods).compile(value)(table)
            answers: list[Any] = [plain(result, value.info, row) for row in range(table.size)]
            assert None not in answers
