"""Memory per 1,000 nodes and per 1,000 pods: a separate process is filled, and reports its memory.

`python -m tests.benchmarks.memory NODES PODS` is that process; it prints JSON.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import dataclass

import psutil

from kube_policy_scheduler.cluster.cluster import Cluster
from tests.benchmarks.manifests import add_node, node, pod, pod_info
from tests.benchmarks.workloads import ZONES

_MB = 1e6


@dataclass(frozen=True)
class Memory:
    """Resident memory, in megabytes."""

    nodes: int
    pods: int
    empty_mb: float
    """The interpreter with everything imported."""
    per_1000_nodes_mb: float
    per_1000_pods_mb: float
    """Placed pods of 50 workloads."""
    per_1000_templates_mb: float
    """What pods cost more where each has a template of its own."""


def measure_memory(*, nodes: int, pods: int) -> Memory:
    """Fill a new process and return what it holds."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", str(nodes), str(pods)]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Memory(nodes, pods, **answer)


def _resident() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / _MB


def _fill(nodes: int, pods: int) -> dict[str, float]:
    empty = _resident()
    cluster = Cluster()
    for number in range(nodes):
        add_node(cluster, node(f"node-{number}", zone=ZONES[number % 3]))
    with_nodes = _resident()
    for number in range(pods):
        info = pod_info(cluster, pod(f"pod-{number}", labels={"app": f"app-{number % 50}"}))
        cluster.place(info, f"node-{number % nodes}")
    with_pods = _resident()
    own = min(pods, 4_000)
    for number in range(own):
        info = pod_info(cluster, pod(f"own-{number}", labels={"app": "own", "index": str(number)}))
        cluster.place(info, f"node-{number % nodes}")
    per_pod = (with_pods - with_nodes) / pods
    return {
        "empty_mb": empty,
        "per_1000_nodes_mb": (with_nodes - empty) / nodes * 1000,
        "per_1000_pods_mb": per_pod * 1000,
        "per_1000_templates_mb": ((_resident() - with_pods) / own - per_pod) * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(_fill(int(sys.argv[1]), int(sys.argv[2]))))
