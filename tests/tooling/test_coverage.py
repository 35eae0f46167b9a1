"""What counts as covered: clauses that had a say, and the answers of every condition in them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kube_policy_scheduler.cli.coverage import Coverage
from kube_policy_scheduler.cli.suites import load_suite
from kube_policy_scheduler.tooling.coverage.measure import FileCoverage, totals
from kube_policy_scheduler.tooling.coverage.report import cobertura, lines
from kube_policy_scheduler.tooling.text_table import Terminal
from tests.shipped import SUITES
from tests.tooling.suites import suite

PLAIN = "- {name: x, pod: {cpu: 1}, expect: {schedulable: true}}"
REFUSED = "- {name: x, pod: {cpu: 1}, expect: {schedulable: false}}"
HELD = "- {name: x, pod: {cpu: 1}, expect: {held: true}}"


def covered(folder: Path, policy: str, cases: str) -> FileCoverage:
    loaded = suite(folder, policy, cases)
    coverage = Coverage()
    states = {result.state.value for result in coverage.run(loaded).results()}
    assert states == {"pass"}
    (file,) = coverage.measured()
    return file


QUEUES = """queue top
queue a of top for pods where pod.label.q == "a" max cpu 2
queue team of top by pod.label.team min cpu 2
reclaim if pod.label.team == "red" evict where victim.priority < 10
filter node.ready
"""


def counted(file: FileCoverage) -> dict[str, int]:
    return {clause.name: clause.decisions for clause in file.clauses if clause.keyword in ("queue", "reclaim")}


def test_a_queue_is_covered_by_a_pod_that_belongs_to_it(tmp_path: Path) -> None:
    file = covered(tmp_path, QUEUES, "- {name: x, pod: {cpu: 1, labels: {q: a}}, expect: {schedulable: true}}")
    assert counted(file) == {"top": 1, "a": 1, "team": 0, "reclaim": 0}
    sites = seen(file)
    assert sites['condition pod.label.q == "a"'] == "true /false"
    assert sites['bound queue a of top for pods where pod.label.q == "a" max cpu 2'] == "true /false"


def test_the_limit_of_a_queue_is_a_branch(tmp_path: Path) -> None:
    case = "- {name: x, pod: {cpu: 3, labels: {q: a}}, expect: {schedulable: false}}"
    sites = seen(covered(tmp_path, QUEUES, case))
    assert sites['bound queue a of top for pods where pod.label.q == "a" max cpu 2'] == "false /true"


def test_a_reclaim_is_covered_by_a_pod_that_it_may_evict_for(tmp_path: Path) -> None:
    case = """
- name: x
  nodes: [{name: n2, ready: false}]
  pods: [{name: one, node: n1, cpu: 4, labels: {team: blue}}]
  pod: {cpu: 2, labels: {team: red}}
  expect: {schedulable: false, evicts: [one]}
"""
    file = covered(tmp_path, QUEUES, case)
    assert counted(file) == {"top": 1, "a": 0, "team": 1, "reclaim": 1}
    sites = seen(file)
    assert sites['condition pod.label.team == "red"'] == "true /false"
    assert sites["condition victim.priority < 10"] == "true /false"


def seen(file: FileCoverage) -> dict[str, str]:
    """Return by the text of each site what was seen and, after a slash, what was not."""
    return {
        f"{site.site.kind.value} {site.site.span.text}": " ".join(
            [*(o.value for o, count in site.seen.items() if count), *(f"/{o.value}" for o in site.unseen)]
        )
        for site in file.sites
    }


CASES: list[tuple[str, str, dict[str, str]]] = [
    # a truth that is never missing is not asked to be
    ("filter label disk=ssd", PLAIN, {"condition label disk=ssd": "true false"}),
    ("filter node.ready", PLAIN, {"condition node.ready": "true /false"}),
    (
        'score 1 if number(pod.label["n"]) > 2',
        PLAIN,
        {'condition number(pod.label["n"]) > 2': "missing /true /false"},
    ),
    (
        'filter number(pod.label["n"]) ?? 3 > 2',
        PLAIN,
        {
            'fallback number(pod.label["n"])': "missing /true",
            'condition number(pod.label["n"]) ?? 3 > 2': "true /false",
        },
    ),
    (
        "filter label disk=ssd and node.ready",
        PLAIN,
        {
            "condition label disk=ssd and node.ready": "true false",
            "condition label disk=ssd": "true false",
            "condition node.ready": "true /false",
        },
    ),
    # `not` adds nothing to what it negates
    ("filter not label disk=hdd", PLAIN, {"condition label disk=hdd": "false /true"}),
    # where the suffix does not hold, the clause says nothing
    (
        "filter label disk=ssd if pod.label.a",
        PLAIN,
        {"condition label disk=ssd": "/true /false", "condition pod.label.a": "false /true"},
    ),
    (
        "filter node.ready if label disk=ssd",
        PLAIN,
        {"condition node.ready": "true /false", "condition label disk=ssd": "true false"},
    ),
    # only the branch that was taken answers
    (
        "filter if pod.label.a then label disk=ssd else node.ready",
        PLAIN,
        {
            "condition pod.label.a": "false /true",
            "condition label disk=ssd": "/true /false",
            "condition node.ready": "true /false",
        },
    ),
    # a name that is used twice is one place in the text
    (
        "let fast = label disk=ssd\nfilter fast if pod.label.a\nscore 1 if fast",
        PLAIN,
        {"condition label disk=ssd": "true false", "condition pod.label.a": "false /true"},
    ),
    # existing pods
    (
        'filter count(p in node.pods where p.label.app == "a") < 2',
        "- {name: x, pod: {cpu: 1}, pods: [{node: n1, labels: {app: a}}], expect: {schedulable: true}}",
        {
            'condition count(p in node.pods where p.label.app == "a") < 2': "true /false",
            'condition p.label.app == "a"': "true /false",
        },
    ),
    # scores are asked of the nodes that fit
    (
        'filter label disk=ssd\nscore 1 if node.zone == "b"',
        PLAIN,
        {"condition label disk=ssd": "true false", 'condition node.zone == "b"': "false /true"},
    ),
    # who is refused as a whole is not asked further, who is held neither
    (
        "require pod.label.a\nfilter node.ready",
        REFUSED,
        {"condition pod.label.a": "false /true", "condition node.ready": "/true /false"},
    ),
    (
        "hold if pod.waiting < 1h\nfilter node.ready",
        HELD,
        {"condition pod.waiting < 1h": "true /false", "condition node.ready": "/true /false"},
    ),
    # bounds
    (
        "limit count() by pod.namespace to 2",
        "- {name: x, pod: {cpu: 1}, pods: [{node: n1, count: 2}], expect: {schedulable: false}}",
        {"bound limit count() by pod.namespace to 2": "false /true"},
    ),
    (
        "spread by pod.namespace max skew 1",
        "- {name: x, pod: {cpu: 1}, pods: [{node: n1, count: 2}], expect: {node: n2}}",
        {"bound spread by pod.namespace max skew 1": "true false"},
    ),
    (
        'preempt if pod.priority > 5 evict where victim.label.a == "b"',
        "- {name: x, pod: {cpu: 3, priority: 9}, pods: [{name: v, node: n1, cpu: 3, labels: {a: b}}, "
        "{name: w, node: n2, cpu: 3}], expect: {schedulable: false}}",
        {"condition pod.priority > 5": "true /false", 'condition victim.label.a == "b"': "true false"},
    ),
    # proved to be impossible: not asked for
    (
        "filter node.ready if pod.priority > 5 or pod.priority <= 5",
        PLAIN,
        {
            "condition pod.priority > 5 or pod.priority <= 5": "true",
            "condition pod.priority > 5": "false /true",
            "condition pod.priority <= 5": "true /false",
            "condition node.ready": "true /false",
        },
    ),
    (
        "require if pod.priority > 5 then pod.priority > 3 else true",
        "- {name: x, pod: {cpu: 1, priority: 9}, expect: {schedulable: true}}",
        {"condition pod.priority > 5": "true /false", "condition pod.priority > 3": "true"},
    ),
]


@pytest.mark.parametrize(("policy", "cases", "wanted"), CASES, ids=[policy for policy, *_ in CASES])
def test_answers_are_counted_where_they_take_part(
    policy: str, cases: str, wanted: dict[str, str], tmp_path: Path
) -> None:
    assert seen(covered(tmp_path, policy, cases)) == wanted


def test_a_clause_counts_where_it_has_a_say_at_any_node(tmp_path: Path) -> None:
    policy = "filter node.ready if label disk=ssd\nscore 1 if label disk=hdd"
    file = covered(tmp_path, policy, PLAIN)
    assert [(clause.keyword, clause.decisions) for clause in file.clauses] == [("filter", 1), ("score", 0)]
    assert str(file.clause_ratio) == "1/2"


def test_governing_is_covered_only_with_other_policies(tmp_path: Path) -> None:
    alone = covered(tmp_path, 'for pods where pod.namespace == "default"\npriority 1\nfilter node.ready', PLAIN)
    assert 'condition pod.namespace == "default"' not in seen(alone)
    (tmp_path / "other.policy").write_text("filter node.ready\n")
    path = tmp_path / "both.test.yaml"
    path.write_text(
        (tmp_path / "p.test.yaml").read_text().replace("policy: p.policy", "policy: [p.policy, other.policy]")
    )
    loaded, coverage = load_suite(path), Coverage()
    list(coverage.run(loaded).results())
    both = next(file for file in coverage.measured() if file.source.name.endswith("p.policy"))
    assert seen(both)['condition pod.namespace == "default"'] == "true /false"


@pytest.mark.long
def test_the_tests_of_our_own_policies_cover_them() -> None:
    coverage = Coverage()
    for path in SUITES:
        if path.parent.name in ("policies", "library"):
            loaded = load_suite(path)
            list(coverage.run(loaded).results())
    clauses, branches = totals(coverage.measured())
    assert (clauses.percent, branches.percent) == (100, 100), "\n".join(
        lines(coverage.measured(), to=Terminal(width=100))
    )


def test_the_tests_of_our_policies_of_workloads_cover_them() -> None:
    coverage = Coverage()
    for path in SUITES:
        if path.parent.name == "fleet":
            list(coverage.run(load_suite(path)).results())
    files = coverage.measured()
    assert {clause.name for file in files for clause in file.clauses if not clause.decisions} == set()
    gaps = {site.site.span.text for file in files for site in file.sites if site.unseen}
    assert gaps == {"cluster.condition_age.Ready"}, "in a test, each cluster has the condition"


def test_gaps_are_marked_under_their_line(tmp_path: Path) -> None:
    policy = 'filter node.ready and fits(cpu)\nscore promql("load") ?? 5 if pod.label.a\n'
    file = covered(tmp_path, policy, PLAIN.replace("pod:", "metrics: {load: 1}, pod:"))
    assert list(lines([file], to=Terminal(width=80)))[1:] == [
        "   1 | filter node.ready and fits(cpu)",
        "     |        ^^^^^^^^^^^^^^^^^^^^^^^^ never false",
        "     |        ^^^^^^^^^^ never false",
        "     |                       ^^^^^^^^^ never false",
        '   2 | score promql("load") ?? 5 if pod.label.a',
        "     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ never reached",
        "clauses 1/2, branches 4/10",
    ]


def test_cobertura_says_the_same_by_line(tmp_path: Path) -> None:
    file = covered(tmp_path, "# first\nfilter node.ready\nfilter label disk=ssd\nscore 1 if label disk=hdd", PLAIN)
    text = cobertura([file], timestamp_millis=5, version="1")
    root = ElementTree.fromstring(text)
    assert root.attrib["lines-valid"] == "3"
    assert root.attrib["lines-covered"] == "2"
    assert root.attrib["branches-covered"] == "4"
    assert root.attrib["branches-valid"] == "6"
    assert root.attrib["timestamp"] == "5"
    found = [dict(line.attrib) for line in root.iter("line")]
    assert found == [
        {"number": "2", "hits": "1", "branch": "true", "condition-coverage": "50% (1/2)"},
        {"number": "3", "hits": "1", "branch": "true", "condition-coverage": "100% (2/2)"},
        {"number": "4", "hits": "0", "branch": "true", "condition-coverage": "50% (1/2)"},
    ]


def test_backfill_is_covered_by_pods_of_a_sequence(tmp_path: Path) -> None:
    policy = 'order by pod.queued strict\nbackfill if pod.label.a == "b" lasts duration(pod.label.r) ?? 1h\n'
    one = "- {name: one, pod: {labels: {a: b, r: 5min}}, expect: {schedulable: true}}\n"
    two = one.replace("pod: {labels: {a: b, r: 5min}}", "sequence: [{pod: {labels: {a: b, r: 5min}}}]")
    decisions = []
    for cases in (one, two):
        file = covered(tmp_path, policy, cases)
        decisions.append({clause.keyword: clause.decisions for clause in file.clauses}["backfill"])
    assert decisions == [0, 1]
