"""What a policy of workloads can read of the clusters of a fleet: `cluster.…`, one value per cluster.

What clusters have as nodes do is read by the same functions: they are the rows of the same table.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kube_policy_scheduler.builtins import node_fields
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.fleet.columns import PROVIDER_KEY, REGION_KEY, ZONE_KEY, FleetFrame
from kube_policy_scheduler.fleet.model import HEALTHY, FleetCluster
from kube_policy_scheduler.lang.compiling.columns import texts_of
from kube_policy_scheduler.lang.environment import Key, Lists, node_field
from kube_policy_scheduler.lang.signature import (
    Amount,
    ConditionStatus,
    MaybeDuration,
    MaybeNumber,
    MaybeText,
    Number,
    Share,
    Text,
    TextList,
    Truth,
)
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, Depends

_STATIC, _ROW, _OWN = Depends.NODE, Depends.NODE | Depends.ROW, Depends.NODE | Depends.ROW | Depends.POD
_OF_BOTH = Depends.NODE | Depends.POD
"""What the workload says of the cluster, whatever else runs there."""
_MOST = 1e19
_NANOS = 1e9


@node_field("cluster.name", depends=_STATIC)
def name(frame: FleetFrame) -> Text:
    """The name of the cluster."""
    return node_fields.name.read(frame)


@node_field("cluster.label", key=Key.LABEL, depends=_STATIC)
def label(frame: FleetFrame, key: str) -> MaybeText:
    """A label of the cluster; absent if the cluster does not have it."""
    return node_fields.label.read(frame, key)


@node_field("cluster.annotation", key=Key.ANNOTATION, depends=_STATIC)
def annotation(frame: FleetFrame, key: str) -> MaybeText:
    """An annotation of the cluster; absent if the cluster does not have it."""
    return node_fields.annotation.read(frame, key)


@node_field("cluster.provider", depends=_STATIC, foreign=("cloud", "cloud_provider"))
def provider(frame: FleetFrame) -> MaybeText:
    """The provider of the cluster (`spec.provider`), such as a cloud or your own data centre."""
    return label.read(frame, PROVIDER_KEY)


@node_field("cluster.region", depends=_STATIC)
def region(frame: FleetFrame) -> MaybeText:
    """The region of the cluster (`spec.region`)."""
    return label.read(frame, REGION_KEY)


@node_field("cluster.zone", depends=_STATIC)
def zone(frame: FleetFrame) -> MaybeText:
    """The zone of the cluster; of several (`cluster.zones`) the first."""
    return label.read(frame, ZONE_KEY)


@node_field("cluster.zones", depends=_STATIC)
def zones(frame: FleetFrame) -> TextList:
    """All zones of the cluster (`spec.zones`): `"eu-1a" in cluster.zones`."""
    texts = texts_of("\0".join(each.zones) for each in frame.columns.clusters)
    return Lists(texts.codes[frame.rows], [tuple(filter(None, text.split("\0"))) for text in texts.values])


@node_field("cluster.taints", depends=_STATIC)
def taints(frame: FleetFrame) -> TextList:
    """The keys of the cluster's taints: `"gpu" in cluster.taints`."""
    return node_fields.taints.read(frame)


@node_field("cluster.version", depends=_STATIC, foreign=("kubernetes_version", "kubernetesversion"))
def version(frame: FleetFrame) -> MaybeText:
    """The version of Kubernetes of the cluster, such as `v1.36.2`: `version(cluster.version) >= version("1.30")`."""
    return _of_rows(frame, lambda each: each.version or None)


@node_field("cluster.sync_mode", depends=_STATIC)
def sync_mode(frame: FleetFrame) -> MaybeText:
    """How Karmada reaches the cluster: `Push` or `Pull`."""
    return _of_rows(frame, lambda each: each.sync_mode or None)


def _of_rows(frame: FleetFrame, read: Callable[[FleetCluster], str | None]) -> Any:
    texts = texts_of(map(read, frame.columns.clusters))
    return texts._replace(codes=texts.codes[frame.rows])


@node_field("cluster.ready", depends=_STATIC, foreign=("healthy_cluster", "up", "alive"))
def ready(frame: FleetFrame) -> Truth:
    """Whether the condition Ready of the cluster is True."""
    result: BoolArray = node_fields.ready.read(frame)
    return result


@node_field("cluster.conditions", key=Key.CONDITION, depends=_STATIC)
def conditions(frame: FleetFrame, kind: str) -> ConditionStatus:
    """The status of a condition of the cluster; absent if the cluster does not have it.

    As truth: whether the status is `True`.
    """
    return node_fields.conditions.read(frame, kind)


@node_field("cluster.condition_age", key=Key.CONDITION, depends=_STATIC | Depends.CLOCK, low=0, high=1e11)
def condition_age(frame: FleetFrame, kind: str) -> MaybeDuration:
    """How long a condition has had its status: `cluster.condition_age.Ready ?? 0s > 10min` leaves out clusters that
    just came back. Missing where the cluster does not have the condition."""
    result: FloatArray = node_fields.condition_age.read(frame, kind)
    return result


@node_field("cluster.nodes_ready", depends=_ROW, low=0, high=1e9)
def nodes_ready(frame: FleetFrame) -> MaybeNumber:
    """How many nodes of the cluster are ready (`status.nodeSummary`)."""
    return frame.columns.column("nodes ready", lambda each: each.nodes_ready)[frame.rows]


@node_field("cluster.nodes_total", depends=_STATIC, low=0, high=1e9, foreign=("nodes", "node_count"))
def nodes_total(frame: FleetFrame) -> MaybeNumber:
    """How many nodes the cluster has (`status.nodeSummary`)."""
    return frame.columns.column("nodes", lambda each: each.nodes_total)[frame.rows]


@node_field("cluster.allocatable", key=Key.RESOURCE, depends=_STATIC | Depends.OFFER, low=0, high=_MOST)
def allocatable(frame: FleetFrame, resource: str) -> Amount:
    """The allocatable amount of a resource, summed over the nodes of the cluster: cpu in cores, memory in bytes."""
    return _amount(frame, "allocatable", resource, lambda each: each.allocatable.get(resource))


@node_field("cluster.requested", key=Key.RESOURCE, depends=_ROW, low=0, high=_MOST, foreign=("used", "usage"))
def requested(frame: FleetFrame, resource: str) -> Amount:
    """The sum of the requests of the pods of the cluster, with those that have no node yet."""
    return _amount(
        frame,
        "requested",
        resource,
        lambda each: each.requested(resource) if resource in each.allocatable else None,
    )


@node_field(
    "cluster.free",
    key=Key.RESOURCE,
    depends=_ROW,
    low=-_MOST,
    high=_MOST,
    foreign=("available", "remaining", "idle"),
    advice="write `cluster.free.cpu`, or `cluster.room` for how many more replicas fit",
)
def free(frame: FleetFrame, resource: str) -> Amount:
    """The free amount of a resource: allocatable minus requested. A sum: one replica may still fit on no node."""
    return _amount(frame, "free", resource, lambda each: each.free(resource))


@node_field("cluster.used_fraction", key=Key.RESOURCE, depends=_ROW, low=0, high=1e19)
def used_fraction(frame: FleetFrame, resource: str) -> Share:
    """The requested share of the allocatable amount, from 0 to 1; 1 if the cluster has no cpu, memory or storage."""

    def share(each: FleetCluster) -> float | None:
        if not each.counts_requests:
            return None
        offered = each.allocatable.get(resource, 0)
        return each.requested(resource) / offered if offered > 0 else 1.0 if resource in NATIVE_RESOURCES else None

    return frame.columns.column(("used fraction", resource), share)[frame.rows]


def _amount(frame: FleetFrame, what: str, resource: str, read: Callable[[FleetCluster], int | None]) -> FloatArray:
    """Return a column in the units of the language: 0 of a resource of every node that the cluster does not report."""
    column = frame.columns.column((what, resource), read)[frame.rows] / _NANOS
    return np.nan_to_num(column, nan=0.0) if resource in NATIVE_RESOURCES else column


@node_field("cluster.room", depends=_OWN, low=0, high=_MOST, foreign=("capacity", "space"))
def room(frame: FleetFrame) -> Number:
    """How many more replicas of the workload fit into the cluster, beside those that it has.

    `cluster.room_by` says who counted; 0 where nobody did.
    """
    return np.nan_to_num(frame.room.replicas[frame.rows], nan=0.0)


@node_field("cluster.room_by", depends=_OWN)
def room_by(frame: FleetFrame) -> MaybeText:
    """Who says how many more replicas fit.

    `capacity` knows the nodes and the rules of the cluster, `estimator` is Karmada's own, `member` knows the nodes and
    pods but not the policies of the cluster, `models` and `summary` follow from its status.
    """
    texts = texts_of(source or None for source in frame.room.sources)
    return texts._replace(codes=texts.codes[frame.rows])


def _replicas(frame: FleetFrame, read: Callable[[str], float]) -> FloatArray:
    values = (read(each.name) for each in frame.columns.clusters)
    return np.fromiter(values, np.float64, len(frame.columns))[frame.rows]


@node_field("cluster.has", depends=_OF_BOTH, low=0, high=_MOST, foreign=("replicas", "running", "assigned"))
def has(frame: FleetFrame) -> Number:
    """How many replicas of the workload the cluster has, as last decided (`spec.clusters`)."""
    return _replicas(frame, lambda name: frame.workload.has.get(name, 0))


@node_field("cluster.healthy", depends=_OF_BOTH)
def healthy(frame: FleetFrame) -> Truth:
    """Whether the workload is healthy in the cluster; false where it does not run or nobody knows."""
    return _replicas(frame, lambda name: frame.workload.health.get(name) == HEALTHY) > 0


@node_field("cluster.evicting", depends=_OF_BOTH, foreign=("leaving", "draining"))
def evicting(frame: FleetFrame) -> Truth:
    """Whether the workload is leaving the cluster: it has a graceful eviction task."""
    leaving = {task.cluster for task in frame.workload.evicting}
    return _replicas(frame, lambda name: name in leaving) > 0


@node_field("cluster.tier", depends=_OWN, low=0, high=1e9)
def tier(frame: FleetFrame) -> Number:
    """The tier of the cluster by the workload's affinity: 0, or 1 and more for overflow affinities."""
    return frame.tiers[frame.rows] if frame.tiers is not None else np.zeros(frame.size)


@node_field("cluster.price", depends=_STATIC, low=0, high=1e9, foreign=("cost", "hourly_price", "costs"))
def price(frame: FleetFrame) -> MaybeNumber:
    """What a core of the cluster costs per hour: its annotation `policy-scheduler/hourly-price`, or the label of that
    name. Missing where neither states a price above 0."""
    result: FloatArray = node_fields.price.read(frame)
    return result
