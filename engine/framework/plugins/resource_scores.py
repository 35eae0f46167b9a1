"""How full a node would be: the three scoring strategies of NodeResourcesFit.

Scores are whole numbers, as in kube-scheduler: products of int64 that wrap around beyond 92 PB do so there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from engine.cluster.nodes import BoolArray, IntArray
from engine.cluster.pods import PodTemplate
from engine.cluster.quantity import column_scale, rounded
from engine.cluster.requests import is_scalar, scoring_request
from engine.framework.frame import Frame
from engine.framework.plugin import Ready, Scope, Skip
from engine.framework.plugins.base import MAX_SCORE, Score

CPU_AND_MEMORY = (("cpu", 1), ("memory", 1))
_SHAPE_UNIT = 10
"""Shape points carry scores of 0..10; they count ten times that."""


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """One resource that a strategy looks at."""

    name: str
    weight: int
    amount: int
    """What the pod adds, in column units; containers without cpu or memory requests count with the defaults."""


class ResourceScore(Score):
    """Base of the strategies: a weighted mean over resources of a score by resource."""

    name = "NodeResourcesFit"
    scope = Scope.ROW

    def __init__(self, resources: tuple[tuple[str, int], ...] = CPU_AND_MEMORY) -> None:
        self.resources = resources

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Compute what the pod adds; a scalar resource that it does not request is not looked at."""
        chosen = (ScoredResource(name, weight, _amount(frame.template, name)) for name, weight in self.resources)
        added = tuple(r for r in chosen if r.amount or not is_scalar(r.name))
        return Ready(added, key=added)

    def score(self, frame: Frame, state: tuple[ScoredResource, ...]) -> IntArray:
        """Return final scores, `int64[rows]`."""
        nodes, rows = frame.cluster.nodes, frame.rows
        total: IntArray = np.zeros(frame.size, np.int64)
        weights: IntArray | int = 0
        for resource in state:
            capacity = nodes.allocatable(resource.name)[rows]
            match resource.name:
                case "cpu":
                    held = nodes.nonzero_cpu[rows]
                case "memory":
                    held = nodes.nonzero_memory[rows]
                case _:
                    held = nodes.requested(resource.name)[rows]
            offered: BoolArray | None = None if np.count_nonzero(capacity) == len(capacity) else capacity != 0
            scores = self.resource_score(
                held + resource.amount, capacity if offered is None else np.maximum(capacity, 1)
            )
            counts = self.counts(scores, offered)
            if counts is None:
                total += scores if resource.weight == 1 else scores * resource.weight
                weights = weights + resource.weight
            else:
                total += np.where(counts, scores * resource.weight, 0)
                weights = weights + np.where(counts, resource.weight, 0)
        if isinstance(weights, int):
            return self.mean(total, weights) if weights else total
        return np.where(weights == 0, 0, self.mean(total, np.maximum(weights, 1)))

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the score `int64[rows]` of one resource; every capacity is at least 1."""
        raise NotImplementedError

    def counts(self, scores: IntArray, offered: BoolArray | None) -> BoolArray | None:
        """Return where a resource enters the mean, of the nodes that offer it; None means everywhere."""
        return offered

    def mean(self, total: IntArray, weights: IntArray | int) -> IntArray:
        """Return the weighted mean, cut to a whole number."""
        return total // weights


class LeastAllocated(ResourceScore):
    """Prefers nodes with much left: the default."""

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the free share in percent."""
        result: IntArray = np.maximum(capacity - used, 0) * MAX_SCORE // capacity
        return result


class MostAllocated(ResourceScore):
    """Prefers nodes with little left: bin packing."""

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the used share in percent."""
        return np.minimum(used, capacity) * MAX_SCORE // capacity


class RequestedToCapacityRatio(ResourceScore):
    """Scores the used share by a polyline over (utilisation 0..100, score 0..10)."""

    DEFAULT_SHAPE: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0), (100, 10))

    def __init__(
        self,
        resources: tuple[tuple[str, int], ...] = CPU_AND_MEMORY,
        *,
        shape: tuple[tuple[int, int], ...] = DEFAULT_SHAPE,
    ) -> None:
        super().__init__(resources)
        self._by_percent = np.array([_on_polyline(percent, shape) for percent in range(MAX_SCORE + 1)], np.int64)

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the polyline's value at the used share."""
        percent = np.where(used > capacity, MAX_SCORE, used * MAX_SCORE // capacity)
        result: IntArray = self._by_percent[np.clip(percent, 0, MAX_SCORE)]
        return result

    def counts(self, scores: IntArray, offered: BoolArray | None) -> BoolArray | None:
        """Return where a resource enters the mean: only with a score above 0."""
        positive: BoolArray = scores > 0
        return positive if offered is None else positive & offered

    def mean(self, total: IntArray, weights: IntArray | int) -> IntArray:
        """Return the weighted mean, rounded half up."""
        return np.floor(total / weights + 0.5).astype(np.int64)


def _on_polyline(percent: int, shape: tuple[tuple[int, int], ...]) -> int:
    """Return the polyline's value, times ten; divisions truncate toward zero as in Go."""
    points = [(x, y * _SHAPE_UNIT) for x, y in shape]
    for i, (x, y) in enumerate(points):
        if percent <= x:
            if i == 0:
                return y
            left, low = points[i - 1]
            return low + int((y - low) * (percent - left) / (x - left))
    return points[-1][1]


def _amount(template: PodTemplate, resource: str) -> int:
    """Return what scoring counts of a resource for a pod of the template, in column units."""
    match resource:
        case "cpu":
            return template.demand.nonzero_cpu_millis
        case "memory":
            return template.demand.nonzero_memory_bytes
        case _:
            return rounded(scoring_request(template.spec).get(resource, 0), column_scale(resource))
