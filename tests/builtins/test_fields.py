"""Every field has the value that the manifests of a small cluster say, read by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_info import DERIVED, PARTS, UNREAD
from kube_policy_scheduler.cluster.objects.nodes import NodePodPreemptionPolicy
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.types import Shape
from tests.builtins.test_calls import value_of

NOW = 1_767_787_200.0
"""2026-01-07T12:00:00Z, Unix seconds."""
GIB = 2**30
NODES = """\
- metadata:
    name: a
    uid: first
    creationTimestamp: 2026-01-07T11:00:00Z
    annotations: {owner: red, policy-scheduler/hourly-price: "0.25"}
    labels: {disk: ssd, topology.kubernetes.io/zone: z1, topology.kubernetes.io/region: r1,
             kubernetes.io/arch: amd64, kubernetes.io/os: linux}
  spec:
    providerID: aws:///zone-a/i-0123
    taints: [{key: gpu, value: "1", effect: NoSchedule}, {key: old, effect: PreferNoSchedule}]
  status:
    allocatable: {cpu: "4", memory: 8Gi, pods: "10", nvidia.com/gpu: "2"}
    capacity: {cpu: 4100m, memory: 9Gi, pods: "10", nvidia.com/gpu: "3"}
    conditions:
    - {type: Ready, status: "True", lastTransitionTime: "2026-01-07T11:59:00Z"}
    - {type: DiskPressure, status: "False"}
    images: [{names: ["app:1"], sizeBytes: 5}]
    nodeInfo: {kernelVersion: "6.1", kubeletVersion: v1.36.2, containerRuntimeVersion: "containerd://2.1.4"}
- metadata: {name: b, creationTimestamp: 2026-01-07T12:00:00Z}
  spec: {unschedulable: true}
  status:
    allocatable: {cpu: 500m, memory: 1Gi, pods: "5"}
    conditions: [{type: Ready, status: "False"}]
"""
POD = """\
metadata:
  name: web-1
  namespace: shop
  uid: web-1
  creationTimestamp: 2026-01-07T11:50:00Z
  labels: {app: web}
  annotations: {note: hello}
  ownerReferences: [{kind: ReplicaSet, name: web, controller: true, apiVersion: apps/v1, uid: u}]
spec:
  priority: 7
  serviceAccountName: robot
  runtimeClassName: gvisor
  hostNetwork: true
  nodeSelector: {disk: ssd}
  tolerations: [{key: gpu, operator: Exists}, {operator: Exists}]
  initContainers: [{name: i, image: "init:1", resources: {requests: {cpu: "3"}}}]
  containers:
  - {name: c, image: "app:1", resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: "1"}}}
  - {name: d, image: "side:2", resources: {requests: {cpu: 250m}, limits: {cpu: 500m}}}
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: tmp, emptyDir: {}}]
"""
PLACED = """\
metadata: {name: old, namespace: shop, uid: old}
spec: {containers: [{name: c, resources: {requests: {cpu: "1", memory: 2Gi, nvidia.com/gpu: "1"}}}]}
"""
VALUES: dict[str, Any] = {
    "node.age": [3600.0, 0.0],
    "node.allocatable.cpu": [4.0, 0.5],
    'node.allocatable["nvidia.com/gpu"]': [2.0, None],
    "node.annotation.owner": ["red", None],
    "node.arch": ["amd64", None],
    "node.capacity.cpu": [4.1, 0.5],
    'node.capacity["nvidia.com/gpu"]': [3.0, None],
    "node.condition_age.Ready": [60.0, None],
    "node.conditions.DiskPressure": ["False", None],
    "node.free.mem": [6.0 * GIB, 1.0 * GIB],
    "node.images": [("app:1",), ()],
    "node.kernel": ["6.1", None],
    "node.container_runtime": ["containerd://2.1.4", None],
    "node.kubelet": ["v1.36.2", None],
    "node.label.disk": ["ssd", None],
    "node.name": ["a", "b"],
    "node.price": [0.25, None],
    "node.provider": ["aws", None],
    "node.os": ["linux", None],
    "node.ready": [True, False],
    "node.region": ["r1", None],
    "node.requested.cpu": [1.0, 0.0],
    "node.requested.pods": [1.0, 0.0],
    "node.taints": [("gpu", "old"), ()],
    "node.unschedulable": [False, True],
    "node.used_fraction.mem": [0.25, 0.0],
    "node.volumes_attached": [1.0, 0.0],
    "node.zone": ["z1", None],
    "pod.annotation.note": "hello",
    "pod.attempts": 3.0,
    "pod.created": NOW - 600,
    "pod.host_network": True,
    "pod.images": ("app:1", "side:2"),
    "pod.label.app": "web",
    "pod.limit.cpu": 1.5,
    "pod.name": "web-1",
    "pod.namespace": "shop",
    "pod.node_selector": ("disk=ssd",),
    "pod.owner.kind": "ReplicaSet",
    "pod.owner.name": "web",
    "pod.previous_node": "b",
    "pod.priority": 7.0,
    "pod.qos": "Burstable",
    "pod.queued": NOW - 120,
    "pod.request.cpu": 3.0,
    "pod.runtime_class": "gvisor",
    "pod.service_account": "robot",
    "pod.tolerations": ("gpu",),
    "pod.volumes": ("data",),
    "pod.waiting": 120.0,
}
"""By the field as a policy writes it: a list has one value per node."""


OF_RUNNING_PODS = {"pod.ready", "pod.started", "pod.restarts", "pod.running", "pod.breaks_budget"}
"""Their values: tests/policy/test_pod_states.py, tests/policy/test_preempt.py."""


def frame(*changed: objects.Node) -> Frame:
    """Return the decision on a pod; changed: other states of nodes, which are all that is ever known of them."""
    cluster = Cluster()
    for body in yaml.safe_load(NODES):
        node = msgspec.convert(_texts(body), objects.Node)
        cluster.set_node(next((each for each in changed if each.metadata.name == node.metadata.name), node))
    attached = {"metadata": {"name": "x"}, "spec": {"nodeName": "a", "attacher": "csi", "source": {}}}
    cluster.set_object(msgspec.convert(attached, objects.VolumeAttachment))
    placed, wanted = (msgspec.convert(_texts(yaml.safe_load(text)), objects.Pod) for text in (PLACED, POD))
    cluster.place(cluster.templates.pod(placed), "a")
    before = msgspec.convert(_texts(yaml.safe_load(POD) | {"status": {}}), objects.Pod)
    before.metadata.uid = "before"
    cluster.confirm(cluster.templates.pod(before), "b")
    cluster.remove("before")
    return Frame(cluster.templates.pod(wanted), cluster, NOW, queued=NOW - 120, attempts=3)


def _texts(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with its time as JSON has it, not as YAML reads it."""
    created = body["metadata"].get("creationTimestamp")
    if created is not None:
        body["metadata"]["creationTimestamp"] = created.isoformat().replace("+00:00", "Z")
    return body


def test_every_field_has_a_value_here() -> None:
    read = {text for value in VALUES for text in (value, value.partition("[")[0], value.rpartition(".")[0])}
    assert environment().fields.keys() - read == OF_RUNNING_PODS


@pytest.mark.parametrize("text", VALUES)
def test_a_field_has_the_value_that_the_manifest_says(text: str) -> None:
    got, info = value_of(text, frame())
    expected = VALUES[text]

    assert info.shape is (Shape.NODE if isinstance(expected, list) else Shape.DECISION)
    assert got == (expected if isinstance(expected, list) else [expected] * 2)


def test_what_a_node_reports_of_itself_is_read_again_when_it_changes() -> None:
    asked = frame()
    bodies = yaml.safe_load(NODES)
    bodies[0]["status"]["nodeInfo"]["kernelVersion"] = "6.2"
    bodies[0]["status"]["capacity"]["cpu"] = "8"
    bodies[0]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-07T11:58:00Z"
    before = [value_of(text, asked)[0][0] for text in ("node.kernel", "node.capacity.cpu", "node.condition_age.Ready")]
    asked.cluster.set_node(msgspec.convert(_texts(bodies[0]), objects.Node))
    after = [value_of(text, asked)[0][0] for text in ("node.kernel", "node.capacity.cpu", "node.condition_age.Ready")]

    assert before == ["6.1", 4.1, 60.0]
    assert after == ["6.2", 8.0, 120.0]


TIME = "2026-01-07T10:00:00Z"
CHANGED: dict[str, Any] = {
    "metadata.uid": "second",
    "metadata.labels": {"disk": "hdd", "topology.kubernetes.io/zone": "z2", "kubernetes.io/arch": "arm64"},
    "metadata.annotations": {"owner": "blue", "policy-scheduler/hourly-price": "2"},
    "metadata.owner_references": [objects.OwnerReference(kind="Machine", name="m", uid="m")],
    "metadata.creation_timestamp": TIME,
    "metadata.deletion_timestamp": TIME,
    "metadata.finalizers": ["a/b"],
    "spec.unschedulable": True,
    "spec.taints": [objects.Taint("other", "", "NoSchedule")],
    "spec.provider_id": "gce://zone/i-1",
    "spec.pod_preemption_policy": NodePodPreemptionPolicy(disable_resize_preemption=["*"]),
    "status.capacity": {"cpu": "9", "memory": "10Gi", "pods": "10"},
    "status.allocatable": {"cpu": "3", "memory": "7Gi", "pods": "9"},
    "status.conditions": [
        objects.NodeCondition("Ready", "Unknown", TIME),
        objects.NodeCondition("DiskPressure", "True"),
    ],
    "status.images": [objects.ContainerImage(["app:2"], 6)],
    "status.addresses": [objects.NodeAddress("InternalIP", "10.0.0.9")],
    "status.node_info": objects.NodeSystemInfo(
        kernel_version="6.9", kubelet_version="v1.37.0", container_runtime_version="cri-o://1"
    ),
    "status.declared_features": ["GuaranteedQoSPodCPUResize"],
}
"""Another value of each part of a node that is read of the API server."""


def parts() -> set[str]:
    parents = {"metadata": objects.ObjectMeta, "spec": objects.NodeSpec, "status": objects.NodeStatus}
    assert {each.name for each in msgspec.structs.fields(objects.Node)} == parents.keys()
    return {f"{name}.{each.name}" for name, kind in parents.items() for each in msgspec.structs.fields(kind)}


def test_each_part_of_a_node_that_is_decoded_is_compared() -> None:
    """What is left out of the comparison keeps its old value in columns: a node's age, once."""
    compared = {path for paths in (*PARTS.values(), *DERIVED.values()) for path in paths}
    assert compared | set(UNREAD) == parts()
    assert CHANGED.keys() == compared


@pytest.mark.parametrize("without_capacity", [False, True])
@pytest.mark.parametrize("path", CHANGED)
def test_every_field_follows_each_change_of_a_node(path: str, without_capacity: bool) -> None:
    def of_node_a(**more: Any) -> objects.Node:
        node = msgspec.convert(_texts(yaml.safe_load(NODES)[0]), objects.Node)
        if without_capacity:
            node.status.capacity = None
        for changed, value in more.items():
            parent, _, name = changed.partition(".")
            setattr(getattr(node, parent), name, value)
        return node

    texts = [text for text in VALUES if text.startswith("node.")]

    def values(asked: Frame) -> dict[str, Any]:
        names = asked.cluster.nodes.names
        return {text: dict(zip(names, value_of(text, asked)[0], strict=True)) for text in texts}

    asked = frame(of_node_a())
    values(asked)  # all columns are there from now on
    changes = asked.cluster.set_node(of_node_a(**{path: CHANGED[path]}))

    assert changes, "somebody waits for it"
    assert values(asked) == values(frame(of_node_a(**{path: CHANGED[path]})))


def test_a_change_of_the_version_alone_is_none() -> None:
    asked = frame()
    again = msgspec.convert(_texts(yaml.safe_load(NODES)[0]), objects.Node)
    again.metadata.resource_version, again.metadata.generation = "7", 3
    assert asked.cluster.set_node(again) == frozenset()
