"""A test must not pass by accident: what a file says wrongly is an error with its place, never a success."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.tooling.tester.results import State
from tests.tooling.tester.plain_policies import run_text, shown

GOOD = """\
policy: x.policy
nodes:
- {name: a1, zone: a, cpu: 4, mem: 16Gi}
- {name: b1, zone: b, cpu: 4, mem: 16Gi}
pods:
- {node: a1, cpu: 1, count: 2}
metrics:
  cpu_usage: {a1: 90, b1: 10}
templates:
  small: {cpu: 500m, labels: {tenant: t1}}
cases:
- name: hot node loses
  pod: small
  expect: {node: b1}
- name: at night too
  now: 2026-11-21T23:00:00Z
  pod: {from: small, cpu: 1}
  expect: {node: b1}
"""

GUARDS = [
    (
        "unknown key",
        "  pod: small\n",
        "  pod: small\n  expct: {node: a1}\n",
        "unknown key `expct` in cases[0]",
        "`expect`",
    ),
    ("unknown expectation", "{node: b1}", "{nodee: b1}", "unknown key `nodee` in cases[0].expect", "`node`"),
    ("no assertion", "expect: {node: b1}", "expect: {}", "expected at least one expectation", ""),
    ("no expect at all", "  expect: {node: b1}\n-", "-", "key `expect` is missing in cases[0]", ""),
    ("no cases", GOOD[GOOD.index("cases:") :], "cases: []", "expected a list with at least one case", ""),
    ("same name twice", "at night too", "hot node loses", "two cases are named `hot node loses`", ""),
    ("duplicate key", "  pod: small\n", "  pod: small\n  pod: small\n", "key `pod` stands here a second time", ""),
    ("unknown node", "{node: b1}", "{node: b11}", "unknown node `b11`", "did you mean `b1`?"),
    ("unknown node in a list", "{node: b1}", "{node_in: [b1, b9]}", "unknown node `b9`", "`b1`"),
    ("unknown node in scores", "{node: b1}", "{scores: {q7: 1}}", "unknown node `q7`", "known are: a1, b1"),
    ("no such zone", "{node: b1}", "{node: {zone: z}}", "no node of the test has zone z", ""),
    ("unknown template", "pod: small", "pod: smal", "unknown template `smal`", "did you mean `small`?"),
    ("template of itself", "small: {cpu", "small: {from: small, cpu", "template `small` is made from itself", ""),
    (
        "unknown clause",
        "{node: b1}",
        "{filtered: {a1: {clause: node.redy}}}",
        "has no clause `node.redy`",
        "`node.ready`",
    ),
    (
        "metric that is not given",
        "cpu_usage: {a1: 90, b1: 10}",
        "series: {}",
        "no series for `cpu_usage`",
        "absent",
    ),
    ("metric that nobody reads", "cpu_usage:", "cpu_usge:", "no policy reads the metric `cpu_usge`", "`cpu_usage`"),
    ("expected metric", "{node: b1}", "{degraded: [mem]}", "no policy reads the metric `mem`", "cpu_usage"),
    ("metric of no node", "{a1: 90, b1: 10}", "{a1: 90, b11: 1}", "unknown node `b11`", "`b1`"),
    ("not a series", "cpu_usage: {a1: 90, b1: 10}", "series: {'rate(x[5m])': 1}", "is not a series", ""),
    ("pod nowhere", "{node: a1, cpu: 1, count: 2}", "{cpu: 1}", "a pod in `pods` needs `node`", "waits"),
    ("pod on no node", "{node: a1, cpu", "{node: a2, cpu", "unknown node `a2`", "`a1`"),
    (
        "other scheduler",
        "pod: small",
        "pod: {scheduler: other}",
        "no policy governs the pod: its scheduler is `other`",
        "",
    ),
    ("bad quantity", "cpu: 500m", "cpu: 500mm", "expected a quantity such as 500m, 2 or 4Gi, got 500mm", ""),
    ("bad time", "T23:00:00Z", " 23:00", "expected a time in UTC", ""),
    ("bad taint", "{name: a1,", "{name: a1, taints: [gpu],", "'gpu' is not a taint", ""),
    ("bad comparison", "{node: b1}", "{margin: about 5}", "expected a number, a comparison", ""),
    ("bad regular expression", "{node: b1}", "{unschedulable: {message: /(/}}", "not a regular expression", ""),
    ("bad priority class", "pod: small", "pod: {spec: {priorityClassName: x}}", "x", ""),
    ("bad field of Kubernetes", "pod: small", "pod: {spec: {nodeSelector: [1]}}", "expected object", ""),
]


@pytest.mark.parametrize(("name", "old", "new", "message", "advice"), GUARDS, ids=[row[0] for row in GUARDS])
def test_is_an_error_with_its_place(name: str, old: str, new: str, message: str, advice: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        run_text(GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert text.startswith("t.yaml:")
    assert message in text
    assert advice in text


def test_the_file_without_these_mistakes_passes() -> None:
    assert [result.state for result in run_text(GOOD).cases] == [State.PASSED, State.PASSED]


def test_all_mistakes_are_reported_at_once() -> None:
    bad = GOOD.replace("{node: b1}", "{node: b11}").replace("a1: 90", "a11: 90")
    with pytest.raises(DocumentError) as caught:
        run_text(bad)
    assert len(caught.value.diagnostics) == 3


def test_skipped_cases_are_counted_and_still_checked() -> None:
    skipped = GOOD.replace("  pod: small\n", "  pod: small\n  skip: until there is a second zone\n")
    result = run_text(skipped)
    assert shown(result).splitlines() == [
        "SKIP t.yaml › hot node loses: until there is a second zone",
        "PASS t.yaml › at night too",
        "1 passed, 0 failed, 1 skipped",
    ]
    with pytest.raises(DocumentError, match="unknown node"):
        run_text(skipped.replace("{node: b1}", "{node: b11}"))


def test_a_failure_shows_place_expected_and_got() -> None:
    text = shown(run_text(GOOD.replace("expect: {node: b1}", "expect: {node: a1, scores: {a1: 11}}", 1)))
    assert text.splitlines() == [
        "FAIL t.yaml › hot node loses",
        "  t.yaml:14: node",
        "    expected  a1",
        "    got       b1 (score 90, next a1 10)",
        "  t.yaml:14: scores a1",
        "    expected  11",
        "    got       10",
        "PASS t.yaml › at night too",
        "1 passed, 1 failed, 0 skipped",
    ]
