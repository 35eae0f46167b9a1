"""NUMA nodes: the free resources of each, from NodeResourceTopology objects.

An exporter on each node writes them, with a delay after pods come and go. So what pods take that an object cannot know
of yet is subtracted from each of its zones: they may get their cores and memory from any. An object knows of the pods
that the kubelet had admitted (`status.startTime`) when the object last changed, and only of those. Only what kubelets
align counts (`numa_demand`).

An object also says how the kubelet's topology manager works, by its attributes `topologyManagerScope` (`container` or
`pod`) and `topologyManagerPolicy`, or by the older `topologyPolicies`. Of a node whose object says nothing, a pod must
fit as a whole into one NUMA node, as with `pod` and `single-numa-node`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.devices.numa_demand import AlignedDemand, Part, aligned
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray, NodeTable
from kube_policy_scheduler.cluster.objects import NodeResourceTopology, TopologyZone, ZoneResource
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.requests import amounts
from kube_policy_scheduler.quantities.quantity import QuantityError

_NUMA_NODE = "Node"
"""Type of the zones that are NUMA nodes; others are sockets, cores, or devices."""
_MOST_ZONES = 64
"""Of one node; further ones are ignored."""
_MOST_COMBINED = 8
"""NUMA nodes of one node that a pod may have several of: the kubelet takes no more by default."""
_MOST_DIGITS = 9
_SCOPE, _POLICY = "topologyManagerScope", "topologyManagerPolicy"
_CONTAINER_SCOPE, _POD_SCOPE, _RESTRICTED = "container", "pod", "restricted"
_NO_ZONE = -1
_UNBOUND = np.iinfo(np.int64).max
"""What each zone has of a resource that no zone of the node reports: it belongs to no NUMA node."""

Amounts = Mapping[str, int]
"""In column units by resource."""
ZoneColumn = NDArray[np.int64]


class Zone(msgspec.Struct, frozen=True):
    """One NUMA node."""

    available: Amounts
    total: Amounts
    """What a node could give if nothing was taken: by it the kubelet decides how many NUMA nodes a request needs."""


class NumaNodes(msgspec.Struct, frozen=True):
    """The NUMA nodes of one node, in the order of their numbers, and how its kubelet takes from them."""

    zones: tuple[Zone, ...] = ()
    by_container: bool = False
    """Whether each container is aligned by itself."""
    is_restricted: bool = False
    """Whether a request that no NUMA node could ever meet may have the fewest that can."""


class NumaZones:
    """The NUMA nodes of all nodes whose NodeResourceTopology is known."""

    def __init__(self, nodes: NodeTable, on_node: Mapping[str, Mapping[str, PodInfo]]) -> None:
        """Make one.

        Args:
            nodes: the node table.
            on_node: pods by node name and uid.
        """
        self._nodes, self._on_node = nodes, on_node
        self.zones: dict[str, NumaNodes] = {}
        """By the name of the node."""
        self._included: dict[str, frozenset[str]] = {}
        """Pods that the object of a node knows of, by uid."""
        self._pending: dict[str, dict[str, int]] = {}
        """What the other pods on the node take from NUMA nodes, by resource."""
        self._columns: dict[str, ZoneColumn] = {}
        self._totals: dict[str, ZoneColumn] = {}
        self._known: BoolArray | None = None
        self._by_container: BoolArray | None = None
        self._restricted: BoolArray | None = None

    def set(self, topology: NodeResourceTopology) -> None:
        """Set the object of a node."""
        name = topology.metadata.name
        before, now = self.zones.get(name, NumaNodes()), _interpreted(topology)
        self.zones[name] = now
        there = self._on_node.get(name, {})
        self._included[name] = frozenset(uid for uid, pod in there.items() if pod.started is not None)
        pending: dict[str, int] = {}
        for pod in there.values() if name in self._nodes.rows else ():  # those on unknown nodes are counted later
            if pod.started is None:
                _add(pending, pod, 1)
        self._pending[name] = pending
        self._totals = {}
        is_another = (len(before.zones), before.by_container, before.is_restricted) != (
            len(now.zones), now.by_container, now.is_restricted,
        )  # fmt: skip
        self._changed(name, is_another)

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
        for resource in aligned(pod.template).pod:
            if resource in self._columns:
                self._write(node_name, resource)

    def rows_changed(self) -> None:
        """Note that nodes were added, removed or moved in the table."""
        self._columns, self._totals = {}, {}
        self._known = self._by_container = self._restricted = None

    def column(self, resource: str) -> ZoneColumn:
        """Return `int64[nodes, zones]`: the free amount of a resource, in column units; -1 without such a zone."""
        found = self._columns.get(resource)
        if found is None:
            found = self._columns[resource] = np.full((self._nodes.size, self._widest), _NO_ZONE, np.int64)
            for name in self.zones:
                self._write(name, resource)
        return found

    def known(self) -> BoolArray:
        """Return `bool[nodes]`: where the NUMA nodes are known."""
        if self._known is None:
            self._known = self._where(lambda nodes: bool(nodes.zones))
        return self._known

    @property
    def by_container(self) -> BoolArray:
        """Return `bool[nodes]`: where each container is aligned by itself."""
        if self._by_container is None:
            self._by_container = self._where(lambda nodes: nodes.by_container)
        return self._by_container

    @property
    def restricted(self) -> BoolArray:
        """Return `bool[nodes]`: where what no NUMA node could ever meet may have several."""
        if self._restricted is None:
            self._restricted = self._where(lambda nodes: nodes.is_restricted)
        return self._restricted

    @property
    def _widest(self) -> int:
        return max((len(nodes.zones) for nodes in self.zones.values()), default=0) or 1

    def _where(self, is_so: Callable[[NumaNodes], bool]) -> BoolArray:
        nothing = NumaNodes()
        return np.array([is_so(self.zones.get(name, nothing)) for name in self._nodes.names], np.bool_)

    def total(self, resource: str) -> ZoneColumn:
        """Return `int64[nodes, zones]`: what zones have of a resource, taken or not, in column units; 0: none."""
        found = self._totals.get(resource)
        if found is None:
            found = self._totals[resource] = np.zeros((self._nodes.size, self._widest), np.int64)
            for name, nodes in self.zones.items():
                row = self._nodes.rows.get(name)
                if row is not None:
                    found[row, : len(nodes.zones)] = [zone.total.get(resource, 0) for zone in nodes.zones]
        return found

    # --- does a pod fit ------------------------------------------------------------------------------

    def fits(self, demand: AlignedDemand, resources: Sequence[str], rows: IntArray) -> BoolArray:
        """Return whether kubelets would align a pod, `bool[rows]`; True where no NUMA nodes are known.

        Args:
            demand: of the pod.
            resources: that count, of those that it has aligned; empty: all.
            rows: of the nodes.
        """
        result = np.ones(len(rows), np.bool_)
        wanted = [name for name in demand.pod if not resources or name in resources]
        known = self.known()[rows]
        by_container = self.by_container[rows]
        for where, parts in ((known & ~by_container, (Part(demand.pod),)), (known & by_container, demand.containers)):
            if wanted and where.any():
                result[where] = _Trial(self, wanted, rows[where]).fits(parts)
        return result

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
        row, zones = self._nodes.rows.get(name), self.zones[name].zones
        if row is None:
            return
        taken = self._pending[name].get(resource, 0)
        if any(resource in zone.available for zone in zones):
            free = [
                max(zone.available[resource] - taken, 0) if resource in zone.available else _NO_ZONE for zone in zones
            ]
        else:
            free = [_UNBOUND] * len(zones)
        self._columns[resource][row, : len(free)] = free


class _Trial:
    """Nodes of which a pod takes one part after the other, as their kubelets would: first the zone of lowest number.

    The kubelet decides on a container when it is the turn of that, so a container may take what a later one would need.
    """

    def __init__(self, numa: NumaZones, resources: Sequence[str], rows: IntArray) -> None:
        self._free = {name: np.minimum(numa.column(name)[rows], _PLENTY) for name in resources}
        self._total = {name: numa.total(name)[rows] for name in resources}
        self._restricted = numa.restricted[rows]
        size = len(rows)
        self._left = {name: np.zeros(size, np.int64) for name in resources}
        """What init containers leave to those that come after them, and in which zone."""
        self._left_in = {name: np.full(size, _NO_ZONE, np.int64) for name in resources}
        self._size, self._zones = size, next(iter(self._free.values())).shape[1]

    def fits(self, parts: Sequence[Part]) -> BoolArray:
        """Return where all parts find their zones."""
        fits = np.ones(self._size, np.bool_)
        for part in parts:
            wanted = {name: amount for name, amount in part.amounts.items() if name in self._free}
            if wanted:
                fits = self._place(wanted, fits, gives_back=part.gives_back)
                if not fits.any():
                    break
        return fits

    def _place(self, wanted: Amounts, fits: BoolArray, *, gives_back: bool) -> BoolArray:
        placed = np.zeros(self._size, np.bool_)
        for zone in range(self._zones):
            here = fits & ~placed
            for name, amount in wanted.items():
                here &= self._free[name][:, zone] + self._left_here(name, zone) >= amount
            if "cpu" in wanted:  # cores that are left are used before any others are
                elsewhere = (self._left["cpu"] > 0) & (self._left_in["cpu"] != zone)
                here &= ~elsewhere
            if here.any():
                for name, amount in wanted.items():
                    self._take(name, amount, zone, here, gives_back=gives_back)
                placed |= here
        wide = fits & ~placed & self._restricted
        if wide.any():
            placed |= self._place_wide(wanted, wide)
        return placed

    def _left_here(self, name: str, zone: int) -> NDArray[np.int64]:
        return np.where(self._left_in[name] == zone, self._left[name], 0)

    def _take(self, name: str, amount: int, zone: int, here: BoolArray, *, gives_back: bool) -> None:
        left, left_in = self._left[name], self._left_in[name]
        again = np.minimum(self._left_here(name, zone), amount)
        self._free[name][:, zone] -= np.where(here, amount - again, 0)
        now = np.where(left_in == zone, left - again, left)
        if gives_back:
            now = np.where(left_in == zone, now, 0) + amount
            left_in[here] = zone
        left[here] = now[here]

    def _place_wide(self, wanted: Amounts, wide: BoolArray) -> BoolArray:
        """Return where a part gets several zones (policy `restricted`): the fewest that could ever hold it."""
        placed = np.zeros(self._size, np.bool_)
        reported = [name for name in wanted if (self._free[name] < _PLENTY).any()]
        numbers = [self._fewest(name, wanted[name]) for name in reported]
        for width in range(2, min(self._zones, _MOST_COMBINED) + 1):
            rows = wide & ~placed
            for number in numbers:
                rows &= (number == width) | (number == _ANY_WIDTH)
            if not rows.any() or all((number == _ANY_WIDTH).all() for number in numbers):
                continue
            for zones in sorted(combinations(range(min(self._zones, _MOST_COMBINED)), width), key=_mask):
                here = rows & ~placed
                for name in reported:
                    together = np.maximum(self._free[name][:, zones], 0).sum(axis=1)
                    here &= together >= wanted[name]
                if here.any():
                    for name in reported:
                        self._take_wide(name, wanted[name], zones, here)
                    placed |= here
        return placed

    def _fewest(self, name: str, amount: int) -> NDArray[np.int64]:
        """Return by row how many zones an amount needs if nothing is taken; many where all are too few."""
        largest = -np.sort(-self._total[name], axis=1)
        number: NDArray[np.int64] = (np.cumsum(largest, axis=1) < amount).sum(axis=1) + 1
        number[(self._free[name] >= _PLENTY).any(axis=1)] = _ANY_WIDTH
        return number

    def _take_wide(self, name: str, amount: int, zones: tuple[int, ...], here: BoolArray) -> None:
        missing = np.where(here, amount, 0)
        for zone in zones:
            taken = np.minimum(np.maximum(self._free[name][:, zone], 0), missing)
            self._free[name][:, zone] -= taken
            missing -= taken


_PLENTY = 1 << 60
"""More than a zone can have, so that sums of a few are exact: of a resource that no zone of a node reports."""
_ANY_WIDTH = -1


def _mask(zones: tuple[int, ...]) -> int:
    return sum(1 << zone for zone in zones)


def _interpreted(topology: NodeResourceTopology) -> NumaNodes:
    zones = [zone for zone in topology.zones or () if zone.type == _NUMA_NODE]
    numbers = [_number(zone) for zone in zones]
    if None not in numbers and len(set(numbers)) == len(numbers):
        zones.sort(key=lambda zone: _number(zone) or 0)
    said = {each.name: each.value for each in topology.attributes or ()}
    older = (topology.topology_policies or [""])[0]
    if older.startswith("SingleNUMANode") or older.startswith("Restricted") or older.startswith("BestEffort"):
        said = {_SCOPE: _POD_SCOPE if older.endswith("PodLevel") else _CONTAINER_SCOPE} | said
        said = {_POLICY: _RESTRICTED if older.startswith("Restricted") else ""} | said
    return NumaNodes(
        tuple(Zone(_amounts(zone.resources or ()), _totals(zone.resources or ())) for zone in zones[:_MOST_ZONES]),
        by_container=said.get(_SCOPE) == _CONTAINER_SCOPE,
        is_restricted=said.get(_POLICY) == _RESTRICTED,
    )


def _number(zone: TopologyZone) -> int | None:
    """Return the number of a NUMA node, by its name, such as `node-1`."""
    digits = zone.name[len(zone.name.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) < _MOST_DIGITS else None


def _totals(resources: Iterable[ZoneResource]) -> Amounts:
    """Return what a zone would have if nothing was taken: of cpu all, of others what pods may have."""
    found: dict[str, int] = {}
    for each in resources:
        kept = (each.capacity, each.allocatable) if each.name == "cpu" else (each.allocatable, each.capacity)
        text = next((one for one in (*kept, each.available) if one is not None), None)
        try:
            found |= amounts({each.name: text}) if text is not None else {}
        except QuantityError:
            continue
    return found


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
    for resource, amount in aligned(pod.template).pod.items():
        left = pending.get(resource, 0) + step * amount
        if left:
            pending[resource] = left
        else:
            pending.pop(resource, None)
