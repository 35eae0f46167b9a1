"""NUMA nodes: the free resources of each, from NodeResourceTopology objects.

An exporter on each node writes them, with a delay after pods come and go. So what pods take that an object cannot know
of yet is subtracted from each of its zones: they may get their cores and memory from any. An object knows of the pods
that the kubelet had admitted (`status.startTime`) when the object last changed, and only of those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import BoolArray, NodeTable
from kube_policy_scheduler.cluster.objects import NodeResourceTopology, ZoneResource
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quantity import QuantityError
from kube_policy_scheduler.cluster.requests import amounts

_NUMA_NODE = "Node"
"""Type of the zones that are NUMA nodes; others are sockets, cores, or devices."""
_MOST_ZONES = 64
"""Of one node; further ones are ignored."""
_NO_ZONE = -1
_UNBOUND = np.iinfo(np.int64).max
"""What each zone has of a resource that no zone of the node reports: it belongs to no NUMA node."""

Amounts = Mapping[str, int]
"""In column units by resource."""
ZoneColumn = NDArray[np.int64]


class NumaZones:
    """The NUMA nodes of all nodes whose NodeResourceTopology is known."""

    def __init__(self, nodes: NodeTable, on_node: Mapping[str, Mapping[str, PodInfo]]) -> None:
        """Make one.

        Args:
            nodes: the node table.
            on_node: pods by node name and uid.
        """
        self._nodes, self._on_node = nodes, on_node
        self.zones: dict[str, tuple[Amounts, ...]] = {}
        """What the zones of a node have, by its name."""
        self._included: dict[str, frozenset[str]] = {}
        """Pods that the object of a node knows of, by uid."""
        self._pending: dict[str, dict[str, int]] = {}
        """What the other pods on the node use, by resource."""
        self._columns: dict[str, ZoneColumn] = {}
        self._known: BoolArray | None = None

    def set(self, topology: NodeResourceTopology) -> None:
        """Set the object of a node."""
        name = topology.metadata.name
        before = self.zones.get(name, ())
        zones = tuple(_amounts(zone.resources or ()) for zone in topology.zones or () if zone.type == _NUMA_NODE)
        self.zones[name] = zones[:_MOST_ZONES]
        there = self._on_node.get(name, {})
        self._included[name] = frozenset(uid for uid, pod in there.items() if pod.started is not None)
        pending: dict[str, int] = {}
        for pod in there.values() if name in self._nodes.rows else ():  # those on unknown nodes are counted later
            if pod.started is None:
                _add(pending, pod, 1)
        self._pending[name] = pending
        self._changed(name, len(before) != len(self.zones[name]))

    def remove(self, name: str) -> None:
        """Delete the object of a node."""
        if self.zones.pop(name, None) is not None:
            del self._included[name], self._pending[name]
            self._changed(name, True)

    def count(self, pod: PodInfo, node_name: str, step: int) -> None:
        """Count a pod on a node (`step` 1) or no longer (-1)."""
        pending = self._pending.get(node_name)
        if pending is None or pod.uid in self._included[node_name]:
            return
        _add(pending, pod, step)
        for resource in pod.demand.requests:
            if resource in self._columns:
                self._write(node_name, resource)

    def rows_changed(self) -> None:
        """Note that nodes were added, removed or moved in the table."""
        self._columns, self._known = {}, None

    def column(self, resource: str) -> ZoneColumn:
        """Return `int64[nodes, zones]`: the free amount of a resource, in column units; -1 without such a zone."""
        found = self._columns.get(resource)
        if found is None:
            widest = max((len(zones) for zones in self.zones.values()), default=0)
            found = self._columns[resource] = np.full((self._nodes.size, max(widest, 1)), _NO_ZONE, np.int64)
            for name in self.zones:
                self._write(name, resource)
        return found

    def known(self) -> BoolArray:
        """Return `bool[nodes]`: where the NUMA nodes are known."""
        if self._known is None:
            self._known = np.array([bool(self.zones.get(name)) for name in self._nodes.names], np.bool_)
        return self._known

    def _changed(self, name: str, resized: bool) -> None:
        if resized:
            self.rows_changed()
        else:
            for resource in self._columns:
                self._write(name, resource)
        row = self._nodes.rows.get(name)
        if row is not None:
            self._nodes.touch(row)

    def _write(self, name: str, resource: str) -> None:
        row, zones = self._nodes.rows.get(name), self.zones[name]
        if row is None:
            return
        taken = self._pending[name].get(resource, 0)
        if any(resource in zone for zone in zones):
            free = [max(zone[resource] - taken, 0) if resource in zone else _NO_ZONE for zone in zones]
        else:
            free = [_UNBOUND] * len(zones)
        self._columns[resource][row, : len(free)] = free


def _amounts(resources: Iterable[ZoneResource]) -> Amounts:
    """Return what is available in a zone; a resource whose amount cannot be read counts as not reported."""
    found: dict[str, int] = {}
    for each in resources:
        try:
            found |= amounts({each.name: each.available}) if each.available is not None else {}
        except QuantityError:
            continue
    return found


def _add(pending: dict[str, int], pod: PodInfo, step: int) -> None:
    for resource, amount in pod.demand.requests.items():
        left = pending.get(resource, 0) + step * amount
        if left:
            pending[resource] = left
        else:
            pending.pop(resource, None)
