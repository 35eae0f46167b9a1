"""The use of a node with the pod: two scoring strategies of NodeResourcesFit; the third is imported as a policy.

Scores are whole numbers, as in kube-scheduler: products of int64 that wrap around beyond 92 PB do so there too. Sums do
not: what is used and requested is added up to the largest int64 at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import MOST_NONZERO, FloatArray, IntArray, NodeTable, Rows
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.requests import is_scalar, scoring_request
from kube_policy_scheduler.cluster.sum_column import plus
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, Reads, Ready, Skip
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE, Score
from kube_policy_scheduler.quantities.quantity import MAX_INT64, column_scale, rounded

_MOST_EXACT = MAX_INT64 // MAX_SCORE
"""With more capacity, products wrap around."""
_MOST_EXACT_REAL = 2**45
"""A quotient up to 100 that is not whole differs from the next whole number by 1/capacity at least. With less capacity
than this, that is more than rounding takes away."""
_CHUNK = 1 << 14
"""Rows: some columns of so many stay in the processor's second cache."""
CPU_AND_MEMORY = (("cpu", 1), ("memory", 1))


class ScoredResource(NamedTuple):
    """One resource of a strategy."""

    name: str
    weight: int
    amount: int
    """What the pod adds, in column units; containers without cpu or memory requests count with the defaults."""


class ResourceScore(Score):
    """Base of the strategies: a weighted mean over resources of a score by resource."""

    name = "NodeResourcesFit"
    reads = Reads.REQUESTS | Reads.PODS

    def __init__(self, resources: tuple[tuple[str, int], ...] = CPU_AND_MEMORY) -> None:
        self.resources = resources

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Compute what the pod adds; a scalar resource that it does not request is ignored."""
        template = frame.pod.template
        if self.resources == CPU_AND_MEMORY:
            cpu, memory = template.demand.nonzero_cpu_millis, template.demand.nonzero_memory_bytes
            both = (
                ScoredResource("cpu", 1, min(cpu, MOST_NONZERO)),
                ScoredResource("memory", 1, min(memory, MOST_NONZERO)),
            )
            return Ready(both, key=both)
        chosen = [ScoredResource(name, weight, amount_of(template, name)) for name, weight in self.resources]
        added = tuple([r for r in chosen if r[2] or not is_scalar(r[0])])
        return Ready(added, key=added)

    def score(self, frame: Frame, state: tuple[ScoredResource, ...]) -> IntArray | FloatArray:
        """Return final scores, whole numbers `[rows]`."""
        capacities = [capacity_of(frame.cluster.nodes, resource.name) for resource in state]
        if all(capacity.exact for capacity in capacities) and any(resource.weight for resource in state):
            return self._score_exact(frame, state, capacities)
        nodes, rows = frame.cluster.nodes, frame.rows
        total: IntArray = np.zeros(frame.size, np.int64)
        weights: IntArray = np.zeros(frame.size, np.int64)
        for resource in state:
            capacity = nodes.allocatable(resource.name)[rows]
            scores = self.part(used_with(nodes, resource, rows), capacity) * MAX_SCORE // np.maximum(capacity, 1)
            total += np.where(capacity != 0, scores * resource.weight, 0)
            weights += np.where(capacity != 0, resource.weight, 0)
        return np.where(weights == 0, 0, total // np.maximum(weights, 1))

    def _score_exact(self, frame: Frame, state: tuple[ScoredResource, ...], capacities: list[Capacity]) -> FloatArray:
        """Do the same with floating-point numbers, in which all these are exact: they divide 8 times as fast."""
        nodes, total = frame.cluster.nodes, np.empty(frame.size)
        weights = sum(resource.weight for resource in state)
        for place, rows in in_chunks(frame.rows, frame.size):
            sums: FloatArray | float = 0.0
            for resource, capacity in zip(state, capacities, strict=True):
                scores = self.part(used_with(nodes, resource, rows), capacity.whole[rows]).astype(np.float64)
                scores *= MAX_SCORE
                scores /= capacity.real[rows]
                np.floor(scores, out=scores)
                sums = sums + (scores if resource.weight == 1 else scores * resource.weight)
            np.floor(sums / weights, out=total[place])
        return total

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
                total += self.part_one(used + resource.amount, capacity) * MAX_SCORE // capacity * resource.weight
                weights += resource.weight
        return float(total // weights) if weights else 0.0

    def part(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return the part of the capacity that the score counts, `int64[rows]`."""
        raise NotImplementedError

    def part_one(self, used: int, capacity: int) -> int:
        """Return the same for one node."""
        raise NotImplementedError


class LeastAllocated(ResourceScore):
    """Prefers nodes with more free resources: the default."""

    default = Default(6, weight=1)

    def part(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return what is free."""
        result: IntArray = np.maximum(capacity - used, 0)
        return result

    def part_one(self, used: int, capacity: int) -> int:
        """Return what is free."""
        return max(capacity - used, 0)


class MostAllocated(ResourceScore):
    """Prefers nodes with fewer free resources: bin packing."""

    def part(self, used: IntArray, capacity: IntArray) -> IntArray:
        """Return what is used."""
        return np.minimum(used, capacity)

    def part_one(self, used: int, capacity: int) -> int:
        """Return what is used."""
        return min(used, capacity)


class Capacity(msgspec.Struct, frozen=True):
    """What the nodes offer of a resource."""

    whole: IntArray
    """`int64[nodes]`"""
    real: FloatArray
    """`float64[nodes]`"""
    exact: bool
    """Whether all nodes offer some, and so little that `floor(a / b)` of percents is exact in floating point."""


def capacity_of(nodes: NodeTable, resource: str) -> Capacity:
    """Return what the nodes offer of a resource; kept until one changes."""
    kept: dict[str, tuple[int, Capacity]] = nodes.derive("capacities", dict)
    known = kept.get(resource)
    if known is None or known[0] != nodes.offers_version:
        whole = nodes.allocatable(resource)
        exact = bool(len(whole)) and bool(whole.min() > 0) and bool(whole.max() < _MOST_EXACT_REAL)
        known = kept[resource] = nodes.offers_version, Capacity(whole, whole.astype(np.float64), exact)
    return known[1]


def in_chunks(rows: Rows, size: int) -> Iterator[tuple[slice, Rows]]:
    """Return parts of rows that stay in the processor's cache: their places among the rows, and themselves."""
    for start in range(0, size, _CHUNK):
        place = slice(start, min(start + _CHUNK, size))
        yield place, place if isinstance(rows, slice) else rows[place]


def used_with(nodes: NodeTable, resource: ScoredResource, rows: Rows) -> IntArray:
    """Return `int64[rows]`: what is used with the pod."""
    match resource.name:
        case "cpu":
            return nodes.nonzero_cpu[rows] + resource.amount
        case "memory":
            return nodes.nonzero_memory[rows] + resource.amount
    return plus(nodes.requested(resource.name)[rows], resource.amount)


def amount_of(template: PodTemplate, resource: str) -> int:
    """Return the amount that scoring counts of a resource for a pod of the template, in column units."""
    match resource:
        case "cpu":
            return min(template.demand.nonzero_cpu_millis, MOST_NONZERO)
        case "memory":
            return min(template.demand.nonzero_memory_bytes, MOST_NONZERO)
        case _:
            return rounded(scoring_request(template.spec).get(resource, 0), column_scale(resource))
