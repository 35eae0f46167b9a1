"""What is inside a node, or near it: its NUMA nodes, and the storage that volumes for it can be made of."""

import numpy as np

from kube_policy_scheduler.cluster.devices.numa_demand import aligned
from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugins.volume_matching import provisionable
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE
from kube_policy_scheduler.lang.signature import (
    ConstantText,
    MaybeBytesReader,
    MaybeTruthReader,
    ResourceWord,
    Words,
    builtin,
)
from kube_policy_scheduler.lang.types import Depends, Shape

_ROOM = ("pod.request.cpu", "pod.request.mem", "pod.qos", "node.pods")


@builtin(
    staged=True,
    shape=Shape.NODE,
    depends=Depends.TEMPLATE | Depends.ROW | Depends.NUMA,
    reads=_ROOM,
    words=Words(foreign=("numa", "numafit", "singlenuma", "topologyfits"), advice="write `fits_numa(cpu, mem)`"),
)
def fits_numa(*resources: ResourceWord) -> MaybeTruthReader:
    """Return whether NUMA nodes have room for what the kubelet aligns of the pod: of these resources, or of all.

    The NodeResourceTopology object of the node says what each NUMA node has `available`. Missing on nodes without
    one: `filter fits_numa(cpu, mem) ?? true`. The kubelet aligns whole CPUs, memory and huge pages of Guaranteed pods,
    and devices of any pod. The pod must fit into one NUMA node, or with `topologyManagerScope: container` each of its
    containers into one. What pods take that the object cannot know of yet is subtracted from each NUMA node of their
    node. A resource that no NUMA node of the node reports does not matter.
    """

    def fits(frame: Frame) -> object:
        numa = frame.cluster.numa
        result = np.full(frame.size, MISSING, np.uint8)
        if not numa.zones:
            return result
        known = numa.known()[frame.rows]
        fitting = numa.fits(aligned(frame.template), resources, frame.index())
        result[known] = np.where(fitting[known], TRUE, FALSE)
        return result

    return fits


@builtin(
    staged=True,
    shape=Shape.NODE,
    depends=Depends.NODE | Depends.CLUSTER,
    bounds=(0, 1e19),
    reads=("node.volume_room",),
    words=Words(
        foreign=("storagecapacity", "volumecapacity", "diskspace"),
        advice='write `volume_room("fast")`, with the name of the StorageClass',
    ),
)
def volume_room(storage_class: ConstantText) -> MaybeBytesReader:
    """Return the size of the largest volume of a StorageClass that could be made for the node, in bytes.

    From the CSIStorageCapacity objects that the driver published last: `score volume_room("fast") / 1Gi`. Missing if
    there is no such class, if its driver publishes no capacity, or if it publishes none for this node.
    """

    def room(frame: Frame) -> FloatArray:
        found = provisionable(storage_class, frame.cluster)
        if found.most is None:
            return np.full(frame.size, np.nan)
        most, allowed = found.most[frame.rows], found.allowed[frame.rows]
        result: FloatArray = np.where(allowed & (most >= 0), most, np.nan)
        return result

    return room
