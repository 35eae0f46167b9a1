"""Compiled loops that may take the place of array passes over all rows. Decisions are the same without them."""

from __future__ import annotations

from typing import Protocol

from kube_policy_scheduler.cluster.hashed_rows import Hashes
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray


class Kernels(Protocol):
    """The compiled loops. All arrays are contiguous."""

    def score_resources(
        self,
        ok: BoolArray,
        totals: FloatArray,
        pod_count: IntArray,
        offered_pods: IntArray,
        offered_cpu: IntArray,
        offered_memory: IntArray,
        requested_cpu: IntArray,
        requested_memory: IntArray,
        nonzero_cpu: IntArray,
        nonzero_memory: IntArray,
        amounts: IntArray,
        weights: FloatArray,
        /,
    ) -> None:
        """Write where one more pod fits, and the weighted sum of its resource scores, `[nodes]`.

        Args:
            ok: is written: what NodeResourcesFit returns for pods, cpu and memory.
            totals: is written: the sum of a strategy of NodeResourcesFit and of NodeResourcesBalancedAllocation.
            pod_count: the columns, as the next seven.
            offered_pods: see above.
            offered_cpu: see above.
            offered_memory: see above.
            requested_cpu: see above.
            requested_memory: see above.
            nonzero_cpu: see above.
            nonzero_memory: see above.
            amounts: cpu and memory that must be free; the strategy (0 none, 1 LeastAllocated, 2 MostAllocated), the cpu
                and memory that it adds, and their weights; cpu and memory that balanced allocation adds.
            weights: of the strategy's score, and of balanced allocation, 0 to leave it out.
        """

    def combine(
        self,
        first_ok: BoolArray,
        first: FloatArray,
        second_ok: BoolArray,
        second: FloatArray,
        ok: BoolArray,
        totals: FloatArray,
        maxima: FloatArray,
        counts: IntArray,
        /,
    ) -> int:
        """Write where both pass, and the sums of totals there; return how many rows pass.

        Args:
            first_ok: `bool[nodes]`
            first: `float64[nodes]`
            second_ok: `bool[nodes]`
            second: `float64[nodes]`
            ok: is written, `bool[nodes]`.
            totals: is written, `float64[blocks * rows of a block]`: -inf where the row is excluded, or is none.
            maxima: is written, `float64[blocks]`: the highest total of each block.
            counts: is written, `int64[blocks]`: the rows of the block that have it.
        """

    def write(
        self, rows: IntArray, values: FloatArray, totals: FloatArray, maxima: FloatArray, counts: IntArray, /
    ) -> None:
        """Set the totals of some rows, and what is known of their blocks.

        Args:
            rows: `int64[rows]`
            values: their totals, `float64[rows]`: -inf where a row is excluded.
            totals: is written, as by `combine`.
            maxima: is written, likewise.
            counts: is written, likewise.
        """

    def find_highest(
        self, maxima: FloatArray, counts: IntArray, group_hashes: Hashes, factor: int, /
    ) -> tuple[float, int, int, int]:
        """Return the highest total, how many rows and blocks have it, and the first group of names in a pod's order.

        Args:
            maxima: `float64[blocks]`: the highest total of each.
            counts: `int64[blocks]`: the rows of the block that have it.
            group_hashes: `uint64[groups]`
            factor: the odd number of the pod, by which hashes are multiplied.
        """

    def first_among(self, totals: FloatArray, rows: IntArray, hashes: Hashes, factor: int, total: float, /) -> int:
        """Return which of some rows, `int64[n]`, with this total is the first in a pod's order of names, -1 if none is.

        totals, hashes: of all rows.
        """

    def first_of_all(
        self,
        maxima: FloatArray,
        totals: FloatArray,
        groups: IntArray,
        group_hashes: Hashes,
        hashes: Hashes,
        factor: int,
        total: float,
        /,
    ) -> int:
        """Return which of all rows with this total is the first in a pod's order of groups, then in that of names.

        groups: `int64[rows]`, the group of each row; the others are as above.
        """


class Accelerator:
    """Where the compiled loops are, once there are any: they are compiled while the scheduler runs."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self._kernels = kernels

    @property
    def kernels(self) -> Kernels | None:
        """Return the loops; None: use array passes."""
        return self._kernels

    def use(self, kernels: Kernels) -> None:
        """Use these from now on."""
        self._kernels = kernels
