"""What plugins keep between decisions never shows: a cluster with a history answers as one built just now."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster import objects, pod_counters
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready, Skip
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import InterPodAffinity
from kube_policy_scheduler.framework.plugins.node_volume_limits import NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.pod_topology_spread import PodTopologySpread
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.framework.plugins.volume_restrictions import VolumeRestrictions
from kube_policy_scheduler.framework.plugins.volume_zone import VolumeZone

FILTERS = [
    VolumeRestrictions(),
    NodeVolumeLimits(),
    VolumeBinding(),
    VolumeZone(),
    PodTopologySpread(),
    InterPodAffinity(),
]
SCORES = [PodTopologySpread(), InterPodAffinity()]
NODES = ["n0", "n1", "n2", "n3"]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB: dict[str, Any] = {"matchLabels": {"app": "web"}}


def term(key: str, **more: Any) -> dict[str, Any]:
    return {"labelSelector": WEB, "topologyKey": key, **more}


def constraint(key: str, when: str, **more: Any) -> dict[str, Any]:
    return {"labelSelector": WEB, "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": when, **more}


def claim_volumes(*names: str) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}


SPECS: list[dict[str, Any]] = [
    {},
    {
        "topologySpreadConstraints": [
            constraint(ZONE, "DoNotSchedule", minDomains=2),
            constraint(HOST, "ScheduleAnyway"),
        ]
    },
    {"topologySpreadConstraints": [constraint(HOST, "DoNotSchedule", nodeTaintsPolicy="Honor")]},
    {"topologySpreadConstraints": [constraint(ZONE, "ScheduleAnyway")]},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(HOST)]}}},
    {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    term(ZONE, namespaceSelector={"matchLabels": {"team": "x"}})
                ]
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term(HOST)}]
            },
        }
    },
    claim_volumes("csi"),
    claim_volumes("late", "single"),
    claim_volumes("zonal", "csi"),
    {"volumes": [{"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}}]},
]

Body = dict[str, Any]


def claim(name: str, *, volume: str = "", storage_class: str = "late", mode: str = "ReadWriteOnce") -> Body:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "metadata": {"name": name, "namespace": "red", "uid": name, "annotations": annotations},
        "spec": {
            "volumeName": volume,
            "storageClassName": storage_class,
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, *, handle: str = "", labels: dict[str, str] | None = None, node: str = "") -> Body:
    expression = {"key": HOST, "operator": "In", "values": [node]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "csi": {"driver": "csi.example.com", "volumeHandle": handle or name},
            "nodeAffinity": affinity if node else None,
        },
        "status": {"phase": "Available"},
    }


STORAGE: list[tuple[type, Body]] = [
    (objects.PersistentVolumeClaim, claim("csi", volume="pv-csi")),
    (objects.PersistentVolumeClaim, claim("csi")),
    (objects.PersistentVolumeClaim, claim("late")),
    (objects.PersistentVolumeClaim, claim("late", volume="pv-local")),
    (objects.PersistentVolumeClaim, claim("single", volume="pv-single", mode="ReadWriteOncePod")),
    (objects.PersistentVolumeClaim, claim("zonal", volume="pv-zonal")),
    (objects.PersistentVolume, volume("pv-csi")),
    (objects.PersistentVolume, volume("pv-csi", handle="other")),
    (objects.PersistentVolume, volume("pv-single")),
    (objects.PersistentVolume, volume("pv-zonal", labels={ZONE: "a"})),
    (objects.PersistentVolume, volume("pv-zonal", labels={ZONE: "a__b"}, handle="other")),
    (objects.PersistentVolume, volume("pv-local", node="n1")),
    (objects.StorageClass, {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}),
    (
        objects.StorageClass,
        {
            "metadata": {"name": "late"},
            "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ),
    *(
        (
            objects.CSINode,
            {
                "metadata": {"name": name},
                "spec": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": limit}}]},
            },
        )
        for name in ("n0", "n1")
        for limit in (1, 2)
    ),
    (
        objects.VolumeAttachment,
        {
            "metadata": {"name": "at"},
            "spec": {
                "attacher": "csi.example.com",
                "nodeName": "n0",
                "source": {"persistentVolumeName": "pv-single"},
            },
        },
    ),
    (objects.Service, {"metadata": {"name": "s", "namespace": "red"}, "spec": {"selector": {"app": "web"}}}),
    (objects.Service, {"metadata": {"name": "s", "namespace": "red"}, "spec": {"selector": {"app": "db"}}}),
    (objects.Namespace, {"metadata": {"name": "red", "labels": {"team": "x"}}}),
    (objects.Namespace, {"metadata": {"name": "red", "labels": {"team": "y"}}}),
    (objects.Namespace, {"metadata": {"name": "blue", "labels": {"team": "x"}}}),
]


def pod_body(number: int, *, namespace: str, app: str, spec: int, terminating: bool = False) -> Body:
    return {
        "metadata": {
            "name": f"p{number}",
            "uid": f"p{number}",
            "namespace": namespace,
            "labels": {"app": app},
            "deletionTimestamp": "2026-01-01T00:00:00Z" if terminating else None,
        },
        "spec": SPECS[spec],
    }


class World:
    """The cluster with a history, and what it should contain."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes: dict[str, Body] = {}
        self.pods: dict[int, tuple[Body, str]] = {}
        self.things: dict[tuple[type, str], Any] = {}

    def apply(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("node", name, zone, tainted):
                taints = [{"key": "k", "value": "", "effect": "NoSchedule"}] if tainted else []
                labels = {HOST: name} | ({ZONE: zone} if zone else {})
                self.nodes[name] = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
                self.cluster.set_node(msgspec.convert(self.nodes[name], objects.Node))
            case ("no node", name):
                self.nodes.pop(name, None)
                self.cluster.remove_node(name)
            case ("place", number, name, what):
                body = pod_body(number, **what)
                self.pods[number] = (body, name)
                self.cluster.place(self.cluster.templates.pod(msgspec.convert(body, objects.Pod)), name)
            case ("displace", number):
                self.pods.pop(number, None)
                self.cluster.displace(f"p{number}")
            case ("set", (kind, body)):
                thing = msgspec.convert(body, kind)
                self.things[kind, thing.metadata.name] = thing
                self.cluster.set_object(thing)
            case ("remove", (kind, body)):
                thing = msgspec.convert(body, kind)
                self.things.pop((kind, thing.metadata.name), None)
                self.cluster.remove_object(thing)

    def rebuilt(self) -> Cluster:
        fresh = Cluster()
        for body in self.nodes.values():
            fresh.set_node(msgspec.convert(body, objects.Node))
        for thing in self.things.values():
            fresh.set_object(thing)
        for body, name in self.pods.values():
            fresh.place(fresh.templates.pod(msgspec.convert(body, objects.Pod)), name)
        return fresh


def answers(cluster: Cluster, body: Body) -> dict[str, Any]:
    """Return everything the plugins say about a pod, by node name; and check that they do not contradict themselves."""
    pod = cluster.templates.pod(msgspec.convert(body, objects.Pod))
    frame = Frame(pod, cluster, 0.0)
    names = [info.name for info in cluster.nodes.infos]
    backwards = np.arange(len(names), dtype=np.int64)[::-1].copy()
    found: dict[str, Any] = {}
    for plugin in FILTERS:
        prepared = plugin.pre_filter(frame)
        if not isinstance(prepared, Ready):
            found[plugin.name] = prepared
            continue
        passing = plugin.filter(frame, prepared.state)
        rejections = plugin.rejections(frame, prepared.state)
        rejected = np.zeros(len(names), np.bool_)
        for rejection in rejections:
            rejected |= rejection.where
        assert (passing == ~rejected).all()
        assert (plugin.filter(frame.at(backwards), prepared.state) == passing[backwards]).all()
        reasons = [{(r.code, r.reason) for r in rejections if r.where[row]} for row in range(len(names))]
        found[plugin.name] = dict(zip(names, reasons, strict=True))
    for scorer in SCORES if names else ():
        chosen = frame.at(np.sort(backwards))
        ready = scorer.pre_score(chosen)
        if isinstance(ready, Skip):
            found[f"{scorer.name} score"] = ready
            continue
        scores = scorer.normalize(chosen, ready.state, scorer.score(chosen, ready.state))
        found[f"{scorer.name} score"] = dict(zip(names, scores.tolist(), strict=True))
    return found


what = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(["red", "red", "blue"]),
        "app": st.sampled_from(["web", "db"]),
        "spec": st.integers(0, len(SPECS) - 1),
        "terminating": st.booleans(),
    }
)
node_events = st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["a", "b", None]), st.booleans())
events = st.lists(
    st.one_of(
        node_events,
        st.tuples(st.just("no node"), st.sampled_from(NODES)),
        *[st.tuples(st.just("place"), st.integers(0, 7), st.sampled_from(NODES), what)] * 3,
        st.tuples(st.just("displace"), st.integers(0, 7)),
        *[st.tuples(st.just("set"), st.sampled_from(STORAGE))] * 2,
        st.tuples(st.just("remove"), st.sampled_from(STORAGE)),
    ),
    min_size=5,
    max_size=30,
)


@given(events=events, kept=st.sampled_from([2, 1024]), most=st.sampled_from([0, 500, 2**30]))
def test_a_cluster_with_a_history_answers_as_one_built_just_now(
    events: list[tuple[Any, ...]], kept: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_counters, "_MAX_KEPT", kept)
        patch.setattr(pod_counters, "MIN_COUNTER_BYTES", most)
        patch.setattr(pod_counters, "COUNTER_BYTES_PER_NODE", 0)
        _compare(events)


def _compare(events: list[tuple[Any, ...]]) -> None:
    world = World()
    for position, name in enumerate(NODES):
        world.apply(("node", name, "ab"[position % 2], False))
    for thing in STORAGE:
        world.apply(("set", thing))
    asked = [pod_body(90 + n, namespace="red", app="web", spec=n) for n in range(len(SPECS))]
    for event in events:
        world.apply(event)
        fresh = world.rebuilt()
        for body in asked:
            assert answers(world.cluster, body) == answers(fresh, body)
