"""The clusters of a fleet as rows of a node table: what policies read of them are the columns that nodes have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, FloatArray, IntArray, Rows
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.model import NOTHING, FleetCluster, Member, Workload
from kube_policy_scheduler.times import rfc3339

REGION_KEY, ZONE_KEY, PROVIDER_KEY = "policy-scheduler/region", "policy-scheduler/zone", "policy-scheduler/provider"
"""Labels that the rows have besides those of the clusters, so that clusters are grouped as nodes are."""


class FleetColumns:
    """Clusters as rows, in their order. Made once for a fleet as it is; what differs by workload is in the frame."""

    def __init__(self, clusters: Sequence[FleetCluster], before: FleetColumns | None = None) -> None:
        """Lay out clusters.

        Args:
            clusters: in their order.
            before: columns that nobody asks any more; if they are of clusters of the same names, only the rows that
                differ are made again. A status that changes costs little then.
        """
        self.clusters = tuple(clusters)
        self.rows: dict[str, int] = {each.name: row for row, each in enumerate(self.clusters)}
        alike = before if before is not None and list(before.rows) == list(self.rows) else None
        self.cluster: Cluster = alike.cluster if alike is not None else Cluster()
        """Its nodes are the clusters."""
        known = alike.clusters if alike is not None else (None,) * len(self.clusters)
        differ = False
        for old, new in zip(known, self.clusters, strict=True):
            if old is new:
                continue
            differ = differ or old is None or _without_amounts(old) != _without_amounts(new)
            if old is None or _facts(old) != _facts(new):
                self.cluster.set_node(_row(new))
        self.facts: object = alike.facts if alike is not None and not differ else object()
        """The same object as long as clusters differ in nothing but what they have and what is requested of it."""
        self.amounts: object = object()
        """Another object for each fleet, so that who keeps it keeps no columns."""
        self._kept: dict[Hashable, FloatArray] = {}

    def __len__(self) -> int:
        return len(self.clusters)

    def column(self, key: Hashable, read: Callable[[FleetCluster], float | None]) -> FloatArray:
        """Return `float64[clusters]`, NaN where missing; read-only. key: the same for the same reader."""
        known = self._kept.get(key)
        if known is None:
            found = (read(each) for each in self.clusters)
            values = (np.nan if value is None else value for value in found)
            known = self._kept[key] = np.fromiter(values, np.float64, len(self.clusters))
        return known


class Room(msgspec.Struct, frozen=True):
    """How many more replicas of a workload fit into each cluster."""

    replicas: FloatArray
    """`float64[clusters]`; NaN where nobody says."""
    sources: tuple[str, ...]
    """By cluster: who says so; "" where nobody does."""


class FleetFrame(msgspec.Struct, frozen=True):
    """The inputs of a decision about a workload, in the place of `framework.frame.Frame`."""

    workload: Workload
    columns: FleetColumns
    room: Room
    now: float
    """Unix seconds by the wall clock."""
    tiers: FloatArray | None = None
    """`float64[clusters]`: the tier of each cluster by the affinity term; None: there is but one."""
    rows: Rows = ALL_ROWS
    signals: Signals = Signals.EMPTY
    extremes: None = None
    """A frame of all feasible clusters compares them with each other."""

    @property
    def cluster(self) -> Cluster:
        """Return what has the clusters as its nodes."""
        return self.columns.cluster

    @property
    def size(self) -> int:
        """Return the number of rows of this frame."""
        return len(self.columns) if isinstance(self.rows, slice) else len(self.rows)

    @property
    def only_row(self) -> int:
        """Return the row of a frame that has one."""
        assert not isinstance(self.rows, slice)
        return int(self.rows.item())

    def members(self) -> list[Member | None]:
        """Return for each row what is known of the nodes and pods of the cluster; None: they are not read."""
        return [self.columns.clusters[row].member for row in self.index().tolist()]

    def index(self) -> IntArray:
        """Return the row numbers of this frame, `int64[rows]`."""
        if isinstance(self.rows, slice):
            return np.arange(len(self.columns), dtype=np.int64)
        return self.rows

    def at(self, rows: Rows) -> FleetFrame:
        """Return the same inputs with other rows."""
        return msgspec.structs.replace(self, rows=rows)


def domains_of(topology: str | None, frame: FleetFrame) -> Mapping[str, str]:
    """Return the domain of each cluster that is in one, by name. topology: a label key; None: each is a domain."""
    rows = frame.columns.rows
    if topology is None:
        return {name: name for name in rows}
    infos = frame.cluster.nodes.infos
    return {name: domain for name, row in rows.items() if (domain := infos[row].labels.get(topology)) is not None}


def _facts(cluster: FleetCluster) -> tuple[object, ...]:
    """Return what a row is made of."""
    places = cluster.provider, cluster.region, cluster.zones[:1]
    return places, cluster.labels, cluster.annotations, cluster.taints, cluster.conditions


def _without_amounts(cluster: FleetCluster) -> FleetCluster:
    return msgspec.structs.replace(cluster, allocatable=NOTHING, allocated=NOTHING, allocating=NOTHING)


def _row(cluster: FleetCluster) -> objects.Node:
    """Return a cluster as a row; one with several zones is in the first of them."""
    places = {
        PROVIDER_KEY: cluster.provider,
        REGION_KEY: cluster.region,
        ZONE_KEY: cluster.zones[0] if cluster.zones else "",
    }
    labels = dict(cluster.labels) | {key: value for key, value in places.items() if value}
    conditions = [
        objects.NodeCondition(
            type=kind,
            status=each.status,
            last_transition_time=rfc3339(each.since) if each.since is not None else None,
        )
        for kind, each in cluster.conditions.items()
    ]
    return objects.Node(
        metadata=objects.ObjectMeta(name=cluster.name, labels=labels, annotations=dict(cluster.annotations)),
        spec=objects.NodeSpec(
            taints=[objects.Taint(key=each.key, value=each.value, effect=each.effect) for each in cluster.taints]
        ),
        status=objects.NodeStatus(conditions=conditions),
    )
