"""Compiled loops that may take the place of array passes over all rows. Decisions are the same without them."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.hashed_rows import Hashes
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray

SingleArray: TypeAlias = NDArray[np.float32]
CountArray: TypeAlias = NDArray[np.int32]


class Kernels(Protocol):
    """The compiled loops. All arrays are contiguous."""

    def score_resources(
        self,
        rows: IntArray,
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
            rows: `int64[n]`, which rows are written; all of them if none are given.
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

    def add_up(
        self,
        rows: IntArray,
        ok: BoolArray,
        totals: FloatArray,
        maxima: FloatArray,
        counts: IntArray,
        /,
        *columns: BoolArray | FloatArray,
    ) -> tuple[int, int]:
        """Write where some rows pass everywhere, and the sums of totals there; return how many more pass, and turned.

        Args:
            rows: `int64[rows]`, each once.
            ok: is written, `bool[nodes]`.
            totals: is written, as by `combine`, and the next two; all three of length 0: only `ok` is.
            maxima: see above.
            counts: see above.
            columns: six `bool[nodes]`, all of which must be true for a row to pass, then six `float64[nodes]`, which
                are added up in this order; of length 0 where there are fewer.
        """

    def follow(
        self,
        rows: IntArray,
        fits: BoolArray,
        scores: FloatArray,
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
        ok: BoolArray,
        totals: FloatArray,
        maxima: FloatArray,
        counts: IntArray,
        /,
        *columns: BoolArray | FloatArray,
    ) -> tuple[int, int]:
        """Do what `score_resources` does for some rows, and then what `add_up` does.

        Args:
            rows: `int64[rows]`, each once, at least one.
            fits: `score_resources` writes it, and the next one; `add_up` reads both after the columns.
            scores: see above.
            pod_count: as for `score_resources`, and the next nine.
            offered_pods: see above.
            offered_cpu: see above.
            offered_memory: see above.
            requested_cpu: see above.
            requested_memory: see above.
            nonzero_cpu: see above.
            nonzero_memory: see above.
            amounts: see above.
            weights: see above.
            ok: is written, as by `add_up`, and the next three.
            totals: see above.
            maxima: see above.
            counts: see above.
            columns: as for `add_up`, three of each kind.
        """

    def rank(
        self,
        rows: IntArray,
        places: IntArray,
        ok: BoolArray,
        constant: float,
        totals: FloatArray,
        maxima: FloatArray,
        counts: IntArray,
        /,
        *columns: FloatArray | CountArray,
    ) -> None:
        """Write the totals of some rows: sums of kept scores, and of those that compare nodes.

        Args:
            rows: `int64[rows]`
            places: where the total of each row is written, `int64[nodes]`; of length 0: in the order of rows.
            ok: `bool[nodes]`: which rows have a total; that of the others is -inf.
            constant: what is added after the first six columns.
            totals: is written, as by `combine`, and the next two.
            maxima: see above.
            counts: see above.
            columns: six `float64[nodes]`, which are added up in this order; then, after the constant, another one;
                `int32[nodes]` and `float64[counts]`, of which the second is added at the place that the first says;
                and `float64[nodes]` again. Of length 0 where there are fewer.
        """

    def recount(
        self, rows: IntArray, ok: BoolArray, counted: CountArray, counts: CountArray, numbers: IntArray, /
    ) -> tuple[int, int]:
        """Take over the counts of some rows; return the lowest and the highest of feasible ones, 0 if there are none.

        Return -1 and -1 if a count does not fit in `numbers`; all rows are to be counted then.

        Args:
            rows: `int64[rows]`, some more than once.
            ok: `bool[nodes]`: which rows are feasible.
            counted: `int32[nodes]`
            counts: is written, `int32[nodes]`: the same for feasible rows, -1 for the others.
            numbers: is written, `int64[more than the highest]`: how many feasible rows have each count.
        """

    def choose(
        self,
        maxima: FloatArray | SingleArray,
        counts: IntArray,
        totals: FloatArray | SingleArray,
        hashes: Hashes,
        groups: IntArray,
        group_hashes: Hashes,
        members: IntArray,
        sizes: IntArray,
        factor: int,
        few_blocks: int,
        /,
    ) -> tuple[int, float, int]:
        """Return the row with the highest total that is the first in a pod's order, that total, and how many have it.

        The order is that of groups, then that of names. The row is -1 if no row has a number.

        Args:
            maxima: `float64[blocks]`: the highest total of each.
            counts: `int64[blocks]`: the rows of the block that have it.
            totals: of all rows.
            hashes: `uint64[rows]`, of the names.
            groups: `int64[rows]`, the group of each row.
            group_hashes: `uint64[groups]`
            members: `int64[groups, room]`: the rows of each group.
            sizes: `int64[groups]`: how many they are.
            factor: the odd number of the pod, by which hashes are multiplied.
            few_blocks: with rows that tie in more blocks, the first group is looked at before all rows are.
        """

    def derive_shares(
        self,
        rows: IntArray,
        pod_count: IntArray,
        offered_pods: IntArray,
        offered_cpu: IntArray,
        offered_memory: IntArray,
        requested_cpu: IntArray,
        requested_memory: IntArray,
        nonzero_cpu: IntArray,
        nonzero_memory: IntArray,
        whole: IntArray,
        shares: SingleArray,
        /,
    ) -> None:
        """Write what bounds are computed from, of some rows.

        Args:
            rows: `int64[n]`
            pod_count: the columns, as the next seven.
            offered_pods: see above.
            offered_cpu: see above.
            offered_memory: see above.
            requested_cpu: see above.
            requested_memory: see above.
            nonzero_cpu: see above.
            nonzero_memory: see above.
            whole: is written, `int64[8, rows]`: free cpu (the smallest number where no pod more is allowed) and memory;
                cpu and memory offered, requested, and requested with the defaults of scores.
            shares: is written, `float32[7, rows]`: cpu and memory requested with the defaults of scores, and requested,
                in percent; the percent that a millicore and a byte are; the part of balanced allocation that pods of a
                node decide, -inf where scores do not follow from percents.
        """

    def bound_totals(
        self,
        other: SingleArray,
        first: FloatArray,
        whole: IntArray,
        shares: SingleArray,
        amounts: IntArray,
        weights: FloatArray,
        bounds: SingleArray,
        maxima: SingleArray,
        counts: IntArray,
        /,
    ) -> int:
        """Write numbers that totals do not exceed, which are totals where they are the highest.

        All totals are whole numbers. Return how many rows pass all filters; -1 where a total is too large.

        Args:
            other: `float32[nodes]`: the totals of other scores, -inf where another filter excludes the row.
            first: `float64[nodes]`: the same where none does.
            whole: as `derive_shares` writes it.
            shares: likewise.
            amounts: as for `score_resources`.
            weights: likewise; whole numbers.
            bounds: is written, `float32[blocks * 128]`: -inf where a row is excluded, or is none.
            maxima: is written, `float32[blocks]`: the highest of each block.
            counts: is written, `int64[blocks]`: the rows that have it, where it is the highest of all.
        """


class Accelerator:
    """Where the compiled loops are, once there are any: they are compiled while the scheduler runs."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self.kernels = kernels
        """The loops; None: use array passes."""

    def use(self, kernels: Kernels) -> None:
        """Use these from now on."""
        self.kernels = kernels
