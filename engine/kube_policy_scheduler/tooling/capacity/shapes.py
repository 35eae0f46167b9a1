"""The shapes of a cluster's nodes, and new, empty nodes of a shape. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.node_info import HOSTNAME_LABEL, NodeInfo
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.prices import price_of
from kube_policy_scheduler.tooling.cluster_state import is_of_node

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
_NOT_READY = "node.kubernetes.io/"
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes that are alike but for their names."""

    like: str
    """The first of them by name; a new node is a copy of it without its pods."""
    nodes: int
    """How many there are."""
    instance_type: str
    zone: str
    allocatable: dict[str, int]
    """What one offers, in column units."""
    price: float | None
    """Per hour; None where it is not known."""


def node_shapes(cluster: Cluster, *, most: int) -> list[Shape]:
    """Return the shapes of the nodes that take pods, the most frequent first; at most some.

    Labels whose values tell single nodes apart, such as the hostname, make no shapes.
    """
    infos = [info for info in cluster.nodes.infos if not info.node.spec.unschedulable]
    telling = _shared_labels(infos)
    alike: defaultdict[object, list[NodeInfo]] = defaultdict(list)
    for info in infos:
        labels = tuple(sorted(item for item in info.labels.items() if item[0] in telling))
        taints = tuple(sorted((t.key, t.value, t.effect) for t in info.taints if not t.key.startswith(_NOT_READY)))
        alike[tuple(sorted(info.allocatable.items())), labels, taints].append(info)
    ranked = sorted((sorted(group, key=lambda info: info.name) for group in alike.values()), key=_rank)
    return [_shape(group) for group in ranked[:most]]


def shape_like(cluster: Cluster, name: str) -> Shape:
    """Return the shape of one node."""
    return _shape([cluster.nodes.infos[cluster.nodes.rows[name]]])


def _rank(group: list[NodeInfo]) -> tuple[int, str]:
    return -len(group), group[0].name


def _shape(group: list[NodeInfo]) -> Shape:
    first = group[0]
    labels = first.labels
    known = [price for info in group if not math.isnan(price := price_of(info.node))]
    kind, zone = labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, "")
    return Shape(first.name, len(group), kind, zone, dict(first.allocatable), min(known) if known else None)


def _shared_labels(infos: list[NodeInfo]) -> set[str]:
    """Return the labels whose values are shared: fewer values than half of the nodes that have it."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    counts: defaultdict[str, int] = defaultdict(int)
    for info in infos:
        for key, value in info.labels.items():
            values[key].add(value)
            counts[key] += 1
    few = {key for key, found in values.items() if len(found) <= max(1, _HALF * counts[key])}
    return (few | {INSTANCE_TYPE, ZONE}) - {HOSTNAME_LABEL}


def new_nodes(cluster: Cluster, shape: Shape) -> Iterator[tuple[objects.Node, list[PodInfo]]]:
    """Yield new nodes of a shape without end, each with the DaemonSet pods and static pods that it starts with."""
    info = cluster.nodes.infos[cluster.nodes.rows[shape.like]]
    known, number = set(cluster.nodes.rows), 0
    own = [pod for pod in cluster.pods_on(shape.like).values() if is_of_node(pod) and not pod.volumes]
    while True:
        number += 1
        name = f"{info.name}-new-{number}"
        if name in known:
            continue
        labels = {**info.labels} | ({HOSTNAME_LABEL: name} if HOSTNAME_LABEL in info.labels else {})
        meta = msgspec.structs.replace(info.node.metadata, name=name, uid=name, labels=labels)
        others = [c for c in info.node.status.conditions or () if c.type != "Ready"]
        status = msgspec.structs.replace(
            info.node.status, conditions=[*others, objects.NodeCondition(type="Ready", status="True")]
        )
        taints = [taint for taint in info.node.spec.taints or () if not taint.key.startswith(_NOT_READY)]
        spec = msgspec.structs.replace(info.node.spec, taints=taints)
        node = msgspec.structs.replace(info.node, metadata=meta, spec=spec, status=status)
        uids = (f"{pod.uid}-on-{name}" for pod in own)
        yield node, [msgspec.structs.replace(pod, uid=uid, name=uid) for pod, uid in zip(own, uids, strict=True)]
