"""Cases with a workload: what they hold against, and what people read where they or the file are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.tooling.fleet_forms import CLUSTER_KEYS, WORKLOAD_KEYS
from kube_policy_scheduler.tooling.tester.expectations import OF_WORKLOADS
from kube_policy_scheduler.tooling.tester.suite_file import schema_text

POLICY = """\
for workloads where workload.kind == "Deployment"
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
divide best first
rebalance at most 2
"""
FLEET = """\
policy: fleet.policy
clusters:
- {name: a, region: eu, provider: own, cpu: 6, price: 3}
- {name: b, region: eu, provider: aws, cpu: 12, price: 5}
- {name: c, region: us, provider: gcp, cpu: 18, price: 4}
cases:
"""


@pytest.fixture
def tested(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a test file with some cases, and return what is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.policy").write_text(POLICY)

    def test(cases: str, *options: str, head: str = FLEET) -> str:
        (tmp_path / "fleet.test.yaml").write_text(head + cases)
        run(["test", *options, "fleet.test.yaml"])
        shown = capsys.readouterr()
        return shown.out + shown.err

    return test


HOLDS = [
    "workload: {replicas: 12, cpu: 1}\n  expect: {clusters: {a: 6, c: 6}, order: [a, c, b], schedulable: true}",
    "workload: {replicas: 12, cpu: 1}\n  expect: {clusters: {a: 6, b: 0, c: 6}, scores: {a: 997}, margin: 1001}",
    "workload: {replicas: 12, cpu: 1}\n  expect: {feasible: [a, b, c]}",
    "workload: {replicas: 12, cpu: 1}\n  clusters: {a: {used: 4}}\n  expect: {clusters: {a: 2, c: 10}}",
    "workload: {replicas: 12, cpu: 1}\n  clusters: {a: {used: {cpu: 4}}}\n  expect: {clusters: {a: 2, c: 10}}",
    "workload: {replicas: 12, cpu: 1}\n  clusters: {a: {room: 1}}\n  expect: {clusters: {a: 1, c: 11}}",
    "workload: {replicas: 12, cpu: 1}\n  clusters: {a: {apis: [v1/Pod]}}\n"
    "  expect: {clusters: {c: 12}, filtered: {a: {clause: APIEnablement}}}",
    "workload: {replicas: 5, cpu: 1, has: {c: 5}}\n  passes: 1\n  expect: {clusters: {a: 2, c: 3}}",
    "workload: {replicas: 5, cpu: 1, has: {c: 5}, fresh: true}\n  expect: {clusters: {a: 5}}",
    "workload: {replicas: 40, cpu: 1}\n  expect: {clusters: {}, unschedulable: {message: room for 36 of 40}}",
    "workload: {replicas: 3, cpu: 1, placement: {clusterAffinity: {clusterNames: [b]}}}\n"
    "  expect: {clusters: {b: 3}, filtered: {a: {clause: ClusterAffinity}}}",
    "workload: {name: high, replicas: 1, priority: 7}\n  workloads: [{name: low}, {name: higher, priority: 9}]\n"
    "  expect: {before: [low]}",
    "workload: {replicas: '${n}', cpu: 1}\n  each: {n: [3, 4]}\n  expect: {clusters: {a: '${n}'}}",
]


@pytest.mark.parametrize("case", HOLDS)
def test_what_is_expected_holds(case: str, tested: Any) -> None:
    assert "0 failed, 0 skipped" in tested(f"- name: x\n  {case}\n").splitlines()[-1]


FAILS = {
    "others come first": "workload: {name: low, replicas: 1}\n  workloads: [{name: high, priority: 7}, {name: equal}]\n"
    "  expect: {before: [high, equal]}",
    "an unknown other": "workload: {name: low, replicas: 1}\n  workloads: [{name: high}]\n  expect: {before: [hihg]}",
    "other clusters": "workload: {replicas: 12, cpu: 1}\n  expect: {clusters: {a: 7, c: 5}}",
    "too little room": "workload: {replicas: 40, cpu: 1}\n  expect: {clusters: {a: 6, c: 34}}",
    "not filtered": "workload: {replicas: 12, cpu: 1}\n  expect: {filtered: {a: {clause: TaintToleration}}}",
    "another score": "workload: {replicas: 12, cpu: 1}\n  expect: {scores: {a: 3}}",
    "no policy": "workload: {kind: Job, replicas: 12, cpu: 1}\n  expect: {clusters: {a: 6}}",
    "a pod goes to a node": "pod: {cpu: 1}\n  expect: {clusters: {a: 6}}",
}
WRONG = {
    "an unknown cluster": "workload: {has: {d: 1}}\n  clusters: {e: {cpu: 1}}\n  expect: {clusters: {f: 1}}",
    "an unknown cluster of a score": "workload: {}\n  expect: {scores: {f: 1}}",
    "what pods have": "workload: {}\n  expect: {node: a, placed: 3}",
    "a taint": "workload: {}\n  clusters: {a: {taints: [gpu]}}\n  expect: {clusters: {a: 1}}",
    "an amount": "workload: {cpu: 1x}\n  expect: {clusters: {a: 1}}",
    "a placement": "workload: {placement: {clusterAffinity: 3}}\n  expect: {clusters: {a: 1}}",
    "a pod and a workload": "workload: {}\n  pod: {}\n  expect: {clusters: {a: 1}}",
    "an unknown key": "workload: {replica: 3}\n  expect: {clusters: {a: 1}}",
    "an unknown key of a placement": "workload: {placement: {replicaScheduling: {weightPreference: {dynamic: x}}}}\n"
    "  expect: {clusters: {a: 1}}",
    "a term that it lacks": "workload: {term: own, placement: {clusterAffinities: [{affinityName: cloud}]}}\n"
    "  expect: {clusters: {a: 1}}",
    "a price": "workload: {}\n  clusters: {a: {price: cheap}, b: {price: -1}, c: {price: 0.0000000001}}\n"
    "  expect: {clusters: {a: 1}}",
    "a kind without its API": "workload: {}\n  clusters: {a: {apis: [Deployment]}}\n  expect: {clusters: {a: 1}}",
    "two keys that say the same": "workload: {cpu: 1, resources: {cpu: 2}}\n"
    "  clusters: {a: {zone: x, zones: [y]}, b: {used: {mem: 1Gi, resources: {memory: 2Gi}}}}\n"
    "  expect: {clusters: {a: 1}}",
    "two workloads of one name": "workload: {name: api}\n  workloads: [{name: web}, {name: api}, {name: web}]\n"
    "  expect: {clusters: {a: 1}}",
    "what only pods have": "workload: {}\n  pods: []\n  nodes: []\n  queued: 3s\n  attempts: 1\n"
    "  expect: {clusters: {a: 1}}",
    "what only workloads have": "pod: {cpu: 1}\n  passes: 1\n  workloads: []\n  clusters: {a: {cpu: 1}}\n"
    "  expect: {unschedulable: {message: none}}",
    "an unknown template": "workload: {}\n  clusters: {a: {member: {pods: [{from: big}]}}}\n"
    "  expect: {clusters: {a: 1}}",
}


@pytest.mark.parametrize("case", [*FAILS, *WRONG])
def test_what_is_wrong_is_said(case: str, tested: Any, snapshot: SnapshotAssertion) -> None:
    assert tested(f"- name: x\n  {(FAILS | WRONG)[case]}\n") == snapshot


def test_clusters_of_one_name_are_an_error(tested: Any, snapshot: SnapshotAssertion) -> None:
    twice = FLEET.replace("name: c", "name: a")
    assert tested("- name: x\n  workload: {}\n  expect: {clusters: {a: 1}}\n", head=twice) == snapshot


def test_pods_of_members_have_templates_and_a_case_may_say_the_zone_anew(tested: Any, tmp_path: Path) -> None:
    (tmp_path / "fleet.policy").write_text(
        'for workloads where workload.kind == "Deployment"\n'
        'score sum(p.request.cpu for p in cluster.pods) ?? 0\nscore 100 if cluster.zone == "y"\ndivide best first\n'
    )
    pods = "{nodes: [{name: n, cpu: 9}], pods: [{from: big, node: n}]}"
    head = (
        f"policy: fleet.policy\ntemplates: {{big: {{cpu: 3}}}}\n"
        f"clusters: [{{name: a, zones: [x], cpu: 9, member: {pods}}}, {{name: b, cpu: 9}}]\ncases:\n"
    )
    file = "- name: x\n  workload: {}\n  expect: {scores: {a: 3}}\n"
    case = f"- name: y\n  workload: {{}}\n  clusters: {{a: {{zone: y}}, b: {{member: {pods}}}}}\n"
    case += "  expect: {scores: {a: 103, b: 3}}\n"
    assert "2 passed" in tested(file + case, head=head)


def test_without_clusters_none_fits(tested: Any) -> None:
    cases = "- name: x\n  workload: {replicas: 3, cpu: 1}\n  expect: {unschedulable: {message: no cluster exists}}\n"

    assert "1 passed" in tested(cases, head="policy: fleet.policy\ncases:\n")


def test_programs_get_the_same(tested: Any) -> None:
    result = json.loads(tested(f"- name: x\n  {FAILS['other clusters']}\n", "--format", "json"))
    (case,) = result["cases"]

    assert case["state"] == "fail"
    assert case["clusters"] == {"a": 6, "c": 6}


@pytest.mark.parametrize(
    ("replicas", "survives"), [(6, ["keep nothing", "at most 8 each"]), (13, ["keep nothing"])], ids=["few", "many"]
)
def test_changes_of_the_policy_are_tried(replicas: int, survives: list[str], tested: Any, tmp_path: Path) -> None:
    (tmp_path / "fleet.policy").write_text(
        'for workloads where workload.kind == "Deployment"\nkeep running\ndivide evenly at most 4 each partly\n'
    )
    counts = {name: min(4, replicas // 3) for name in "abc"}
    shown = tested(
        f"- name: x\n  workload: {{replicas: {replicas}, cpu: 1}}\n  expect: {{clusters: {counts}}}\n", "--mutate"
    )

    assert [each for each in ("keep nothing", "at most 8 each") if each in shown] == survives


COVERED = """
for workloads where workload.kind == "Deployment"
hold if workload.label.paused == "true"
filter cluster.region != "asia" if workload.label.home == "true"
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
choose 2 clusters if workload.replicas > 8
divide by cluster.room if workload.label.by == "room"
divide best first
rebalance at most 2 if cluster.condition_age.Ready ?? 0s > 10min
"""
CLUSTERS = "[{name: a, region: eu, provider: own, price: 3, cpu: 6}, {name: b, region: us, provider: aws, cpu: 12}]"
COVERAGE = {
    "little": ["{replicas: 2, cpu: 1}"],
    "a workload that waits": ["{replicas: 2, cpu: 1, labels: {paused: 'true'}}"],
    "moves": ["{replicas: 2, cpu: 1, has: {b: 2}, decided: 1h}"],
    "much": [
        "{replicas: 9, cpu: 1, labels: {home: 'true', by: room}}",
        "{replicas: 2, cpu: 1, labels: {paused: 'true', home: x, by: x}}",
        "{replicas: 2, cpu: 1, has: {b: 2}, decided: 1h, labels: {home: x, by: x, paused: x}}",
    ],
}


@pytest.mark.parametrize("name", COVERAGE)
def test_coverage_counts_what_is_asked_over_clusters(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fleet.policy").write_text(COVERED)
    passes = "\n  passes: 1" if "moves" in name or "much" in name else ""
    cases = "".join(
        f"- name: case {number}\n  workload: {form}{passes}\n  expect: {{clusters: {{a: 1}}}}\n"
        for number, form in enumerate(COVERAGE[name])
    )
    Path("x.test.yaml").write_text(f"policy: fleet.policy\nclusters: {CLUSTERS}\ncases:\n{cases}")
    run(["test", "x.test.yaml", "--coverage", "-q"])
    shown = capsys.readouterr().out
    assert shown[shown.index("fleet.policy: clauses") :] == snapshot


def test_short_keys_and_the_schema_say_the_same() -> None:
    defined = json.loads(schema_text())["$defs"]

    assert defined["fleetCluster"]["properties"].keys() == CLUSTER_KEYS
    assert defined["workload"]["properties"].keys() == WORKLOAD_KEYS
    assert defined["expect"]["properties"].keys() >= OF_WORKLOADS
