"""How much of the free room on a node's devices the pods to be expected could not use. Weng et al., USENIX ATC 2023.

"Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent": the fragmentation of
a node is the free room, in expectation over a pod of the workload. All of it where the pod does not fit there or
wants no device; else the room on devices that are too small for the pod. A placement is good that adds little to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.cluster.devices import WHOLE, Ask, DeviceTable, ask_of
from engine.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from engine.cluster.pods import PodTemplate
from engine.framework.frame import Frame
from engine.framework.plugin import Ready
from engine.framework.plugins.node_affinity import NodeAffinity
from engine.framework.plugins.node_unschedulable import NodeUnschedulable
from engine.framework.plugins.taint_toleration import TaintToleration

COVERED = 0.95
"""The workload is taken for its most frequent classes of pods, which make up this share of it."""
_CHUNK_ROWS = 1024
"""Rows looked at together: the arrays in between stay below some 10 MB."""
_REBUILD_SHARE = 4


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of pods to be expected: alike in cpu, devices, and the nodes that are open to them."""

    share: FloatArray
    """`float64[classes]`: how probable each is; the sum is 1."""
    cpu: IntArray
    """`int64[classes]`: millicores."""
    whole: IntArray
    part: IntArray
    """`int64[classes]`: thousandths of one more device."""
    open: BoolArray
    """`bool[nodes, classes]`: by labels and taints."""


class Fragmentation:
    """Of one device resource on one cluster, for one state of the workload and of static facts about nodes."""

    def __init__(self, frame: Frame, table: DeviceTable) -> None:
        cluster = frame.cluster
        self._cluster, self._table = cluster, table
        self.versions = _versions(cluster)
        self._classes = classes_of(frame, table.resource)
        # classes with one least room share the look at the devices
        self._rooms, self._room_of = np.unique(
            np.where(self._classes.part > 0, self._classes.part, WHOLE), return_inverse=True
        )
        self._needed = self._classes.whole + (self._classes.part > 0)
        self._asks = self._needed > 0
        self._wholes = self._classes.whole
        self._mixed = bool(((self._classes.whole > 0) & (self._classes.part > 0)).any())
        self._before: FloatArray = np.zeros(0)
        self._position = -1

    def before(self, rows: Rows) -> FloatArray:
        """Return `float64[rows]`: the fragmentation as it is, in thousandths of a device."""
        nodes = self._cluster.nodes
        if self._position != nodes.journal_end or len(self._before) != nodes.size:
            behind = nodes.journal_end - self._position
            small = len(self._before) == nodes.size and behind * _REBUILD_SHARE <= nodes.size
            changed = nodes.changed_since(self._position) if small else None
            if changed is None:
                self._before = np.zeros(nodes.size)
                stale: IntArray = np.arange(nodes.size)
            else:
                stale = np.array(sorted(set(changed)), np.int64)
            self._before[stale] = self._amount(stale, self._free_cpu(stale), self._table.free[stale][:, None, :])[:, 0]
            self._position = nodes.journal_end
        result: FloatArray = self._before[rows]
        return result

    def drops(self, template: PodTemplate, rows: IntArray) -> FloatArray:
        """Return `float64[rows, ways]`: by how much a pod lowers it, in thousandths of a device.

        For a share, the ways are the devices to put it on, and -inf stands where it does not fit; else there is one.
        """
        before = self.before(rows)
        parts = [self._after(template, rows[start : start + _CHUNK_ROWS]) for start in range(0, len(rows), _CHUNK_ROWS)]
        return before[:, None] - np.concatenate(parts) if parts else np.zeros((0, 1))

    def _after(self, template: PodTemplate, rows: IntArray) -> FloatArray:
        ask = ask_of(template, self._table.resource)
        cpu = self._free_cpu(rows) - template.requests.get("cpu", 0)
        free = self._table.free[rows]
        if ask.whole:
            taken = (free >= WHOLE) & (np.cumsum(free >= WHOLE, axis=1) <= ask.whole)
            free = np.where(taken, 0, free)
        if not ask.share:
            return self._amount(rows, cpu, free[:, None, :])
        width = free.shape[1]
        ways = np.repeat(free[:, None, :], width, axis=1)
        each = np.arange(width)
        ways[:, each, each] -= ask.share
        after = self._amount(rows, cpu, ways)
        return np.where(free >= ask.share, after, np.inf)

    def _free_cpu(self, rows: IntArray) -> IntArray:
        nodes = self._cluster.nodes
        free: IntArray = nodes.allocatable("cpu")[rows] - nodes.requested("cpu")[rows]
        return free

    def _amount(self, rows: IntArray, cpu: IntArray, free: NDArray[np.int32]) -> FloatArray:
        """Return `float64[rows, ways]` for free cpu `int64[rows]` and devices `int32[rows, ways, devices]`."""
        shape = (*free.shape[:2], len(self._rooms))
        large, small = np.empty(shape, np.int32), np.empty(shape, np.int32)
        for place, room in enumerate(self._rooms):
            fits = free >= room
            large[..., place] = fits.sum(axis=2)
            small[..., place] = np.where(fits, 0, free).sum(axis=2)
        total = free.sum(axis=2)
        classes = self._classes
        usable = classes.open[rows] & (cpu[:, None] >= classes.cpu) & self._asks
        enough = usable[:, None, :] & (large[..., self._room_of] >= self._needed)
        if self._mixed:
            enough &= (free >= WHOLE).sum(axis=2)[..., None] >= self._wholes
        wasted = np.where(enough, small[..., self._room_of], total[..., None])
        result: FloatArray = wasted @ classes.share
        return result


def classes_of(frame: Frame, resource: str) -> Classes:
    """Return the most frequent classes of the workload, those that make up 95 % of its pods."""
    cluster = frame.cluster
    counts: dict[tuple[int, Ask, bytes], int] = {}
    masks: dict[bytes, BoolArray] = {}
    for template, count in cluster.workload.counts.items():
        mask = _open_to(frame, template)
        code = np.packbits(mask).tobytes()
        masks[code] = mask
        key = (template.requests.get("cpu", 0), ask_of(template, resource), code)
        counts[key] = counts.get(key, 0) + count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    total, covered, kept = sum(counts.values()), 0, []
    for key, count in ordered:
        if covered >= COVERED * total:
            break
        kept.append((key, count))
        covered += count
    return Classes(
        share=np.array([count / covered for _, count in kept], np.float64),
        cpu=np.array([cpu for (cpu, _, _), _ in kept], np.int64),
        whole=np.array([ask.whole for (_, ask, _), _ in kept], np.int64),
        part=np.array([ask.share for (_, ask, _), _ in kept], np.int64),
        open=np.array([masks[code] for (_, _, code), _ in kept], np.bool_).reshape(len(kept), cluster.nodes.size).T,
    )


def _open_to(frame: Frame, template: PodTemplate) -> BoolArray:
    """Return `bool[nodes]`: whether labels and taints of a node let pods of a template in."""
    pod = Frame(replace(frame.pod, template=template), frame.cluster, frame.now)
    result = np.ones(frame.cluster.nodes.size, np.bool_)
    for plugin in (NodeUnschedulable(), TaintToleration(), NodeAffinity()):
        ready = plugin.pre_filter(pod)
        if isinstance(ready, Ready):
            result &= plugin.filter(pod, ready.state)
    return result


def fragmentation(frame: Frame, resource: str) -> Fragmentation:
    """Return what is known of the fragmentation of a device resource, made anew where its inputs changed."""
    cluster = frame.cluster
    workload, table = cluster.workload, cluster.devices.table(resource)
    if not workload.known:
        workload.learn(pod.template for pod in cluster.pods.values())
    found: Fragmentation | None = workload.derived.get(resource)
    if found is None or found.versions != _versions(cluster):
        found = workload.derived[resource] = Fragmentation(frame, table)
    return found


def _versions(cluster: Cluster) -> tuple[int, int]:
    return cluster.nodes.version, cluster.workload.version
