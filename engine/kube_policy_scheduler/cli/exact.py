"""The solver behind exact plans and bounds, where the extra `exact` is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_policy_scheduler.tooling.programs import Program, Solution, Solver

SECONDS = 10.0
"""One program takes at most this long; then the best solution so far counts, with its bound."""


def solver(stop: Callable[[], bool] = lambda: False, *, seconds: float = SECONDS) -> Solver | None:
    """Return what solves programs; None where highspy is not installed."""
    from kube_policy_scheduler.adapters.compute.integer_programs import is_installed, minimize
    from kube_policy_scheduler.tooling.programs import Solution

    if not is_installed():
        return None

    def solve(program: Program) -> Solution:
        found = minimize(program, seconds=seconds, stop=stop)
        return Solution(found.values, found.bound, found.duals)

    return solve
