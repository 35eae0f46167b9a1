"""Cases about a queue: in which order pods that wait together would be decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tooling.tester.command_line import Folder

POLICY = """\
hold if pod.label.gate == "shut" else "the gate is shut"
order by pod.label.tier == "gold" desc, pod.priority desc, pod.queued
filter node.ready
"""
SUITE = """\
policy: spread.policy
nodes: [{name: a1, cpu: 4}]
templates:
  gold: {labels: {tier: gold}}
cases:
- name: the case
"""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return Folder(tmp_path, capsys)


def case(queue: str, expect: str, more: str = "") -> str:
    return f"{SUITE}  queue: {queue}\n  expect: {expect}\n{more}"


HOLDS = [
    ("[{pod: {name: plain}, queued: 1h}, {pod: gold}]", "{turns: [gold, plain]}"),
    ("[{pod: gold}, {pod: {from: gold, name: older}, queued: 5s}]", "{turns: [older, gold]}"),
    ("[{pod: {name: a}, queued: 3s}, {pod: {name: b, priority: 1}}, {pod: gold}]", "{turns: [gold, a]}"),
    ("[{pod: gold, queued: 1s}, {pod: gold}]", "{turns: [gold, gold-1]}"),
]


@pytest.mark.parametrize(("queue", "expect"), HOLDS, ids=[expect for _, expect in HOLDS])
def test_the_order_that_a_policy_gives_holds(folder: Folder, queue: str, expect: str) -> None:
    assert folder.suite(case(queue, expect), policy=POLICY).code == 0


FAILS = [
    ("[{pod: {name: plain}, queued: 1h}, {pod: gold}]", "{turns: [plain, gold]}", "got       gold, plain"),
    ("[{pod: {name: x}}, {pod: {name: y}}]", "{turns: [x, y]}", "x and y are equal: the arrival order decides"),
    ("[{pod: {name: x, labels: {gate: shut}}}, {pod: gold}]", "{turns: [gold, x]}", "x is held: the gate is shut"),
]


@pytest.mark.parametrize(("queue", "expect", "told"), FAILS, ids=[told for *_, told in FAILS])
def test_another_order_fails_with_what_each_pod_says(folder: Folder, queue: str, expect: str, told: str) -> None:
    ended = folder.suite(case(queue, expect), policy=POLICY)
    assert ended.code == 1
    assert told in ended.out
    assert "pod.label.tier: " in ended.out


def test_a_tie_in_the_queue_passes_if_the_test_expects_it(folder: Folder) -> None:
    text = case("[{pod: {name: x}}, {pod: {name: y}}]", "{turns: [x, y]}", more="  tie: ok\n")
    assert folder.suite(text, policy=POLICY).code == 0


WRONG = [
    (case("[{pod: gold}, {pod: {name: x}}]", "{turns: [gold, xx]}"), "did you mean `x`?"),
    (case("[{pod: gold}, {pod: {name: x}}]", "{node: a1}"), "a `queue` decides nothing"),
    (f"{SUITE}  pod: gold\n  expect: {{turns: [gold, gold-1]}}\n", "`turns` requires a `queue`"),
    (case("[{pod: gold}]", "{turns: [gold, gold]}"), "expected at least 2 items"),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[told for _, told in WRONG])
def test_invalid_expectations_are_errors(folder: Folder, text: str, told: str) -> None:
    ended = folder.suite(text, policy=POLICY)
    assert (ended.code, ended.out.splitlines()[-1]) == (2, "0 passed, 0 failed, 0 skipped, 1 file could not be used")
    assert told in ended.err


def test_coverage_and_mutants_count_the_order(folder: Folder) -> None:
    policy = 'order by pod.label.tier == "gold" desc, pod.priority desc\n'
    decided = f"{SUITE}  tie: ok\n  pod: gold\n  expect: {{node: a1}}\n"
    assert "clauses 0/1" in folder.suite(decided, "--coverage", policy=policy).out
    queued = (
        case("[{pod: {name: x}}, {pod: gold}]", "{turns: [gold, x]}")
        + "- name: priority\n  queue: [{pod: {name: x}}, {pod: {name: y, priority: 1}}]\n  expect: {turns: [y, x]}\n"
    )
    assert "clauses 1/1" in folder.suite(queued, "--coverage", policy=policy).out
    mutated = folder.suite(queued, "--mutate", "--threshold", "100", policy=policy)
    assert mutated.code == 0, mutated.out
