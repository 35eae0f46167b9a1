"""Runs of the simulation until what a test is about has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.simulation.sharded import SharedSimulation
from tests.simulation.simulation import Simulation


def run_until(happens: set[str], make: Callable[[int], Simulation | SharedSimulation], seeds: Iterable[int]) -> None:
    """Run these seeds in turn until all that is to happen has happened.

    What happens in a run changes with all that the scheduler does earlier or later, so no single seed is sure of it.

    Raises:
        AssertionError: something never happened.
    """
    met: Counter[str] = Counter()
    for seed in seeds:
        met += make(seed).run()
        if happens <= met.keys():
            return
    raise AssertionError(f"never happened: {sorted(happens - met.keys())}")
