"""The use of a node with the pod: two scoring strategies of NodeResourcesFit; the third is imported as a policy.

Scores are whole numbers, as in kube-scheduler: products of int64 that wrap around beyond 92 PB do so there too. Sums do
not: what is used and requested is added up to the largest int64 at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kube_policy_scheduler.cluster.nodes import MOST_NONZERO, BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.quantity import MAX_INT64, column_scale, rounded
from kube_policy_scheduler.cluster.requests import is_scalar, scoring_request
from kube_policy_scheduler.cluster.sum_column import plus
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, Ready, Scope, Skip
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE, Score

_MOST_EXACT = MAX_INT64 // MAX_SCORE
"""With more capacity, products wrap around."""
CPU_AND_MEMORY = (("cpu", 1), ("memory", 1))


@dataclass(frozen=True, slots=True)
class ScoredResource:
    """One resource of a strategy."""

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
        """Compute what the pod adds; a scalar resource that it does not request is ignored."""
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
                    used = nodes.nonzero_cpu[rows] + resource.amount
                case "memory":
                    used = nodes.nonzero_memory[rows] + resource.amount
                case _:
                    used = plus(nodes.requested(resource.name)[rows], resource.amount)
            offered: BoolArray | None = None if np.count_nonzero(capacity) == len(capacity) else capacity != 0
            scores = self.resource_score(used, capacity if offered is None else np.maximum(capacity, 1))
            if offered is None:
                total += scores if resource.weight == 1 else scores * resource.weight
                weights = weights + resource.weight
            else:
                total += np.where(offered, scores * resource.weight, 0)
                weights = weights + np.where(offered, resource.weight, 0)
        if isinstance(weights, int):
            return total // weights if weights else total
        return np.where(weights == 0, 0, total // np.maximum(weights, 1))

    def score_one(self, frame: Frame, state: tuple[ScoredResource, ...], row: int) -> float:
        """Return what `score` returns for this row."""
        nodes = frame.cluster.nodes
        total = weights = 0
        for resource in state:
            capacity = nodes.allocatable(resource.name).item(row)
            if capacity > _MOST_EXACT:
                return float(self.score(frame.at(np.array([row])), state)[0])
            match resource.name:
                case "cpu":
                    used = nodes.nonzero_cpu.item(row)
                case "memory":
                    used = nodes.nonzero_memory.item(row)
                case _:
                    used = nodes.requested(resource.name).item(row)
            if capacity:
                total += self.resource_score_one(used + resource.amount, capacity) * resource.weight
                weights += resource.weight
        return float(total // weights) if weights else 0.0

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the score `int64[rows]` of one resource; every capacity is at least 1."""
        raise NotImplementedError

    def resource_score_one(self, used: int, capacity: int) -> int:
        """Return the same for one node."""
        raise NotImplementedError


class LeastAllocated(ResourceScore):
    """Prefers nodes with more free resources: the default."""

    default = Default(6, weight=1)

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the free share in percent."""
        result: IntArray = np.maximum(capacity - used, 0) * MAX_SCORE // capacity
        return result

    def resource_score_one(self, used: int, capacity: int) -> int:
        """Return the same for one node."""
        return max(capacity - used, 0) * MAX_SCORE // capacity


class MostAllocated(ResourceScore):
    """Prefers nodes with fewer free resources: bin packing."""

    def resource_score(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the used share in percent."""
        return np.minimum(used, capacity) * MAX_SCORE // capacity

    def resource_score_one(self, used: int, capacity: int) -> int:
        """Return the same for one node."""
        return min(used, capacity) * MAX_SCORE // capacity


def _amount(template: PodTemplate, resource: str) -> int:
    """Return the amount that scoring counts of a resource for a pod of the template, in column units."""
    match resource:
        case "cpu":
            return min(template.demand.nonzero_cpu_millis, MOST_NONZERO)
        case "memory":
            return min(template.demand.nonzero_memory_bytes, MOST_NONZERO)
        case _:
            return rounded(scoring_request(template.spec).get(resource, 0), column_scale(resource))
