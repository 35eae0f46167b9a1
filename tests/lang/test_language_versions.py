"""The versions of the language: a policy of an older version decides as it did, before and after its upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang import syntax
from kube_policy_scheduler.lang.formatting.format import Formatted, format_source
from kube_policy_scheduler.lang.language_versions import NEWEST, VERSIONS
from kube_policy_scheduler.lang.reading.parse import parse
from tests.lang.clusters import cluster, decide, feasible, node, place, pod, policy, policy_set
from tests.lang.strategies import programs
from tests.lang.texts import checked, codes

WEB, SPREAD = {"app": "web"}, "spread by pod.label.app over zone max skew 1"
TAINT = {"taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]}
OLD = [
    SPREAD,
    f"filter label pool=web\n{SPREAD}",
    'spread by pod.label.app over zone max skew 2 min domains 3 else "full"',
    f"{SPREAD} counting tainted nodes",
    f"use kubernetes without TaintToleration\n{SPREAD} if pod label app",
    "spread by pod.label.app over zone\nspread by pod.label.app max skew 1",
]


def upgraded(text: str) -> str:
    result = format_source(Source("test.policy", text), upgrade=True)
    assert isinstance(result, Formatted), result
    return result.text


@st.composite
def clusters(draw: DrawFn) -> Cluster:
    made = cluster(
        *(
            node(
                f"n{number}",
                zone=draw(st.sampled_from("abc")),
                labels={"pool": draw(st.sampled_from(["web", "batch"]))},
                spec=draw(st.sampled_from([{}, {}, TAINT, {"unschedulable": True}])),
            )
            for number in range(draw(st.integers(1, 6)))
        )
    )
    names = st.sampled_from([made.nodes.names[row] for row in range(len(made.nodes.names))])
    place(made, [(name, WEB) for name in draw(st.lists(names, max_size=6))])
    return made


@given(clusters(), st.sampled_from(OLD))
def test_a_policy_decides_the_same_in_its_own_version_and_upgraded(nodes: Cluster, text: str) -> None:
    old, new = policy(f"language 1\n{text}"), policy(upgraded(f"language 1\n{text}"))
    waiting = pod(nodes, "p", labels=WEB)

    before, after = decide(old, waiting, nodes), decide(new, waiting, nodes)

    assert feasible(before, nodes) == feasible(after, nodes)
    assert before.totals.tolist() == after.totals.tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SPREAD, ["a", "b"]),
        (f"language {NEWEST}\n{SPREAD}", ["a", "b"]),
        (f"language 1\n{SPREAD}", []),
        (f"language 1\n{SPREAD} counting filtered nodes", ["a", "b"]),
    ],
)
def test_a_hard_spread_of_version_1_counts_zones_that_the_pod_cannot_use(text: str, expected: list[str]) -> None:
    nodes = cluster(node("a", zone="a"), node("b", zone="b"), node("c", zone="c", spec=TAINT))
    place(nodes, [("a", WEB), ("b", WEB)])

    assert feasible(decide(policy(text), pod(nodes, "p", labels=WEB), nodes), nodes) == expected


def test_a_file_that_others_include_has_its_own_version() -> None:
    nodes = cluster(node("a", zone="a"), node("b", zone="b", spec=TAINT))
    place(nodes, [("a", WEB)])
    waiting = pod(nodes, "p", labels=WEB)
    own, included = 'language 2\nuse "b.policy"', f"language 1\n{SPREAD}"

    assert feasible(decide(policy_set(own, included).policies[0], waiting, nodes), nodes) == []
    assert feasible(decide(policy_set(own, SPREAD).policies[0], waiting, nodes), nodes) == ["a"]


@given(programs())
def test_an_upgrade_is_done_once_and_keeps_all_other_statements(text: str) -> None:
    before, _ = parse(Source("test.policy", text))
    after = upgraded(text)
    file, problems = parse(Source("test.policy", after))

    assert not problems
    assert upgraded(after) == after
    assert len(file.comments) == len(before.comments)
    assert len(file.statements) == len(before.statements)
    for old, new in zip(before.statements, file.statements, strict=True):
        assert old == new or isinstance(new, syntax.Language | syntax.Spread)


def test_the_table_has_every_version_and_the_page_says_what_changed_in_each() -> None:
    page = (Path(__file__).parents[2] / "policies" / "VERSIONS.md").read_text(encoding="utf-8")

    assert [version.number for version in VERSIONS] == list(range(1, NEWEST + 1))
    assert [f"| {version.number} | {version.changed} |" in page for version in VERSIONS] == [True] * NEWEST


def test_a_policy_without_a_version_is_of_the_newest() -> None:
    assert upgraded(f"{SPREAD}\n") == f"{SPREAD}\n"
    assert codes(SPREAD) == codes(f"language {NEWEST}\n{SPREAD}") == []


def test_an_error_in_a_rewritten_statement_is_where_it_was_written() -> None:
    found = checked("language 1\nspread by pod.label.app max skew 0\n").diagnostics

    assert [(each.code, each.span.text) for each in found] == [("P0207", "0")]
