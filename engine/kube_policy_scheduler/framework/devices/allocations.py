"""What a pod's claims get on every node: found once per kind of claims and node, and again after changes.

Claims with equal requests get equal results, so pods of one template share what was found, also that a node has
nothing for them, or an error. Each allocation changes the devices of one node, and only that node is searched again;
how many claims there are does not matter. Nodes that see the same pools, and only these, share one search.

Everything is paid for by the attempt that is under way (`search_work`), and searched in turns: what one turn
found is kept, also how far the search on a node is. An attempt that takes all that it may take has an error on the node
that it came to; the next attempt goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices.resource_claims import AllocatedDevices, DevicesInUse
from kube_policy_scheduler.cluster.devices.resource_slices import Pool, SlicedDevice
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.nodes import ALL_ROWS, BoolArray, IntArray, Rows
from kube_policy_scheduler.cluster.search_work import Work, most_steps, search_work
from kube_policy_scheduler.framework.devices.allocator import (
    ANY_NUMBER,
    TIMED_OUT,
    NodeAllocation,
    NoDevices,
    allocate_in_steps,
    places_in_steps,
)
from kube_policy_scheduler.framework.devices.candidates import KeptCandidates, NodePools
from kube_policy_scheduler.framework.devices.device_order import ClaimableDevices, is_by_pod, ranks
from kube_policy_scheduler.framework.devices.requests import AllocationError, ClaimRequests, read_claim
from kube_policy_scheduler.framework.devices.thrift import THRIFTY
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.wording import part_of

_MOST_KINDS = 256
"""Kinds of claims with cached results: 8 bytes a node each, and what was found."""
_NODE_BYTES, _DEVICE_BYTES = 33, 160
"""Of the result for a node, and for each device in it."""
_GROWN = 1.25
"""Results that have grown by this factor are measured again."""
_MOST_ORDERS = 8
"""Orders of devices with cached results for one kind of claims."""
_MOST_STEPS_IN_ORDER = 20_000
"""Candidates that are tried on one node in a policy's order."""
_RANKED_A_STEP = 0.5
"""Steps to rank a device."""
T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode


class Outcome(IntEnum):
    """The result of a search on one node."""

    UNKNOWN = 0
    """Not searched since something changed."""
    ALLOCATED = 1
    CANNOT_ALLOCATE = 2
    INVALID_POOLS = 3
    ERROR = 4
    """The attempt ends, with a text."""
    REJECTED = 5
    """The node has nothing, for a reason with a text of its own."""


_UNKNOWN, _ERROR = int(Outcome.UNKNOWN), int(Outcome.ERROR)
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
        self._ordered: KeptView[tuple[DeviceOrder, str], dict[int, NodeAllocation]] = KeptView(most=_MOST_ORDERS)
        """By order and, where it depends on the pod, by pod."""
        self._work: Work = search_work(cluster.store)
        self._under_way: dict[tuple[str, int], Generator[None, None, Any]] = {}
        """The search that paused, by what is searched for and row; at most one."""
        self._given_up: list[int] = []
        """Rows where an attempt took too long."""
        self._given_up_in = -1
        """In which attempt."""
        self._candidates: KeptCandidates = {}
        self._by_pools: dict[int, NodeAllocation] = {}
        """What nodes get that see the same pools, by these."""
        self._is_long = False
        """Whether the last rejection took long: the next node is looked at as a whole at once."""
        self.devices_kept = 0
        self.devices_measured = 0
        """As many were kept when it was measured."""
        self._places: IntArray = np.empty(0, np.int64)
        self._places_offered: IntArray = np.empty(0, np.int64)
        """For how many pods; -1: not counted since something changed."""

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return self._cluster.nodes.size

    def outcomes(self, rows: Rows) -> NDArray[np.int8]:
        """Return `int8[rows]`: the result of the search on each node, an `Outcome`.

        Within an attempt, after an error on one of these nodes no other is searched: it ends the attempt.

        Raises:
            OutOfTurn: the turn of the attempt that is under way is over; ask again.
        """
        self._refresh()
        if self._stale is None or self._stale:
            ends = self._work.is_open
            if not ends or not np.equal(self._outcomes[rows], _ERROR).any():
                self._search_all(self._unknown(rows), ends=ends, is_all=rows is ALL_ROWS)
        return self._outcomes[rows]

    def may_have_errors(self, rows: Rows) -> BoolArray:
        """Return `bool[rows]`: where there is an error, or nothing is known."""
        self._refresh()
        asked = self._outcomes[rows]
        return np.equal(asked, _ERROR) | np.equal(asked, _UNKNOWN)

    def _search_all(self, rows: Sequence[int], *, ends: bool, is_all: bool) -> None:
        """Search on rows. ends: whether an error ends it. is_all: whether all others are known."""
        if rows:
            with self._paid():
                for row in rows:
                    self._search(row)
                    if self._outcomes[row] == _ERROR and (ends or self._work.is_spent):
                        return
        if is_all:
            self._stale = set()

    def _paid(self) -> AbstractContextManager[None]:
        """Let the attempt that is under way pay; if there is none, this is one of its own, with one turn."""
        return self._work.attempt("", most=most_steps(self._cluster.nodes.size))

    def _unknown(self, rows: Rows) -> list[int]:
        """Return which of some rows must be searched."""
        if rows is ALL_ROWS and self._stale is not None:
            return sorted(self._stale)
        found = np.flatnonzero(self._outcomes[rows] == _UNKNOWN)
        unknown: list[int] = (found if isinstance(rows, slice) else rows[found]).tolist()
        return unknown

    def on(self, row: int) -> NodeAllocation:
        """Return what the claims get on one node.

        Raises:
            OutOfTurn: as for `outcomes`.
        """
        self._refresh()
        if self._outcomes[row] == _UNKNOWN:
            with self._paid():
                self._search(row)
        found: NodeAllocation = self._found[row]
        return found

    def places(self) -> IntArray:
        """Return `int64[nodes]`: for how many pods with such claims, one after another, each node has devices free.

        Devices that several nodes can use count on each of them. Do not change it.

        Raises:
            OutOfTurn: as for `outcomes`.
        """
        self._refresh()
        return self._count("free", self._places, self._cluster.resource_claims.allocated)

    def places_offered(self) -> IntArray:
        """Return `int64[nodes]`: for how many each node has devices, in use or not. Do not change it.

        Raises:
            OutOfTurn: as for `outcomes`.
        """
        self._refresh()
        return self._count("offered", self._places_offered, None)

    def _count(self, kind: str, counted: IntArray, allocated: DevicesInUse | None) -> IntArray:
        """Count on the nodes where it is not known. Where that takes too long, there is room for any number."""
        unknown = np.flatnonzero(counted < 0).tolist()
        if not unknown:
            return counted
        by_pools: dict[int, int] = {}
        with self._paid():
            for row in unknown:
                pools = self._cluster.resource_slices.pools_of(row)
                known = 0 if self._failure or not pools else by_pools.get(id(pools))
                if known is None:
                    known = self._in_turns((kind, row), partial(self._places_on, row, pools, allocated))
                    if known is None:
                        return np.where(counted < 0, ANY_NUMBER, counted)
                    if _are_alike(pools):
                        by_pools[id(pools)] = known
                counted[row] = known
        return counted

    def _places_on(self, row: int, pools: Sequence[Pool], allocated: DevicesInUse | None) -> Generator[None, None, int]:
        info = self._cluster.nodes.infos[row]
        rank = partial(_by_thrift, pools) if self._cluster.resource_slices.take_counters else None
        seen = NodePools(info.name, info.labels, pools)
        return places_in_steps(self._least, seen, allocated, rank=rank, work=self._work)

    def ordered_on(self, row: int, order: DeviceOrder, *, pod_uid: str) -> NodeAllocation:
        """Return what the claims get on one node if its devices are tried in an order.

        The same as `on` if that is not found within a few steps. pod_uid: of the pod, for orders that depend on it.

        Raises:
            OutOfTurn: as for `outcomes`.
        """
        found = self.on(row)
        if found.claims is None:
            return found
        key = order, pod_uid if is_by_pod(order) else ""
        kept = self._ordered.get(key)
        if kept is None:
            kept = {}
            self._ordered.set(key, kept)
        known = kept.get(row)
        if known is None:
            with self._paid():
                if self._work.is_spent:
                    return found
                self._work.end_turn_if_over()
                known = self._in_order(row, order, pod_uid)
            known = kept[row] = found if known.claims is None else known
        return known

    def _in_order(self, row: int, order: DeviceOrder, pod_uid: str) -> NodeAllocation:
        """Search in an order, at once: it takes so few steps."""
        cluster = self._cluster
        info, allocated = cluster.nodes.infos[row], cluster.resource_claims.allocated
        pools = cluster.resource_slices.pools_of(row)
        own = Work(_MOST_STEPS_IN_ORDER)

        def rank(devices: Sequence[SlicedDevice]) -> Sequence[tuple[Any, ...]]:
            self._work.left_now -= _RANKED_A_STEP * len(devices)
            return ranks(order, ClaimableDevices(devices, pools, allocated), pod_uid=pod_uid)

        seen = NodePools(info.name, info.labels, pools)
        steps = allocate_in_steps(self._claims, seen, allocated, rank=rank, work=own)
        try:
            next(steps)
        except StopIteration as end:
            found: NodeAllocation = end.value
        else:
            found = NodeAllocation(None)
        self._work.left_now -= _MOST_STEPS_IN_ORDER - own.left_now
        return found

    def text(self, row: int, keys: Sequence[str]) -> str:
        """Return the error or the rejection of one node; `keys` are the claims' `namespace/name`."""
        found = self.on(row)
        text = found.error or found.rejection
        for place, key in enumerate(keys):
            text = text.replace(_placeholder(place), key)
        return text

    def _refresh(self) -> None:
        """Drop the results for nodes that may see or use other devices now."""
        cluster = self._cluster
        if self._given_up and self._given_up_in != self._work.attempts:
            self._try_again()
        nodes, slices, allocated = cluster.nodes, cluster.resource_slices, cluster.resource_claims.allocated
        version = cluster.store.version(objects.DeviceClass)
        stamp = (nodes.identity_version, version, nodes.version, slices.changed.end, allocated.changed.end)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._candidates, self._by_pools = {}, {}
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
        if isinstance(rows, slice):
            self.devices_kept = 0
            self._under_way.clear()
        else:
            for row in rows:
                self._keep(row, None)
            for key in [key for key in self._under_way if key[1] in rows]:
                del self._under_way[key]
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
        for _, kept in self._ordered.items():
            for row in rows:
                kept.pop(row, None)

    def _follow_rows(self) -> None:
        nodes = self._cluster.nodes
        before = {name: row for row, name in enumerate(self._names)}
        self._ordered.clear()
        self._under_way.clear()
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
        self.devices_kept = sum(map(_devices_in, self._found))

    def _read(self) -> None:
        self._failure = ""
        find = self._cluster.store.get

        def find_class(name: str) -> objects.DeviceClass | None:
            return find(objects.DeviceClass, name)

        try:
            self._claims = tuple(
                read_claim(_placeholder(place), spec, find_class, self._cluster.rules)
                for place, spec in enumerate(self._specs)
            )
            self._least = tuple(
                msgspec.structs.replace(claim, requests=tuple(one[::-1] for one in claim.requests))
                for claim in self._claims
            )
        except AllocationError as error:
            self._failure = str(error)

    def _search(self, row: int) -> None:
        if self._failure:
            self._found[:] = NodeAllocation(None, error=self._failure)
            self._outcomes[:] = Outcome.ERROR
            return
        pools = self._cluster.resource_slices.pools_of(row)
        self._work.left_now -= _NODES_A_STEP
        found = self._by_pools.get(id(pools))
        if found is None:
            found = self._in_turns(("devices", row), partial(self._allocate, row, pools))
            if found is None:
                self._give_up(row)
                return
            self._is_long = found.is_long
            if not found.error and _are_alike(pools):
                self._by_pools[id(pools)] = found
        self._keep(row, found)
        if self._stale:
            self._stale.discard(row)
        self._outcomes[row] = _outcome_of(found)

    def _allocate(self, row: int, pools: Sequence[Pool]) -> Generator[None, None, NodeAllocation]:
        info = self._cluster.nodes.infos[row]
        own = sum(1 if pool.is_alike else len(pool.devices) for pool in pools)
        self._work.left_now -= _STEPS_A_NODE + own // _DEVICES_A_STEP
        return allocate_in_steps(
            self._claims,
            NodePools(info.name, info.labels, pools),
            self._cluster.resource_claims.allocated,
            work=self._work,
            kept=self._candidates,
            steps_unpruned=0 if self._is_long else None,
        )

    def _keep(self, row: int, found: NodeAllocation | None) -> None:
        self.devices_kept += _devices_in(found) - _devices_in(self._found[row])
        self._found[row] = found

    def _in_turns(self, what: tuple[str, int], begin: Callable[[], Generator[None, None, T]]) -> T | None:
        """Go on with a search, or begin it; None: the attempt has taken all that it may take.

        Raises:
            OutOfTurn: the turn is over.
        """
        steps, work = self._under_way.pop(what, None) or begin(), self._work
        while True:
            if work.left_now < 0:
                self._under_way = {what: steps}
                work.end_turn_if_over()
                return None
            try:
                next(steps)
            except StopIteration as end:
                found: T = end.value
                return found

    def _give_up(self, row: int) -> None:
        """Note an error on a row that holds for this attempt."""
        nodes = self._cluster.nodes
        done = int(np.count_nonzero(self._outcomes != _UNKNOWN))
        why = (
            f"the claims take more than the {most_steps(nodes.size)} steps of one attempt;"
            f" {part_of(done, nodes.size, 'node')}"
        )
        text = f"node {nodes.infos[row].name}: {TIMED_OUT}: {why} are searched"
        self._keep(row, NodeAllocation(None, error=text))
        self._outcomes[row] = Outcome.ERROR
        self._given_up.append(row)
        self._given_up_in = self._work.attempts

    def _try_again(self) -> None:
        """Forget the errors of an earlier attempt that took too long."""
        for row in self._given_up:
            if row < len(self._outcomes) and self._outcomes[row] == _ERROR:
                self._outcomes[row] = _UNKNOWN
                self._keep(row, None)
                if self._stale is not None:
                    self._stale.add(row)
        self._given_up.clear()


def _outcome_of(found: NodeAllocation) -> Outcome:
    if found.claims is not None:
        return Outcome.ALLOCATED
    if found.error:
        return Outcome.ERROR
    match found.rejection:
        case NoDevices.CANNOT_ALLOCATE:
            return Outcome.CANNOT_ALLOCATE
        case NoDevices.INVALID_POOLS:
            return Outcome.INVALID_POOLS
    return Outcome.REJECTED


_STEPS_A_NODE, _DEVICES_A_STEP = 8, 4
"""Steps to find out which pools a node sees, with their devices."""
_NODES_A_STEP = 0.5
"""Steps to look up what another node got that sees the same pools."""


def _are_alike(pools: Sequence[Pool]) -> bool:
    """Return whether all nodes that see pools get the same of them."""
    return all(pool.is_alike for pool in pools)


def _devices_in(found: NodeAllocation | None) -> int:
    return sum(map(len, found.claims)) if found is not None and found.claims else 0


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
    _by_kind: KeptView[bytes, Allocations]

    def of(self, specs: Sequence[objects.ResourceClaimSpec]) -> Allocations:
        """Return what claims with these specs get."""
        kind = _encode(list(specs))
        known = self._by_kind.get(kind)
        if known is None:
            known = Allocations(self.cluster, specs)
            self._by_kind.set(kind, known)
        elif known.devices_kept > _GROWN * known.devices_measured:
            known.devices_measured = known.devices_kept
            self._by_kind.measure(kind)
        return known


def _size(kind: bytes, found: Allocations) -> int:
    return len(kind) + _NODE_BYTES * found.size + _DEVICE_BYTES * found.devices_kept


def allocations(cluster: Cluster) -> KeptAllocations:
    """Return what is kept for a cluster."""
    return KeptAllocations(cluster, cluster.view("device allocations", most=_MOST_KINDS, size_of=_size))
