"""PromQL inside policies: wrong queries are found, with the place inside the string; good ones are left alone."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.lang.reading.literals import quoted
from tests.lang.texts import said

GOOD = [
    "up",
    "node_load1{job='node'}",
    'rate(node_cpu_seconds_total{mode="idle"}[5m])',
    "avg by (node) (rate(x[5m]))",
    "avg(rate(x[5m])) by (instance)",
    "sum without (cpu) (x)",
    "topk(3, x)",
    "scalar(avg(x))",
    "max_over_time(rate(x[1m])[10m:1m])",
    "a / on (node) group_left b",
    "x offset 5m",
    "1 - x",
    'x{job=~"[[:alpha:]]+|(a+)+b"}',
    "sum(a) by (node) / sum(b) by (node)",
]
BAD = [
    ("sum by (node (x)", "P0361", "("),
    ('rate(x{mode="idle"}[5m]', "P0361", "("),
    ("x{", "P0361", "{"),
    ("x +", "P0361", "+"),
    ("avg(x) avg(y)", "P0361", "a"),
    ("x[5m]", "P0363", '"x[5m]"'),
    ("avg(x)", "P0362", '"avg(x)"'),
    ("sum by () (x)", "P0362", '"sum by () (x)"'),
    ('sum by (node) (rate(x{job=~"a{1001}"}[5m]))', "P0361", "a{1001}"),
    ('x / topk(2, y{a="b" or job!~"(?x)a"})', "P0361", "(?x)a"),
    ('"text"', "P0363", '"\\"text\\""'),
]


@pytest.mark.parametrize("query", GOOD)
def test_a_good_query_is_left_alone(query: str) -> None:
    assert [d for d in said(f"score promql({quoted(query)}) ?? 0") if d.code.startswith("P036")] == []


@pytest.mark.parametrize(("query", "code", "at"), BAD, ids=[query for query, _, _ in BAD])
def test_a_bad_query_is_an_error_with_its_place(query: str, code: str, at: str) -> None:
    found = [d for d in said(f"score promql({quoted(query)}) ?? 0") if d.code.startswith("P036")]

    assert [(d.code, d.severity.value, d.span.text) for d in found] == [(code, "error", at)]
