"""Runs of the simulation until what a test is about has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.simulation.sharded import SharedSimulation
from tests.simulation.simulation import Simulation


def run_until(
    happens: set[str],
    make: Callable[[int], Simulation | SharedSimulation],
    seeds: Iterable[int],
    *,
    further: Iterable[int],
) -> None:
    """Run all seeds, and then further ones in turn until all that is to happen has happened.

    What happens in a run changes with all that the scheduler does earlier or later, so no single seed is sure of it.

    Raises:
        AssertionError: something never happened.
    """
    met: Counter[str] = Counter()
    for seed in seeds:
        met += make(seed).run()
    for seed in further:
        if happens <= met.keys():
            return
        met += make(seed).run()
    assert happens <= met.keys(), f"never happened: {sorted(happens - met.keys())}"
