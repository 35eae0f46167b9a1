"""Random small clusters that come about by events, for laws about columns, counters and rehearsals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo

NODES: tuple[dict[str, Any], ...] = (
    {"labels": {"zone": "a"}, "cpu": "4"},
    {"labels": {"zone": "b", "disk": "ssd", "cores": "16"}, "cpu": "2", "pods": "3"},
    {"labels": {"zone": "b"}, "cpu": "8", "taints": [{"key": "spot", "effect": "NoSchedule"}]},
    {"labels": {"disk": "hdd", "cores": "4"}, "cpu": "1", "images": [{"names": ["app:1", "app"], "sizeBytes": 10**9}]},
    {"labels": {"zone": "c"}, "cpu": "4", "taints": [{"key": "a", "effect": "PreferNoSchedule"}]},
    {"labels": {}, "cpu": "4", "unschedulable": True},
    {"labels": {"zone": "a"}, "cpu": "3", "images": [{"names": ["app:1"], "sizeBytes": 10**9}], "gpu": "2"},
)
APP = {"matchLabels": {"app": "x"}}


def _affinity(kind: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": APP, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


PODS: tuple[dict[str, Any], ...] = (
    {},
    {"cpu": "1500m", "priority": 5},
    {"memory": "8Ei", "priority": 1},
    {"cpu": "500m", "ports": [{"hostPort": 80}], "priority": 1},
    {"ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}], "tolerations": [{"operator": "Exists"}]},
    {"cpu": "250m", "nodeSelector": {"zone": "b"}},
    {"gpu": "1", "image": "app"},
    {"cpu": "1", "labels": {"app": "x"}, **_affinity("podAntiAffinity", "host")},
    {"labels": {"app": "x"}, "deleting": True},
    {"labels": {"app": "x"}, "cpu": "100m", "priority": -1},
    {**_affinity("podAffinity", "zone"), "labels": {"app": "x"}},
    {
        "cpu": "300m",
        "labels": {"app": "x"},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP},
            {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": APP},
        ],
    },
    {
        "cpu": "3",
        "priority": 10,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]},
                        {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]},
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
                ],
            }
        },
    },
    {
        "cpu": "200m",
        "priority": 2,
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
            {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}},
        ],
    },
)
_OWN = {"cpu", "memory", "gpu", "ports", "labels", "image", "deleting"}
Event = tuple[str, int, int]
"""What happens, to which node or pod by number, and in which variant or where."""
_KINDS = st.sampled_from(["node", "node", "node", "unnode", "pod", "pod", "pod", "pod", "unpod", "nominate"])
EVENTS = st.lists(st.tuples(_KINDS, st.integers(0, 7), st.integers(0, 95)), min_size=4, max_size=40)
WIDE = st.sampled_from([63, 64, 65, 66, 130])
"""Nodes, about as many as columns have room for at first, and about twice as many."""
WIDE_EVENTS = st.lists(
    st.one_of(
        st.tuples(_KINDS, st.integers(0, 129), st.integers(0, 129)),
        st.tuples(st.just("unnode"), st.integers(0, 129), st.just(0)),
    ),
    max_size=25,
)


@dataclass
class World:
    """A cluster kept by events, and the final state from which the same could be built at once."""

    size: int = 5
    """Nodes that there may be."""
    cluster: Cluster = field(default_factory=Cluster)
    nodes: dict[str, objects.Node] = field(default_factory=dict)
    pods: dict[str, tuple[objects.Pod, str]] = field(default_factory=dict)
    nominated: dict[str, tuple[objects.Pod, str]] = field(default_factory=dict)

    def happen(self, event: Event) -> None:
        """Let one event happen."""
        match event:
            case ("node", number, variant):
                node = make_node(f"n{number % self.size}", NODES[variant % len(NODES)])
                self.nodes[node.metadata.name] = node
                self.cluster.set_node(node)
            case ("unnode", number, _):
                if self.nodes.pop(f"n{number % self.size}", None) is not None:
                    self.cluster.remove_node(f"n{number % self.size}")
            case ("pod", number, variant):
                pod = make_pod(f"p{number}", PODS[variant % len(PODS)])
                self._forget(pod.metadata.uid)
                self.pods[pod.metadata.uid] = (pod, f"n{variant % (self.size + 1)}")  # the last is never a node
                self.cluster.place(self.cluster.templates.pod(pod), f"n{variant % (self.size + 1)}")
            case ("nominate", number, variant):
                pod = make_pod(f"p{number}", PODS[variant % len(PODS)])
                self._forget(pod.metadata.uid)
                self.nominated[pod.metadata.uid] = (pod, f"n{variant % self.size}")
                self.cluster.nominate(self.cluster.templates.pod(pod), f"n{variant % self.size}")
            case ("unpod", number, _):
                self._forget(f"p{number}")

    def _forget(self, uid: str) -> None:
        self.cluster.displace(uid)
        if self.pods.pop(uid, None) is None and uid in self.nominated:
            pod, _ = self.nominated.pop(uid)
            self.cluster.nominate(self.cluster.templates.pod(pod), "")

    def rebuilt(self) -> Cluster:
        """Return a cluster of the same final state, built at once."""
        cluster = Cluster(self.cluster.rules)
        for info in self.cluster.nodes.infos:
            cluster.set_node(self.nodes[info.name])
        for pod, node_name in self.pods.values():
            cluster.place(cluster.templates.pod(pod), node_name)
        for pod, node_name in self.nominated.values():
            cluster.nominate(cluster.templates.pod(pod), node_name)
        return cluster


def make_node(name: str, short: dict[str, Any]) -> objects.Node:
    """Return a node of one variant."""
    allocatable = {"cpu": short["cpu"], "memory": "8Gi", "pods": short.get("pods", "10")}
    if "gpu" in short:
        allocatable["example.com/gpu"] = short["gpu"]
    body = {
        "metadata": {"name": name, "labels": {"host": name} | short["labels"]},
        "spec": {"taints": short.get("taints", []), "unschedulable": short.get("unschedulable", False)},
        "status": {"allocatable": allocatable, "images": short.get("images", [])},
    }
    return msgspec.convert(body, objects.Node)


def make_pod(name: str, short: dict[str, Any]) -> objects.Pod:
    """Return a pod of one variant."""
    requests = {name: short[name] for name in ("cpu", "memory") if name in short}
    if "gpu" in short:
        requests["example.com/gpu"] = short["gpu"]
    container = {"name": "c", "image": short.get("image", "app:1"), "ports": short.get("ports", [])}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": short.get("labels", {})}
    if short.get("deleting"):
        metadata["deletionTimestamp"] = "2026-02-01T00:00:00Z"
    body = {
        "metadata": metadata,
        "spec": {"containers": [container | {"resources": {"requests": requests}}]}
        | {key: value for key, value in short.items() if key not in _OWN},
        "status": {"startTime": f"2026-01-01T00:00:{sum(map(ord, name)) % 60:02}Z"},
    }
    return msgspec.convert(body, objects.Pod)


def incoming(cluster: Cluster, variant: int) -> PodInfo:
    """Return a pod to schedule."""
    return cluster.templates.pod(make_pod("incoming", PODS[variant]))
