"""NodeResourcesFit, its score and balanced allocation together: over all nodes by a compiled loop, or for one node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray, NodeTable
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.kernels.accelerator import Blocks, Kernels, Summands, Verdicts
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, ScorePlugin
from kube_policy_scheduler.framework.plugins.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    score_of_two,
)
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted, fits
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated, MostAllocated, ScoredResource
from kube_policy_scheduler.quantities.quantity import MAX_INT64

_LEAST_ALLOCATED, _MOST_ALLOCATED = 1, 2
_STRATEGIES: dict[type, int] = {LeastAllocated: _LEAST_ALLOCATED, MostAllocated: _MOST_ALLOCATED}
_ANY = -(2**63)
"""What is free is at least that."""
_ALL: IntArray = np.zeros(0, np.int64)
"""No rows by number: all of them are evaluated."""
_MOST_WEIGHT = 100
"""Of a resource; kube-scheduler accepts no more."""
_MOST_PLAIN = 2**45
"""With less capacity, and more than none, the plugins have no special cases."""


class FusedResources(msgspec.Struct, frozen=True):
    """The part of a template's filters and scores that a compiled loop evaluates."""

    others: tuple[tuple[str, int], ...]
    """What is requested of other resources than cpu and memory."""
    wanted: Wanted
    amounts: IntArray
    weights: FloatArray
    scores: int
    """Scores at the beginning of the template's that are part of it."""
    numbers: tuple[list[int], list[float]]
    """The amounts and the weights as Python's numbers."""

    @classmethod
    def of(
        cls, filters: Sequence[tuple[FilterPlugin, Ready]], scores: Sequence[tuple[ScorePlugin, float, Any]]
    ) -> FusedResources | None:
        """Return what can be evaluated in one pass, of filters and scores with their states; None: nothing.

        Scores are added up in their order, so that rounding is the same: only the first ones can be part of it.
        """
        wanted: Wanted | None = None
        for filtering, ready in filters:
            if type(filtering) is NodeResourcesFit:
                wanted = ready.state
                break
        if wanted is None or wanted.unoffered or wanted.devices & {"cpu", "memory"}:
            return None
        requested = dict(wanted.amounts)
        amounts = [requested.pop("cpu", _ANY), requested.pop("memory", _ANY), 0, 0, 0, 0, 0, 0, 0]
        weights, count = [0.0, 0.0], 0
        for plugin, weight, state in scores:
            if weight <= 0 or state is None:
                break
            kind = type(plugin.resource_score or plugin)
            if count == 0 and (strategy := _STRATEGIES.get(kind)) is not None and _can_score(state):
                cpu, memory = state if state[0].name == "cpu" else reversed(state)
                amounts[2:7] = strategy, cpu.amount, memory.amount, cpu.weight, memory.weight
                weights[0] = weight
            elif count <= 1 and kind is NodeResourcesBalancedAllocation and _can_balance(state):
                cpu_added, memory_added = state if state[0][0] == "cpu" else reversed(state)
                amounts[7:9] = cpu_added[1], memory_added[1]
                weights[1] = weight
                count += 1
                break
            else:
                break
            count += 1
        if min(amounts[2:]) < 0:
            return None
        return cls(
            tuple(requested.items()),
            wanted,
            np.array(amounts, np.int64),
            _array_of(weights[0], weights[1]),
            count,
            (amounts, weights),
        )

    @classmethod
    def of_all(
        cls, filters: Sequence[tuple[FilterPlugin, Ready]], scores: Sequence[tuple[ScorePlugin, float, Ready]]
    ) -> FusedResources | None:
        """Return what evaluates all of the filters and scores in one pass; None if it can only do some of them."""
        if len(filters) != 1 or filters[0][1].nodes is not None:
            return None
        fused = cls.of(filters, [(plugin, weight, ready.state) for plugin, weight, ready in scores])
        return fused if fused is not None and fused.scores == len(scores) else None

    def evaluate(
        self, frame: Frame, kernels: Kernels, *, into: tuple[BoolArray, FloatArray] | None = None
    ) -> tuple[BoolArray, FloatArray]:
        """Return `bool[rows]`, where the pod fits, and `float64[rows]`, the weighted sum of the scores.

        into: where to write them; None: new columns.
        """
        columns, rows = frame.cluster.nodes.cpu_and_memory, frame.rows
        ok, totals = (np.empty(frame.size, np.bool_), np.empty(frame.size)) if into is None else into
        if not isinstance(rows, slice):
            columns = columns.take(rows, axis=1)
        kernels.score_resources(_ALL, ok, totals, columns, self.amounts, self.weights)
        for resource, amount in self.others:
            ok &= fits(frame, self.wanted, resource, amount)
        return ok, totals

    def write_rows(self, frame: Frame, kernels: Kernels, rows: IntArray, ok: BoolArray, totals: FloatArray) -> None:
        """Evaluate some rows, of columns of all rows."""
        columns = frame.cluster.nodes.cpu_and_memory
        kernels.score_resources(rows, ok, totals, columns, self.amounts, self.weights)
        for resource, amount in self.others:
            ok[rows] &= fits(frame.at(rows), self.wanted, resource, amount)

    def follow(
        self,
        nodes: NodeTable,
        kernels: Kernels,
        rows: IntArray,
        own: tuple[BoolArray, FloatArray],
        ok: BoolArray,
        blocks: Blocks,
        others: tuple[Verdicts, Summands],
    ) -> tuple[int, int]:
        """Evaluate some rows where there are no `others`, and add up: see `Kernels.follow`."""
        return kernels.follow(rows, own, nodes.cpu_and_memory, self.amounts, self.weights, ok, blocks, *others)

    def evaluate_row(self, nodes: NodeTable, row: int) -> tuple[bool, float] | None:
        """Return the same for one row with Python's numbers; None where the plugins have special cases.

        The sum is 0.0 where the pod does not fit.
        """
        (
            pods,
            most_pods,
            cpu,
            memory,
            held_cpu,
            held_memory,
            nonzero_cpu,
            nonzero_memory,
        ) = nodes.cpu_and_memory[:, row].tolist()
        if not (0 < cpu < _MOST_PLAIN and 0 < memory < _MOST_PLAIN):
            return None
        amounts, (score_weight, balance_weight) = self.numbers
        fit_cpu, fit_memory, strategy, more_cpu, more_memory, cpu_weight, memory_weight, add_cpu, add_memory = amounts
        if pods >= most_pods or cpu - held_cpu < fit_cpu or memory - held_memory < fit_memory:
            return False, 0.0
        for resource, amount in self.others:
            offered = nodes.allocatable(resource).item(row)
            if offered - nodes.requested(resource).item(row) < amount and (
                offered or resource not in self.wanted.devices
            ):
                return False, 0.0
        total = 0.0
        if strategy:
            used_cpu, used_memory = nonzero_cpu + more_cpu, nonzero_memory + more_memory
            if strategy == _LEAST_ALLOCATED:
                part_cpu = cpu - used_cpu if used_cpu < cpu else 0
                part_memory = memory - used_memory if used_memory < memory else 0
            else:
                part_cpu, part_memory = min(used_cpu, cpu), min(used_memory, memory)
            score = part_cpu * MAX_SCORE // cpu * cpu_weight + part_memory * MAX_SCORE // memory * memory_weight
            total += float(score // (cpu_weight + memory_weight)) * score_weight
        if balance_weight:
            after = min(held_cpu + add_cpu, MAX_INT64) / cpu, min(held_memory + add_memory, MAX_INT64) / memory
            total += score_of_two((held_cpu / cpu, held_memory / memory), after) * balance_weight
        return True, total


@lru_cache(maxsize=64)
def _array_of(first: float, second: float) -> FloatArray:
    """Return both weights, which are those of a profile, as an array."""
    return np.array((first, second), np.float64)


def _can_score(state: Sequence[ScoredResource]) -> bool:
    if len(state) != 2:
        return False
    first, second = state
    names = first.name, second.name
    return (
        (names == ("cpu", "memory") or names == ("memory", "cpu"))
        and 0 < first.weight <= _MOST_WEIGHT
        and 0 < second.weight <= _MOST_WEIGHT
    )


def _can_balance(state: Sequence[tuple[str, int]]) -> bool:
    if len(state) != 2:
        return False
    names = state[0][0], state[1][0]
    return names == ("cpu", "memory") or names == ("memory", "cpu")
