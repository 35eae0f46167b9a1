"""Policies: what compiling costs, and how long a decision waits while a new set is compiled beside it."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass

from engine.diagnostics import Source
from engine.policy.policy_set import load
from tests.benchmarks.decisions import start
from tests.benchmarks.policies import policy_text
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import named

NODES = 5_000


@dataclass(frozen=True)
class Reload:
    """What one new policy set costs."""

    policies: int
    clauses: int
    """In each policy."""
    cpu_seconds: float
    """Compiling alone, nothing else going on."""
    relative: float
    """The same as a multiple of one turn of the reference loop."""
    swap_seconds: float
    """From the sources to the set, with decisions going on at the same time."""
    worst_decision_seconds: float
    """The longest that a decision took meanwhile, 5,000 nodes."""


def measure_reload(reference: Reference, *, policies: int, clauses: int) -> Reload:
    """Compile a set of policies, alone and beside decisions."""
    sources = [
        Source(f"policy-{number}.policy", f'for pods where pod.namespace == "team-{number}"\n{policy_text(clauses)}')
        for number in range(policies)
    ]
    load(sources[:1])
    turn = reference.seconds()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    _compile(sources)
    cpu_seconds = time.process_time() - began
    turn = (turn + reference.seconds()) / 2
    swap_seconds, worst = _beside_decisions(sources)
    gc.unfreeze()
    return Reload(policies, clauses, cpu_seconds, cpu_seconds / turn, swap_seconds, worst)


def _compile(sources: list[Source]) -> None:
    loaded = load(sources)
    assert loaded.policy_set is not None, loaded.diagnostics


def _beside_decisions(sources: list[Source]) -> tuple[float, float]:
    """Return how long compiling took in a thread, and the longest decision meanwhile."""
    run = start(named("SchedulingBasic"), nodes=NODES)
    pods = iter(run.pods(20_000))
    for _ in range(10):
        run.decide(next(pods))
    spent: list[float] = []

    def compile_them() -> None:
        began = time.perf_counter()
        _compile(sources)
        spent.append(time.perf_counter() - began)

    worst = 0.0
    thread = threading.Thread(target=compile_them)
    thread.start()
    while thread.is_alive():
        began = time.perf_counter()
        run.decide(next(pods))
        worst = max(worst, time.perf_counter() - began)
        time.sleep(0)  # the event loop's turn
    thread.join()
    return spent[0], worst
