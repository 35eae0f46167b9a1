"""How a decision, memory and the start grow with nodes, from 1,000 to 1,000,000.

`python -m tests.benchmarks.scale.growth MOST SECONDS` is the process that grows; it prints a line of JSON for
each size.
One cluster grows from size to size, with a pod on each node. It stops where memory or time would not suffice.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import psutil  # type: ignore[import-untyped]

from kube_policy_scheduler.adapters.kube.decoding import ObjectDecoder
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.frame import Frame
from tests.benchmarks.decisions import NOW, accelerated_cycle, quiet
from tests.benchmarks.manifests import pod_info
from tests.benchmarks.scale import recorded
from tests.benchmarks.scale.loads import LOADS
from tests.benchmarks.scale.site import Load, resident_mb
from tests.benchmarks.workloads import named
from tests.children import child

SIZES = (1_000, 5_000, 20_000, 50_000, 130_000, 300_000, 1_000_000)
_PAGE = 500
_DECISIONS = 300
_WARM_UP = 100
"""Decisions before them: two of each template, as in the other rows."""
_EVERY_CHANGE = 20
"""Decisions between two static changes of a node."""
_SPARE = 0.7
"""Of the memory that is available at the start: what the cluster may take."""
_SPREAD = Load("zone spread", "", 0, 0, named("TopologySpreading").make_pod)
_CURVES = (LOADS[0], _SPREAD, *(load for load in LOADS if load.name in ("own", "sums")))


@dataclass(frozen=True)
class Size:
    """What was measured with so many nodes."""

    nodes: int
    memory_mb: float
    build_seconds: float
    """CPU time from bytes to the cluster, since the size before."""
    cpu_us: dict[str, float]
    """Of a decision with its placement, by curve; a static change before each twentieth."""
    stopped: str = ""
    """Why there is no larger one, "" where there is or where this is the largest asked for."""


def measure_growth(*, most: int, seconds: float, say: Callable[[str], None]) -> Iterator[Size]:
    """Grow a cluster in a process of its own, and yield each size."""
    command = [sys.executable, "-m", "tests.benchmarks.scale.growth", str(most), str(seconds)]
    say("growth")
    with child(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for text in process.stdout:
                yield Size(**json.loads(text))
                say("growth: the next size")
        finally:
            process.terminate()


def _grow(most: int, seconds: float) -> Iterator[Size]:
    ends = time.monotonic() + seconds
    allowed_mb = _SPARE * psutil.virtual_memory().available / 1e6
    cluster, cycle = Cluster(), accelerated_cycle()
    sizes = [size for size in SIZES if size <= most] or [most]
    gc.disable()
    for position, size in enumerate(sizes):
        began_at, began = time.monotonic(), time.process_time()
        before = cluster.nodes.size
        spent = _fill(cluster, before, size)
        memory = resident_mb()
        found = Size(size, memory, spent, {load.name: _decision_us(cluster, cycle, load) for load in _CURVES})
        following = sizes[position + 1] if position + 1 < len(sizes) else None
        if following is not None:
            needed_mb = memory * following / size
            needed_seconds = (time.monotonic() - began_at) * (following - size) / (size - before)
            stopped = (
                f"{following:,} nodes would take about {needed_mb / 1e3:.0f} GB; {allowed_mb / 1e3:.0f} GB may be used"
                if needed_mb > allowed_mb and size >= SIZES[3]
                else f"{following:,} nodes would take about {needed_seconds:.0f} s more"
                if time.monotonic() + needed_seconds > ends and size >= SIZES[3]
                else ""
            )
            if stopped:
                yield Size(**asdict(found) | {"stopped": stopped})
                return
        yield found
        assert time.process_time() > began


def _fill(cluster: Cluster, first: int, size: int) -> float:
    """Add nodes and pods from their bytes; return the CPU seconds of that, without making the bytes."""
    nodes, pods = ObjectDecoder(objects.Node), ObjectDecoder(objects.Pod)
    spent = 0.0
    for start in range(first, size, _PAGE):
        numbers = range(start, min(start + _PAGE, size))
        node_page = recorded.page("Node", map(recorded.node, numbers), version=1)
        bound = (recorded.pod(number, node_name=f"node-{number}") for number in numbers)
        pod_page = recorded.page("Pod", bound, version=1)
        began = time.process_time()
        cluster.add_nodes([cluster.nodes.interpret(node) for node in nodes.page(node_page).objects])
        cluster.place_many([cluster.templates.pod(pod) for pod in pods.page(pod_page).objects])
        spent += time.process_time() - began
    return spent


def _decision_us(cluster: Cluster, cycle: Cycle, load: Load) -> float:
    profile = load.profile()
    pods: list[PodInfo] = [pod_info(cluster, load.make_pod(number)) for number in range(_WARM_UP + _DECISIONS)]
    decoder = ObjectDecoder(objects.Node)
    changes = [
        recorded.line("MODIFIED", recorded.node(number * 7, state=number % recorded.NODE_STATES, version=2 + number))
        for number in range(len(pods) // _EVERY_CHANGE)
    ]
    spent = 0.0
    with quiet():
        for number, pod in enumerate(pods):
            began = time.process_time()
            if number % _EVERY_CHANGE == _EVERY_CHANGE - 1:
                for event in decoder.events(changes[number // _EVERY_CHANGE]):
                    cluster.set_node(event.object)  # type: ignore[union-attr, arg-type]
            decision = cycle.decide(Frame(pod, cluster, NOW), profile)
            assert decision.host is not None, decision.message
            cluster.place(pod, decision.host)
            spent += time.process_time() - began if number >= _WARM_UP else 0.0
    for pod in pods:
        cluster.displace(pod.uid)
    return spent / _DECISIONS * 1e6


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        for measured in _grow(int(sys.argv[1]), float(sys.argv[2])):
            print(json.dumps(asdict(measured)), flush=True)
