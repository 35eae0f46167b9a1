"""Kubernetes' own rules and preferences as functions: they ask the framework's plugins."""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray
from kube_policy_scheduler.cluster.prices import pod_prices
from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, ScorePlugin
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.image_locality import ImageLocality
from kube_policy_scheduler.framework.plugins.inter_pod_affinity import InterPodAffinity
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_ports import NodePorts
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.plugins.node_volume_limits import NodeVolumeLimits
from kube_policy_scheduler.framework.plugins.pod_topology_spread import PodTopologySpread
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated, MostAllocated
from kube_policy_scheduler.framework.plugins.storage_scores import MOST_ROOM, shape_named
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration
from kube_policy_scheduler.framework.plugins.volume_binding import VolumeBinding
from kube_policy_scheduler.framework.plugins.volume_restrictions import VolumeRestrictions
from kube_policy_scheduler.framework.plugins.volume_zone import VolumeZone
from kube_policy_scheduler.lang.signature import (
    MaybeNumber,
    Number,
    NumberReader,
    ResourceWord,
    Truth,
    TruthReader,
    TypeSpec,
    Words,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Kind, Shape

StorageShape = Annotated[Any, TypeSpec(Kind.TEXT, constant=True, prepare=shape_named)]
"""Points of a line, such as "0:10 100:0"."""
_STATIC = Depends.TEMPLATE | Depends.NODE
_ROW = _STATIC | Depends.ROW
_CLUSTER = _ROW | Depends.POD | Depends.CLUSTER
_AMONG_FEASIBLE = _CLUSTER | Depends.FEASIBLE
_ROOM = ("pod.request.cpu", "pod.request.mem", "node.requested")
_TAINTS = ("node.taints", "pod.tolerations")


def _passes(plugin: FilterPlugin, frame: Frame) -> BoolArray:
    """Return `bool[rows]`: where a default filter lets the pod pass."""
    return probe(frame, plugin).passes()


def _scored(plugin: ScorePlugin, frame: Frame) -> FloatArray:
    """Return `float64[rows]`: a default score, 0 where it has nothing to say."""
    prepared = plugin.pre_score(frame)
    if not isinstance(prepared, Ready):
        return np.zeros(frame.size)
    raw = plugin.score(frame, prepared.state)
    final = plugin.normalize(frame, prepared.state, raw) if plugin.normalizes else raw
    return final.astype(np.float64)


@builtin(
    staged=True,
    shape=Shape.NODE,
    depends=_ROW,
    reads=_ROOM,
    words=Words(plugin=NodeResourcesFit.name, foreign=("fit", "hasroom", "enough"), advice="write `fits(cpu, mem)`"),
)
def fits(*resources: ResourceWord) -> TruthReader:
    """Return whether the node has enough free resources for the pod: these resources, or all that it requests.

    `fits()` is Kubernetes' own filter, which also limits the number of pods.
    """
    if not resources:
        plugin = NodeResourcesFit()
        return lambda frame: _passes(plugin, frame)

    return Fits(resources)


class Fits:
    """Reads from a frame whether nodes have enough of some resources."""

    __slots__ = ("resources",)

    def __init__(self, resources: tuple[str, ...]) -> None:
        self.resources = resources

    def __call__(self, frame: Frame) -> BoolArray:
        """Return `bool[rows]`."""
        nodes, rows, requests = frame.cluster.nodes, frame.rows, frame.template.requests
        result: BoolArray | None = None
        for resource in self.resources:
            used = nodes.pod_count if resource == "pods" else nodes.requested(resource)
            wanted = 1 if resource == "pods" else requests.get(resource, 0)
            if not wanted and result is not None:
                continue
            room: BoolArray = nodes.allocatable(resource)[rows] - used[rows] >= wanted
            if not wanted:
                room = np.ones(frame.size, np.bool_)  # what is not asked for always fits, also where overcommitted
            result = room if result is None else result & room
        assert result is not None
        return result

    def of_row(self, frame: Frame) -> bool:
        """Return the same of the only row of a frame."""
        nodes, row, requests = frame.cluster.nodes, frame.only_row, frame.template.requests
        for resource in self.resources:
            wanted = 1 if resource == "pods" else requests.get(resource, 0)
            used = nodes.pod_count if resource == "pods" else nodes.requested(resource)
            if wanted and nodes.allocatable(resource).item(row) - used.item(row) < wanted:
                return False
        return True


@builtin(
    shape=Shape.NODE,
    depends=_STATIC,
    bounds=(0, 1e9),
    reads=("pod.request.cpu", "pod.request.mem", "node.price"),
    words=Words(foreign=("podcost", "pricepod", "priceofpod", "costofpod"), advice="write `pod_price()`"),
)
def pod_price(frame: Frame) -> MaybeNumber:
    """Return what the pod costs per hour on the node: the node's price times the largest share of a resource that the
    pod requests. Missing where `node.price` is."""
    result: FloatArray = pod_prices(frame.cluster.nodes, frame.template)[frame.rows]
    return result


@builtin(
    shape=Shape.NODE,
    depends=_STATIC,
    reads=_TAINTS,
    words=Words(foreign=("tolerates", "toleration", "tolerations"), advice="write `tolerated()`"),
)
def tolerated(frame: Frame) -> Truth:
    """Return whether the pod tolerates all NoSchedule and NoExecute taints of the node."""
    return _passes(TaintToleration(), frame)


@builtin(shape=Shape.NODE, depends=_ROW)
def ports_free(frame: Frame) -> Truth:
    """Return whether the pod's host ports are free on the node."""
    return _passes(NodePorts(), frame)


@builtin(shape=Shape.NODE, depends=_CLUSTER, reads=("pod.node_selector",))
def matches_affinity(frame: Frame) -> Truth:
    """Return whether the node meets the pod's node selector, and its required node affinity, pod affinity and
    anti-affinity."""
    return _passes(NodeAffinity(), frame) & _passes(InterPodAffinity(), frame)


@builtin(shape=Shape.NODE, depends=_CLUSTER)
def topology_ok(frame: Frame) -> Truth:
    """Return whether the node satisfies the pod's topology spread constraints with `DoNotSchedule`."""
    return _passes(PodTopologySpread(), frame)


@builtin(shape=Shape.NODE, depends=_CLUSTER)
def volumes_ok(frame: Frame) -> Truth:
    """Return whether the node can use the pod's volumes: zones, limits, access modes, bound claims."""
    result = _passes(VolumeRestrictions(), frame)
    for plugin in (NodeVolumeLimits(), VolumeBinding(), VolumeZone()):
        result = result & _passes(plugin, frame)
    return result


_ResourceScore: TypeAlias = LeastAllocated | MostAllocated | NodeResourcesBalancedAllocation


def _by_resource(make: Callable[[Any], _ResourceScore], resources: tuple[str, ...]) -> Callable[[Frame], FloatArray]:
    return ScoreReader(make(tuple((resource, 1) for resource in resources or ("cpu", "memory"))))


class ScoreReader:
    """Reads a score of Kubernetes from a frame."""

    __slots__ = ("plugin",)

    def __init__(self, plugin: _ResourceScore) -> None:
        self.plugin = plugin

    def __call__(self, frame: Frame) -> FloatArray:
        """Return `float64[rows]`."""
        return _scored(self.plugin, frame)

    def of_row(self, frame: Frame) -> float:
        """Return the score of the only row of a frame."""
        prepared = self.plugin.pre_score(frame)
        return self.plugin.score_one(frame, prepared.state, frame.only_row) if isinstance(prepared, Ready) else 0.0


@builtin(
    staged=True, shape=Shape.NODE, depends=_ROW, bounds=(0, 100), reads=_ROOM, words=Words(opposite="most_allocated")
)
def least_allocated(*resources: ResourceWord) -> NumberReader:
    """Return 0 to 100: the free share of the node with the pod, averaged over the resources (cpu and mem).

    A whole number for each resource, rounded down, as in kube-scheduler: on large nodes, small pods may change nothing.
    For containers without a request, 100m cpu and 200Mi memory count. To have fractions and true requests, write
    `100 * (1 - node.used_fraction.cpu)`.
    """
    return _by_resource(LeastAllocated, resources)


@builtin(
    staged=True, shape=Shape.NODE, depends=_ROW, bounds=(0, 100), reads=_ROOM, words=Words(opposite="least_allocated")
)
def most_allocated(*resources: ResourceWord) -> NumberReader:
    """Return 0 to 100: the used share of the node with the pod, averaged over the resources (cpu and mem).

    Rounded, and with default requests, as for `least_allocated()`.
    """
    return _by_resource(MostAllocated, resources)


@builtin(staged=True, shape=Shape.NODE, depends=_ROW, bounds=(0, 100), reads=_ROOM)
def balanced(*resources: ResourceWord) -> NumberReader:
    """Return how the pod changes the balance of the node's resources (cpu and mem): 75 not at all, 50 to 100.

    Above 75, the used shares of the resources are more equal with the pod than without it; below 75, less equal. So it
    is about the change, not about how even the node is. 0 on every node if the pod requests none of the resources. A
    whole number; requests count as they are, without defaults.
    """
    return _by_resource(NodeResourcesBalancedAllocation, resources)


@builtin(shape=Shape.NODE, depends=_STATIC | Depends.IMAGES, bounds=(0, 100), reads=("node.images",))
def image_locality(frame: Frame) -> Number:
    """Return 0 to 100: how much of the pod's images is on the node, as kube-scheduler calculates it."""
    return _scored(ImageLocality(), frame)


@builtin(
    shape=Shape.NODE,
    depends=_CLUSTER,
    bounds=(0, 100),
    reads=("node.volume_room",),
    words=Words(foreign=("storagescore", "storagecapacityscore", "volumescore"), advice="write `storage_preference()`"),
)
def storage_preference(frame: Frame, shape: StorageShape = MOST_ROOM) -> Number:
    """Return 0 to 100: how much of the storage that the node can reach stays free after the pod's new claims.

    As VolumeBinding in Kubernetes 1.37, in every version: by the size of existing volumes where a claim would get one,
    else by what CSIStorageCapacity objects report. 0 for pods without such claims. `shape` says points of utilization,
    0 to 100, and score, 0 to 10, and the score follows the line between them. `storage_preference("0:0 100:10")`
    prefers nodes with the least room. The default is `"0:10 100:0"`.
    """
    plugin = VolumeBinding(shape)
    prepared = plugin.pre_filter(frame)
    scores = plugin.score(frame, prepared.state if isinstance(prepared, Ready) else None)
    return scores.astype(np.float64)


@builtin(shape=Shape.NODE, depends=_AMONG_FEASIBLE, bounds=(0, 100), scores_only=True, reads=("pod.node_selector",))
def node_preference(frame: Frame) -> Number:
    """Return 0 to 100: how well the node meets the pod's preferred node affinity."""
    return _scored(NodeAffinity(), frame)


@builtin(shape=Shape.NODE, depends=_AMONG_FEASIBLE, bounds=(0, 100), scores_only=True)
def pod_preference(frame: Frame) -> Number:
    """Return 0 to 100: how well the node meets preferred pod affinity and anti-affinity."""
    return _scored(InterPodAffinity(), frame)


@builtin(shape=Shape.NODE, depends=_AMONG_FEASIBLE, bounds=(0, 100), scores_only=True, reads=_TAINTS)
def taint_preference(frame: Frame) -> Number:
    """Return 0 to 100: higher for nodes with fewer PreferNoSchedule taints that the pod does not tolerate."""
    return _scored(TaintToleration(), frame)


@builtin(shape=Shape.NODE, depends=_AMONG_FEASIBLE, bounds=(0, 100), scores_only=True)
def even_spread(frame: Frame) -> Number:
    """Return 0 to 100: how well the node satisfies the pod's topology spread constraints with `ScheduleAnyway`."""
    return _scored(PodTopologySpread(), frame)
