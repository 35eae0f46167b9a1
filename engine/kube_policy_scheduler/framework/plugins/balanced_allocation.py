"""NodeResourcesBalancedAllocation: placements that make a node's resources more evenly used."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.requests import is_scalar
from kube_policy_scheduler.cluster.sum_column import plus
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, Reads, Ready, Skip
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE, Score
from kube_policy_scheduler.framework.plugins.resource_scores import CPU_AND_MEMORY, Capacity, capacity_of, in_chunks
from kube_policy_scheduler.quantities.quantity import MAX_INT64

_HALF = MAX_SCORE // 2


class NodeResourcesBalancedAllocation(Score):
    """Scores by how the pod changes the balance: 75 for no change, up to 100 for the better, down to 50.

    Balance is 1 minus the standard deviation of the used shares, in percent. True requests count, pod-level
    ones included; there are no defaults.
    """

    name = "NodeResourcesBalancedAllocation"
    default = Default(15, weight=1)
    reads = Reads.REQUESTS | Reads.PODS

    def __init__(self, resources: tuple[tuple[str, int], ...] = CPU_AND_MEMORY) -> None:
        self.resources = resources

    def pre_score(self, frame: Frame) -> Ready | Skip:
        """Skip pods that request none of the resources: they would all be placed on the same node."""
        requests = frame.pod.template.demand.requests
        if self.resources == CPU_AND_MEMORY:
            both = ("cpu", requests.get("cpu", 0)), ("memory", requests.get("memory", 0))
            return Ready(both, key=both) if both[0][1] or both[1][1] else SKIP
        amounts = [(name, requests.get(name, 0)) for name, _ in self.resources]
        if not [amount for _, amount in amounts if amount]:
            return SKIP
        added = tuple([item for item in amounts if item[1] or not is_scalar(item[0])])
        return Ready(added, key=added)

    def score(self, frame: Frame, state: tuple[tuple[str, int], ...]) -> IntArray | FloatArray:
        """Return final scores, whole numbers `[rows]`."""
        nodes, rows = frame.cluster.nodes, frame.rows
        capacities = [capacity_of(nodes, name) for name, _ in state]
        if len(state) == 2 and all(capacity.exact for capacity in capacities):
            return self._score_two(frame, state, capacities)
        used = [_with(nodes.requested(name)[rows], amount) for name, amount in state]
        before, after = _balance(used, [capacity.whole[rows] for capacity in capacities])
        result: IntArray = _HALF + (_HALF + after - before) // 2
        return result

    def _score_two(self, frame: Frame, state: tuple[tuple[str, int], ...], capacities: list[Capacity]) -> FloatArray:
        """Do the same for two resources that all nodes offer."""
        nodes, result = frame.cluster.nodes, np.empty(frame.size)
        for place, rows in in_chunks(frame.rows, frame.size):
            real = [capacity.real[rows] for capacity in capacities]
            requested = [nodes.requested(name)[rows] for name, _ in state]
            before = _balance_of_pair(requested, real)
            after = _balance_of_pair(
                [plus(each, amount) for each, (_, amount) in zip(requested, state, strict=True)], real
            )
            after -= before
            after += _HALF
            after *= 0.5
            np.floor(after, out=after)
            np.add(after, _HALF, out=result[place])
        return result

    def score_one(self, frame: Frame, state: tuple[tuple[str, int], ...], row: int) -> float:
        """Return what `score` returns for this row."""
        nodes = frame.cluster.nodes
        capacities = [nodes.allocatable(name).item(row) for name, _ in state]
        if len(state) != 2 or not all(capacities):
            return float(self.score(frame.at(np.array([row])), state)[0])
        first, second = float(capacities[0]), float(capacities[1])
        used = [nodes.requested(name).item(row) for name, _ in state]
        more = [min(each + amount, MAX_INT64) for each, (_, amount) in zip(used, state, strict=True)]
        return score_of_two((used[0] / first, used[1] / second), (more[0] / first, more[1] / second))


def score_of_two(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the score of a node by the used shares of two resources, without and with the pod."""
    return float(_HALF + (_HALF + _balance_of_two(*after) - _balance_of_two(*before)) // 2)


def _balance_of_two(first: float, second: float) -> int:
    difference = (first if first < 1.0 else 1.0) - (second if second < 1.0 else 1.0)
    return int((abs(difference) * 0.5 - 1) * -MAX_SCORE)


def _with(requested: IntArray, amount: int) -> IntArray:
    """Return `int64[2, rows]`: what is requested, without and with the pod."""
    both = np.empty((2, len(requested)), np.int64)
    both[0] = requested
    both[1] = plus(requested, amount)
    return both


def _balance_of_pair(used: list[IntArray], capacities: list[FloatArray]) -> FloatArray:
    """Return `float64[rows]`, whole numbers: what `_balance` returns, of two resources that all nodes offer."""
    deviation, second = (u.astype(np.float64) for u in used)
    deviation /= capacities[0]
    second /= capacities[1]
    np.minimum(deviation, 1.0, out=deviation)
    np.minimum(second, 1.0, out=second)
    deviation -= second
    np.abs(deviation, out=deviation)
    deviation *= 0.5
    deviation -= 1
    deviation *= -MAX_SCORE
    return np.trunc(deviation, out=deviation)


def _balance(used: list[IntArray], capacities: list[IntArray]) -> IntArray:
    """Return `int64[2, rows]`, as used: 100 if all shares are equal, at least 50."""
    shares: list[FloatArray] = [u / np.maximum(c, 1) for u, c in zip(used, capacities, strict=True)]
    for share in shares:
        np.minimum(share, 1.0, out=share)
    deviation = _deviation(shares, [c != 0 for c in capacities])
    deviation -= 1
    deviation *= -MAX_SCORE
    return deviation.astype(np.int64)


def _deviation(shares: list[FloatArray], offered: list[BoolArray]) -> FloatArray:
    """Return the standard deviation over the resources that a node offers; added up in order, as in Go."""
    count = np.sum(offered, axis=0)
    total = np.zeros_like(shares[0])
    for share, on in zip(shares, offered, strict=True):
        total = total + np.where(on, share, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for share, on in zip(shares, offered, strict=True):
        squares = squares + np.where(on, (share - mean) * (share - mean), 0.0)
    many = np.sqrt(squares / np.maximum(count, 1))
    if len(shares) < 2:
        return np.zeros_like(total)
    # Two resources have their own, simpler formula.
    difference = np.zeros_like(total)
    sign = np.ones(len(count))
    for share, on in zip(shares, offered, strict=True):
        difference = difference + np.where(on, sign * share, 0.0)
        sign = np.where(on, -sign, sign)
    return np.where(count > 2, many, np.where(count == 2, np.abs(difference / 2), 0.0))
