"""Nodes and pods of a test: short forms, recorded clusters, and what is laid over what."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.cluster.nodes import IntArray
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Reads, Weighted
from kube_policy_scheduler.framework.plugins.base import Score
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.tooling import short_forms
from kube_policy_scheduler.tooling.tester.metrics import selector
from kube_policy_scheduler.tooling.tester.run import State
from tests.tooling.suites import suite
from tests.tooling.tester import plain_policies
from tests.tooling.tester.plain_policies import run_text

CLUSTER = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: old, labels: {topology.kubernetes.io/zone: a, disk: ssd}}
  status:
    capacity: {cpu: "4", memory: 8Gi, pods: "110"}
    conditions: [{type: Ready, status: "True"}, {type: DiskPressure, status: "False"}]
- apiVersion: v1
  kind: Node
  metadata: {name: full}
  status:
    capacity: {cpu: "2", memory: 8Gi, pods: "110"}
    conditions: [{type: Ready, status: "True"}]
- apiVersion: v1
  kind: Pod
  metadata: {name: big, namespace: default}
  spec:
    nodeName: full
    priority: 7
    priorityClassName: not-recorded
    containers: [{name: main, resources: {limits: {cpu: "2"}}}]
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: default}
  spec: {nodeName: old, containers: [{name: main, resources: {requests: {cpu: "4"}}}]}
  status: {phase: Succeeded}
- apiVersion: v1
  kind: Pod
  metadata: {name: waiting, namespace: default}
  spec: {containers: [{name: main}]}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: other}}
"""


def schema() -> dict[str, Any]:
    text = files("kube_policy_scheduler.tooling.tester").joinpath("policy-test.schema.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_schema_knows_exactly_the_short_keys() -> None:
    objects = {"apiVersion", "kind", "metadata", "spec", "status"}
    defined = schema()["$defs"]
    assert defined["node"]["properties"].keys() - objects == short_forms.NODE_KEYS
    assert defined["placedPod"]["properties"].keys() - objects - {"from", "count"} == short_forms.POD_KEYS
    assert defined["pod"]["properties"].keys() - objects - {"from"} == short_forms.POD_KEYS - {"node"}


def case(expect: str, *, pod: str = "{cpu: 500m}", head: str = "", more: str = "") -> str:
    return (
        f"policy: x.policy\n{head}\nmetrics: {{cpu_usage: 50}}\ntie: ok\ncases:\n"
        f"- name: the case\n  pod: {pod}\n  expect: {expect}\n{more}"
    )


class TestARecordedCluster:
    """What `kubectl get nodes,pods -A -o yaml` prints is used as it is."""

    def test_has_its_pods_where_they_are(self) -> None:
        (result,) = run_text(
            case("{feasible: [old], filtered: {full: {clause: NodeResourcesFit}}}"), cluster=CLUSTER
        ).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    def test_can_be_changed_for_the_file_and_for_a_case(self) -> None:
        text = case(
            "{feasible: [full, new], filtered: {old: {clause: node.ready}}}",
            head="nodes:\n- {name: new, cpu: 1}\n- {name: full, cpu: 3}",
            more="  nodes:\n  - {name: old, ready: false}\n  - {name: new, cpu: 2}\n",
        )
        (result,) = run_text(text, cluster=CLUSTER).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    def test_keeps_what_is_not_laid_over(self) -> None:
        text = case(
            "{node: {labels: {disk: ssd, rack: r1}, zone: b}}",
            more="  nodes: [{name: old, zone: b, labels: {rack: r1}}]\n",
        )
        (result,) = run_text(text, cluster=CLUSTER).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    @pytest.mark.parametrize("null", ["ports: null", "ports: [{hostPort: null}]", "resizePolicy: [null], ports: null"])
    def test_says_nothing_by_null_however_deep_it_stands(self, null: str) -> None:
        written = "{name: main, resources:"
        (result,) = run_text(
            case("{feasible: [old], filtered: {full: {clause: NodeResourcesFit}}}"),
            cluster=CLUSTER.replace(written, f"{{name: main, {null}, resources:"),
        ).cases
        assert written in CLUSTER
        assert (result.state, result.failures) == (State.PASSED, ())

    def test_with_an_error_is_refused_with_its_place(self) -> None:
        with pytest.raises(DocumentError, match=r"cluster\.yaml:\d+:\d+: error"):
            run_text(case("{schedulable: true}"), cluster=CLUSTER.replace('cpu: "4", memory', "cpu: lots, memory"))


class TestAPodsShortForm:
    """Short keys are laid over `metadata` and `spec`, so that a full pod is a short form too."""

    HEAD = """\
nodes:
- {name: plain, cpu: 4}
- {name: gpu, cpu: 4, resources: {nvidia.com/gpu: 2}, taints: ['gpu=true:NoSchedule', 'slow:PreferNoSchedule']}
- {name: ssd, cpu: 4, labels: {disk: ssd}, unschedulable: true}
"""

    @pytest.mark.parametrize(
        ("pod", "feasible"),
        [
            ("{cpu: 1}", "[plain]"),
            ("{tolerations: [gpu]}", "[plain, gpu]"),
            ("{tolerations: ['gpu=true:NoSchedule']}", "[plain, gpu]"),
            ("{tolerations: ['gpu=false:NoSchedule']}", "[plain]"),
            ("{tolerations: [{operator: Exists}]}", "[plain, gpu, ssd]"),
            ("{tolerations: [gpu], resources: {nvidia.com/gpu: 1}}", "[gpu]"),
            ("{tolerations: [gpu], resources: {nvidia.com/gpu: 3}}", "[]"),
            ("{node_selector: {disk: ssd}, tolerations: ['node.kubernetes.io/unschedulable']}", "[ssd]"),
            ("{spec: {containers: [{name: a, resources: {limits: {cpu: 5}}}]}}", "[]"),
            ("{cpu: 1, spec: {containers: [{name: a}, {name: b, resources: {requests: {cpu: 4}}}]}}", "[]"),
            ("{metadata: {name: x}, spec: {nodeSelector: {disk: hdd}}}", "[]"),
        ],
    )
    def test_says_what_a_pod_would(self, pod: str, feasible: str) -> None:
        (result,) = run_text(case(f"{{feasible: {feasible}}}", pod=pod, head=self.HEAD)).cases
        assert (result.state, result.failures) == (State.PASSED, ())

    def test_pods_that_are_there_take_room(self) -> None:
        pods = "pods: [{node: plain, cpu: 1, count: 3}]\n"
        for cpu, feasible in (("1", "[plain]"), ("1001m", "[]")):
            (result,) = run_text(case(f"{{feasible: {feasible}}}", pod=f"{{cpu: {cpu}}}", head=self.HEAD + pods)).cases
            assert (result.state, result.failures) == (State.PASSED, ())


class _FirstRow(Score):
    """Breaks determinism: prefers whichever node was added first."""

    name = "first"
    reads = Reads.ELSEWHERE

    def score(self, frame: Frame, state: Any) -> IntArray:
        return -frame.index()


def test_a_decision_that_depends_on_the_order_of_nodes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = plain_policies.PlainPolicy(Profile("first", (), (Weighted(_FirstRow()),)))
    monkeypatch.setattr(plain_policies.PlainPolicies, "governing", lambda self, pod: policy)
    (result,) = run_text(case("{schedulable: true}", head="nodes: [{name: a}, {name: b}]")).cases
    assert result.state is State.FAILED
    assert [failure.expected.key for failure in result.failures] == ["order of nodes"]


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("up", {"__name__": "up", "node": "a"}, True),
        ("up", {"__name__": "down"}, False),
        ('up{node="a"}', {"__name__": "up", "node": "a"}, True),
        ('up{node="a",}', {"__name__": "up", "node": "b"}, False),
        ('up{node!="a"}', {"__name__": "up"}, True),
        ('up{node=~"a|b"}', {"__name__": "up", "node": "b"}, True),
        ('up{node=~"a"}', {"__name__": "up", "node": "ab"}, False),
        ('up{node!~"a.*"}', {"__name__": "up", "node": "ab"}, False),
        ('{job="x"}', {"__name__": "up", "job": "x"}, True),
        ("up{node='a'}", {"__name__": "up", "node": "a"}, True),
        ('up{path="a\\"b"}', {"__name__": "up", "path": 'a"b'}, True),
    ],
)
def test_selectors_select_as_in_promql(text: str, labels: dict[str, str], matches: bool) -> None:
    parsed = selector(text)
    assert parsed is not None
    assert parsed.matches(labels) is matches


@pytest.mark.parametrize("text", ["rate(up[5m])", "up offset 5m", "a + b", "up{node}", "", "{}", "up[5m]"])
def test_anything_else_is_not_a_selector(text: str) -> None:
    assert selector(text) is None


def test_a_node_may_have_another_age_in_each_case(tmp_path: Path) -> None:
    """The cases share one cluster, in which the node is another one each time."""
    nodes = "now: 2026-11-20T10:00:00Z\nnodes: [{name: n, cpu: 4, created: 2026-11-20T09:57:00Z}]"
    cases = """\
- {name: as the file says, pod: {}, expect: {scores: {n: 3}}}
- {name: older, nodes: [{name: n, created: 2026-11-20T09:50:00Z}], pod: {}, expect: {scores: {n: 10}}}
- {name: as the file says again, pod: {}, expect: {scores: {n: 3}}}
"""
    policy = "score node.age / 1min\nscore node.used_fraction.cpu * 0\n"
    results = suite(tmp_path, policy, cases, more=nodes).run().results()
    assert {each.case.name: each.state for each in results if each.state is not State.PASSED} == {}


def test_a_pod_that_ends_in_one_case_gives_back_its_room_and_devices_there_and_is_there_in_the_next(
    tmp_path: Path,
) -> None:
    nodes = "nodes: [{name: n, cpu: 4, devices: {gpu: 1}}]\npods: [{name: old, node: n, cpu: 3, claims: {gpu: 1}}]"
    cases = """\
- {name: there is no room, pod: {cpu: 2}, expect: {schedulable: false}}
- name: it ends
  sequence:
  - {pod: {name: a, claims: {gpu: 1}}, expect: {schedulable: false}}
  - {pod: {name: b, cpu: 2, claims: {gpu: 1}}, finished: [old], expect: {node: n}}
  - {pod: {name: c, claims: {gpu: 1}}, expect: {schedulable: false}}
  expect: {degraded: []}
- {name: there is no room again, pod: {cpu: 2}, expect: {schedulable: false}}
- {name: and no device, pod: {cpu: 0, claims: {gpu: 1}}, expect: {schedulable: false}}
"""
    results = suite(tmp_path, "filter fits(cpu)\n", cases, more=nodes).run(shuffle=False).results()
    assert {each.case.name: each.failures for each in results if each.state is not State.PASSED} == {}


def test_one_that_follows_a_pod_that_ended_knows_where_that_ran(tmp_path: Path) -> None:
    nodes = "nodes: [{name: m, cpu: 4}, {name: n, cpu: 4}]\npods: [{name: old, node: n, owner: ReplicaSet/web}]"
    step = "{pod: {name: a, owner: ReplicaSet/web}, finished: [old], expect: {scores: {m: 0, n: 50}}}"
    cases = f"""\
- {{name: it ends, sequence: [{step}], expect: {{schedulable: true}}}}
- {{name: it runs again, pod: {{owner: ReplicaSet/web}}, expect: {{scores: {{m: 0, n: 0}}}}, tie: ok}}
"""
    results = suite(tmp_path, "score 50 if node.name == pod.previous_node\n", cases, more=nodes).run().results()
    assert {each.case.name: each.failures for each in results if each.state is not State.PASSED} == {}
