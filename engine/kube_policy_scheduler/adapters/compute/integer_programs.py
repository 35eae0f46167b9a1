"""Solves integer and linear programs with HiGHS (highspy): the extra `exact`. The only module that knows highspy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

_SOLVED = ("kOptimal", "kTimeLimit", "kInterrupt", "kIterationLimit", "kSolutionLimit", "kObjectiveBound")


@dataclass(frozen=True, slots=True)
class Minimum:
    """What HiGHS found."""

    values: FloatArray | None
    """Of the best solution, `float64[variables]`; None if none was found."""
    bound: float
    """No solution costs less; -inf if that is not known, inf if there is no solution."""
    duals: FloatArray | None = None
    """`float64[rows]`: what one more unit of each row costs; only without integral variables."""


class Program(Protocol):
    """Minimize a cost over variables from 0 to a limit, under limits of rows of sums."""

    @property
    def cost(self) -> FloatArray:
        """Return `float64[variables]`."""
        ...

    @property
    def upper(self) -> FloatArray:
        """Return `float64[variables]`; inf: no limit."""
        ...

    @property
    def integral(self) -> BoolArray:
        """Return `bool[variables]`: those that take whole numbers only."""
        ...

    @property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Return the least and the most of each row, `float64[rows]`; -inf, inf: no limit."""
        ...

    @property
    def terms(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return where each row begins, `int32[rows]`, and the variables and coefficients of all rows in turn."""
        ...


def is_installed() -> bool:
    """Return whether highspy can be imported; does not import it."""
    return find_spec("highspy") is not None


def minimize(program: Program, *, seconds: float, stop: Callable[[], bool] = lambda: False) -> Minimum:
    """Minimize what a program costs.

    Args:
        program: what to minimize.
        seconds: after this time, the best solution so far is the answer.
        stop: asked now and then: True ends the search in the same way.
    """
    import highspy

    solver: Any = highspy.Highs()
    for option, value in (
        ("output_flag", False), ("threads", 1), ("time_limit", seconds), ("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-6),
    ):  # fmt: skip
        solver.setOptionValue(option, value)
    cost, (lower, upper), (starts, columns, coefficients) = program.cost, program.limits, program.terms
    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(len(cost)), program.upper
    model.row_lower_, model.row_upper_ = lower, upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_, model.a_matrix_.num_row_ = len(cost), len(lower)
    model.a_matrix_.start_ = np.append(starts, len(columns)).astype(np.int32)
    model.a_matrix_.index_, model.a_matrix_.value_ = columns, coefficients
    is_mixed = bool(program.integral.any())
    if is_mixed:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [kinds[int(one)] for one in program.integral]
    solver.passModel(model)

    def interrupt(event: Any) -> None:
        if stop():
            event.interrupt()

    for event in (solver.cbMipInterrupt, solver.cbSimplexInterrupt, solver.cbIpmInterrupt):
        event.subscribe(interrupt)
    try:
        solver.run()
    finally:
        solver.clearCallbacks()  # they and the solver refer to each other
    status, info = solver.getModelStatus().name, solver.getInfo()
    found = status == "kOptimal" or (status in _SOLVED and info.primal_solution_status == 2)  # 2: it is feasible
    solution = solver.getSolution()
    values = np.asarray(solution.col_value, np.float64) if found else None
    if is_mixed:
        bound = float(info.mip_dual_bound) if status in _SOLVED else -np.inf
    else:
        bound = float(info.objective_function_value) if status == "kOptimal" else -np.inf
    if status == "kInfeasible":
        bound = np.inf
    duals = np.asarray(solution.row_dual, np.float64) if status == "kOptimal" and not is_mixed else None
    return Minimum(values, bound, duals)
