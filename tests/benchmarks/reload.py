"""Policies: what a reload costs, and how long a decision waits while the new set is compiled beside it."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass

from kube_policy_scheduler.adapters.files.policy_sources import PolicySources
from kube_policy_scheduler.adapters.process.worker_process import WorkerProcess
from kube_policy_scheduler.daemon.policies.live import PolicyCompiler
from kube_policy_scheduler.daemon.policies.policy_checker import MODULE, PolicyChecker
from kube_policy_scheduler.daemon.policies.reload import Accepted
from tests.benchmarks.decisions import start
from tests.benchmarks.policies import policy_text
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import named

NODES = 5_000
_AFTERWARDS_SECONDS = 0.5
"""Decisions are watched a little longer than the reload takes: the garbage collector may come later."""


@dataclass(frozen=True)
class Reload:
    """What a policy set costs that comes after another one."""

    policies: int
    clauses: int
    """In each policy."""
    changed: int
    """Policies whose text is another one."""
    cpu_seconds: float
    """Compiling alone, nothing else going on."""
    relative: float
    """The same as a multiple of one turn of the reference loop."""
    swap_seconds: float
    """From the sources to the set, with decisions going on at the same time."""
    worst_decision_seconds: float
    """The longest from one decision to the next meanwhile, 5,000 nodes."""

    @property
    def name(self) -> str:
        """Return what the baseline calls it."""
        part = "" if self.changed == self.policies else f"/{self.changed}"
        return f"reload/{self.policies}x{self.clauses}{part}"


def measure_reload(reference: Reference, *, policies: int, clauses: int, changed: int) -> Reload:
    """Compile a set of policies after another one, alone and beside decisions."""
    generations = [_sources(policies, clauses, changed=changed, generation=number) for number in range(3)]
    worker = WorkerProcess(MODULE)
    checker = PolicyChecker(worker)
    compiler = PolicyCompiler(frozenset({"policy-scheduler"}), checker=checker)
    _compile(compiler, generations[0])
    turn = reference.seconds()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    _compile(compiler, generations[1])
    cpu_seconds = time.process_time() - began
    turn = (turn + reference.seconds()) / 2
    swap_seconds, worst = _beside_decisions(compiler, generations[2])
    gc.unfreeze()
    worker.kill()
    return Reload(policies, clauses, changed, cpu_seconds, cpu_seconds / turn, swap_seconds, worst)


def _sources(policies: int, clauses: int, *, changed: int, generation: int) -> PolicySources:
    files = {}
    for number in range(policies):
        text = f'for pods where pod.namespace == "team-{number}"\n{policy_text(clauses)}'
        files[f"policy-{number}.policy"] = f"# {generation}\n{text}" if number < changed else text
    return PolicySources.of(files)


def _compile(compiler: PolicyCompiler, sources: PolicySources) -> None:
    made = compiler(sources)
    assert isinstance(made, Accepted), made


def _beside_decisions(compiler: PolicyCompiler, sources: PolicySources) -> tuple[float, float]:
    """Return how long compiling took in a thread, and the longest wait for a decision meanwhile."""
    run = start(named("SchedulingBasic"), nodes=NODES)
    pods = iter(run.pods(30_000))
    for _ in range(10):
        run.decide(next(pods))
    ends: list[float] = []

    def compile_them() -> None:
        _compile(compiler, sources)
        ends.append(time.perf_counter())

    worst, thread = 0.0, threading.Thread(target=compile_them)
    started = before = time.perf_counter()
    thread.start()
    while not ends or before < ends[0] + _AFTERWARDS_SECONDS:
        run.decide(next(pods))
        now = time.perf_counter()
        worst, before = max(worst, now - before), now
        time.sleep(0)  # the event loop's turn, in which the other thread may take Python's lock
        assert thread.is_alive() or ends, "the policies do not compile"
    thread.join()
    return ends[0] - started, worst
