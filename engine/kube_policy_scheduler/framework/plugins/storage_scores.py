"""The score of VolumeBinding: how much of the storage that a node can reach the pod's claims would use.

Source: the scorer of volumebinding, and helper.BuildBrokenLinearFunction, of kube-scheduler (gate
StorageCapacityScoring).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.framework.plugins.base import MAX_SCORE
from kube_policy_scheduler.quantities.quantity import MAX_INT64

MAX_UTILIZATION, MAX_POINT_SCORE = 100, 10
_MOST_EXACT = MAX_INT64 // MAX_UTILIZATION
"""Up to here a hundredfold is no larger than an int64; kube-scheduler's products wrap around beyond."""
_COARSE_BITS = 7
"""Beyond that, this many of the lowest bits of both amounts are dropped."""


class ShapePoint(NamedTuple):
    """A point of the line that scores follow."""

    utilization: int
    """0 to 100."""
    score: int
    """0 to 10."""


Shape = tuple[ShapePoint, ...]
MOST_ROOM: Shape = (ShapePoint(0, MAX_POINT_SCORE), ShapePoint(MAX_UTILIZATION, 0))
"""The default: nodes score higher the more storage is left."""


class ShapeError(ValueError):
    """Points that no line goes through."""


def shape_of(points: Sequence[tuple[int, int]]) -> Shape:
    """Return points as a shape.

    Raises:
        ShapeError: there is none, they do not rise, or one is out of range.
    """
    if not points:
        raise ShapeError("expected at least one point, such as 0:10")
    for utilization, score in points:
        if not 0 <= utilization <= MAX_UTILIZATION:
            raise ShapeError(f"expected a utilization of 0 to {MAX_UTILIZATION}, got {utilization}")
        if not 0 <= score <= MAX_POINT_SCORE:
            raise ShapeError(f"expected a score of 0 to {MAX_POINT_SCORE}, got {score}")
    for (low, _), (high, _) in pairwise(points):
        if low >= high:
            raise ShapeError(f"expected points in the order of their utilization, each once; {high} follows {low}")
    return tuple(ShapePoint(*point) for point in points)


def shape_named(text: str) -> Shape:
    """Return the shape that a text such as "0:10 100:0" says: points as utilization and score.

    Raises:
        ShapeError: it says none.
    """
    points = []
    for part in text.replace(",", " ").split():
        utilization, colon, score = part.partition(":")
        if not (colon and _is_number(utilization) and _is_number(score)):
            raise ShapeError(f'"{part[:40]}" is not a point of utilization and score; write for example "0:10 100:0"')
        points.append((int(utilization), int(score)))
    return shape_of(points)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER


_LONGEST_NUMBER = 3


class ClassUse(NamedTuple):
    """What claims would use of one storage class."""

    requested: IntArray | int
    """Bytes, `int64[nodes]` or the same for all."""
    capacity: IntArray
    """`int64[nodes]`: the bytes that there are."""


def plus(one: IntArray | int, other: IntArray | int) -> IntArray:
    """Return `int64[nodes]`: the sum of amounts of at least 0, at most the largest int64."""
    rest = MAX_INT64 - np.asarray(one, np.int64)
    return MAX_INT64 - rest + np.minimum(rest, other)


def utilization(use: ClassUse) -> IntArray:
    """Return `int64[nodes]`: percent, cut off; 100 where there is nothing, or too little."""
    requested, capacity = np.broadcast_arrays(np.asarray(use.requested, np.int64), use.capacity)
    if capacity.size and int(capacity.max()) > _MOST_EXACT:
        large = capacity > _MOST_EXACT
        requested = np.where(large, requested >> _COARSE_BITS, requested)
        capacity = np.where(large, capacity >> _COARSE_BITS, capacity)
    fits = (capacity > 0) & (requested <= capacity)
    share = np.where(fits, requested, 0) * MAX_UTILIZATION // np.maximum(capacity, 1)
    return np.where(fits, share, MAX_UTILIZATION)


def along(shape: Shape, at: IntArray) -> IntArray:
    """Return `int64[nodes]`: 0 to 100, on the line through the points; whole numbers, cut off towards zero."""
    scale = MAX_SCORE // MAX_POINT_SCORE
    table = np.empty(MAX_UTILIZATION + 1, np.int64)
    for percent in range(MAX_UTILIZATION + 1):
        after = next((number for number, point in enumerate(shape) if percent <= point.utilization), None)
        if after is None:
            table[percent] = shape[-1].score * scale
        elif after == 0:
            table[percent] = shape[0].score * scale
        else:
            low, high = shape[after - 1], shape[after]
            rise = (high.score - low.score) * scale * (percent - low.utilization)
            way = high.utilization - low.utilization
            table[percent] = low.score * scale + (abs(rise) // way if rise >= 0 else -(abs(rise) // way))
    return table[at]


def scores(shape: Shape, uses: Sequence[tuple[ClassUse, BoolArray]], size: int) -> IntArray:
    """Return `int64[nodes]`: the mean over storage classes, rounded half up; 0 where there is no class.

    uses: each with where it counts, `bool[nodes]`.
    """
    total, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for use, where in uses:
        total += np.where(where, along(shape, utilization(use)), 0)
        count += np.where(where, 1, 0)
    return (2 * total + count) // np.maximum(2 * count, 1)
