"""What a pod's claims get on every node: found once per kind of claims and node, and again after changes.

Claims with equal requests get equal results, so pods of one template share what was found. Each allocation changes the
devices of one node, and only that node is searched again; how many claims there are does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.bounded_cache import BoundedCache
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, IntArray, Rows
from kube_policy_scheduler.cluster.resource_claims import AllocatedDevices, DevicesInUse
from kube_policy_scheduler.cluster.resource_slices import Pool, SlicedDevice
from kube_policy_scheduler.framework.dynamic_resources.allocator import (
    INVALID_POOLS,
    NodeAllocation,
    allocate,
    places,
)
from kube_policy_scheduler.framework.dynamic_resources.device_order import ClaimableDevices, is_by_pod, ranks
from kube_policy_scheduler.framework.dynamic_resources.requests import AllocationError, ClaimRequests, read_claim
from kube_policy_scheduler.framework.dynamic_resources.thrift import THRIFTY
from kube_policy_scheduler.framework.frame import DeviceOrder

_MOST_KINDS = 256
"""Kinds of claims with cached results: 8 bytes a node each, and what was found."""
_MOST_BYTES = 8 * 2**20
"""Of the claims' specs with cached results."""
_MOST_ORDERS = 8
"""Orders of devices with cached results for one kind of claims."""
_MOST_STEPS_IN_ORDER = 20_000
"""Candidates that are tried on one node in a policy's order."""
_encode = msgspec.msgpack.Encoder().encode


class Outcome(IntEnum):
    """The result of a search on one node."""

    UNKNOWN = 0
    """Not searched since something changed."""
    ALLOCATED = 1
    CANNOT_ALLOCATE = 2
    INVALID_POOLS = 3
    ERROR = 4


_UNKNOWN = int(Outcome.UNKNOWN)
"""Compared with columns, which is slow with a member of an enumeration."""


class Allocations:
    """What one kind of claims gets on every node."""

    def __init__(self, cluster: Cluster, specs: Sequence[objects.ResourceClaimSpec]) -> None:
        self._cluster = cluster
        self._specs = specs
        self._claims: tuple[ClaimRequests, ...] = ()
        self._least: tuple[ClaimRequests, ...] = ()
        """With the last alternative first: so they fit most often, as members of a gang may take what is left."""
        self._failure = ""
        self._names: list[str] = []
        self._stamp: tuple[int, ...] = ()
        """What the last refresh has seen: while that stays the same, there is nothing to drop."""
        self._identity = -1
        self._classes = -1
        self._labels = -1
        self._slices = cluster.resource_slices.changed.end
        self._devices = cluster.resource_claims.allocated.changed.end
        self._found: NDArray[Any] = np.empty(0, object)
        self._outcomes: NDArray[np.int8] = np.empty(0, np.int8)
        self._stale: set[int] | None = None
        """The rows that must be searched again; None: those whose outcome is UNKNOWN."""
        self._ordered: dict[DeviceOrder, dict[int, NodeAllocation]] = {}
        self._places: IntArray = np.empty(0, np.int64)
        self._places_offered: IntArray = np.empty(0, np.int64)
        """For how many pods; -1: not counted since something changed."""

    def outcomes(self, rows: Rows) -> NDArray[np.int8]:
        """Return `int8[rows]`: the result of the search on each node, an `Outcome`."""
        self._refresh()
        if self._stale is None or self._stale:
            for row in self._unknown(rows):
                self._search(row)
        return self._outcomes[rows]

    def _unknown(self, rows: Rows) -> list[int]:
        """Return which of some rows must be searched."""
        is_all = rows is ALL_ROWS
        if is_all and self._stale is not None:
            unknown = sorted(self._stale)
        else:
            found = np.flatnonzero(self._outcomes[rows] == _UNKNOWN)
            unknown = (found if isinstance(rows, slice) else rows[found]).tolist()
        if is_all:
            self._stale = set()
        return unknown

    def on(self, row: int) -> NodeAllocation:
        """Return what the claims get on one node."""
        self._refresh()
        if self._outcomes[row] == _UNKNOWN:
            self._search(row)
        found: NodeAllocation = self._found[row]
        return found

    def places(self) -> IntArray:
        """Return `int64[nodes]`: for how many pods with such claims, one after another, each node has devices free.

        Devices that several nodes can use count on each of them. Do not change it.
        """
        self._refresh()
        return self._count(self._places, self._cluster.resource_claims.allocated)

    def places_offered(self) -> IntArray:
        """Return `int64[nodes]`: for how many each node has devices, in use or not. Do not change it."""
        self._refresh()
        return self._count(self._places_offered, None)

    def _count(self, counted: IntArray, allocated: DevicesInUse | None) -> IntArray:
        for row in np.flatnonzero(counted < 0).tolist():
            info, number = self._cluster.nodes.infos[row], 0
            if not self._failure and (pools := self._cluster.resource_slices.pools_of(row)):
                number = places(
                    self._least,
                    pools,
                    allocated,
                    node_name=info.name,
                    labels=info.labels,
                    rank=partial(_by_thrift, pools) if self._cluster.resource_slices.take_counters else None,
                )
            counted[row] = number
        return counted

    def ordered_on(self, row: int, order: DeviceOrder, *, pod_uid: str) -> NodeAllocation:
        """Return what the claims get on one node if its devices are tried in an order.

        The same as `on` if that is not found within a few steps. pod_uid: of the pod, for orders that depend on it.
        """
        found = self.on(row)
        if found.claims is None:
            return found
        kept = self._ordered.setdefault(order, {})
        known = kept.get(row)
        if known is None:
            if len(self._ordered) > _MOST_ORDERS:
                del self._ordered[next(iter(self._ordered))]
            known = self._in_order(row, order, pod_uid)
            known = found if known.claims is None else known
            if not is_by_pod(order):
                kept[row] = known
        return known

    def _in_order(self, row: int, order: DeviceOrder, pod_uid: str) -> NodeAllocation:
        cluster = self._cluster
        info, allocated = cluster.nodes.infos[row], cluster.resource_claims.allocated
        pools = cluster.resource_slices.pools_of(row)

        def rank(devices: Sequence[SlicedDevice]) -> Sequence[tuple[Any, ...]]:
            return ranks(order, ClaimableDevices(devices, pools, allocated), pod_uid=pod_uid)

        return allocate(
            self._claims,
            pools,
            allocated,
            node_name=info.name,
            labels=info.labels,
            rank=rank,
            most_steps=_MOST_STEPS_IN_ORDER,
        )

    def error(self, row: int, keys: Sequence[str]) -> str:
        """Return the error of one node; `keys` are the claims' `namespace/name`."""
        text = self.on(row).error
        for place, key in enumerate(keys):
            text = text.replace(_placeholder(place), key)
        return text

    def _refresh(self) -> None:
        """Drop the results for nodes that may see or use other devices now."""
        cluster = self._cluster
        nodes, slices, allocated = cluster.nodes, cluster.resource_slices, cluster.resource_claims.allocated
        version = cluster.store.version(objects.DeviceClass)
        stamp = (nodes.identity_version, version, nodes.version, slices.changed.end, allocated.changed.end)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if self._identity != nodes.identity_version:
            self._follow_rows()
        if self._classes != version:
            self._classes = version
            self._read()
            self._forget(slice(None))
        if self._labels != nodes.version:
            self._labels = nodes.version
            if slices.sees_labels:
                self._forget(slice(None))
        names, self._slices = slices.changed.since(self._slices), slices.changed.end
        devices, self._devices = allocated.changed.since(self._devices), allocated.changed.end
        if names is None or devices is None or None in names:
            self._forget(slice(None))
            return
        if names:
            self._forget([row for name in names if (row := nodes.rows.get(name or "")) is not None])
        for device in devices:
            rows = slices.rows_of(device)
            self._forget(slice(None) if rows is None else rows, is_offered=False)

    def _forget(self, rows: slice | Sequence[int], *, is_offered: bool = True) -> None:
        """is_offered: whether the devices that there are may be others."""
        self._outcomes[rows] = _UNKNOWN
        self._found[rows] = None
        self._places[rows] = -1
        if is_offered:
            self._places_offered[rows] = -1
        if isinstance(rows, slice):
            self._stale = None
            self._ordered.clear()
            return
        if self._stale is not None:
            self._stale.update(rows)
        for kept in self._ordered.values():
            for row in rows:
                kept.pop(row, None)

    def _follow_rows(self) -> None:
        nodes = self._cluster.nodes
        before = {name: row for row, name in enumerate(self._names)}
        self._ordered.clear()
        self._stale = None
        found, outcomes = self._found, self._outcomes
        self._identity, self._names = nodes.identity_version, list(nodes.names)
        self._found = np.full(nodes.size, None, object)
        self._outcomes = np.zeros(nodes.size, np.int8)
        self._places = np.full(nodes.size, -1, np.int64)
        self._places_offered = np.full(nodes.size, -1, np.int64)
        for row, name in enumerate(self._names):
            old = before.get(name)
            if old is not None:
                self._found[row], self._outcomes[row] = found[old], outcomes[old]

    def _read(self) -> None:
        self._failure = ""
        find = self._cluster.store.get

        def find_class(name: str) -> objects.DeviceClass | None:
            return find(objects.DeviceClass, name)

        try:
            self._claims = tuple(
                read_claim(_placeholder(place), spec, find_class) for place, spec in enumerate(self._specs)
            )
            self._least = tuple(
                msgspec.structs.replace(claim, requests=tuple(one[::-1] for one in claim.requests))
                for claim in self._claims
            )
        except AllocationError as error:
            self._failure = str(error)

    def _search(self, row: int) -> None:
        if self._failure:
            found = NodeAllocation(None, error=self._failure)
        else:
            info = self._cluster.nodes.infos[row]
            found = allocate(
                self._claims,
                self._cluster.resource_slices.pools_of(row),
                self._cluster.resource_claims.allocated,
                node_name=info.name,
                labels=info.labels,
            )
        self._found[row] = found
        if self._stale:
            self._stale.discard(row)
        if found.claims is not None:
            self._outcomes[row] = Outcome.ALLOCATED
        elif found.error:
            self._outcomes[row] = Outcome.ERROR
        else:
            invalid = found.refusal == INVALID_POOLS
            self._outcomes[row] = Outcome.INVALID_POOLS if invalid else Outcome.CANNOT_ALLOCATE


def _by_thrift(pools: Sequence[Pool], devices: Sequence[SlicedDevice]) -> Sequence[tuple[Any, ...]]:
    """Return what sorts those first that take the least from others."""
    return ranks(THRIFTY[0], ClaimableDevices(devices, pools, _NONE_IN_USE), pod_uid="")


_NONE_IN_USE = AllocatedDevices()


def _placeholder(place: int) -> str:
    """Return the placeholder for a claim's name in errors: claims with other names share the result."""
    return f"\x00{place}\x00"


class KeptAllocations(msgspec.Struct):
    """Allocations by kind of claims, for the kinds that were used last."""

    cluster: Cluster
    _by_kind: BoundedCache[bytes, Allocations]

    def of(self, specs: Sequence[objects.ResourceClaimSpec]) -> Allocations:
        """Return what claims with these specs get."""
        kind = _encode(list(specs))
        known = self._by_kind.get(kind)
        if known is None:
            known = Allocations(self.cluster, specs)
            self._by_kind.set(kind, known)
        return known


def _cache() -> BoundedCache[bytes, Allocations]:
    return BoundedCache(most=_MOST_KINDS, most_bytes=_MOST_BYTES, size_of=lambda kind, found: len(kind))


def allocations(cluster: Cluster) -> KeptAllocations:
    """Return what is kept for a cluster."""
    return cluster.store.keep("device-allocations", None, lambda: KeptAllocations(cluster, _cache()))


# --- what is written into claims --------------------------------------------------------------------------


def results_of(
    allocation: NodeAllocation, specs: Sequence[objects.ResourceClaimSpec], node_name: str, share_id: str = ""
) -> list[objects.AllocationResult]:
    """Return what is written into the status of each claim.

    Args:
        allocation: what the claims get on the node.
        specs: of the claims, in order.
        node_name: the node.
        share_id: the first 24 characters of the shares' ids, which are UUIDs; the place of the result ends them.
    """
    done = []
    for place, (chosen, spec) in enumerate(zip(allocation.claims or (), specs, strict=True)):
        results = [
            objects.DeviceRequestAllocationResult(
                request=one.request.full_name,
                driver=one.device.id.driver,
                pool=one.device.id.pool,
                device=one.device.id.device,
                admin_access=one.request.admin_access,
                tolerations=list(one.request.tolerations) or None,
                binding_conditions=one.device.device.binding_conditions,
                binding_failure_conditions=one.device.device.binding_failure_conditions,
                share_id=f"{share_id}{place:06x}{number:06x}" if one.shared else None,
                consumed_capacity=None
                if one.consumed is None
                else {name: str(amount) for name, amount in one.consumed.items()},
            )
            for number, one in enumerate(chosen)
        ]
        config = _config(allocation, place, spec)
        done.append(
            objects.AllocationResult(
                devices=objects.DeviceAllocationResult(results=results or None, config=config or None),
                node_selector=_node_selector(allocation, place, node_name),
            )
        )
    return done


def _config(
    allocation: NodeAllocation, place: int, spec: objects.ResourceClaimSpec
) -> list[objects.DeviceAllocationConfiguration]:
    done: list[objects.DeviceAllocationConfiguration] = []
    of_class: dict[str, list[objects.DeviceAllocationConfiguration]] = {}
    taken = allocation.alternatives[place]
    for request, alternatives in zip(taken, allocation.requests[place], strict=True):
        chosen = alternatives[request]
        name = chosen.device_class.metadata.name
        if name in of_class:
            for config in of_class[name]:
                (config.requests or []).append(chosen.full_name)
            continue
        of_class[name] = [
            objects.DeviceAllocationConfiguration(source="FromClass", requests=[chosen.full_name], opaque=one.opaque)
            for one in chosen.device_class.spec.config or ()
        ]
        done.extend(of_class[name])
    for one in spec.devices.config or ():
        times = 1
        if one.requests:
            names = set(one.requests)
            chosen_ones = (alternatives[at] for at, alternatives in zip(taken, allocation.requests[place], strict=True))
            times = sum(chosen.base_name in names or chosen.full_name in names for chosen in chosen_ones)
        done.extend(
            objects.DeviceAllocationConfiguration(source="FromClaim", requests=one.requests, opaque=one.opaque)
            for _ in range(times)
        )
    return done


def _node_selector(allocation: NodeAllocation, place: int, node_name: str) -> objects.NodeSelector | None:
    """Return where else the devices can be used; None: everywhere."""
    expressions: list[objects.Requirement] = []
    fields: list[objects.Requirement] = []
    for one in (allocation.claims or ())[place]:
        spec, device = one.device.slice.slice.spec, one.device.device
        own = bool(spec.per_device_node_selection)
        local = device.node_name if own else spec.node_name
        selector = device.node_selector if own else spec.node_selector
        if local is not None or device.binds_to_node:
            only = objects.Requirement(key="metadata.name", operator="In", values=[node_name])
            return objects.NodeSelector(node_selector_terms=[objects.NodeSelectorTerm(match_fields=[only])])
        terms = selector.node_selector_terms if selector is not None else None
        if terms:
            _merge(fields, terms[0].match_fields)
            _merge(expressions, terms[0].match_expressions)
    if not expressions and not fields:
        return None
    term = objects.NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None)
    return objects.NodeSelector(node_selector_terms=[term])


def _merge(into: list[objects.Requirement], more: list[objects.Requirement] | None) -> None:
    for requirement in more or ():
        values = set(requirement.values or ())
        if not any(
            (one.key, one.operator) == (requirement.key, requirement.operator) and set(one.values or ()) == values
            for one in into
        ):
            into.append(requirement)
