"""PodGroups in recorded clusters, and the time at which a snapshot was taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kube_policy_scheduler.cli.main import run
from kube_policy_scheduler.cluster.objects import CoschedulingPodGroup, PodGroup
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.documents.fixtures import parse_objects
from kube_policy_scheduler.tooling.cluster_state import stored_objects, taken_at

CLUSTER = """\
apiVersion: v1
kind: List
metadata: {annotations: {policyctl/taken-at: "2026-11-20T10:00:00Z"}}
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}}
- {apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: crd, namespace: default},
   spec: {minMember: 2}}
- {apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: native, namespace: default},
   spec: {schedulingPolicy: {gang: {minCount: 3}}}}
- {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, creationTimestamp: "2026-11-20T09:59:00Z"},
   spec: {containers: [{name: c, image: i}]}}
"""
SUITE = """\
policy: a.policy
cluster: cluster.yaml
cases:
- name: the group of the scheduler-plugins
  sequence:
  - {pod: {name: a, labels: {scheduling.x-k8s.io/pod-group: crd}}, expect: {waits: 1 of 2}}
  - {pod: {name: b, labels: {scheduling.x-k8s.io/pod-group: crd}}, expect: {waits: false}}
  expect: {placed: 2}
- name: the group of Kubernetes
  sequence: {pod: {spec: {schedulingGroup: {podGroupName: native}}}, count: 2}
  expect: {placed: 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "a.policy").write_text('filter pod.created <= now() - 1min if pod.name == "web"\n')
    return tmp_path


def test_both_kinds_of_pod_group_survive_a_snapshot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["snapshot", "--cluster", "cluster.yaml", "-o", "taken.json"]) == 0, capsys.readouterr().err
    again = stored_objects(parse_objects(Source("taken.json", (folder / "taken.json").read_text())), scheduler="x")
    groups = [one for one in again if isinstance(one, PodGroup | CoschedulingPodGroup)]
    sizes = [g.spec.min_member if isinstance(g, CoschedulingPodGroup) else g.spec.scheduling_policy for g in groups]
    assert [type(one) for one in groups] == [CoschedulingPodGroup, PodGroup]
    assert sizes[0] == 2


def test_a_snapshot_of_a_snapshot_was_taken_when_that_was(folder: Path) -> None:
    assert run(["snapshot", "--cluster", "cluster.yaml", "-o", "taken.json"]) == 0
    found = parse_objects(Source("taken.json", (folder / "taken.json").read_text()))
    assert taken_at(found) == 1795168800


def test_test_cases_wait_for_groups_of_the_fixture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.test.yaml").write_text(SUITE)
    assert run(["test", "a.test.yaml"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("now", "code"), [([], 0), (["--now", "2026-11-20T09:59:30Z"], 1), (["--now", "1795168770"], 1)], ids=str
)
def test_why_decides_at_the_time_of_the_snapshot(
    folder: Path, capsys: pytest.CaptureFixture[str], now: list[str], code: int
) -> None:
    asked = [
        "why",
        "web",
        "--cluster",
        "cluster.yaml",
        "--policies",
        "a.policy",
        "--policy",
        "a",
        "--format=json",
        *now,
    ]
    assert run(asked) == code
    assert json.loads(capsys.readouterr().out)["pod"] == "default/web"


def test_an_invalid_time_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["why", "web", "--cluster", "cluster.yaml", "--now", "tomorrow"]) == 2
    assert "expected for example 2026-11-21T10:00:00Z, or Unix seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["why", "web"], ["drift"], ["snapshot"], ["doctor", "--policies", "a.policy"]], ids=str
)
def test_an_empty_cluster_file_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (folder / "empty.yaml").write_text("")
    assert run([*command, "--cluster", "empty.yaml"]) == 2
    assert "empty.yaml is empty: " in capsys.readouterr().err


def test_an_empty_pod_file_is_an_error_without_an_excerpt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty.yaml").write_text("")
    assert run(["why", "empty.yaml", "--cluster", "cluster.yaml"]) == 2
    assert capsys.readouterr().err == "empty.yaml:1:1: error[D0013]: the file is empty, expected one Pod\n"


COMPOSITE = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a1, labels: {rack: a1, block: a}},
   status: {allocatable: {cpu: 2, pods: 9}}}
- {apiVersion: v1, kind: Node, metadata: {name: a2, labels: {rack: a2, block: a}},
   status: {allocatable: {cpu: 1, pods: 9}}}
- {apiVersion: v1, kind: Node, metadata: {name: b1, labels: {rack: b1, block: b}},
   status: {allocatable: {cpu: 2, pods: 9}}}
- {apiVersion: v1, kind: Node, metadata: {name: b2, labels: {rack: b2, block: b}},
   status: {allocatable: {cpu: 2, pods: 9}}}
- {apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {name: tree, namespace: default},
   spec: {schedulingPolicy: {gang: {minGroupCount: 2}}, schedulingConstraints: {topology: [{key: block}]}}}
- {apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: one, namespace: default},
   spec: {parentCompositePodGroupName: tree, schedulingPolicy: {gang: {minCount: 2}},
          schedulingConstraints: {topology: [{key: rack}]}}}
- {apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: two, namespace: default},
   spec: {parentCompositePodGroupName: tree, schedulingPolicy: {gang: {minCount: 2}},
          schedulingConstraints: {topology: [{key: rack}]}}}
"""
COMPOSITE_SUITE = """\
policy: a.policy
cluster: taken.json
cases:
- name: two groups in a rack each, both in one block
  sequence:
  - pod: {name: w, cpu: 1, spec: {schedulingGroup: {podGroupName: one}}}
    expect: {waits: "1 of 4 members have a node, 0 of 2 groups complete"}
  - pod: {name: x, cpu: 1, spec: {schedulingGroup: {podGroupName: one}}}
    expect: {waits: "2 of 4 members have a node, 1 of 2 groups complete"}
  - pod: {name: y, cpu: 1, spec: {schedulingGroup: {podGroupName: two}}}
    expect: {waits: "3 of 4 members have a node, 1 of 2 groups complete"}
  - pod: {name: z, cpu: 1, spec: {schedulingGroup: {podGroupName: two}}}
    expect: {waits: false, domain: b}
  expect: {placed: 4}
"""


def test_composite_groups_survive_a_snapshot_and_tests_honour_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cluster.yaml").write_text(COMPOSITE)
    assert run(["snapshot", "--cluster", "cluster.yaml", "-o", "taken.json"]) == 0, capsys.readouterr().err
    (folder / "a.test.yaml").write_text(COMPOSITE_SUITE)
    assert run(["test", "a.test.yaml"]) == 0, capsys.readouterr().out
