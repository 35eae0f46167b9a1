"""Lint as people use it: suppressions, fixes, what is left out."""

from __future__ import annotations

import pytest

from engine.diagnostics import Source
from engine.lang.load import check_sources
from engine.lint.runner import lint, rules
from tests.lang.texts import ENVIRONMENT, codes

ALWAYS = "filter node.requested.cpu >= 0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ALWAYS, ["P0302"]),
        (f"# policy: ignore P0302 because it documents\n{ALWAYS}", []),
        (f"{ALWAYS}  # policy: ignore P0302 because it documents", []),
        (f"# POLICY: IGNORE p0302 BECAUSE it documents\n{ALWAYS}", []),
        (f"# policy: ignore P0303, P0302 because it documents\n{ALWAYS}", ["P0503"]),
        (f"# policy: ignore P0303 because it documents\n{ALWAYS}", ["P0503", "P0302"]),
        (f"# policy: ignore P0302 because it documents\nfilter node.ready\n{ALWAYS}", ["P0503", "P0302"]),
        (f"# policy: ignore P0302\n{ALWAYS}", ["P0502"]),
        (f"# policy: ignore P9999 because it documents\n{ALWAYS}", ["P0501", "P0302"]),
        (f"# policy: whatever\n{ALWAYS}", ["P0501", "P0302"]),
        (f"# our policy: never\n{ALWAYS}", ["P0302"]),
    ],
)
def test_a_warning_is_taken_back_for_one_statement_with_a_reason(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_where_there_are_errors_only_what_is_written_is_looked_at() -> None:
    text = f'{ALWAYS}\nfilter node.redy\nscore promql("sum by (node") ?? 0'
    broken = check_sources([Source("a.policy", text)], ENVIRONMENT)

    assert [diagnostic.code for diagnostic in lint(broken)] == ["P0361"]


def test_selected_rules_run_alone() -> None:
    both = f"let x = 1\n{ALWAYS}"

    assert codes(both, select={"P0308"}) == ["P0308"]


def test_rules_are_in_order_and_their_names_read_after_allow() -> None:
    ids = [rule.code.id for rule in rules()]

    assert ids == sorted(ids)
    assert not [rule.code.name for rule in rules() if rule.code.name.startswith(("no-", "disallow-"))]


CLEAN = [
    'filter node.ready and fits(cpu, mem)\nscore 2 * (100 - promql("cpu_usage") ?? 50)\nscore -1 if label node=hello\n'
    "spread by pod.label.tenant",
    "filter node.free.cpu > 2\nfilter node.free.mem > 2Gi",
    "filter label a=b if pod.label.x\nfilter label a=c if not pod.label.x",
    'filter node.zone != "a"\nfilter node.zone != "b"',
    "score node.free.cpu if label a=b\nscore node.free.cpu if label a=c",
]


@pytest.mark.parametrize("text", CLEAN)
def test_good_policies_are_left_alone(text: str) -> None:
    assert codes(text) == []
