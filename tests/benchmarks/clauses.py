"""What each clause costs on top of a plain policy: one workload for each, with churn of what the clause reads.

Every decision places its pod; besides, some pod becomes ready or stops being so before each decision, and all metrics
have a new reading before each hundredth. The plain policy is decided with the same churn, and subtracted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from kube_policy_scheduler.builtins.environment import install_extensions
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import LabelSets, Reading, SeriesColumns, Signals
from kube_policy_scheduler.extensions.onnx_models import FOLDER_VARIABLE
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod
from kube_policy_scheduler.times import rfc3339
from tests.benchmarks.decisions import NOW, Measurement, Run, measure, start
from tests.benchmarks.manifests import Json, node, pod, pod_info
from tests.benchmarks.policies import policy_of
from tests.benchmarks.reference import Reference
from tests.benchmarks.workloads import ZONES, Workload

NODES = 5_000
BOUND_TURNS = 60.0 / 24.91
"""What a clause may add, in turns of the reference loop: 60 µs on the machine where a turn was 24.91 µs."""
PLAIN = "filter node.ready and fits(cpu, mem)\nscore least_allocated(cpu, mem)\n"
_ROUNDS = 3
_READ_EVERY = 100
"""Decisions between two readings of the metrics."""
_READINGS = 8
"""Different readings."""
_CHANGING = 256
"""Agents that become ready and unready in turn."""
_METRICS: dict[str, str | None] = {"cpu_usage": "node", "price": None, "budget": "tenant", "watts": "rack"}
"""The label that says what each series is about; None: the cluster."""
_TENANTS = [f"tenant-{number}" for number in range(10)]
_RACKS = [f"rack-{number}" for number in range(50)]


@dataclass(frozen=True)
class Clause:
    """One clause, with what it needs of the cluster."""

    name: str
    text: str
    beside: str = ""
    """The clause whose cost is subtracted besides that of the plain policy."""
    make_pod: Callable[[int], Json] | None = None
    prepare: Callable[[Cluster, int], None] | None = None
    """Adds objects to a cluster of so many nodes."""
    asks: Callable[[Run, PodInfo], object] | None = None
    """What the daemon asks of the clause beside the cycle."""
    preempts: bool = False
    is_model: bool = False
    """Whether it needs onnxruntime."""
    bounded: bool = True
    """Whether it may add at most `BOUND_TURNS`."""


@dataclass(frozen=True)
class Cost:
    """What a clause adds to each decision."""

    name: str
    nodes: int
    cpu_us: float
    """CPU time per decision, of the clause alone."""
    turns: float
    """The same in turns of the reference loop."""
    of_reference: float
    """The same as a multiple of what the reference clause adds in the same run."""
    relative: float
    """The whole decision in turns of the reference loop."""
    bounded: bool

    @property
    def is_over(self) -> bool:
        """Return whether it adds more than it may."""
        return self.bounded and self.turns > BOUND_TURNS


# --- the cluster -----------------------------------------------------------------------------------------


def _node(number: int) -> Json:
    made = node(
        f"node-{number}",
        zone=ZONES[number % 3],
        labels={"rack": _RACKS[number % len(_RACKS)], "lifecycle": "spot" if number % 3 else "on-demand"},
    )
    made["metadata"]["annotations"] = {
        "scratch": f"{number % 50 + 1}Gi",
        "lease": f"{number % 30 + 1}min",
        "since": rfc3339(NOW - 60.0 * number),
    }
    made["status"]["nodeInfo"] = {"kernelVersion": f"5.{10 + number % 8}.0-{number % 40}-aws"}
    made["status"]["images"] = [{"names": [f"registry.example.com/app:{number % 7}"], "sizeBytes": 10**8}]
    return made


def _pod(number: int) -> Json:
    made = pod(f"pod-{number}", labels={"tenant": _TENANTS[number % 10], "app": "web", "job": f"job-{number % 10}"})
    made["metadata"]["annotations"] = {"working_set": "200Mi"}
    made["spec"]["containers"][0]["image"] = "registry.example.com/app:3"
    return made


def _placed(number: int) -> Json:
    """Return an agent for each node, then pods of tenants; all run and are ready."""
    labels = {"app": "agent"} if number < NODES else {"app": "db", "tenant": _TENANTS[number % 10]}
    made = pod(f"placed-{number}", labels=labels, cpu="50m", memory="100Mi")
    made["status"] = _status(number, ready=True)
    return made


def _status(number: int, *, ready: bool) -> Json:
    return {
        "startTime": rfc3339(NOW - 1_000.0 - number % 5_000),
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "pause", "started": True}],
    }


@cache
def _labels(metric: str, nodes: int) -> LabelSets:
    match _METRICS[metric]:
        case None:
            return LabelSets.of([{}])
        case "node":
            return LabelSets.of({"__name__": metric, "node": f"node-{row}"} for row in range(nodes))
        case label:
            return LabelSets.of({label: value} for value in (_TENANTS if label == "tenant" else _RACKS))


def _read(nodes: int, serial: int) -> Signals:
    """Return a new reading of each metric."""
    generator = np.random.default_rng(serial)
    readings = []
    for name in _METRICS:
        labels = _labels(name, nodes)
        series = SeriesColumns(labels, generator.uniform(5, 60, len(labels)), np.full(len(labels), NOW))
        readings.append(Reading(name, series, evaluated_at=NOW, fetched_at=NOW + serial * 1e-3))
    return Signals.of(readings)


class _Churn:
    """What happens before each decision."""

    def __init__(self, asks: Callable[[Run, PodInfo], object] | None) -> None:
        self._asks = asks
        self._serial = 0
        self._signals: list[Signals] = []
        self._agents: list[list[PodInfo]] = []

    def __call__(self, run: Run, pod: PodInfo) -> None:
        """Change what clauses read, and ask what the daemon asks for a pod."""
        serial, nodes = self._serial, run.cluster.nodes.size
        self._serial += 1
        if not self._agents:  # before the clock runs
            self._signals = [_read(nodes, number) for number in range(_READINGS)]
            changing = range(min(_CHANGING, nodes))
            self._agents = [
                [_agent(run.cluster, number, ready=ready) for number in changing] for ready in (False, True)
            ]
        if serial % _READ_EVERY == 0:
            run.signals = self._signals[serial // _READ_EVERY % _READINGS]
        turn, number = divmod(serial, len(self._agents[0]))
        run.cluster.confirm(self._agents[turn % 2][number], f"node-{number}")
        if self._asks is not None:
            self._asks(run, pod)


def _agent(cluster: Cluster, number: int, *, ready: bool) -> PodInfo:
    made = _placed(number)
    made["status"] = _status(number, ready=ready)
    found = pod_info(cluster, made)
    found.uid = f"placed-{number}"
    return found


# --- what single clauses need ----------------------------------------------------------------------------


def _topologies(cluster: Cluster, nodes: int) -> None:
    resources = [{"name": "cpu", "available": "2"}, {"name": "memory", "available": "16Gi"}]
    zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(2)]
    for number in range(nodes):
        made = {"metadata": {"name": f"node-{number}"}, "zones": zones}
        cluster.set_object(msgspec.convert(made, objects.NodeResourceTopology))


def _capacities(cluster: Cluster, nodes: int) -> None:
    made: list[Any] = [
        msgspec.convert({"metadata": {"name": "fast"}, "provisioner": "csi.example.com"}, objects.StorageClass),
        msgspec.convert(
            {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}, objects.CSIDriver
        ),
    ]
    for number in range(nodes):
        capacity = {
            "metadata": {"name": f"capacity-{number}", "namespace": "storage"},
            "storageClassName": "fast",
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": f"node-{number}"}},
            "capacity": f"{number % 90 + 10}Gi",
        }
        made.append(msgspec.convert(capacity, objects.CSIStorageCapacity))
    for each in made:
        cluster.set_object(each)


def _turn(run: Run, pod: PodInfo) -> object:
    queued = QueuedPod(pod, queued=NOW - 60.0, timestamp=NOW - 60.0)
    assert run.policy is not None
    return run.policy.position(queued, queued.frame(run.cluster, NOW, signals=run.signals))


def _held(run: Run, pod: PodInfo) -> object:
    assert run.policy is not None
    return run.policy.holding(Frame(pod, run.cluster, NOW, signals=run.signals))


def _gang(run: Run, pod: PodInfo) -> object:
    assert run.policy is not None
    frame = Frame(pod, run.cluster, NOW)
    size_of = run.cluster.counters.group_size
    return [requirement.filled(size_of) for requirement in run.policy.gang_requirements(frame)]


def _full(number: int) -> Json:
    made = pod(f"placed-{number}", labels={"app": "low"}, cpu="850m")
    made["status"] = _status(number, ready=True)
    return made


# --- the clauses -----------------------------------------------------------------------------------------

_MINE = "where p.label.tenant == pod.label.tenant"
CLAUSES: tuple[Clause, ...] = (
    Clause("free", "filter node.free.cpu > 1"),  # the reference clause, which the others are compared with
    Clause("pods on the node", f"filter count(p in node.pods {_MINE}) < 100"),
    Clause("ready pods", "filter count(p in node.pods where p.ready) < 200"),
    Clause("starting pods", "filter count(p in node.pods where not p.started and p.running < 10min) < 200"),
    Clause("a ready agent", 'filter any(p in node.pods where p.label.app == "agent" and p.started)'),
    Clause("ready pods of the zone", "score -count(p in zone.pods where p.ready) / 100"),
    Clause("pods of the zone", f"score -count(p in zone.pods {_MINE}) / 100"),
    Clause("requests of the node", "score -sum(p.request.cpu for p in node.pods) / 1core"),
    Clause("requests of the tenant", f"score -sum(p.request.cpu for p in node.pods {_MINE}) / 1core"),
    Clause("requests of the zone", f"score -sum(p.request.cpu for p in zone.pods {_MINE}) / 100core"),
    Clause("requests of the cluster", f"require sum(p.request.cpu for p in cluster.pods {_MINE}) < 1000000"),
    Clause("largest request", "filter max(p.request.cpu for p in node.pods) ?? 0 < 64"),
    Clause("mean request of the zone", f"score -(avg(p.request.cpu for p in zone.pods {_MINE}) ?? 0) / 1core"),
    Clause("tenants of the node", "filter count(distinct p.label.tenant for p in node.pods) < 50"),
    Clause("tenants of the zone", "score -count(distinct p.label.tenant for p in zone.pods)"),
    Clause("free in the cluster", "require sum(n.free.cpu for n in cluster.nodes where n.ready) > 10"),
    Clause("free in the zone", "filter sum(n.free.cpu for n in zone.nodes) > 10"),
    Clause("free in the rack", 'score sum(n.free.cpu for n in domain("rack").nodes where n.ready) / 100core'),
    Clause("fullest of the rack", 'score -(max(n.used_fraction.cpu for n in domain("rack").nodes) ?? 0)'),
    Clause("all images", 'require all(i matches "registry.example.com/.*" for i in pod.images)'),
    Clause("images there", "score count(i in pod.images where i in node.images)"),
    Clause("quantity of a node", "filter (quantity(node.annotation.scratch) ?? 0Gi) > 0Gi"),
    Clause("quantity of a pod", "filter node.free.mem > quantity(pod.annotation.working_set) ?? 1Gi"),
    Clause("duration", "filter (duration(node.annotation.lease) ?? 0s) > 10s"),
    Clause("time", "filter now() - (time(node.annotation.since) ?? 0s) > 0s"),
    Clause("version", 'filter version(node.kernel) ?? version("0") >= version("5.10")'),
    Clause("metric", 'metric usage = promql("cpu_usage")\nscore 100 - usage ?? 50'),
    Clause("metric of the cluster", 'metric price = promql("price") for cluster\nrequire price ?? 0 < 1000'),
    Clause(
        "metric by pod label",
        'metric budget = promql("budget") by tenant as pod.label.tenant\nrequire budget ?? 0 < 1000',
    ),
    Clause("metric by node label", 'metric watts = promql("watts") by rack as node.label.rack\nscore -(watts ?? 0)'),
    Clause("predicted", 'metric usage = promql("cpu_usage")\nscore 100 - predicted(usage, 0.1) ?? 50'),
    Clause(
        "predicted of a rack",
        'metric watts = promql("watts") by rack as node.label.rack\nfilter predicted(watts, 1) ?? 0 < 1000000',
    ),
    Clause("limit", "limit sum(request.cpu) by pod.label.tenant to 1000000"),
    Clause("limit over node", "limit count() by pod.label.tenant to 100 over node"),
    Clause("limit over zone", "limit count() by pod.label.tenant to 1000000 over zone"),
    Clause("limit sum over node", "limit sum(request.cpu) by pod.label.tenant to 100 over node"),
    Clause("limit sum over zone", "limit sum(request.cpu) by pod.label.tenant to 1000000 over zone"),
    Clause("limit of pods", 'limit count() to 100 over node of pods where pod.label.app == "web"'),
    Clause("order by with aging", "order by pod.priority + min(pod.waiting / 10min, 5) desc, pod.queued", asks=_turn),
    Clause("hold if", 'metric price = promql("price") for cluster\nhold if price ?? 0 > 1000', asks=_held),
    Clause("gang with roles", "gang by pod.label.job size 3 with 1 of app=web, 2 of app=db", asks=_gang),
    Clause("spread", "spread by pod.label.tenant over zone"),
    Clause("spread over nodes", "spread by pod.label.tenant"),
    Clause("spread, max skew", "spread by pod.label.tenant over zone max skew 1000"),
    Clause("spread to a target", "spread by pod.label.tenant over lifecycle target spot 70%"),
    Clause("fits_numa", "filter fits_numa(cpu, mem) ?? true", prepare=_topologies),
    Clause("volume_room", 'score volume_room("fast") / 1Gi', prepare=_capacities),
    Clause("model", 'score model("linear.onnx", node.used_fraction.cpu, node.used_fraction.mem)', is_model=True),
    Clause(
        "evict the oldest",
        "preempt if pod.priority >= 10 evict where victim.running > 10min",
        beside="preempt if pod.priority >= 10",
        make_pod=lambda number: pod(f"pod-{number}", cpu="3000m", priority=10),
        preempts=True,
        bounded=False,
    ),
)


def workload_of(clause: Clause) -> Workload:
    """Return the workload of a clause."""
    text = f"{PLAIN}{clause.text}\n"
    return Workload(
        name=clause.name,
        text=clause.text,
        measured=2_000,
        make_pod=clause.make_pod or _pod,
        placed=20_000 if clause.preempts else 2 * NODES,
        make_placed=_full if clause.preempts else _placed,
        make_node=_node,
        policy=lambda: policy_of(text),
        preempts=clause.preempts,
        meanwhile=None if clause.preempts else _Churn(clause.asks),
        finish=clause.prepare,
    )


_LEAST_TURNS = 0.1
"""What the reference clause adds at least, 2.5 µs: less cannot be told from noise."""


def measure_clauses(reference: Reference, *, nodes: int = NODES, only: Sequence[str] = ()) -> list[Cost]:
    """Measure what each clause adds to a decision of the plain policy, or those with these names."""
    with models() as are_models:
        wanted = [each for each in CLAUSES if each.name in only or not only]
        wanted = [each for each in wanted if are_models or not each.is_model]
        plain: dict[str, Measurement] = {}
        for each in (CLAUSES[0], *wanted):
            if each.beside not in plain:
                without = replace(each, text=each.beside, prepare=None, asks=None)
                plain[each.beside] = _measured(without, reference, nodes)
        of_reference = max(_added(_measured(CLAUSES[0], reference, nodes), plain[""]), _LEAST_TURNS)
        found = []
        for each in wanted:
            measured = _measured(each, reference, nodes)
            added = _added(measured, plain[each.beside])
            cpu_us = added * measured.cpu_us / measured.relative
            found.append(
                Cost(each.name, nodes, cpu_us, added, added / of_reference, measured.relative, bounded=each.bounded)
            )
        return found


def _measured(clause: Clause, reference: Reference, nodes: int) -> Measurement:
    """Return the fastest of a few measurements."""
    run = start(workload_of(clause), nodes=nodes)
    at_least = 50 if clause.preempts else 1_000
    return min((measure(run, reference, at_least=at_least) for _ in range(_ROUNDS)), key=lambda each: each.relative)


def _added(measured: Measurement, plain: Measurement) -> float:
    """Return turns of the reference loop."""
    return max(measured.relative - plain.relative, 0.0)


@contextmanager
def models() -> Iterator[bool]:
    """Let policies of this process use the tests' model; yield False if onnxruntime is not installed."""
    if find_spec("onnxruntime") is None:
        yield False
        return
    with TemporaryDirectory() as folder, patch.dict(os.environ, {FOLDER_VARIABLE: folder}):
        shutil.copy(Path(__file__).parents[1] / "extensions/models/linear.onnx", folder)
        install_extensions(["onnx"], stopwatch=time.perf_counter)
        try:
            yield True
        finally:
            install_extensions((), stopwatch=time.perf_counter)
