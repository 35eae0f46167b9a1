"""Small clusters for tables of cases, and the results of one plugin on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, ScorePlugin, Skip
from kube_policy_scheduler.framework.status import Code, Status

Body = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
OK = ""
"""The verdict on a node that passes."""


def make_node(name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> objects.Node:
    return msgspec.convert({"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}, objects.Node)


def zoned(**zones: str) -> list[objects.Node]:
    """Return nodes by name with their zones; "" is a node without one."""
    return [make_node(name, {HOST: name} | ({ZONE: zone} if zone else {})) for name, zone in zones.items()]


def pod_body(name: str = "incoming", *, namespace: str = "default", app: str = "web", **spec: Any) -> Body:
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": {"app": app} if app else {}}
    return {"metadata": meta, "spec": spec}


def make_cluster(nodes: Iterable[objects.Node], *things: Any) -> Cluster:
    cluster = Cluster()
    for node in nodes:
        cluster.set_node(node)
    for thing in things:
        cluster.set_object(thing)
    return cluster


def add(cluster: Cluster, body: Body, node: str) -> PodInfo:
    pod = cluster.templates.pod(msgspec.convert(body, objects.Pod))
    cluster.place(pod, node)
    return pod


def fill(cluster: Cluster, *, app: str = "web", **counts: int) -> None:
    """Put pods on nodes, given as numbers by node name."""
    for node, count in counts.items():
        for number in range(count):
            add(cluster, pod_body(f"{app}-{node}-{number}", app=app), node)


def frame_of(cluster: Cluster, body: Body) -> Frame:
    return Frame(cluster.templates.pod(msgspec.convert(body, objects.Pod)), cluster, 0.0)


def verdicts(plugin: FilterPlugin, cluster: Cluster, body: Body) -> Any:
    """Return reasons by node name (`OK`, or with "!" where preemption cannot help), or what PreFilter says."""
    frame = frame_of(cluster, body)
    prepared = plugin.pre_filter(frame)
    if isinstance(prepared, Skip):
        return "skip"
    if isinstance(prepared, Status):
        return text(prepared.code, prepared.reasons)
    passing = plugin.filter(frame, prepared.state)
    found = {}
    rejections = plugin.rejections(frame, prepared.state)
    for info in cluster.nodes.infos:
        mine = [r for r in rejections if r.where[info.row]]
        assert bool(mine) is not bool(passing[info.row])
        found[info.name] = text(mine[0].code, sorted(r.reason for r in mine)) if mine else OK
    return found


def text(code: Code, reasons: Iterable[str]) -> str:
    mark = {Code.UNSCHEDULABLE: "", Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "!", Code.ERROR: "error: "}[code]
    return mark + "; ".join(reasons)


def scores(plugin: ScorePlugin, cluster: Cluster, body: Body, *, among: Iterable[str] | None = None) -> Any:
    """Return final scores by node name; `among` are the feasible nodes."""
    names = [info.name for info in cluster.nodes.infos] if among is None else list(among)
    frame = frame_of(cluster, body).at(np.array([cluster.nodes.rows[name] for name in names], np.int64))
    prepared = plugin.pre_score(frame)
    if not isinstance(prepared, Ready):
        return "skip"
    raw = plugin.score(frame, prepared.state)
    return dict(zip(names, plugin.normalize(frame, prepared.state, raw).tolist(), strict=True))
