"""The best node for requests that were never seen before, without the exact total of each node.

A bound for the total of a node takes multiplications where the total takes divisions, and half of the memory. The total
is computed only where a node has the highest bound and rounding could matter. The choice is the one that totals give.
"""

from __future__ import annotations

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.footprint import Measured
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Kernels, SingleArray
from kube_policy_scheduler.framework.kernels.changed_rows import ChangedRows
from kube_policy_scheduler.framework.kernels.fused_resources import FusedResources
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.plugins.node_resources_fit import fits

_ROWS = 128
"""Rows of one block, as in the compiled loops."""
_SPARE_SHARE = 8
"""Room for 1/8 more rows than there are."""
_MOST_TOTAL = 2**22
"""Smaller whole numbers, and their sums, are exact in single precision."""


class BoundedTotals(msgspec.Struct, frozen=True):
    """The nodes that pass every filter, with bounds for their totals; those of the best ones are exact."""

    count: int
    """How many pass."""
    bounds: SingleArray
    """`float32[blocks * rows of one]`: -inf where a node does not pass, and beyond the last one."""
    maxima: SingleArray
    """`float32[blocks]`: the highest of each."""
    counts: IntArray
    """`int64[blocks]`: how many have it, where it is the highest of all."""

    def columns(self) -> tuple[SingleArray, SingleArray, IntArray]:
        """Return what compiled loops search, as `BlockMaxima.columns`."""
        return self.bounds, self.maxima, self.counts


class OtherTotals(Measured):
    """What a total follows from besides requests: other filters and scores."""

    def __init__(self, ok: BoolArray, totals: FloatArray) -> None:
        """Take `bool[nodes]`, which pass the other filters, and `float64[nodes]`, the sums of the other scores."""
        self.ok = ok
        self.totals = totals
        self._singles: tuple[SingleArray, float] | None = None

    def singles(self) -> tuple[SingleArray, float]:
        """Return `float32[nodes]`, -inf where a node does not pass, and the largest number.

        It is infinite unless all are whole numbers.
        """
        if self._singles is None:
            with np.errstate(over="ignore", invalid="ignore"):
                singles = self.totals.astype(np.float32)
                largest = float(np.abs(singles).max(initial=0.0)) if (np.rint(singles) == self.totals).all() else np.inf
            self._singles = np.where(self.ok, singles, np.float32(-np.inf)), largest
        return self._singles


class ResourceBounds:
    """What bounds are computed from, for each node of one table; follows its changes."""

    def __init__(self, nodes: NodeTable, kernels: Kernels) -> None:
        self.nodes = nodes
        self._kernels = kernels
        self._derive_all()

    def _derive_all(self) -> None:
        self._changes = ChangedRows(self.nodes, self.nodes.static_changes, self.nodes.dynamic_changes)
        room = self.nodes.size + self.nodes.size // _SPARE_SHARE + _ROWS
        blocks = room // _ROWS + 1
        self._whole, self._shares = np.empty((8, room), np.int64), np.empty((7, room), np.float32)
        self._bounds, self._maxima = np.empty(blocks * _ROWS, np.float32), np.empty(blocks, np.float32)
        self._counts = np.empty(blocks, np.int64)
        self._derive(np.arange(self.nodes.size))

    def _derive(self, rows: IntArray) -> None:
        self._kernels.derive_shares(rows, self.nodes.cpu_and_memory, self._whole, self._shares)

    def _follow(self) -> None:
        rows = self._changes.take()
        if rows is None or isinstance(rows, slice) or self.nodes.size > self._whole.shape[1]:
            self._derive_all()
        elif rows:
            self._derive(np.array(rows, np.int64))

    def look(self, frame: Frame, fused: FusedResources, others: OtherTotals) -> BoundedTotals | None:
        """Return the nodes that a pod fits on; None if there are no bounds. It is valid until the next call."""
        other, largest = others.singles()
        weights = fused.numbers[1]
        if largest + MAX_SCORE * sum(weights) >= _MOST_TOTAL or weights[0] % 1 or weights[1] % 1:
            return None
        self._follow()
        for resource, amount in fused.others:
            other = np.where(fits(frame, fused.wanted, resource, amount), other, np.float32(-np.inf))
        blocks = len(other) // _ROWS + 1
        bounds, maxima, counts = self._bounds[: blocks * _ROWS], self._maxima[:blocks], self._counts[:blocks]
        columns = self._whole, self._shares, fused.amounts, fused.weights
        count = self._kernels.bound_totals(other, others.totals, *columns, bounds, maxima, counts)
        return BoundedTotals(count, bounds, maxima, counts) if count >= 0 else None
