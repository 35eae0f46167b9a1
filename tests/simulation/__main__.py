"""`python -m tests.simulation --runs 1000 --steps 2000`: many seeded runs; a failure is replayed with `--seed`.

Every run is checked after each step, against a recount of everything. In the end it is told how often each fault has
happened.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.backfilled import BackfillSimulation
from tests.simulation.chaos import Violation
from tests.simulation.moving import MovingSimulation
from tests.simulation.queues import QueueSimulation
from tests.simulation.sharded import SharedSimulation
from tests.simulation.simulation import Simulation

PROGRESS_EVERY = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 1 where anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--sharded", action="store_const", const=_sharded, dest="one", help="replicas share the work")
    kinds.add_argument("--moving", action="store_const", const=_moving, dest="one", help="policies that move pods")
    kinds.add_argument("--queues", action="store_const", const=_queues, dest="one", help="queues; nodes come and go")
    kinds.add_argument("--backfill", action="store_const", const=_backfill, dest="one", help="strict orders")
    parser.set_defaults(one=_one)
    given = parser.parse_args(arguments)
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.runs)
    began, failed, happened = time.monotonic(), 0, Counter[str]()
    with ProcessPoolExecutor(given.workers) as pool:
        for number, (problem, counted) in enumerate(pool.map(given.one, seeds, [given.steps] * len(seeds)), 1):
            happened += counted
            if problem:
                failed += 1
                print(problem, flush=True)
            if number % PROGRESS_EVERY == 0 or number == len(seeds):
                seconds = time.monotonic() - began
                print(f"{number} runs of {given.steps} steps in {seconds:.0f} s: {failed} failed", flush=True)
    for what, times in sorted(happened.items()):
        print(f"{times:9,} {what}")
    return 1 if failed else 0


def _one(seed: int, steps: int) -> tuple[str, Counter[str]]:
    return _outcome(Simulation(seed, steps=steps))


def _sharded(seed: int, steps: int) -> tuple[str, Counter[str]]:
    return _outcome(SharedSimulation(seed, steps=steps))


def _moving(seed: int, steps: int) -> tuple[str, Counter[str]]:
    return _outcome(MovingSimulation(seed, steps=steps))


def _queues(seed: int, steps: int) -> tuple[str, Counter[str]]:
    return _outcome(QueueSimulation(seed, steps=steps))


def _backfill(seed: int, steps: int) -> tuple[str, Counter[str]]:
    return _outcome(BackfillSimulation(seed, steps=steps))


def _outcome(simulation: Simulation | SharedSimulation) -> tuple[str, Counter[str]]:
    """Return what was wrong, "" for nothing, and what happened."""
    logging.disable()
    try:
        return "", simulation.run()
    except Violation as problem:
        return str(problem), Counter()


if __name__ == "__main__":
    sys.exit(main())
