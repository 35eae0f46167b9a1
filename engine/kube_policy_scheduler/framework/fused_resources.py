"""NodeResourcesFit, its score and balanced allocation in one pass over nodes, where a compiled loop is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.framework.accelerator import Kernels
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import FilterPlugin, Ready, ScorePlugin
from kube_policy_scheduler.framework.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted, fits
from kube_policy_scheduler.framework.plugins.resource_scores import LeastAllocated, MostAllocated, ScoredResource

_STRATEGIES: dict[type, int] = {LeastAllocated: 1, MostAllocated: 2}
_ANY = -(2**63)
"""What is free is at least that."""
_MOST_WEIGHT = 100
"""Of a resource; kube-scheduler accepts no more."""


@dataclass(frozen=True, slots=True)
class FusedResources:
    """The part of a template's filters and scores that a compiled loop evaluates."""

    others: tuple[tuple[str, int], ...]
    """What is requested of other resources than cpu and memory."""
    wanted: Wanted
    amounts: IntArray
    weights: FloatArray
    scores: int
    """Scores at the beginning of the template's that are part of it."""

    @classmethod
    def of(
        cls, filters: Sequence[tuple[FilterPlugin, Ready]], scores: Sequence[tuple[ScorePlugin, float, Any]]
    ) -> FusedResources | None:
        """Return what can be evaluated in one pass, of filters and scores with their states; None: nothing.

        Scores are added up in their order, so that rounding is the same: only the first ones can be part of it.
        """
        wanted: Wanted | None
        wanted = next((ready.state for plugin, ready in filters if type(plugin) is NodeResourcesFit), None)
        if wanted is None or wanted.unoffered or wanted.devices & {"cpu", "memory"}:
            return None
        requested = dict(wanted.amounts)
        amounts = [requested.pop("cpu", _ANY), requested.pop("memory", _ANY), *([0] * 7)]
        weights, count = [0.0, 0.0], 0
        for plugin, weight, state in scores:
            if weight <= 0:
                break
            if count == 0 and (strategy := _STRATEGIES.get(type(plugin))) is not None and _can_score(state):
                by_name = {resource.name: resource for resource in state}
                cpu, memory = by_name["cpu"], by_name["memory"]
                amounts[2:7] = strategy, cpu.amount, memory.amount, cpu.weight, memory.weight
                weights[0] = weight
            elif count <= 1 and type(plugin) is NodeResourcesBalancedAllocation and _can_balance(state):
                added = dict(state)
                amounts[7:9] = added["cpu"], added["memory"]
                weights[1] = weight
                count += 1
                break
            else:
                break
            count += 1
        if min(amounts[2:]) < 0:
            return None
        return cls(tuple(requested.items()), wanted, np.array(amounts, np.int64), np.array(weights, np.float64), count)

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
        nodes, rows = frame.cluster.nodes, frame.rows
        ok, totals = (np.empty(frame.size, np.bool_), np.empty(frame.size)) if into is None else into
        kernels.score_resources(
            ok,
            totals,
            nodes.pod_count[rows],
            nodes.allocatable("pods")[rows],
            nodes.allocatable("cpu")[rows],
            nodes.allocatable("memory")[rows],
            nodes.requested("cpu")[rows],
            nodes.requested("memory")[rows],
            nodes.nonzero_cpu[rows],
            nodes.nonzero_memory[rows],
            self.amounts,
            self.weights,
        )
        for resource, amount in self.others:
            ok &= fits(frame, self.wanted, resource, amount)
        return ok, totals


def _can_score(state: Sequence[ScoredResource]) -> bool:
    return (
        len(state) == 2
        and {resource.name for resource in state} == {"cpu", "memory"}
        and all(0 < resource.weight <= _MOST_WEIGHT for resource in state)
    )


def _can_balance(state: Sequence[tuple[str, int]]) -> bool:
    return len(state) == 2 and {name for name, _ in state} == {"cpu", "memory"}
