"""What pods of each priority hold on each node: what preemption could free, without a look at any pod."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.cluster.requests import Demand

_IntArray = NDArray[np.int64]
_FIRST_CAPACITY = 64


class PriorityTable:
    """Requests and pod counts by priority, as columns over the rows of the node table."""

    def __init__(self) -> None:
        self._held: dict[int, dict[str, _IntArray]] = {}
        """By priority and resource; the resource "pods" counts pods."""
        self._totals: dict[int, int] = {}
        """Pods by priority."""
        self._capacity = _FIRST_CAPACITY

    def update(self, priority: int, row: int, demand: Demand, step: int) -> None:
        """Count a pod on a row (`step` 1) or no longer (-1)."""
        total = self._totals.get(priority, 0) + step
        if not total:
            del self._totals[priority], self._held[priority]
            return
        self._totals[priority] = total
        if row >= self._capacity:
            self._grow(row + 1)
        columns = self._held.setdefault(priority, {})
        self._column(columns, "pods")[row] += step
        for resource, value in demand.requests.items():
            if resource != "pods":
                self._column(columns, resource)[row] += step * value

    def move(self, source: int, target: int) -> None:
        """Follow a node from row `source` to row `target`, which holds nothing."""
        if source >= self._capacity:
            return  # no pod has been on so high a row: the node's columns are not there, and hold nothing
        for columns in self._held.values():
            for column in columns.values():
                column[target], column[source] = column[source], 0

    def below(self, priority: int, resource: str, size: int) -> _IntArray:
        """Return `int64[size]`: what pods of lower priority hold of a resource ("pods": how many they are)."""
        total = np.zeros(max(size, self._capacity), np.int64)
        for held, columns in self._held.items():
            if held < priority and resource in columns:
                column = columns[resource]
                total[: len(column)] += column
        return total[:size]

    def _column(self, columns: dict[str, _IntArray], resource: str) -> _IntArray:
        column = columns.get(resource)
        if column is None:
            column = columns[resource] = np.zeros(self._capacity, np.int64)
        return column

    def _grow(self, size: int) -> None:
        more = max(size, self._capacity * 2) - self._capacity
        self._capacity += more
        for columns in self._held.values():
            for resource, column in columns.items():
                columns[resource] = np.concatenate((column, np.zeros(more, np.int64)))
