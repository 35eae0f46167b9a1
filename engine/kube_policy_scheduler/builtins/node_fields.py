"""What a policy can read of nodes: `node.…`, one value per node."""

from typing import Annotated, Any, TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, LabelColumn, NodeInfo
from kube_policy_scheduler.cluster.objects import VolumeAttachment
from kube_policy_scheduler.cluster.prices import prices
from kube_policy_scheduler.cluster.requests import amounts
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.lang.environment import Key, Lists, Texts, node_field
from kube_policy_scheduler.lang.signature import (
    Amount,
    ConditionStatus,
    Duration,
    MaybeDuration,
    MaybeNumber,
    MaybeText,
    Number,
    Share,
    Text,
    TextList,
    Truth,
    TypeSpec,
)
from kube_policy_scheduler.lang.types import NATIVE_RESOURCES, Depends, Kind
from kube_policy_scheduler.times import unix_seconds

ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
GO_SYSTEMS = ("linux", "windows", "darwin", "freebsd", "netbsd", "openbsd", "solaris", "aix", "plan9")
GO_PROCESSORS = (
    "amd64", "arm64", "arm", "386", "ppc64le", "ppc64", "s390x", "riscv64", "loong64", "mips64le", "mips64", "mipsle",
    "mips",
)  # fmt: skip
"""What a kubelet can say of the machine: Go's names."""
OperatingSystem: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, maybe=True, words=GO_SYSTEMS)]
Arch: TypeAlias = Annotated[Any, TypeSpec(Kind.TEXT, maybe=True, words=GO_PROCESSORS)]
_STATIC, _ROW = Depends.NODE, Depends.NODE | Depends.ROW
_MOST = 1e19
"""No amount of a resource is larger: columns are int64."""


def _texts(column: LabelColumn, frame: Frame) -> Texts:
    return Texts(column.codes[frame.rows], column.values, column.index, column.changes)


def _label(frame: Frame, key: str) -> Texts:
    return _texts(frame.cluster.nodes.label(key), frame)


def _derived_text(frame: Frame, name: str, read: Any) -> Texts:
    return _texts(frame.cluster.nodes.coded(("field", name), read), frame)


def _lists(frame: Frame, name: str, read: Any) -> Lists:
    column = frame.cluster.nodes.coded(("field", name), lambda info: tuple(read(info)))
    return Lists(column.codes[frame.rows], column.values)


@node_field("node.name", depends=_STATIC, foreign=("hostname", "host", "nodename", "id"))
def name(frame: Frame) -> Text:
    """The name of the node."""
    return _derived_text(frame, "name", lambda info: info.name)


@node_field("node.ready", depends=_STATIC, foreign=("healthy", "up", "alive"))
def ready(frame: Frame) -> Truth:
    """Whether the condition Ready of the node is True."""
    return frame.cluster.nodes.condition("Ready").equal("True", frame.rows)


@node_field(
    "node.unschedulable",
    depends=_STATIC,
    foreign=("schedulable", "cordoned"),
    advice="write `not node.unschedulable`",
)
def unschedulable(frame: Frame) -> Truth:
    """Whether the node is cordoned (`kubectl cordon`)."""
    result: BoolArray = frame.cluster.nodes.unschedulable[frame.rows]
    return result


@node_field(
    "node.label",
    key=Key.LABEL,
    depends=_STATIC,
    key_words={"kubernetes.io/os": GO_SYSTEMS, "kubernetes.io/arch": GO_PROCESSORS},
)
def label(frame: Frame, key: str) -> MaybeText:
    """A label of the node; absent if the node does not have it."""
    return _label(frame, key)


@node_field("node.annotation", key=Key.ANNOTATION, depends=_STATIC)
def annotation(frame: Frame, key: str) -> MaybeText:
    """An annotation of the node; absent if the node does not have it."""
    return _derived_text(frame, f"annotation {key}", lambda info: (info.node.metadata.annotations or {}).get(key))


@node_field("node.conditions", key=Key.CONDITION, depends=_STATIC)
def conditions(frame: Frame, kind: str) -> ConditionStatus:
    """The status of a condition, such as `not node.conditions.MemoryPressure`; absent if the node does not have it.

    As truth: whether the status is `True`. Compare it with `"Unknown"` for nodes that nothing is heard from.
    """
    return _texts(frame.cluster.nodes.condition(kind), frame)


@node_field("node.taints", depends=_STATIC)
def taints(frame: Frame) -> TextList:
    """The keys of the node's taints: `"gpu" in node.taints`."""
    return _lists(frame, "taints", lambda info: (taint.key for taint in info.taints))


@node_field(
    "node.allocatable",
    key=Key.RESOURCE,
    depends=_STATIC | Depends.OFFER,
    low=0,
    high=_MOST,
    foreign=("total", "size", "resources"),
    advice="write `node.allocatable.cpu`",
)
def allocatable(frame: Frame, resource: str) -> Amount:
    """The allocatable amount of a resource: cpu in cores, memory in bytes."""
    return _amount(frame, resource, frame.cluster.nodes.allocatable(resource)[frame.rows])


@node_field(
    "node.requested",
    key=Key.RESOURCE,
    depends=_ROW,
    low=0,
    high=_MOST,
    foreign=("used", "usage", "utilization", "utilisation", "load", "consumed"),
    advice="for requests, use `node.requested.cpu` or `node.used_fraction.cpu`; for the actual usage, use a metric:"
    ' `promql("…")`',
)
def requested(frame: Frame, resource: str) -> Amount:
    """The sum of the requests of the pods on the node; for `pods`, their number."""
    return _amount(frame, resource, _requested(frame, resource))


@node_field(
    "node.free",
    key=Key.RESOURCE,
    depends=_ROW,
    low=-_MOST,
    high=_MOST,
    foreign=("available", "remaining", "idle", "room"),
    advice="write `node.free.cpu`",
)
def free(frame: Frame, resource: str) -> Amount:
    """The free amount of a resource: allocatable minus requested."""
    offered = frame.cluster.nodes.allocatable(resource)[frame.rows]
    return _amount(frame, resource, offered - _requested(frame, resource))


@node_field("node.used_fraction", key=Key.RESOURCE, depends=_ROW, low=0, high=1e19)
def used_fraction(frame: Frame, resource: str) -> Share:
    """The requested share of the allocatable amount, from 0 to 1; 1 if the node has no cpu, memory or storage."""
    offered = frame.cluster.nodes.allocatable(resource)[frame.rows]
    empty = 1.0 if resource in NATIVE_RESOURCES else np.nan
    share = _requested(frame, resource) / np.maximum(offered, 1)
    result: FloatArray = np.where(offered > 0, share, empty)
    return result


def _requested(frame: Frame, resource: str) -> Any:
    nodes = frame.cluster.nodes
    return (nodes.pod_count if resource == "pods" else nodes.requested(resource))[frame.rows]


def _amount(frame: Frame, resource: str, column: Any) -> FloatArray:
    """Return a column in the units of the language; missing where a node does not know an extended resource."""
    if resource == "cpu":
        result: FloatArray = column / 1000.0
        return result
    amounts: FloatArray = column.astype(np.float64)
    if resource in NATIVE_RESOURCES:
        return amounts
    return np.where(frame.cluster.nodes.allocatable(resource)[frame.rows] > 0, amounts, np.nan)


@node_field("node.zone", depends=_STATIC)
def zone(frame: Frame) -> MaybeText:
    """The node's label `topology.kubernetes.io/zone`."""
    return _label(frame, ZONE_LABEL)


@node_field("node.region", depends=_STATIC)
def region(frame: Frame) -> MaybeText:
    """The node's label `topology.kubernetes.io/region`."""
    return _label(frame, REGION_LABEL)


@node_field(
    "node.price",
    depends=_STATIC,
    low=0,
    high=1e9,
    foreign=("cost", "hourly_price", "hourly_cost", "costs"),
    advice="write `node.price`; for the part that the pod takes, `pod_price()`",
)
def price(frame: Frame) -> MaybeNumber:
    """What the node costs per hour: its annotation `policy-scheduler/hourly-price`, or the label of that name.

    Missing where neither states a price above 0.
    """
    result: FloatArray = prices(frame.cluster.nodes)[frame.rows]
    return result


@node_field("node.age", depends=_STATIC | Depends.CLOCK, low=0, high=1e11)
def age(frame: Frame) -> Duration:
    """Time since the node was created."""
    created = frame.cluster.nodes.valued("field created", _created, np.float64)
    result: FloatArray = np.maximum(frame.now - created[frame.rows], 0.0)
    return result


def _created(info: NodeInfo) -> float:
    return unix_seconds(info.node.metadata.creation_timestamp) or 0.0


@node_field("node.images", depends=_STATIC)
def images(frame: Frame) -> TextList:
    """The names of the images on the node."""
    return _lists(frame, "images", lambda info: sorted(info.images))


@node_field("node.volumes_attached", depends=Depends.CLUSTER, low=0, high=1e9)
def volumes_attached(frame: Frame) -> Number:
    """The number of volumes attached to the node, from its VolumeAttachments."""
    cluster = frame.cluster
    counts = np.zeros(cluster.nodes.size)
    for attachment in cluster.all(VolumeAttachment):
        row = cluster.nodes.rows.get(attachment.spec.node_name)
        if row is not None:
            counts[row] += 1
    result: FloatArray = counts[frame.rows]
    return result


@node_field("node.arch", depends=_STATIC, foreign=("architecture",))
def arch(frame: Frame) -> Arch:
    """The processor architecture, such as `amd64`: the label `kubernetes.io/arch`."""
    return _label(frame, "kubernetes.io/arch")


@node_field("node.os", depends=_STATIC, foreign=("os_image", "operatingsystem"))
def os(frame: Frame) -> OperatingSystem:
    """The operating system, such as `linux`: the label `kubernetes.io/os`."""
    return _label(frame, "kubernetes.io/os")


@node_field("node.kernel", depends=_STATIC)
def kernel(frame: Frame) -> MaybeText:
    """The kernel version that the node reports."""
    return _derived_text(frame, "kernel", _kernel)


def _kernel(info: NodeInfo) -> str | None:
    system = info.node.status.node_info
    return (system.kernel_version or None) if system is not None else None


@node_field("node.kubelet", depends=_STATIC, foreign=("kubelet_version", "version"), advice="write `node.kubelet`")
def kubelet(frame: Frame) -> MaybeText:
    """The version of the kubelet, such as `v1.36.2`."""
    return _derived_text(frame, "kubelet", _kubelet)


def _kubelet(info: NodeInfo) -> str | None:
    system = info.node.status.node_info
    return (system.kubelet_version or None) if system is not None else None


@node_field("node.container_runtime", depends=_STATIC, foreign=("runtime", "container_runtime_version"))
def container_runtime(frame: Frame) -> MaybeText:
    """The container runtime and its version, such as `containerd://2.1.4`."""
    return _derived_text(frame, "container runtime", _container_runtime)


def _container_runtime(info: NodeInfo) -> str | None:
    system = info.node.status.node_info
    return (system.container_runtime_version or None) if system is not None else None


@node_field("node.provider", depends=_STATIC, foreign=("cloud", "cloud_provider", "provider_id", "providerid"))
def provider(frame: Frame) -> MaybeText:
    """The cloud provider, such as `aws`, `gce` or `azure`: what stands before `://` in the node's provider ID."""
    return _derived_text(frame, "provider", _provider)


def _provider(info: NodeInfo) -> str | None:
    scheme, found, _ = info.node.spec.provider_id.partition("://")
    return scheme if found and scheme else None


@node_field("node.capacity", key=Key.RESOURCE, depends=_STATIC, low=0, high=_MOST)
def capacity(frame: Frame, resource: str) -> Amount:
    """What the node has of a resource, including what it reserves for the system. Pods can use `node.allocatable`.

    The same as `node.allocatable` where the node does not report its capacity.
    """
    column = frame.cluster.nodes.valued(
        ("field capacity", resource), lambda info: _capacity(info, resource), np.float64
    )[frame.rows]
    if resource == "cpu":
        result: FloatArray = column / 1000.0
        return result
    return column if resource in NATIVE_RESOURCES else np.where(column > 0, column, np.nan)


def _capacity(info: NodeInfo, resource: str) -> int:
    status = info.node.status
    return amounts(status.capacity or status.allocatable).get(resource, 0)


@node_field("node.condition_age", key=Key.CONDITION, depends=_STATIC | Depends.CLOCK, low=0, high=1e11)
def condition_age(frame: Frame, kind: str) -> MaybeDuration:
    """How long a condition has had its status: `node.condition_age.Ready > 10min` excludes nodes that just came back.

    Missing where the node does not have the condition.
    """
    since = frame.cluster.nodes.valued(("field since", kind), lambda info: _since(info, kind), np.float64)
    result: FloatArray = np.maximum(frame.now - since[frame.rows], 0.0)
    return result


def _since(info: NodeInfo, kind: str) -> float:
    found = next((each for each in info.node.status.conditions or () if each.type == kind), None)
    seconds = unix_seconds(found.last_transition_time) if found is not None else None
    return np.nan if seconds is None else seconds
