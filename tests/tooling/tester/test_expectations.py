"""What each key of `expect` accepts, and what it says when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.tooling.tester.run import State
from tests.tooling.suites import suite
from tests.tooling.tester.plain_policies import run_text

HEAD = """
policy: x.policy
nodes:
- {name: a1, zone: a, cpu: 4, mem: 16Gi, labels: {disk: ssd}}
- {name: b1, zone: b, cpu: 4, mem: 16Gi}
- {name: b2, zone: b, cpu: 2, mem: 16Gi}
- {name: c1, zone: c, cpu: 4, mem: 16Gi, ready: false}
- {name: d1, zone: d, cpu: 4, mem: 16Gi, taints: ['team=red:NoSchedule']}
metrics:
  cpu_usage: {a1: 90, b1: 10, b2: 30, c1: 0, d1: 0}
cases:
- name: the case
"""

HOLDS = [
    "node: b1",
    "node: {zone: b}",
    "node: {zone: b, ready: true}",
    "node_in: [b1, b2]",
    "not_on: [a1, c1]",
    "not_on: a1",
    "not_on: {labels: {disk: ssd}}",
    "schedulable: true",
    "feasible: [a1, b2, b1]",
    "filtered: {c1: {clause: node.ready}}",
    "filtered: {c1: {message: '/^node[[:punct:]]ready is (tru|fals)e$/'}}",
    "filtered: {c1: {message: is false}, d1: {clause: TaintToleration, message: /untolerated/}}",
    "scores: {b1: 90, b2: '>= 70', a1: '10.4 ± 0.5'}",
    "order: [b1, b2, a1]",
    "margin: 20",
    "margin: '> 19'",
    "degraded: []",
]

DOES_NOT_HOLD = [
    ("node: a1", "a1", "b1 (score 90, next b2 70)"),
    ("node: {zone: a}", "zone a", "b1 (score 90, next b2 70)"),
    ("node_in: [a1, b2]", "a1 or b2", "b1 (score 90, next b2 70)"),
    ("not_on: b1", "not b1", "b1 (score 90, next b2 70)"),
    ("schedulable: false", "unschedulable", "b1 (score 90, next b2 70)"),
    ("unschedulable: {clause: node.ready}", "unschedulable: clause node.ready", "b1 (score 90, next b2 70)"),
    ("feasible: [b1]", "b1", "a1, b1, b2"),
    ("feasible: [a1, b1, b2, c1]", "a1, b1, b2, c1", "a1, b1, b2; c1 filtered by node.ready (node.ready is false)"),
    ("filtered: {a1: {clause: node.ready}}", "a1 filtered by clause node.ready", "a1 passes every filter"),
    (
        "filtered: {c1: {clause: TaintToleration}}",
        "c1 filtered by clause TaintToleration",
        "c1 filtered by node.ready (node.ready is false)",
    ),
    ("scores: {b1: 91}", "91", "90"),
    ("scores: {c1: 91}", "91", "c1 filtered by node.ready (node.ready is false)"),
    ("order: [b2, b1]", "b2 > b1", "b1 90, b2 70"),
    ("order: [b1, c1]", "b1 > c1", "c1 filtered by node.ready (node.ready is false)"),
    ("margin: '> 20'", "> 20", "20"),
    ("degraded: [cpu_usage]", "cpu_usage", "none"),
]


def case(expect: str, pod: str = "{cpu: 500m}") -> str:
    return f"{HEAD}  pod: {pod}\n  expect:\n    {expect}\n"


@pytest.mark.parametrize("expect", HOLDS)
def test_holds(expect: str) -> None:
    (result,) = run_text(case(expect)).cases
    assert (result.state, result.failures) == (State.PASSED, ())


@pytest.mark.parametrize(("expect", "expected", "got"), DOES_NOT_HOLD, ids=[row[0] for row in DOES_NOT_HOLD])
def test_does_not_hold(expect: str, expected: str, got: str) -> None:
    (result,) = run_text(case(expect)).cases
    assert [(f.mismatch.expected, f.mismatch.got) for f in result.failures] == [(expected, got)]
    assert result.state is State.FAILED


class TestAPodThatGoesNowhere:
    """`unschedulable` wants the reason too, and a clause has to be the one that decides."""

    TOO_BIG = "{cpu: 5}"
    MUCH_TOO_BIG = "{cpu: 9}"

    @pytest.mark.parametrize(
        ("pod", "expect"),
        [
            (TOO_BIG, "unschedulable: {clause: NodeResourcesFit}"),
            (TOO_BIG, "unschedulable: {clause: NodeResourcesFit, message: Insufficient cpu}"),
            (TOO_BIG, "unschedulable: {message: /3 Insufficient cpu/}"),
            (TOO_BIG, "schedulable: false"),
            (TOO_BIG, "feasible: []"),
            (MUCH_TOO_BIG, "unschedulable: {clause: small, message: no pod is larger}"),
            (MUCH_TOO_BIG, "filtered: {a1: {clause: small}}"),
        ],
    )
    def test_holds(self, pod: str, expect: str) -> None:
        (result,) = run_text(case(expect, pod)).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    @pytest.mark.parametrize(
        ("pod", "expect"),
        [
            (TOO_BIG, "node: a1"),
            (TOO_BIG, "not_on: a1"),
            (TOO_BIG, "schedulable: true"),
            (TOO_BIG, "margin: 0"),
            (TOO_BIG, "unschedulable: {clause: small}"),
            (TOO_BIG, "unschedulable: {clause: NodeResourcesFit, message: memory}"),
            (TOO_BIG, "unschedulable: {message: memory}"),
        ],
    )
    def test_does_not_hold(self, pod: str, expect: str) -> None:
        (result,) = run_text(case(expect, pod)).cases
        assert result.state is State.FAILED


class TestAPodThatIsHeld:
    """It waits outside the active queue, and goes nowhere meanwhile."""

    HELD = "{cpu: 1, labels: {hold: x}}"

    @pytest.mark.parametrize(
        ("pod", "expect", "state"),
        [
            (HELD, "held: true", State.PASSED),
            (HELD, "held: until the label", State.PASSED),
            (HELD, "held: /gone$/", State.PASSED),
            (HELD, "schedulable: false", State.PASSED),
            (HELD, "held: something else", State.FAILED),
            (HELD, "held: false", State.FAILED),
            (HELD, "node: b1", State.FAILED),
            ("{cpu: 1}", "held: false", State.PASSED),
            ("{cpu: 1}", "held: true", State.FAILED),
            ("{cpu: 1}", "held: until", State.FAILED),
        ],
    )
    def test_says_so(self, pod: str, expect: str, state: State) -> None:
        (result,) = run_text(case(expect, pod)).cases
        assert result.state is state


@pytest.mark.parametrize(("evicts", "state"), [("[small]", State.PASSED), ("[]", State.FAILED)])
def test_evictions_are_named(evicts: str, state: State) -> None:
    there = "  pods:\n  - {name: small, node: b1, cpu: 3}\n  - {name: large, node: a1, cpu: 4, priority: 9}\n"
    there += "  - {name: other, node: b2, cpu: 2, priority: 9}\n"
    (result,) = run_text(case(f"evicts: {evicts}\n{there}", "{cpu: 3, priority: 5}")).cases
    assert result.state is state


QUEUES = """queue a for pods where pod.label.q == "a" max cpu 2
queue team by pod.label.team
filter true
"""


@pytest.mark.parametrize(
    ("expect", "state", "said"),
    [
        ("queue: {a: 2, 'team/red': 1}", State.PASSED, ""),
        ("queue: {a: '<= 2'}", State.PASSED, ""),
        ("queue: {a: 3}", State.FAILED, "expected 3, got 2"),
        ("queue: {'team/red': 0}", State.FAILED, "expected 0, got 1"),
        ("queue: {'team/blue': 0}", State.PASSED, ""),
        ("queue: {b: 1}", State.FAILED, "expected queue b, got there is no such queue: the queues are a, team/red"),
    ],
)
def test_pods_of_queues_are_counted(tmp_path: Path, expect: str, state: State, said: str) -> None:
    cases = f"""
- name: x
  pods: [{{name: one, node: n1, cpu: 1, labels: {{q: a}}}}, {{name: red, node: n1, cpu: 1, labels: {{team: red}}}}]
  sequence: {{pod: {{cpu: 1, labels: {{q: a}}}}, count: 2}}
  expect: {{{expect}}}
"""
    (result,) = suite(tmp_path, QUEUES, cases).run().results()
    assert result.state is state
    assert [f"expected {each.mismatch.expected}, got {each.mismatch.got}" for each in result.failures] == (
        [said] if said else []
    )


RACK = "gang by pod.label.job size 2 within one rack if pod.label.job is not missing\n"


@pytest.mark.parametrize(("domain", "state"), [("r1", State.PASSED), ("r2", State.FAILED)])
def test_the_domain_of_a_gang(tmp_path: Path, domain: str, state: State) -> None:
    nodes = "nodes: [{name: n1, cpu: 4, labels: {rack: r1}}, {name: n2, cpu: 1, labels: {rack: r2}}]"
    cases = f"- {{name: x, sequence: {{pod: {{cpu: 1, labels: {{job: j}}}}, count: 2}}, expect: {{domain: {domain}}}}}"
    (result,) = suite(tmp_path, RACK, cases, more=nodes).run().results()
    assert result.state is state
    if state is State.FAILED:
        assert {each.mismatch.expected for each in result.failures} == {"domain: r2"}
        assert all("r1" in each.mismatch.got for each in result.failures)


class TestTies:
    """A winner by tie-break would pass or fail by chance: it has to be admitted."""

    @pytest.mark.parametrize("metrics", ["{a1: 10, b1: 10, b2: 90}"])
    @pytest.mark.parametrize(
        ("expect", "state"),
        [
            ("node: a1", State.FAILED),
            ("node: b1", State.FAILED),
            ("not_on: a1", State.FAILED),
            ("node_in: [a1, b1]", State.PASSED),
            ("not_on: b2", State.PASSED),
            ("schedulable: true", State.PASSED),
            ("margin: 0", State.PASSED),
        ],
    )
    def test_an_expectation_must_hold_for_every_tied_node(self, expect: str, metrics: str, state: State) -> None:
        text = case(f"{expect}\n  metrics:\n    cpu_usage: {metrics}")
        (result,) = run_text(text).cases
        assert result.state is state

    def test_one_of_them_does_where_ties_are_admitted(self) -> None:
        text = case("node: NODE\n  tie: ok\n  metrics:\n    cpu_usage: {a1: 10, b1: 10, b2: 90}")
        states = {name: run_text(text.replace("NODE", name)).cases[0].state for name in ("a1", "b1")}
        assert sorted(state.value for state in states.values()) == ["fail", "pass"]

    def test_the_seed_decides_which(self) -> None:
        text = case("node: a1\n  tie: ok\n  metrics:\n    cpu_usage: {a1: 10, b1: 10, b2: 90}")
        won = {run_text(f"seed: {seed}\n{text}").cases[0].state for seed in range(20)}
        assert won == {State.PASSED, State.FAILED}


class TestMetrics:
    @pytest.mark.parametrize(
        ("metrics", "expect"),
        [
            ("cpu_usage: {a1: 1, b1: 2, b2: 3, c1: 4, d1: 5}", "degraded: []"),
            ("cpu_usage: {a1: 1}", "degraded: [cpu_usage]"),
            ("cpu_usage: 7", "scores: {a1: 93, b1: 93}"),
            ("cpu_usage: {a1: {value: 1, age: 90s}}", "scores: {a1: 99, b1: 50}"),
            ("cpu_usage: {a1: {value: 1, age: 5min}}", "scores: {a1: 50}"),
            ("cpu_usage: {value: 1, age: 5min}", "degraded: [cpu_usage]"),
            ("absent: [cpu_usage]", "scores: {a1: 50}\n    degraded: [cpu_usage]"),
        ],
    )
    def test_of_a_case_replace_those_of_the_file(self, metrics: str, expect: str) -> None:
        (result,) = run_text(case(f"{expect}\n  metrics:\n    {metrics}")).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    def test_may_be_given_as_series(self) -> None:
        series = (
            'series: {\'cpu_usage{instance="b2",job="x"}\': 1, \'cpu_usage{node="a1"}\': 2, \'other{node="b1"}\': 3}'
        )
        text = case("scores: {b2: 99, a1: 98, b1: 50}").replace(
            "cpu_usage: {a1: 90, b1: 10, b2: 30, c1: 0, d1: 0}", series
        )
        (result,) = run_text(text).cases
        assert (result.state, result.failures) == (State.PASSED, ())
