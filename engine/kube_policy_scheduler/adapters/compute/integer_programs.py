"""Solves integer and linear programs with HiGHS (highspy): the extra `exact`. The only module that knows highspy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias

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


def is_installed() -> bool:
    """Return whether highspy can be imported; does not import it."""
    return find_spec("highspy") is not None


def minimize(
    *,
    cost: FloatArray,
    upper: FloatArray,
    integral: BoolArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    starts: IntArray,
    columns: IntArray,
    coefficients: FloatArray,
    seconds: float,
    stop: Callable[[], bool] = lambda: False,
) -> Minimum:
    """Minimize `cost @ x` for `0 <= x <= upper` and `row_lower <= A @ x <= row_upper`.

    Args:
        cost: `float64[variables]`.
        upper: `float64[variables]`; inf: no limit.
        integral: `bool[variables]`: those that take whole numbers only.
        row_lower: `float64[rows]`; -inf: no limit.
        row_upper: `float64[rows]`; inf: no limit.
        starts: `int32[rows]`: where each row of A begins in `columns` and `coefficients`.
        columns: the variables of the rows, one row after another.
        coefficients: their coefficients.
        seconds: after this time, the best solution so far is the answer.
        stop: asked now and then: True ends the search in the same way.
    """
    import highspy

    solver: Any = highspy.Highs()
    for option, value in (
        ("output_flag", False), ("threads", 1), ("time_limit", seconds), ("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-6),
    ):  # fmt: skip
        solver.setOptionValue(option, value)
    program: Any = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(row_lower)
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros(len(cost)), upper
    program.row_lower_, program.row_upper_ = row_lower, row_upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.num_col_, program.a_matrix_.num_row_ = len(cost), len(row_lower)
    program.a_matrix_.start_ = np.append(starts, len(columns)).astype(np.int32)
    program.a_matrix_.index_, program.a_matrix_.value_ = columns, coefficients
    is_mixed = bool(integral.any())
    if is_mixed:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        program.integrality_ = [kinds[int(one)] for one in integral]
    solver.passModel(program)

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
