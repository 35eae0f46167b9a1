"""The nodes as a table: one NumPy array per attribute, one dense row per node.

Rows are 0..size-1 in no meaningful order; removing a node moves the last row into its place. Two kinds of
change are told apart, because caches depend on them: *static* (labels, taints, conditions, the set of nodes)
raises `version`; *dynamic* (what is requested) is written to a journal of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from engine.cluster import objects
from engine.cluster.images import ImageTable
from engine.cluster.node_info import CHANGES, STATIC_CHANGES, NodeInfo, allocatable, changes_between
from engine.cluster.requests import Demand
from engine.cluster.static_columns import (
    ALL_ROWS,
    BoolArray,
    CodeArray,
    CodedColumn,
    IntArray,
    RowColumn,
    Rows,
    ValueColumn,
)

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
"""Static columns kept; beyond it all go, and those still in use are made anew."""


class NodeTable:
    """All nodes of the cluster, as columns."""

    def __init__(self) -> None:
        self.infos: list[NodeInfo] = []
        self.rows: dict[str, int] = {}
        self.version = 0
        """Changes with anything static."""
        self.images = ImageTable()
        self.images_version = 0
        self.identity_version = 0
        """Changes with a name, a hostname label, an address or the order of rows."""
        self.journal: list[int] = []
        self.journal_start = 0
        """How many entries were dropped from the front of the journal."""
        self._capacity = _FIRST_CAPACITY
        self._columns: dict[tuple[str, str], IntArray] = {}
        self._views: dict[tuple[str, str], IntArray] = {}
        """The columns cut to the number of nodes, made anew when that changes."""
        self._static: dict[Hashable, tuple[Callable[[NodeInfo], Any], RowColumn]] = {}
        self._derived: tuple[int, dict[Hashable, Any]] = (-1, {})

    # --- shape ---------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.infos)

    @property
    def names(self) -> list[str]:
        """Return the names by row."""
        return self.derive("names", lambda: [info.name for info in self.infos])

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    # --- columns -------------------------------------------------------------------------------------

    def allocatable(self, resource: str) -> IntArray:
        """Return `int64[nodes]`: what the node offers, in column units (cpu millicores, others in units)."""
        return self._column("allocatable", resource)

    def requested(self, resource: str) -> IntArray:
        """Return `int64[nodes]`: what the pods on the node request, in column units."""
        return self._column("requested", resource)

    def resources(self) -> list[str]:
        """Return the resources that any node offers or any pod requests, by name."""
        return sorted({resource for kind, resource in self._columns if kind in ("allocatable", "requested")})

    @property
    def nonzero_cpu(self) -> IntArray:
        """Return `int64[nodes]`: requested millicores with the scoring defaults for containers without any."""
        return self._column("nonzero", "cpu")

    @property
    def nonzero_memory(self) -> IntArray:
        """Return `int64[nodes]`: requested bytes with the scoring defaults for containers without any."""
        return self._column("nonzero", "memory")

    @property
    def pod_count(self) -> IntArray:
        """Return `int64[nodes]`: pods on the node."""
        return self._column("count", "pods")

    @property
    def unschedulable(self) -> BoolArray:
        """Return `bool[nodes]`: `spec.unschedulable`."""
        return self.valued("unschedulable", lambda info: info.node.spec.unschedulable, np.bool_)

    @property
    def ready(self) -> BoolArray:
        """Return `bool[nodes]`: whether the condition Ready is True."""
        return self.condition("Ready").equal("True")

    def label(self, key: str) -> LabelColumn:
        """Return the column of one label."""
        return self.coded(("label", key), lambda info: info.labels.get(key))

    def condition(self, kind: str) -> LabelColumn:
        """Return the column of one condition's status."""
        return self.coded(("condition", kind), lambda info: info.conditions.get(kind))

    def coded(self, key: Hashable, read: Callable[[NodeInfo], Value | None]) -> CodedColumn[Value]:
        """Return what `read` finds static about each node, dictionary coded; made once per key, then patched."""
        known = self._static.get(key)
        if known is None:
            known = self._keep(key, read, CodedColumn([read(info) for info in self.infos]))
        return cast("CodedColumn[Value]", known[1])

    def valued(self, key: Hashable, read: Callable[[NodeInfo], Any], dtype: DTypeLike) -> NDArray[Any]:
        """Return `dtype[nodes]`: what `read` finds static about each node; made once per key, then patched."""
        known = self._static.get(key)
        if known is None:
            known = self._keep(key, read, ValueColumn([read(info) for info in self.infos], dtype))
        return cast("ValueColumn", known[1]).values

    def _keep(
        self, key: Hashable, read: Callable[[NodeInfo], Any], column: RowColumn
    ) -> tuple[Callable[[NodeInfo], Any], RowColumn]:
        if len(self._static) >= _MAX_STATIC:
            self._static.clear()
        self._static[key] = (read, column)
        return read, column

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gives, kept until something static changes."""
        version, derived = self._derived
        if version != self.version:
            derived = {}
            self._derived = (self.version, derived)
        if key not in derived:
            derived[key] = make()
        return cast("T", derived[key])

    # --- changes -------------------------------------------------------------------------------------

    def set(self, node: objects.Node) -> frozenset[str]:
        """Add or update a node; return what changed, as names from `CHANGES` (empty: nothing that counts)."""
        name = node.metadata.name
        info = NodeInfo(
            name=name,
            row=self.rows.get(name, self.size),
            node=node,
            allocatable=allocatable(node),
            labels=node.metadata.labels or {},
            taints=tuple(node.spec.taints or ()),
            conditions={c.type: c.status for c in node.status.conditions or ()},
            images={name: i.size_bytes for i in reversed(node.status.images or ()) for name in i.names or ()},
        )
        if name not in self.rows:
            self._grow(self.size + 1)
            self.rows[name] = info.row
            self.infos.append(info)
            self._views.clear()
            self.identity_version += 1
            changes = frozenset({"added"})
        else:
            old = self.infos[info.row]
            changes = changes_between(old, info)
            self.identity_version += "addresses" in changes or old.hostname != info.hostname
            if "images" in changes:
                self.images.discard(info.row, old.images)
            self.infos[info.row] = info
        if changes & {"added", "allocatable"}:
            self._write_allocatable(info)
        if changes & STATIC_CHANGES:
            self.version += 1
            for read, column in self._static.values():
                column.write(info.row, read(info))
        if changes & {"added", "images"}:
            self.images.add(info.row, info.images)
            self.images_version += 1
        return changes

    def remove(self, name: str) -> int | None:
        """Remove a node that holds no pods; return the row that another node moved into, None where none did."""
        row = self.rows.pop(name)
        last = self.size - 1
        self.images.discard(row, self.infos[row].images)
        moved = self.infos.pop()
        self._views.clear()
        for column in self._columns.values():
            if row != last:
                column[row] = column[last]
            column[last] = 0
        for _, static in self._static.values():
            static.remove(row)
        self.version += 1
        self.identity_version += 1
        self.images_version += 1
        self.touch(row)
        if row == last:
            return None
        self.images.move(last, row, moved.images)
        moved.row = row
        self.infos[row] = moved
        self.rows[moved.name] = row
        return row

    def hold(self, row: int, demand: Demand, *, sign: int) -> None:
        """Count a pod on a node (`sign` 1) or no longer (-1)."""
        column = self._column_whole
        for resource, value in demand.requests.items():
            column("requested", resource)[row] += sign * value
        column("nonzero", "cpu")[row] += sign * demand.nonzero_cpu_millis
        column("nonzero", "memory")[row] += sign * demand.nonzero_memory_bytes
        column("count", "pods")[row] += sign
        self.touch(row)

    def recount(self, row: int, demands: Iterable[Demand]) -> None:
        """Write all columns of a node anew: from what it offers, and the pods there."""
        for (kind, _), column in self._columns.items():
            if kind != "allocatable":
                column[row] = 0
        self._write_allocatable(self.infos[row])
        for demand in demands:
            self.hold(row, demand, sign=1)

    def touch(self, row: int) -> None:
        """Note in the journal that something dynamic about a row changed."""
        self.journal.append(row)
        if len(self.journal) > _JOURNAL_LIMIT:
            drop = _JOURNAL_LIMIT // 2
            del self.journal[:drop]
            self.journal_start += drop

    @property
    def journal_end(self) -> int:
        """Return the position after the journal's last entry; positions only grow."""
        return self.journal_start + len(self.journal)

    def changed_since(self, position: int) -> Sequence[int] | None:
        """Return the rows written after a journal position, or None where that is too long ago to know."""
        if position < self.journal_start:
            return None
        return self.journal[position - self.journal_start :]

    # --- storage -------------------------------------------------------------------------------------

    def _column_whole(self, kind: str, resource: str) -> IntArray:
        column = self._columns.get((kind, resource))
        if column is None:
            column = self._columns[kind, resource] = np.zeros(self._capacity, np.int64)
        return column

    def _column(self, kind: str, resource: str) -> IntArray:
        view = self._views.get((kind, resource))
        if view is None:
            view = self._views[kind, resource] = self._column_whole(kind, resource)[: self.size]
        return view

    def _grow(self, size: int) -> None:
        if size <= self._capacity:
            return
        self._capacity = max(size, self._capacity * 2)
        for key, column in self._columns.items():
            self._columns[key] = np.concatenate((column, np.zeros(self._capacity - len(column), np.int64)))

    def _write_allocatable(self, info: NodeInfo) -> None:
        for (kind, resource), column in self._columns.items():
            if kind == "allocatable" and resource not in info.allocatable:
                column[info.row] = 0
        for resource, value in info.allocatable.items():
            self._column_whole("allocatable", resource)[info.row] = value
        self.touch(info.row)
