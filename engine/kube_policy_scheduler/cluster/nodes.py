"""The nodes as a table: one NumPy array per attribute, one dense row per node.

Rows are 0..size-1 in no meaningful order; if a node is removed, the last row moves into its place. There are three
kinds of change, because caches depend on them, each with a journal of the rows that changed: *static* (labels, taints,
conditions, the set of nodes), *images*, and *dynamic* (what is requested and offered). Rows that a journal names may be
gone since.

There are columns for cpu, memory, ephemeral storage and pods, and for each resource that some node offers. Of other
resources pods may request any number: no node has any of them, and nothing else matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.hashed_rows import HashedRows
from kube_policy_scheduler.cluster.images import ImageTable
from kube_policy_scheduler.cluster.journal import Journal
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.node_info import CHANGES, STATIC_CHANGES, NodeInfo, SharedParts, changes_between
from kube_policy_scheduler.cluster.requests import NATIVE, Amounts, PodRequests
from kube_policy_scheduler.cluster.static_columns import (
    ALL_ROWS,
    BoolArray,
    CodeArray,
    CodedColumn,
    IntArray,
    RowColumn,
    Rows,
    ValueColumn,
)
from kube_policy_scheduler.cluster.steps import UnderWay
from kube_policy_scheduler.cluster.sum_column import SumColumn
from kube_policy_scheduler.quantities.quantity import MAX_INT64

__all__ = [
    "ALL_ROWS",
    "CHANGES",
    "BoolArray",
    "CodeArray",
    "FloatArray",
    "IntArray",
    "LabelColumn",
    "NodeInfo",
    "NodeTable",
    "Rows",
]

FloatArray: TypeAlias = NDArray[np.float64]
LabelColumn: TypeAlias = CodedColumn[str]
"""One text attribute of all nodes, dictionary coded."""

T = TypeVar("T")
Value = TypeVar("Value", bound=Hashable)

_FIRST_CAPACITY = 64
_JOURNAL_LIMIT = 1 << 16
"""Changed rows remembered; a reader that lags further behind recomputes everything."""
_MAX_STATIC = 512
"""Static columns kept; beyond it all are dropped, and those still in use are rebuilt."""
_MAX_DERIVED = 128
"""Results kept that are derived from all nodes, and from one column each; of the latter beyond it all are dropped, as
with static columns."""
_ROWS_IN_A_STEP = 1 << 11
"""Of a column that is made in steps: 2 to 3 ms."""
_is_cordoned: Callable[[NodeInfo], bool] = attrgetter("node.spec.unschedulable")
_OF_NO_LABEL: tuple[Hashable, Callable[[NodeInfo], str | None]] = ("label", None), lambda info: None
"""Key and values of the column that all labels share that no node has."""
_LABELS, _CONDITIONS = attrgetter("labels"), attrgetter("conditions")
NOTHING_CHANGED: frozenset[str] = frozenset()
ADDED = frozenset({"added"})
MOST_NONZERO = MAX_INT64 // 2
"""What the columns with the scoring defaults show at most: a pod may be added to them in a dry run."""


class InBlock(IntEnum):
    """The columns of `NodeTable.cpu_and_memory`, by the names that they have in the table."""

    POD_COUNT = 0
    ALLOCATABLE_PODS = 1
    ALLOCATABLE_CPU = 2
    ALLOCATABLE_MEMORY = 3
    REQUESTED_CPU = 4
    REQUESTED_MEMORY = 5
    NONZERO_CPU = 6
    NONZERO_MEMORY = 7


_ALLOCATABLE_IN_BLOCK = {
    "pods": InBlock.ALLOCATABLE_PODS,
    "cpu": InBlock.ALLOCATABLE_CPU,
    "memory": InBlock.ALLOCATABLE_MEMORY,
}
_REQUESTED_IN_BLOCK = {"cpu": InBlock.REQUESTED_CPU, "memory": InBlock.REQUESTED_MEMORY}


class NodeTable:
    """All nodes of the cluster, as columns."""

    def __init__(self) -> None:
        self.infos: list[NodeInfo] = []
        self.size = 0
        """The number of nodes."""
        self.rows: dict[str, int] = {}
        self.static_changes: Journal[int] = Journal()
        """Rows where something static changed."""
        self.image_changes: Journal[int] = Journal()
        """Rows where the images changed, and those of added or removed nodes."""
        self.dynamic_changes: Journal[int] = Journal(most=_JOURNAL_LIMIT)
        """Rows where what is requested or offered changed."""
        self.images = ImageTable()
        self._shared = SharedParts()
        self.identity_changes: Journal[int] = Journal()
        """Rows where a name, a hostname label or an address changed, and those of added, moved or removed nodes."""
        self._capacity = _FIRST_CAPACITY
        self.cpu_and_memory: IntArray = np.zeros((len(InBlock), _FIRST_CAPACITY), np.int64)
        """`int64[8, capacity]`, see `InBlock`: the columns that nearly every decision reads. Read-only."""
        block = self.cpu_and_memory
        self._allocatable: dict[str, IntArray] = {
            name: block[_ALLOCATABLE_IN_BLOCK[name]] if name in _ALLOCATABLE_IN_BLOCK else _no_amounts()
            for name in NATIVE
        }
        self._requested = {
            name: SumColumn(block[_REQUESTED_IN_BLOCK[name]] if name in _REQUESTED_IN_BLOCK else _no_amounts())
            for name in NATIVE
        }
        self._nonzero_cpu = SumColumn(block[InBlock.NONZERO_CPU], most=MOST_NONZERO)
        self._nonzero_memory = SumColumn(block[InBlock.NONZERO_MEMORY], most=MOST_NONZERO)
        self._pod_count: IntArray = block[InBlock.POD_COUNT]
        self.offers_version = 0
        """Changes with what any node offers."""
        self._offers: Counter[str] = Counter()
        """The number of nodes that offer each resource that is not native."""
        self.counted = self._requested.keys()
        """The resources that there are columns for."""
        self.appeared: set[str] = set()
        """Resources that are counted since the last change of a node: what pods request of them is not counted yet."""
        self.vanished: set[str] = set()
        """Resources that are no longer counted since the last change of a node."""
        self._views: dict[tuple[str, str], IntArray] = {}
        """The columns cut to the number of nodes, rebuilt when that changes."""
        self._static: dict[Hashable, tuple[Callable[[NodeInfo], Any], Any]] = {}
        self._row_names: list[str] = []
        self._names: tuple[int, list[str]] = (0, [])
        """A copy of them, with the identity version that it is of."""
        self.by_hash = HashedRows()
        """The rows by hashes of the nodes' names."""
        self.label_keys_version = 0
        """Changes with the set of labels that any node has."""
        self._label_keys: Counter[str] = Counter()
        """By how many nodes have it."""
        self._derived: KeptView[Hashable, Any] = KeptView(most=_MAX_DERIVED)
        self._attached: dict[Hashable, Any] = {}
        """Data of other modules about these nodes, which they update themselves."""
        self.under_way = UnderWay()
        """What is made of these nodes in steps."""
        self._derived_from: dict[Hashable, tuple[object, Any]] = {}
        """By key: the state of the source column, and the derived result."""

    # --- shape ---------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Return the names by row; a new list after a node was added or removed."""
        version, names = self._names
        if version != self.identity_version:
            names = self._row_names.copy()
            self._names = (self.identity_version, names)
        return names

    @property
    def version(self) -> int:
        """Return a number that changes with every static change."""
        return self.static_changes.end

    @property
    def identity_version(self) -> int:
        """Return a number that changes with a name, a hostname label, an address or the order of rows."""
        return self.identity_changes.end

    @property
    def images_version(self) -> int:
        """Return a number that changes with every change of images."""
        return self.image_changes.end

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    # --- columns -------------------------------------------------------------------------------------

    def allocatable(self, resource: str) -> IntArray:
        """Return `int64[nodes]`: what the node offers, in column units (cpu millicores, others in units)."""
        view = self._views.get(("allocatable", resource))
        if view is None:
            view = self._cut("allocatable", resource, self._allocatable.get(resource))
        return view

    def requested(self, resource: str) -> IntArray:
        """Return `int64[nodes]`: what the pods on the node request, in column units; at most the largest int64.

        0 for resources that no node offers, even if pods request them.
        """
        view = self._views.get(("requested", resource))
        if view is None:
            column = self._requested.get(resource)
            view = self._cut("requested", resource, None if column is None else column.whole)
        return view

    def resources(self) -> list[str]:
        """Return the resources that there are columns for, by name."""
        return sorted(self.counted)

    def overflowing(self, resource: str) -> list[int]:
        """Return the rows where pods request more of a resource than `requested` can show."""
        column = self._requested.get(resource)
        return [] if column is None else column.beyond()

    @property
    def nonzero_cpu(self) -> IntArray:
        """Return `int64[nodes]`: requested millicores with the scoring defaults for containers without any.

        At most `MOST_NONZERO`, as `nonzero_memory`.
        """
        view = self._views.get(("nonzero", "cpu"))
        return view if view is not None else self._cut("nonzero", "cpu", self._nonzero_cpu.whole)

    @property
    def nonzero_memory(self) -> IntArray:
        """Return `int64[nodes]`: requested bytes with the scoring defaults for containers without any."""
        view = self._views.get(("nonzero", "memory"))
        return view if view is not None else self._cut("nonzero", "memory", self._nonzero_memory.whole)

    @property
    def pod_count(self) -> IntArray:
        """Return `int64[nodes]`: pods on the node."""
        view = self._views.get(("count", "pods"))
        return view if view is not None else self._cut("count", "pods", self._pod_count)

    @property
    def unschedulable(self) -> BoolArray:
        """Return `bool[nodes]`: `spec.unschedulable`."""
        return self.valued("unschedulable", _is_cordoned, np.bool_)

    def unschedulable_in_steps(self) -> Iterator[None]:
        """Make the column `unschedulable` as `coded_in_steps` makes one."""
        return self._in_steps("unschedulable", _is_cordoned, ValueColumn((), np.bool_))

    @property
    def ready(self) -> BoolArray:
        """Return `bool[nodes]`: whether the condition Ready is True."""
        return self.condition("Ready").equal("True")

    def known_label(self, key: str) -> str | None:
        """Return the key of a label that some node has, None if none does.

        What is kept by label is kept by this: pods may name any number of labels.
        """
        return key if key in self._label_keys else None

    def label(self, key: str) -> LabelColumn:
        """Return the column of one label; all that no node has share one."""
        known = self.known_label(key)
        if known is None:
            return self.coded(*_OF_NO_LABEL)
        return self.coded(
            ("label", known),
            lambda info: info.labels.get(known),
            read_all=lambda: map(dict.get, map(_LABELS, self.infos), repeat(known)),
        )

    def label_in_steps(self, key: str) -> Iterator[None]:
        """Make the column of a label that some node has, as `coded_in_steps` does."""
        making = self.coded_in_steps(("label", key), lambda info: info.labels.get(key))
        while self.known_label(key) is not None and next(making, self) is None:
            yield

    def make_labels(self, keys: Iterable[str]) -> bool:
        """Make a part of the first column of these labels that is missing; return whether none is.

        A column takes 40 ms with 130,000 nodes. Between two calls anything may happen to nodes.
        """
        for known in dict.fromkeys(map(self.known_label, keys)):  # pods may name any number of labels
            key = "label", known
            if key not in self._static and not self.under_way.go_on(key, partial(self._label_in_steps, known)):
                return False
        return True

    def _label_in_steps(self, known: str | None) -> Iterator[None]:
        return self.label_in_steps(known) if known is not None else self._in_steps(*_OF_NO_LABEL, CodedColumn(()))

    def condition(self, kind: str) -> LabelColumn:
        """Return the column of one condition's status."""
        return self.coded(
            ("condition", kind),
            lambda info: info.conditions.get(kind),
            read_all=lambda: map(dict.get, map(_CONDITIONS, self.infos), repeat(kind)),
        )

    def condition_in_steps(self, kind: str) -> Iterator[None]:
        """Make the column of one condition's status, as `coded_in_steps` does."""
        return self.coded_in_steps(("condition", kind), lambda info: info.conditions.get(kind))

    def coded_in_steps(self, key: Hashable, read: Callable[[NodeInfo], Value | None]) -> Iterator[None]:
        """Make the column that `coded` returns a few rows at a time; a caller that needs it earlier makes it at once.

        Between two steps anything may happen to nodes.
        """
        return self._in_steps(key, read, CodedColumn(()))

    def valued_in_steps(self, key: Hashable, read: Callable[[NodeInfo], Any], dtype: DTypeLike) -> Iterator[None]:
        """Make the column that `valued` returns, as `coded_in_steps` does."""
        return self._in_steps(key, read, ValueColumn((), dtype))

    def _in_steps(self, key: Hashable, read: Callable[[NodeInfo], Any], column: RowColumn) -> Iterator[None]:
        position = self.static_changes.end
        while key not in self._static:
            changed = self.static_changes.since(position)
            if changed is None:
                return
            position = self.static_changes.end
            while len(column) > self.size:
                column.remove(len(column) - 1)
            done = len(column)
            for row in {row for row in changed if row < done}:
                column.write(row, read(self.infos[row]))
            column.extend([read(info) for info in self.infos[done : done + _ROWS_IN_A_STEP]])
            if len(column) == self.size:
                self._keep(key, read, column)
                return
            yield

    def columns_in_steps(self, asked: ColumnsAsked) -> Iterator[None]:
        """Make the columns that were asked for, as `coded_in_steps` does."""
        for key, (read, column) in asked.static_columns():
            if isinstance(key, tuple) and key[0] == "label":
                if self.known_label(key[1]) is None:
                    yield from self._in_steps(*_OF_NO_LABEL, column)
                yield from self.label_in_steps(key[1])
            else:
                yield from self._in_steps(key, read, column)

    def coded(
        self,
        key: Hashable,
        read: Callable[[NodeInfo], Value | None],
        *,
        read_all: Callable[[], Iterable[Value | None]] | None = None,
    ) -> CodedColumn[Value]:
        """Return the result of `read` for each node, dictionary coded; made once per key, then updated.

        read_all: does the same for all nodes, faster.
        """
        known = self._static.get(key)
        if known is None:
            values = map(read, self.infos) if read_all is None else read_all()
            known = self._keep(key, read, CodedColumn(values))
        column: CodedColumn[Value] = known[1]
        return column

    def valued(self, key: Hashable, read: Callable[[NodeInfo], Any], dtype: DTypeLike) -> NDArray[Any]:
        """Return `dtype[nodes]`: the result of `read` for each node; made once per key, then updated."""
        known = self._static.get(key)
        if known is None:
            known = self._keep(key, read, ValueColumn([read(info) for info in self.infos], dtype))
        column: ValueColumn = known[1]
        return column.values

    def _keep(
        self, key: Hashable, read: Callable[[NodeInfo], Any], column: RowColumn
    ) -> tuple[Callable[[NodeInfo], Any], Any]:
        if len(self._static) >= _MAX_STATIC:
            self._static.clear()
        self._static[key] = (read, column)
        return read, column

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, kept until the next static change."""
        self._derived.follow(self.static_changes.end)
        known: T | None = self._derived.get(key)
        if known is None:
            known = make()
            self._derived.set(key, known)
        return known

    def attach(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, called on first use and kept as long as the table."""
        if key not in self._attached:
            self._attached[key] = make()
        result: T = self._attached[key]
        return result

    def derive_from(self, column: CodedColumn[Any], key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make` for one column, kept until that column changes."""
        known = self._derived_from.get(key)
        if known is None or known[0] is not column.state:
            if len(self._derived_from) >= _MAX_DERIVED:
                self._derived_from.clear()
            known = self._derived_from[key] = (column.state, make())
        result: T = known[1]
        return result

    # --- changes -------------------------------------------------------------------------------------

    def set(self, node: objects.Node) -> frozenset[str]:
        """Add or update a node; return what changed, as names from `CHANGES` (empty: nothing relevant)."""
        name = node.metadata.name
        self.appeared, self.vanished = set(), set()
        known = self.rows.get(name)
        if known is not None and _is_heartbeat(self.infos[known].node, node):
            return NOTHING_CHANGED
        info = self.interpret(node, None if known is None else self.infos[known].node)
        if known is None:
            self.add((info,))
            return ADDED
        old, info.row = self.infos[known], known
        changes = changes_between(old, info)
        if "addresses" in changes or old.hostname != info.hostname:
            self.identity_changes.note(info.row)
        if "images" in changes:
            self.images.discard(info.row, old.images)
            self.images.add(info.row, node.status.images or ())
            self.image_changes.note(info.row)
        self.infos[info.row] = info
        if "labels" in changes:
            self._label(old.labels, info.labels)
        if "allocatable" in changes:
            self._offer(info, old.allocatable, info.allocatable)
        if changes & STATIC_CHANGES:
            self.static_changes.note(info.row)
        if changes:
            for read, column in self._static.values():
                column.write(info.row, read(info))
        return changes

    def interpret(self, node: objects.Node, before: objects.Node | None = None) -> NodeInfo:
        """Return what is to be known of a node, for `add`.

        before: its state before.

        Raises:
            QuantityError: an amount is none.
        """
        offered = self._shared.share(node, before)
        return NodeInfo(
            name=node.metadata.name,
            row=-1,
            node=node,
            allocatable=offered,
            labels=node.metadata.labels or {},
            taints=tuple(node.spec.taints or ()),
            conditions=self._shared.statuses(node.status),
        )

    def add(self, infos: Sequence[NodeInfo]) -> None:
        """Add nodes of different names that are not known; the result is that of adding each by itself."""
        self.appeared, self.vanished = set(), set()
        first, end = self.size, self.size + len(infos)
        names = [info.name for info in infos]
        self.by_hash.extend(names)
        self._grow(end)
        self.rows.update(zip(names, range(first, end), strict=True))
        self.infos += infos
        self._row_names += names
        self.size = end
        self._forget_views()
        offering: dict[int, list[NodeInfo]] = {}  # equal amounts are mostly one object
        labelled: Counter[tuple[str, ...]] = Counter()
        for row, info in enumerate(infos, first):
            info.row = row
            offering.setdefault(id(info.allocatable), []).append(info)
            labelled[tuple(info.labels)] += 1
            self.images.add(row, info.node.status.images or ())
        for keys, count in labelled.items():
            self._label_with(keys, count)
        for alike in offering.values():
            self._begin_offers(alike[0].allocatable, count=len(alike))
        self._note_offers()
        for alike in offering.values():
            self._write_allocatable([info.row for info in alike], alike[0].allocatable)
        for journal in (self.identity_changes, self.static_changes, self.image_changes):
            journal.note_many(range(first, end))
        for read, column in self._static.values():
            for info in infos:
                column.write(info.row, read(info))

    def remove(self, name: str) -> int | None:
        """Remove a node that holds no pods; return the row that another node moved into, None if none did."""
        row = self.rows.pop(name)
        last = self.size - 1
        gone = self.infos[row]
        self.appeared, self.vanished = set(), set()
        self.images.discard(row, gone.images)
        self._offer(gone, gone.allocatable, {})
        self._label(gone.labels, {})
        moved = self.infos.pop()
        self.size -= 1
        self._row_names.pop()
        self._forget_views()
        if row != last:
            for column in (*self._allocatable.values(), self._pod_count):
                column[row], column[last] = column[last], 0
            for sums in self._sums():
                sums.move(last, row)
        for _, static in self._static.values():
            static.remove(row)
        self.by_hash.remove(row)
        for journal in (self.static_changes, self.image_changes, self.dynamic_changes, self.identity_changes):
            journal.note(row)
        if row == last:
            return None
        self.images.move(last, row, moved.images)
        moved.row = row
        self.infos[row] = moved
        self._row_names[row] = moved.name
        self.rows[moved.name] = row
        return row

    def counted_requests(self, demand: PodRequests) -> list[tuple[str, int]]:
        """Return what a pod requests of the resources that there are columns for."""
        counted = self.counted
        found: list[tuple[str, int]] = []
        for item in demand.requests.items():
            if item[0] in counted:
                found.append(item)
        return found

    def hold(self, row: int, demand: PodRequests, requests: Iterable[tuple[str, int]], *, sign: int) -> None:
        """Count a pod on a node (`sign` 1) or no longer (-1); `requests` are its `counted_requests`."""
        requested = self._requested
        for resource, amount in requests:
            requested[resource].add(row, sign * amount)
        self._nonzero_cpu.add(row, sign * demand.nonzero_cpu_millis)
        self._nonzero_memory.add(row, sign * demand.nonzero_memory_bytes)
        pods = self._pod_count
        pods[row] = pods.item(row) + sign  # faster than `+=`
        self.dynamic_changes.note(row)

    def hold_many(
        self, rows: NDArray[np.intp], kinds: NDArray[np.intp], demands: Sequence[PodRequests], *, sign: int
    ) -> None:
        """Count pods (`sign` 1) or no longer (-1): `demands[kinds[i]]` is what the pod on `rows[i]` requests."""
        for resource, column in self._requested.items():
            column.add_many(rows, kinds, [demand.requests.get(resource, 0) for demand in demands], sign=sign)
        self._nonzero_cpu.add_many(rows, kinds, [demand.nonzero_cpu_millis for demand in demands], sign=sign)
        self._nonzero_memory.add_many(rows, kinds, [demand.nonzero_memory_bytes for demand in demands], sign=sign)
        np.add.at(self._pod_count, rows, sign)
        self.dynamic_changes.note_many(list(dict.fromkeys(rows.tolist())))

    def hold_more(self, row: int, resource: str, amount: int) -> None:
        """Count a request of a pod that is counted, for a resource that appeared after it."""
        self._requested[resource].add(row, amount)

    def hold_back(self, row: int, demand: PodRequests, resources: Collection[str], *, sign: int) -> None:
        """Count what a pod requests of some resources alone (`sign` 1), or no longer (-1): so much is not free."""
        for resource, amount in self.counted_requests(demand):
            if resource in resources:
                self._requested[resource].add(row, sign * amount)
        if "pods" in resources:
            self._pod_count[row] += sign
        self.dynamic_changes.note(row)

    def recount(self, row: int, demands: Iterable[PodRequests]) -> None:
        """Write all columns of a node again: from what it offers, and the pods there."""
        for sums in self._sums():
            sums.clear(row)
        self._pod_count[row] = 0
        self._write_allocatable([row], self.infos[row].allocatable)
        for demand in demands:
            self.hold(row, demand, self.counted_requests(demand), sign=1)

    def touch(self, row: int) -> None:
        """Note in the journal that something dynamic about a row changed."""
        self.dynamic_changes.note(row)

    # --- storage -------------------------------------------------------------------------------------

    def _sums(self) -> Iterable[SumColumn]:
        return *self._requested.values(), self._nonzero_cpu, self._nonzero_memory

    def _forget_views(self) -> None:
        self._views.clear()

    def _cut(self, kind: str, resource: str, column: IntArray | None) -> IntArray:
        """Return a column cut to the number of nodes; None: one of zeros, which is not kept for each name."""
        key = (kind, resource) if column is not None else ("none", "")
        view = self._views.get(key)
        if view is None:
            view = np.zeros(self.size, np.int64) if column is None else column[: self.size]
            self._views[key] = view
        return view

    def _grow(self, size: int) -> None:
        if size <= self._capacity:
            return
        self._capacity = max(size, self._capacity * 2)
        block = self.cpu_and_memory = self._extended(self.cpu_and_memory)
        for resource, column in self._allocatable.items():
            place = _ALLOCATABLE_IN_BLOCK.get(resource)
            self._allocatable[resource] = self._extended(column) if place is None else block[place]
        for resource, sums in self._requested.items():
            place = _REQUESTED_IN_BLOCK.get(resource)
            sums.extend(self._extended(sums.whole) if place is None else block[place])
        self._nonzero_cpu.extend(block[InBlock.NONZERO_CPU])
        self._nonzero_memory.extend(block[InBlock.NONZERO_MEMORY])
        self._pod_count = block[InBlock.POD_COUNT]

    def _extended(self, columns: IntArray) -> IntArray:
        """Return columns `int64[…, capacity]` with room for more nodes."""
        more = self._capacity - columns.shape[-1]
        return np.concatenate((columns, np.zeros((*columns.shape[:-1], more), np.int64)), axis=-1)

    def _offer(self, info: NodeInfo, before: Amounts, after: Amounts) -> None:
        """Take over what a node offers: resources that it is the first one to offer, or was the last one to, change."""
        self._begin_offers([resource for resource in after if resource not in before], count=1)
        for resource in [each for each in before if each not in NATIVE and each not in after]:
            self._offers[resource] -= 1
            if not self._offers[resource]:
                del self._offers[resource], self._allocatable[resource], self._requested[resource]
                self.vanished.add(resource)
        self._note_offers()
        self._write_allocatable([info.row], after)

    def _begin_offers(self, resources: Iterable[str], *, count: int) -> None:
        """Count nodes that offer resources from now on."""
        for resource in resources:
            if resource in NATIVE:
                continue
            if not self._offers[resource]:
                self._allocatable[resource] = np.zeros(self._capacity, np.int64)
                self._requested[resource] = SumColumn(np.zeros(self._capacity, np.int64))
                self.appeared.add(resource)
            self._offers[resource] += count

    def _note_offers(self) -> None:
        if self.appeared or self.vanished:
            self._forget_views()
            self.static_changes.note_all()  # whether any node offers what a pod requests is kept with its template

    def _label(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Count the keys of a node's labels; the column of one that was on no node is made on first use."""
        self._label_with(after.keys() - before.keys(), 1)
        for key in before.keys() - after.keys():
            self._label_keys[key] -= 1
            if not self._label_keys[key]:
                del self._label_keys[key]
                self.label_keys_version += 1
                self._static.pop(("label", key), None)

    def _label_with(self, keys: Collection[str], count: int) -> None:
        """Count nodes that have labels with these keys from now on."""
        for key in keys:
            self.label_keys_version += key not in self._label_keys
            self._label_keys[key] += count

    def _write_allocatable(self, rows: Sequence[int], offered: Amounts) -> None:
        self.offers_version += len(rows)
        for resource, column in self._allocatable.items():
            column[rows] = offered.get(resource, 0)
        self.dynamic_changes.note_many(rows)


class ColumnsAsked(NodeTable):
    """A table without nodes: which columns are asked of it is made in another one by `NodeTable.columns_in_steps`."""

    def known_label(self, key: str) -> str | None:
        """Return the key of any label: some node of the other table may have it."""
        return key

    def static_columns(self) -> list[tuple[Hashable, tuple[Callable[[NodeInfo], Any], RowColumn]]]:
        """Return what was asked for: by key how it is read, with an empty column."""
        return list(self._static.items())


def _is_heartbeat(known: objects.Node, node: objects.Node) -> bool:
    """Return whether an update changes nothing but the resource version; if so, take that over.

    The known objects stay: of the largest clusters' heartbeats the garbage collector would otherwise have much to do.
    """
    version = node.metadata.resource_version
    before, known.metadata.resource_version = known.metadata.resource_version, version
    if known is not node and known == node:
        return True
    known.metadata.resource_version = before
    return False


def _no_amounts() -> IntArray:
    return np.zeros(_FIRST_CAPACITY, np.int64)
