"""How full and how even a cluster is: load of nodes, pods over zones, spread of namespaces. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster

ZONE = "topology.kubernetes.io/zone"
RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Load:
    """What pods request of one resource, as shares of what nodes offer."""

    resource: str
    most: float
    mean: float
    deviation: float
    """Standard deviation over nodes."""
    empty: int
    """Nodes of which nothing is requested."""
    shares: tuple[float, ...]
    """By node, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the pods of one group lie."""

    group: str
    pods: int
    nodes: int
    """Nodes that have one of them."""
    most: int
    """Pods on the node with most of them."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One cluster in numbers."""

    loads: tuple[Load, ...]
    zones: tuple[tuple[str, int], ...]
    """Pods by zone, by name; empty where nodes have no zones."""
    spreads: tuple[Spread, ...]
    """By group."""

    @property
    def skew(self) -> int:
        """Return how many pods the fullest zone has more than the emptiest."""
        counts = [count for _, count in self.zones]
        return max(counts) - min(counts) if counts else 0


def figures(cluster: Cluster, uids: Sequence[str], *, by: str = "") -> Figures:
    """Return the figures of a cluster.

    Args:
        cluster: nodes and pods.
        uids: the pods whose zones and groups are counted.
        by: the pod label that makes a group; "" for the namespace.
    """
    infos = {info.name: info for info in cluster.nodes.infos}
    zones: Counter[str] = Counter({zone: 0 for info in infos.values() if (zone := info.labels.get(ZONE)) is not None})
    groups: dict[str, Counter[str]] = {}
    for uid in uids:
        pod, host = cluster.pods.get(uid), cluster.node_of(uid)
        if pod is None or host is None or host not in infos:
            continue
        zone = infos[host].labels.get(ZONE)
        if zone is not None:
            zones[zone] += 1
        group = pod.labels.get(by, "") if by else pod.namespace
        groups.setdefault(group, Counter())[host] += 1
    spreads = [Spread(name, hosts.total(), len(hosts), max(hosts.values())) for name, hosts in sorted(groups.items())]
    return Figures(tuple(_loads(cluster)), tuple(sorted(zones.items())), tuple(spreads))


def _loads(cluster: Cluster) -> list[Load]:
    nodes = cluster.nodes
    found = []
    order = sorted(range(nodes.size), key=nodes.names.__getitem__)
    for resource in RESOURCES:
        offered = nodes.allocatable(resource)[: nodes.size][order]
        taken = nodes.requested(resource)[: nodes.size][order]
        shares = np.divide(taken, offered, out=np.zeros(len(order)), where=offered > 0)
        if len(shares):
            most, mean, deviation = float(shares.max()), float(shares.mean()), float(shares.std())
            empty = int((taken == 0).sum())
            found.append(Load(resource, most, mean, deviation, empty, tuple(round(float(s), 4) for s in shares)))
    return found
