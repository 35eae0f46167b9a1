"""Integer programs, stated row by row. Pure: what solves them is handed in, if it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray

MOST_VARIABLES = 20_000
"""Larger programs are not solved: they would take minutes."""
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Solution:
    """The best solution that was found, and what no solution beats."""

    values: FloatArray | None
    """`float64[variables]`; None if none was found."""
    bound: float
    """No solution costs less; -inf if that is not known, inf if there is no solution."""
    duals: FloatArray | None = None
    """`float64[rows]`: what one more unit of each row costs; only without integral variables."""


class Program:
    """Minimize a cost over variables from 0 to a limit, under rows of sums."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._integral: list[bool] = []
        self._rows: list[tuple[float, float]] = []
        self._starts: list[int] = []
        self._columns: list[int] = []
        self._coefficients: list[float] = []

    def variable(self, upper: float = math.inf, *, cost: float = 0.0, integral: bool = True) -> int:
        """Add a variable, and return its number."""
        self._cost.append(cost)
        self._upper.append(upper)
        self._integral.append(integral)
        return len(self._cost) - 1

    def price(self, costs: Mapping[int, float]) -> None:
        """Let these variables cost so much, and the others nothing."""
        self._cost = [costs.get(variable, 0.0) for variable in range(len(self._cost))]

    def limit(self, row: int, *, least: float = -math.inf, most: float = math.inf) -> None:
        """Demand other limits of a row."""
        self._rows[row] = least, most

    def row(self, terms: Iterable[tuple[int, float]], *, least: float = -math.inf, most: float = math.inf) -> int:
        """Demand that a sum of variables with coefficients is within limits, and return the number of the row.

        -1 if there is nothing to demand.
        """
        start = len(self._columns)
        for column, coefficient in terms:
            if coefficient:
                self._columns.append(column)
                self._coefficients.append(coefficient)
        if len(self._columns) > start or least > 0 or most < 0:
            self._starts.append(start)
            self._rows.append((least, most))
            return len(self._rows) - 1
        return -1

    @property
    def size(self) -> int:
        """Return the number of variables."""
        return len(self._cost)

    @property
    def cost(self) -> FloatArray:
        """Return `float64[variables]`."""
        return np.array(self._cost, np.float64)

    @property
    def upper(self) -> FloatArray:
        """Return `float64[variables]`."""
        return np.array(self._upper, np.float64)

    @property
    def integral(self) -> BoolArray:
        """Return `bool[variables]`: those that take whole numbers only."""
        return np.array(self._integral, np.bool_)

    @property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Return the limits of the rows, each `float64[rows]`."""
        both = np.array(self._rows, np.float64).reshape(-1, 2)
        return both[:, 0].copy(), both[:, 1].copy()

    @property
    def terms(self) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
        """Return where each row begins, and the variables and the coefficients of all rows, one after another."""
        return (
            np.array(self._starts, np.int32),
            np.array(self._columns, np.int32),
            np.array(self._coefficients, np.float64),
        )


Solver: TypeAlias = Callable[[Program], Solution]


def whole(bound: float) -> int:
    """Return the least whole number that is not below a bound; at least 0."""
    return max(0, math.ceil(bound - TOLERANCE)) if math.isfinite(bound) else 0
