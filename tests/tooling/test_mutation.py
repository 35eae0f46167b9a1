"""Which small changes of a policy are tried, which are proved to change nothing, and which cases notice them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cli.coverage import mutated
from kube_policy_scheduler.cli.suites import LoadedSuite, load_suite
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.lang.reading.parse import parse
from kube_policy_scheduler.policy.policy_set import load
from kube_policy_scheduler.tooling.mutation.mutants import Mutant, mutants
from kube_policy_scheduler.tooling.mutation.report import kill_percent, lines
from kube_policy_scheduler.tooling.mutation.trial import MutantResult, MutantStatus
from kube_policy_scheduler.tooling.text_table import Terminal
from tests.shipped import POLICIES
from tests.tooling.suites import suite


def mutants_of(text: str) -> tuple[Mutant, ...]:
    file, diagnostics = parse(Source("p.policy", text))
    assert not diagnostics
    return mutants(file, environment().builtins)


CHANGES = [
    ("filter node.free.cpu > 2", "boundary", "filter node.free.cpu >= 2"),
    ("filter node.free.cpu > 2", "comparison", "filter node.free.cpu <= 2"),
    ("filter node.free.cpu > 2", "constant", "filter node.free.cpu > 4"),
    ("filter node.free.mem > 4Gi", "constant", "filter node.free.mem > 2Gi"),
    ("filter node.free.cpu > 0", "constant", "filter node.free.cpu > 1"),
    ('filter node.zone == "a"', "comparison", 'filter node.zone != "a"'),
    ('filter node.zone == "a"', "constant", 'filter node.zone == "a-other"'),
    ('filter node.zone in ["a"]', "comparison", 'filter node.zone not in ["a"]'),
    ('filter node.zone not in ["a"]', "comparison", 'filter node.zone in ["a"]'),
    ("filter node.ready and fits(cpu)", "logic", "filter node.ready or fits(cpu)"),
    ("filter node.ready or fits(cpu)", "logic", "filter node.ready and fits(cpu)"),
    ("filter node.ready and fits(cpu)", "operand", "filter fits(cpu)"),
    ("filter node.ready and fits(cpu)", "operand", "filter node.ready"),
    ("filter node.ready", "negation", "filter (not node.ready)"),
    ("filter not node.ready", "negation", "filter (node.ready)"),
    ("filter node.ready if pod.label.a", "condition", "filter node.ready if true"),
    ("filter node.ready", "clause", ""),
    ("filter label disk=ssd", "label", "filter label disk=ssd-other"),
    ("filter label disk=ssd", "label", "filter label disk-other=ssd"),
    ("filter label disk=ssd", "comparison", "filter label disk!=ssd"),
    ("filter label disk", "negation", "filter (not label disk)"),
    ("require pod.label.a", "label", 'require pod.label["a-other"]'),
    ('require pod.label["a"]', "label", 'require pod.label["a-other"]'),
    ("score -1", "sign", "score (1)"),
    ("score 1", "sign", "score -(1)"),
    ("score 1 weight 3", "constant", "score 1 weight 6"),
    ('score promql("x") ?? 5', "fall-back", "score (5)"),
    ('score promql("x") ?? 5', "constant", 'score promql("x") ?? 10'),
    ("score least_allocated()", "function", "score most_allocated()"),
    ("score 1 + 2", "arithmetic", "score 1 - 2"),
    ("spread by pod.label.a", "clause", "pack by pod.label.a"),
    ("pack by pod.label.a", "clause", "spread by pod.label.a"),
    ("spread by pod.label.a over zone", "topology", "spread by pod.label.a over node"),
    ("order by pod.priority desc", "order", "order by pod.priority"),
    ("order by pod.priority", "order", "order by pod.priority desc"),
    ('filter between("22:00", "06:00")', "constant", 'filter between("23:00", "06:00")'),
    ('for pods where pod.namespace == "a"', "comparison", 'for pods where pod.namespace != "a"'),
    ('score count(p in node.pods where p.label.a == "b")', "condition", "score count(p in node.pods where true)"),
    ("use kubernetes without NodeAffinity", "clause", ""),
    ("filter node.ready and (fits(cpu) or label a)", "logic", "filter node.ready or (fits(cpu) or label a)"),
    ("filter node.ready and (fits(cpu) or label a)", "logic", "filter node.ready and (fits(cpu) and label a)"),
    ("queue a min cpu 4", "constant", "queue a min cpu 8"),
    ("queue a min cpu 4", "constant", "queue a min cpu 2"),
    ("queue a min cpu 4 max cpu 6", "constant", "queue a min cpu 4 max cpu 12"),
    ("queue a min cpu 4 max cpu 6 weight 2", "lending", "queue a min cpu 4 max cpu 6 lend cpu 0 weight 2"),
    ('queue a min "a.b/c" 4', "lending", 'queue a min "a.b/c" 4 lend "a.b/c" 0'),
    ("queue a min cpu 4 lend cpu 2", "constant", "queue a min cpu 4 lend cpu 1"),
    ("queue a min cpu 4 weight 2", "constant", "queue a min cpu 4 weight 1"),
    ("queue a remember 6h", "constant", "queue a remember 12h"),
    ("queue a for pods where pod.label.x", "negation", "queue a for pods where (not pod.label.x)"),
    ("queue a by pod.label.x", "label", 'queue a by pod.label["x-other"]'),
    ("queue a min cpu 4", "clause", ""),
    ("reclaim after 30s", "constant", "reclaim after 60s"),
    ("reclaim after 30s", "clause", ""),
    ("reclaim after 30s", "fair", "reclaim fair after 30s"),
    ("reclaim fair after 30s", "fair", "reclaim after 30s"),
    ("reclaim if pod.label.x", "negation", "reclaim if (not pod.label.x)"),
    ("reclaim evict where victim.priority < 9", "boundary", "reclaim evict where victim.priority <= 9"),
    ("filter node.ready # why", "negation", "filter (not node.ready) # why"),
]


@pytest.mark.parametrize(("text", "kind", "changed"), CHANGES)
def test_a_change_is_tried(text: str, kind: str, changed: str) -> None:
    found = {(mutant.kind, mutant.applied().text) for mutant in mutants_of(text)}
    assert (kind, changed) in found


def test_a_query_is_never_changed() -> None:
    assert not [m for m in mutants_of('score promql("up == 1")') if "up" in m.span.text and "other" in m.text]


@pytest.mark.long
def test_most_mutants_are_policies() -> None:
    some = [mutant for path in POLICIES for mutant in mutants_of(path.read_text())][::4]
    made = [load([mutant.applied()]).policy_set for mutant in some]
    assert sum(one is None for one in made) < 0.03 * len(made)


# --- against cases -----------------------------------------------------------------------------------------


def tried(*loaded: LoadedSuite) -> list[MutantResult]:
    results = [one.run().result() for one in loaded]
    assert all(case.state.value == "pass" for result in results for case in result.cases)
    return mutated(loaded, results)


def statuses(found: list[MutantResult]) -> dict[str, str]:
    return {one.mutant.removed_and_added()[1]: one.status.value for one in found}


QUEUES = """queue a for pods where pod.label.q == "a" max cpu 2
queue b for pods where pod.label.q == "b" min cpu 2
reclaim
"""


def test_mutants_have_the_queues_of_the_policy(tmp_path: Path) -> None:
    cases = """
- name: the limit
  pods: [{name: one, node: n1, cpu: 2, labels: {q: a}}]
  pod: {cpu: 1, labels: {q: a}}
  expect: {schedulable: false}
- name: below the limit
  pods: [{name: one, node: n1, cpu: 1, labels: {q: a}}]
  pod: {cpu: 1, labels: {q: a}}
  tie: ok
  expect: {schedulable: true}
"""
    found = statuses(tried(suite(tmp_path, QUEUES, cases)))
    assert found['queue a for pods where pod.label.q == "a" max cpu 4'] == "killed"
    assert found['queue a for pods where pod.label.q == "a" max cpu 1'] == "killed"
    assert found['queue a for pods where pod.label.q != "a" max cpu 2'] == "killed"
    assert found['queue b for pods where pod.label.q == "b" min cpu 4'] == "survived", "no case looks at the guarantee"
    assert found["reclaim fair"] == "survived"


def test_a_case_with_an_eviction_notices_a_guarantee_that_is_not_given_back(tmp_path: Path) -> None:
    policy = QUEUES.replace(" max cpu 2", "") + "filter node.ready\n"
    cases = """
- name: given back
  nodes: [{name: n2, ready: false}]
  pods: [{name: one, node: n1, cpu: 2, labels: {q: a}}, {name: two, node: n1, cpu: 2, priority: 9, labels: {q: a}}]
  pod: {cpu: 2, labels: {q: b}}
  tie: ok
  expect: {schedulable: false, evicts: [one]}
"""
    results = tried(suite(tmp_path, policy, cases))
    found = statuses(results)
    left_out = {one.mutant.span.text: one.status.value for one in results if one.mutant.kind == "clause"}
    assert found['queue b for pods where pod.label.q == "b" min cpu 1'] == "killed"
    assert left_out["reclaim"] == "killed"
    assert found['queue b for pods where pod.label.q == "b" min cpu 2 lend cpu 0'] == "survived"


def test_a_case_at_the_boundary_notices_the_boundary(tmp_path: Path) -> None:
    far = "- {name: far, pod: {cpu: 1}, expect: {schedulable: true}}"
    policy = "require pod.request.cpu < 2"
    assert statuses(tried(suite(tmp_path, policy, far)))["require pod.request.cpu <= 2"] == "survived"
    near = "- {name: near, pod: {cpu: 2}, expect: {schedulable: false}}"
    assert statuses(tried(suite(tmp_path, policy, f"{far}\n{near}")))["require pod.request.cpu <= 2"] == "killed"


def test_what_is_proved_to_change_nothing_is_not_asked_for(tmp_path: Path) -> None:
    loaded = suite(
        tmp_path,
        "require pod.priority > 5 and pod.priority > 3",
        "- {name: x, pod: {priority: 9}, expect: {schedulable: true}}",
    )
    assert statuses(tried(loaded))["require pod.priority > 5"] == "equivalent"
    assert statuses(tried(loaded))["require pod.priority > 3"] == "survived"


def test_no_mutant_dies_of_its_name_alone(tmp_path: Path) -> None:
    """A clause without a name is called by its text, and the case uses that name."""
    loaded = suite(
        tmp_path,
        'filter node.zone == "b"',
        "- {name: x, pod: {cpu: 1}, expect: {filtered: {n1: {clause: 'node.zone == \"b\"'}}}}",
    )
    found = statuses(tried(loaded))
    assert found['filter node.zone == "b-other"'] == "survived"
    assert found['filter node.zone != "b"'] == "killed"


def test_no_mutant_dies_of_a_metric_that_it_does_not_read(tmp_path: Path) -> None:
    loaded = suite(
        tmp_path,
        'score promql("load") ?? 5',
        "- {name: x, pod: {cpu: 1}, metrics: {load: 1}, expect: {schedulable: true}}",
    )
    assert statuses(tried(loaded))[""] == "survived"


def test_one_case_in_any_file_is_enough(tmp_path: Path) -> None:
    policy = "require pod.label.a"
    yes = suite(tmp_path, policy, "- {name: x, pod: {labels: {a: b}}, expect: {schedulable: true}}")
    (tmp_path / "q.test.yaml").write_text("")
    text = (tmp_path / "p.test.yaml").read_text().replace("labels: {a: b}", "cpu: 1").replace("true}", "false}")
    (tmp_path / "q.test.yaml").write_text(text)

    no = load_suite(tmp_path / "q.test.yaml")
    assert statuses(tried(yes))[""] == "survived"
    assert {one.status for one in tried(yes, no)} == {MutantStatus.KILLED}


def test_the_outcome_is_always_the_same(tmp_path: Path) -> None:
    cases = "- {name: x, pod: {cpu: 1}, expect: {node: n1}}\n- {name: y, pod: {cpu: 3}, expect: {node: n1}}"
    loaded = suite(tmp_path, "score 5 if label disk=ssd\nscore least_allocated()", cases)
    first, second = tried(loaded), tried(loaded)
    assert list(lines(first, to=Terminal())) == list(lines(second, to=Terminal()))
    assert 0 < kill_percent(first) < 100


def test_survivors_are_shown_as_a_difference_with_a_hint(tmp_path: Path) -> None:
    loaded = suite(tmp_path, "require pod.request.cpu < 2", "- {name: x, pod: {cpu: 1}, expect: {schedulable: true}}")
    shown = [line.removeprefix(str(tmp_path)) for line in lines(tried(loaded), to=Terminal())]
    at = shown.index("/p.policy:1:25: survived: boundary")
    assert shown[at + 1 : at + 4] == [
        "  - require pod.request.cpu < 2",
        "  + require pod.request.cpu <= 2",
        "  would be detected by a case where pod.request.cpu is exactly 2",
    ]
    assert shown[-1].startswith("mutants ")


EQUIVALENT = [
    "require pod.priority > 5 and pod.priority > 3",
    'require pod.label.a == "x" and pod.label.a != "y"',
    'require pod.label.a or pod.label.a == "x"',
    'score 1 if pod.label.a and node.label["a"] == pod.label.a',
    "require pod.attempts >= 0 and pod.attempts < 5",
]


@pytest.mark.parametrize("policy", EQUIVALENT)
def test_no_case_notices_what_is_proved_to_be_equivalent(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = ["{priority: 4}", "{priority: 6}", "{labels: {a: x}}", "{labels: {a: y}}", "{labels: {a: z}, priority: 9}"]
    drafts = [f"- {{name: c{at}, pod: {pod}, expect: {{schedulable: true}}}}" for at, pod in enumerate(pods)]
    loaded = suite(tmp_path, policy, "\n".join(drafts))
    # what comes without a change is what is expected
    refused = {result.case.name for result in loaded.run().results() if result.state.value == "fail"}
    cases = [draft.replace("true", "false") if f"c{at}" in refused else draft for at, draft in enumerate(drafts)]
    loaded = suite(tmp_path, policy, "\n".join(cases))
    proved = {added for added, status in statuses(tried(loaded)).items() if status == "equivalent"}
    assert proved
    monkeypatch.setattr("kube_policy_scheduler.tooling.mutation.trial.equivalent", lambda policy, mutated: False)
    assert {statuses(tried(loaded))[added] for added in proved} == {"survived"}
