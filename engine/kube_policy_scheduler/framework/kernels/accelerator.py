"""Compiled loops that may take the place of array passes over all rows. Decisions are the same without them."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.hashed_rows import Hashes
from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray

SingleArray: TypeAlias = NDArray[np.float32]
CountArray: TypeAlias = NDArray[np.int32]
Blocks: TypeAlias = tuple[FloatArray, FloatArray, IntArray]
"""Totals, the highest of each block, and how many rows of the block have it; see `Kernels.combine`."""
Verdicts: TypeAlias = tuple[BoolArray, ...]
Summands: TypeAlias = tuple[FloatArray, ...]


class Kernels(Protocol):
    """The compiled loops. All arrays are contiguous."""

    def score_resources(
        self,
        rows: IntArray,
        ok: BoolArray,
        totals: FloatArray,
        columns: IntArray,
        amounts: IntArray,
        weights: FloatArray,
        /,
    ) -> None:
        """Write where one more pod fits, and the weighted sum of its resource scores, `[nodes]`.

        Args:
            rows: `int64[n]`, which rows are written; all of them if none are given.
            ok: is written: what NodeResourcesFit returns for pods, cpu and memory.
            totals: is written: the sum of a strategy of NodeResourcesFit and of NodeResourcesBalancedAllocation.
            columns: `NodeTable.cpu_and_memory`.
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
            maxima: is written, as by `combine`.
            counts: is written, as by `combine`.
        """

    def add_up(
        self, rows: IntArray, ok: BoolArray, blocks: Blocks, verdicts: Verdicts, scores: Summands, /
    ) -> tuple[int, int]:
        """Write where some rows pass everywhere, and the sums of totals there; return how many more pass, and turned.

        Args:
            rows: `int64[rows]`, each once.
            ok: is written, `bool[nodes]`.
            blocks: is written, as by `combine`; all three of length 0: only `ok` is.
            verdicts: six `bool[nodes]`, all of which must be true for a row to pass; of length 0 where there are fewer.
            scores: six `float64[nodes]`, which are added up in this order; of length 0 where there are fewer.
        """

    def follow(
        self,
        rows: IntArray,
        own: tuple[BoolArray, FloatArray],
        columns: IntArray,
        amounts: IntArray,
        weights: FloatArray,
        ok: BoolArray,
        blocks: Blocks,
        verdicts: Verdicts,
        scores: Summands,
        /,
    ) -> tuple[int, int]:
        """Do what `score_resources` does for some rows, and then what `add_up` does.

        Args:
            rows: `int64[rows]`, each once, at least one.
            own: `score_resources` writes both; `add_up` reads them after the others.
            columns: as for `score_resources`.
            amounts: as for `score_resources`.
            weights: as for `score_resources`.
            ok: is written, as by `add_up`.
            blocks: is written, as by `add_up`.
            verdicts: as for `add_up`, three of them.
            scores: as for `add_up`, three of them.
        """

    def rank(
        self,
        rows: IntArray,
        places: IntArray,
        ok: BoolArray,
        constant: float,
        blocks: Blocks,
        scores: Summands,
        before: FloatArray,
        by_count: tuple[CountArray, FloatArray],
        after: FloatArray,
        /,
    ) -> None:
        """Write the totals of some rows: sums of kept scores, and of those that compare nodes.

        Args:
            rows: `int64[rows]`
            places: where the total of each row is written, `int64[nodes]`; of length 0: in the order of rows.
            ok: `bool[nodes]`: which rows have a total; that of the others is -inf.
            constant: what is added after the scores.
            blocks: is written, as by `combine`.
            scores: six `float64[nodes]`, which are added up in this order; of length 0 where there are fewer.
            before: `float64[nodes]`, added after the constant; of length 0 where there is none.
            by_count: `int32[nodes]` and `float64[counts]`, of which the second is added at the place that the first
                says; of length 0 where there are none.
            after: `float64[nodes]`, added last; of length 0 where there is none.
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
        blocks: Blocks | tuple[SingleArray, SingleArray, IntArray],
        names: tuple[Hashes, IntArray, Hashes, IntArray, IntArray],
        factor: int,
        few_blocks: int,
        /,
    ) -> tuple[int, float, int]:
        """Return the row with the highest total that is the first in a pod's order, that total, and how many have it.

        The order is that of groups, then that of names. The row is -1 if no row has a number.

        Args:
            blocks: the totals of all rows; `float64[blocks]`, the highest of each block; and `int64[blocks]`, the rows
                of the block that have it.
            names: `HashedRows.columns`.
            factor: the odd number of the pod, by which hashes are multiplied.
            few_blocks: with rows that tie in more blocks, the first group is looked at before all rows are.
        """

    def compare_domains(
        self,
        kept: FloatArray,
        constants: FloatArray,
        domains: IntArray,
        values: IntArray,
        weight: float,
        totals: FloatArray,
        /,
    ) -> tuple[float, int]:
        """Write totals with a score by domains; return the highest, and how many rows have it.

        The score of a row is 0 to 100, from the lowest to the highest value of feasible rows, and 0 if all are equal.

        Args:
            kept: `float64[nodes]`: what is added up so far, -inf where a row is not feasible.
            constants: `float64[n]`: what is added to each row in this order, before the score.
            domains: `int64[nodes]`: the domain of each row.
            values: `int64[domains]`
            weight: of the score.
            totals: is written, `float64[nodes]`. If one of them is not a number, no row has the highest.
        """

    def derive_shares(
        self,
        rows: IntArray,
        columns: IntArray,
        whole: IntArray,
        shares: SingleArray,
        /,
    ) -> None:
        """Write what bounds are computed from, of some rows.

        Args:
            rows: `int64[n]`
            columns: `NodeTable.cpu_and_memory`.
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
            shares: as `derive_shares` writes it.
            amounts: as for `score_resources`.
            weights: as for `score_resources`; whole numbers.
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
