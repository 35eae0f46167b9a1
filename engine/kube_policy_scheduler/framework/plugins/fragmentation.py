"""How much free capacity on a node's devices the expected pods cannot use. Weng et al., USENIX ATC 2023.

"Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent": the fragmentation of
a node is the unusable space, in expectation over a pod of the workload. All of it if the pod does not fit or
requests no device; else the space on devices too small for the pod. A good placement adds little to it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.node_devices import WHOLE, Ask, DeviceTable, RoomArray, ask_of
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Ready
from kube_policy_scheduler.framework.plugins.node_affinity import NodeAffinity
from kube_policy_scheduler.framework.plugins.node_unschedulable import NodeUnschedulable
from kube_policy_scheduler.framework.plugins.taint_toleration import TaintToleration

COVERED = 0.95
"""The most frequent classes of pods, which make up this share of the workload, represent it."""
_CHUNK_ROWS = 1024
"""Rows evaluated together: the arrays in between stay below some 10 MB."""
_REBUILD_SHARE = 4


class Classes(msgspec.Struct, frozen=True):
    """The classes of expected pods: equal in cpu, devices, and the nodes that are open to them."""

    share: FloatArray
    """`float64[classes]`: the probability of each; the sum is 1."""
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
        classes = self._classes
        asking = (classes.whole > 0) | (classes.part > 0)
        # classes that need equally much of equally many devices differ in nothing but on which nodes they fit
        needs = np.stack((np.where(classes.part > 0, classes.part, WHOLE), classes.whole + (classes.part > 0)), axis=1)
        kinds, kind_of = np.unique(needs[asking], axis=0, return_inverse=True)
        self._rooms, self._room_of = np.unique(kinds[:, 0], return_inverse=True)
        self._needed = kinds[:, 1]
        self._weights = np.zeros((len(asking), len(kinds)))
        self._weights[np.flatnonzero(asking), kind_of.reshape(-1)] = classes.share[asking]
        self._mixed = (classes.whole > 0) & (classes.part > 0)
        self._before: FloatArray = np.zeros(0)
        self._position = -1

    def before(self, rows: Rows) -> FloatArray:
        """Return `float64[rows]`: the fragmentation as it is, in thousandths of a device."""
        nodes = self._cluster.nodes
        if self._position != nodes.dynamic_changes.end or len(self._before) != nodes.size:
            behind = nodes.dynamic_changes.end - self._position
            small = len(self._before) == nodes.size and behind * _REBUILD_SHARE <= nodes.size
            changed = nodes.dynamic_changes.since(self._position) if small else None
            if changed is None:
                self._before = np.zeros(nodes.size)
                stale: IntArray = np.arange(nodes.size)
            else:
                stale = np.array(sorted(set(changed)), np.int64)
            self._before[stale] = self._now(stale, self._free_cpu(stale), self._table.free[stale])
            self._position = nodes.dynamic_changes.end
        result: FloatArray = self._before[rows]
        return result

    def drops(self, template: PodTemplate, rows: IntArray) -> FloatArray:
        """Return `float64[rows, ways]`: how much a pod lowers it, in thousandths of a device.

        For a share, the ways are the devices to put it on, with -inf if it does not fit; else there is one.
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
            return self._now(rows, cpu, free)[:, None]
        fits, lost = self._by_device(free)
        changed_fits, changed_lost = self._by_device(free - ask.share)
        large = fits.sum(axis=1)[:, None, :] - fits + changed_fits
        small = lost.sum(axis=1)[:, None, :] - lost + changed_lost
        empty = free >= WHOLE  # a share of an empty device leaves one fewer
        whole = empty.sum(axis=1)[:, None] - empty
        after = self._expected(rows, cpu, large=large, small=small, total=free.sum(axis=1) - ask.share, whole=whole)
        return np.where(free >= ask.share, after, np.inf)

    def _now(self, rows: IntArray, cpu: IntArray, free: RoomArray) -> FloatArray:
        """Return `float64[rows]` for free cpu `int64[rows]` and devices `int32[rows, devices]`."""
        fits, lost = self._by_device(free)
        large, small = fits.sum(axis=1)[:, None, :], lost.sum(axis=1)[:, None, :]
        whole = (free >= WHOLE).sum(axis=1)[:, None]
        return self._expected(rows, cpu, large=large, small=small, total=free.sum(axis=1), whole=whole)[:, 0]

    def _by_device(self, free: RoomArray) -> tuple[RoomArray, RoomArray]:
        """Return `int32[rows, devices, rooms]`: whether a device has so much room, and what is lost on it if not."""
        fits = free[:, :, None] >= self._rooms
        return fits.astype(np.int32), np.where(fits, 0, free[:, :, None])

    def _expected(
        self, rows: IntArray, cpu: IntArray, *, large: RoomArray, small: RoomArray, total: RoomArray, whole: IntArray
    ) -> FloatArray:
        """Return `float64[rows, ways]`: the expected lost space.

        Args:
            rows: which nodes.
            cpu: free millicores, `int64[rows]`.
            large: `int32[rows, ways, rooms]`, how many devices have at least this space.
            small: `int32[rows, ways, rooms]`, what is free on the others.
            total: `int32[rows]`, what is free on all.
            whole: `int64[rows, ways]`, how many devices are empty.
        """
        usable = self._classes.open[rows] & (cpu[:, None] >= self._classes.cpu)
        all_of_it = total[:, None, None]
        saved = np.where(large[:, :, self._room_of] >= self._needed, all_of_it - small[:, :, self._room_of], 0)
        if self._mixed.any():  # pods that want whole devices and a share, for which each way leaves other devices empty
            enough = (whole[:, :, None] >= self._classes.whole) | ~self._mixed
            by_way: FloatArray = (saved * ((usable[:, None, :] & enough) @ self._weights)).sum(axis=2)
            return total[:, None] - by_way
        weights = usable @ self._weights
        result: FloatArray = total[:, None] - (saved @ weights[:, :, None])[:, :, 0]
        return result

    def _free_cpu(self, rows: IntArray) -> IntArray:
        nodes = self._cluster.nodes
        free: IntArray = nodes.allocatable("cpu")[rows] - nodes.requested("cpu")[rows]
        return free


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
    """Return `bool[nodes]`: whether labels and taints of a node admit pods of a template."""
    pod = Frame(msgspec.structs.replace(frame.pod, template=template), frame.cluster, frame.now)
    result = np.ones(frame.cluster.nodes.size, np.bool_)
    for plugin in (NodeUnschedulable(), TaintToleration(), NodeAffinity()):
        ready = plugin.pre_filter(pod)
        if isinstance(ready, Ready):
            result &= plugin.filter(pod, ready.state)
    return result


def fragmentation(frame: Frame, resource: str) -> Fragmentation:
    """Return the fragmentation of a device resource, rebuilt if its inputs changed."""
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
