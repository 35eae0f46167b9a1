"""What pods of each priority hold on each node: what preemption could free, without a look at any pod.

Sums wrap around as int64 does. That loses nothing: they are right again when pods leave, and where all pods of a node
together hold less than 2**63, so do those of some priorities. (`Cluster.held_from` counts the other nodes' pods.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.static_columns import ALL_ROWS, Rows

_IntArray = NDArray[np.int64]
_FIRST_CAPACITY = 64
_DENSE_SHARE = 64
"""Priorities whose pods are on more than one row in so many have columns, so that memory follows the pods: people may
have as many priorities as they like."""
_SPARSE_AGAIN = 4 * _DENSE_SHARE
_FEW_ROWS = 16
"""Up to this many rows are looked up one by one."""
_MOST = 2**63
_MOST_SUMS = 8
"""Of all rows, kept until a pod comes or goes: one search for victims asks for the same few."""


class PriorityTable:
    """Requests and pod counts by priority, over the rows of the node table."""

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._capacity = _FIRST_CAPACITY
        self._sums: dict[tuple[int, str], _IntArray] = {}
        """By priority and resource: what `below` returned for all rows since the last change."""

    def update(self, priority: int, row: int, requests: Iterable[tuple[str, int]], step: int) -> None:
        """Count a pod with these requests on a row (`step` 1) or no longer (-1)."""
        self._sums.clear()
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
        if row >= self._capacity:
            self._grow(row + 1)
        level.update(row, requests, step)
        if not level.pods:
            del self._levels[priority]
        elif level._columns is None or step < 0:  # columns with more pods stay columns
            level.fit(self._capacity)

    def update_many(
        self,
        priority: int,
        rows: NDArray[np.intp],
        kinds: NDArray[np.intp],
        requests: Sequence[Sequence[tuple[str, int]]],
        step: int,
    ) -> None:
        """Count pods of one priority (`step` 1) or no longer (-1); `requests[kinds[i]]`: of the one on `rows[i]`."""
        self._sums.clear()
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
        if (most := int(rows.max())) >= self._capacity:
            self._grow(most + 1)
        level.update_many(rows, kinds, requests, step)
        if not level.pods:
            del self._levels[priority]
        else:
            level.fit(self._capacity)

    def add(self, priority: int, row: int, resource: str, amount: int) -> None:
        """Count more of a resource for a pod that is counted."""
        self._sums.clear()
        self._levels[priority].add(row, resource, amount)

    def clear(self, row: int) -> None:
        """Count nothing on a row."""
        self._sums.clear()
        for priority, level in list(self._levels.items()):
            level.clear(row)
            if not level.pods:
                del self._levels[priority]

    def forget(self, resource: str) -> None:
        """Count a resource no longer."""
        self._sums.clear()
        for level in self._levels.values():
            level.forget(resource)

    def move(self, source: int, target: int) -> None:
        """Follow a node from row `source` to row `target`, which holds nothing."""
        self._sums.clear()
        for level in self._levels.values():
            level.move(source, target)

    def has_below(self, priority: int) -> bool:
        """Return whether a pod of lower priority is on a node."""
        return any(held < priority for held in self._levels)

    def below(self, priority: int, resource: str, size: int, rows: Rows = ALL_ROWS) -> _IntArray:
        """Return `int64[rows]`: what pods of lower priority hold of a resource ("pods": how many they are). Read-only.

        size: rows of the node table.
        """
        if not isinstance(rows, slice):
            if len(rows) > _FEW_ROWS:
                return self.below(priority, resource, size)[rows]
            found = np.zeros(len(rows), np.int64)
            numbers = rows.tolist()
            for held, level in self._levels.items():
                if held < priority:
                    level.add_some(found, resource, numbers)
            return found
        total = self._sums.get((priority, resource))
        if total is None or len(total) < size:
            total = np.zeros(max(size, self._capacity), np.int64)
            for held, level in self._levels.items():
                if held < priority:
                    level.add_to(total, resource)
            total.flags.writeable = False
            if len(self._sums) >= _MOST_SUMS:
                self._sums.clear()
            self._sums[priority, resource] = total
        return total[:size]

    def _grow(self, size: int) -> None:
        self._capacity = max(size, self._capacity * 2)
        for level in self._levels.values():
            level.extend(self._capacity)


class _Level:
    """The pods of one priority: by row while they are on few, as columns once they are on many."""

    __slots__ = ("_columns", "_rows", "pods")

    def __init__(self) -> None:
        self.pods = 0
        self._rows: dict[int, dict[str, int]] = {}
        """By row and resource; the resource "pods" counts pods. Unused if there are columns."""
        self._columns: dict[str, _IntArray] | None = None

    def update(self, row: int, requests: Iterable[tuple[str, int]], step: int) -> None:
        self.pods += step
        columns = self._columns
        if columns is None:
            held = self._rows.setdefault(row, {})
            held["pods"] = held.get("pods", 0) + step
            for resource, amount in requests:
                if resource != "pods":
                    held[resource] = held.get(resource, 0) + step * amount
            if not held["pods"]:
                del self._rows[row]
            return
        pods = columns["pods"]
        pods[row] = pods.item(row) + step  # faster than `+=`
        for resource, amount in requests:
            column = columns.get(resource)
            if column is None:
                self.add(row, resource, step * amount)
            elif column is not pods:
                total = column.item(row) + step * amount
                try:
                    column[row] = total
                except OverflowError:
                    column[row] = _wrapped(total)

    def update_many(
        self, rows: NDArray[np.intp], kinds: NDArray[np.intp], requests: Sequence[Sequence[tuple[str, int]]], step: int
    ) -> None:
        if self._columns is None:
            for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
                self.update(row, requests[kind], step)
            return
        self.pods += step * len(rows)
        np.add.at(self._columns["pods"], rows, step)
        tables: dict[str, _IntArray] = {}
        for kind, each in enumerate(requests):
            for resource, amount in each:
                if resource != "pods":
                    tables.setdefault(resource, np.zeros(len(requests), np.int64))[kind] = _wrapped(step * amount)
        for resource, table in tables.items():
            amounts = table[kinds]
            if not amounts.any():
                continue
            column = self._columns.get(resource)
            if column is None:
                column = self._columns[resource] = np.zeros(len(self._columns["pods"]), np.int64)
            np.add.at(column, rows, amounts)

    def add(self, row: int, resource: str, amount: int) -> None:
        if self._columns is None:
            held = self._rows.setdefault(row, {})
            held[resource] = held.get(resource, 0) + amount
            return
        column = self._columns.get(resource)
        if column is None:
            column = self._columns[resource] = np.zeros(len(self._columns["pods"]), np.int64)
        total = column.item(row) + amount
        column[row] = total if -_MOST <= total < _MOST else _wrapped(total)

    def add_to(self, total: _IntArray, resource: str) -> None:
        if self._columns is not None:
            column = self._columns.get(resource)
            if column is not None:
                total[: len(column)] += column
            return
        for row, held in self._rows.items():
            if amount := held.get(resource):
                total[row] = _wrapped(total.item(row) + amount)

    def add_some(self, total: _IntArray, resource: str, rows: Sequence[int]) -> None:
        if self._columns is not None:
            column = self._columns.get(resource)
            if column is None:
                return
            for place, row in enumerate(rows):
                if row < len(column):  # else no pod of any priority was on so high a row
                    total[place] = _wrapped(total.item(place) + column.item(row))
            return
        for place, row in enumerate(rows) if self._rows else ():
            held = self._rows.get(row)
            if held is not None and (amount := held.get(resource)):
                total[place] = _wrapped(total.item(place) + amount)

    def fit(self, capacity: int) -> None:
        """Take the form that is the smaller one."""
        if self._columns is None:
            if len(self._rows) * _DENSE_SHARE > capacity:
                rows, self._rows, self._columns = self._rows, {}, {"pods": np.zeros(capacity, np.int64)}
                for row, held in rows.items():
                    for resource, amount in held.items():
                        self.add(row, resource, amount)
        elif self.pods * _SPARSE_AGAIN < capacity:
            columns, self._columns = self._columns, None
            for row in np.flatnonzero(columns["pods"]).tolist():
                self._rows[row] = {resource: column.item(row) for resource, column in columns.items()}

    def clear(self, row: int) -> None:
        if self._columns is None:
            self.pods -= self._rows.pop(row, {"pods": 0})["pods"]
        elif row < len(self._columns["pods"]):
            self.pods -= self._columns["pods"].item(row)
            for column in self._columns.values():
                column[row] = 0

    def forget(self, resource: str) -> None:
        for held in (self._columns,) if self._columns is not None else self._rows.values():
            held.pop(resource, None)

    def move(self, source: int, target: int) -> None:
        if self._columns is None:
            if source in self._rows:
                self._rows[target] = self._rows.pop(source)
            return
        for column in self._columns.values():
            if source < len(column):  # else no pod of any priority was on so high a row
                column[target], column[source] = column[source], 0

    def extend(self, capacity: int) -> None:
        if self._columns is not None:
            for resource, column in self._columns.items():
                self._columns[resource] = np.concatenate((column, np.zeros(capacity - len(column), np.int64)))


def _wrapped(amount: int) -> int:
    """Return an amount as int64 has it after an overflow."""
    return amount if -_MOST <= amount < _MOST else (amount + _MOST) % (2 * _MOST) - _MOST
