"""What a decision costs right after the world changed: a node came, or all metrics were read again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from kube_policy_scheduler.cluster.signals import SeriesColumns
from tests.benchmarks.decisions import NOW, Run, start
from tests.benchmarks.manifests import add_node
from tests.benchmarks.policies import METRICS, signals
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import named

_REPEATS = 15


@dataclass(frozen=True)
class AfterChange:
    """The first decision after a change, the taking in of the change included."""

    what: str
    workload: str
    nodes: int
    cpu_us: float
    relative: float


def measure_changes(reference: Reference, *, nodes: int) -> list[AfterChange]:
    """Measure every kind of change."""
    return [
        _measured("a node comes", "SchedulingBasic", nodes, _node_comes, reference),
        _measured("a node comes", "TopologySpreading", nodes, _node_comes, reference),
        _measured("a node comes", "PolicyOf20Clauses", nodes, _node_comes, reference),
        _measured("a node is annotated", "PolicyOf20Clauses", nodes, _node_is_annotated, reference),
        _measured(f"{len(METRICS)} metrics are read", "PolicyOf20Clauses", nodes, _metrics_are_read, reference),
    ]


def _measured(
    what: str, workload: str, nodes: int, prepare: Callable[[Run, int], Callable[[], None]], reference: Reference
) -> AfterChange:
    run = start(named(workload), nodes=nodes)
    turn = reference.seconds()
    spent = []
    for number in range(_REPEATS):
        first, second = run.pods(2)
        run.decide(first)
        change = prepare(run, number)
        began = time.process_time()
        change()
        run.decide(second)
        spent.append(time.process_time() - began)
    turn = (turn + reference.seconds()) / 2
    return AfterChange(what, workload, nodes, median(spent) * 1e6, median(spent) / turn)


def _node_comes(run: Run, number: int) -> Callable[[], None]:
    manifest = run.workload.make_node(run.cluster.nodes.size)
    return lambda: add_node(run.cluster, manifest)


def _node_is_annotated(run: Run, number: int) -> Callable[[], None]:
    manifest = run.workload.make_node(0)
    manifest["metadata"]["annotations"] = {"heartbeat": str(number)}
    return lambda: add_node(run.cluster, manifest)


def _metrics_are_read(run: Run, number: int) -> Callable[[], None]:
    fresh = signals(run.cluster.nodes.size, now=NOW)
    for reading in fresh.readings.values():
        assert isinstance(reading.series, SeriesColumns)
        reading.series.values += number

    def change() -> None:
        run.signals = fresh

    return change
