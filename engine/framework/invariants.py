"""What must always hold between pods and columns: found by counting again, from the pods alone.

Slow and plain on purpose. Tests run all of it after every step; the daemon a few nodes and pods at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from engine.cluster.cluster import Cluster
from engine.framework.queue import Place, QueuedPod, SchedulingQueue

_WITH_A_PLACE = (Place.IN_FLIGHT, Place.PERMIT)


def violations(cluster: Cluster, queue: SchedulingQueue, assumed: Mapping[str, str]) -> list[str]:
    """Return what is wrong; nothing if all is well.

    Args:
        cluster: whose columns are checked against its pods.
        queue: the pending pods.
        assumed: node by uid, of pods whose binding is under way or not yet shown by the watch.
    """
    nodes = cluster.nodes
    if sorted(nodes.rows.values()) != list(range(nodes.size)):
        return [f"rows are not dense: {nodes.rows}"]
    return [
        *(problem for name in nodes.rows for problem in node_violations(cluster, name)),
        *(problem for queued in queue for problem in pod_violations(cluster, queued, assumed)),
        *queue.misplaced(),
        *_places(cluster, assumed),
    ]


def node_violations(cluster: Cluster, name: str) -> Iterator[str]:
    """Compare every dynamic column of a node in the table with a recount."""
    nodes = cluster.nodes
    row = nodes.rows[name]
    pods = cluster.pods_on(name).values()
    requested: Counter[str] = Counter()
    for pod in pods:
        requested.update(pod.demand.requests)
    for resource in {*nodes.resources(), *requested}:
        column = int(nodes.requested(resource)[row])
        if column != requested[resource]:
            yield f"{name}: requested {resource} is {column}, the pods there request {requested[resource]}"
    cpu = sum(pod.demand.nonzero_cpu_millis for pod in pods)
    memory = sum(pod.demand.nonzero_memory_bytes for pod in pods)
    found = (int(nodes.nonzero_cpu[row]), int(nodes.nonzero_memory[row]), int(nodes.pod_count[row]))
    if found != (cpu, memory, len(pods)):
        yield f"{name}: (nonzero cpu, nonzero memory, pods) is {found}, expected {(cpu, memory, len(pods))}"
    for resource in nodes.resources():
        column = int(nodes.allocatable(resource)[row])
        offered = nodes.infos[row].allocatable.get(resource, 0)
        if column != offered:
            yield f"{name}: allocatable {resource} is {column}, the node offers {offered}"


def pod_violations(cluster: Cluster, queued: QueuedPod, assumed: Mapping[str, str]) -> Iterator[str]:
    """Check that a pending pod counts on a node only while it is being bound, or waits there for its group."""
    uid = queued.pod.uid
    placed = cluster.node_of(uid)
    if queued.place is Place.PERMIT and uid not in assumed:
        yield f"pod {queued.pod.key} waits for its group and holds no place"
    if placed is not None and (queued.place not in _WITH_A_PLACE or uid not in assumed):
        yield f"pod {queued.pod.key} waits ({queued.place.value}) and counts on {placed}"


def _places(cluster: Cluster, assumed: Mapping[str, str]) -> Iterator[str]:
    """Check that every pod counts in one place only."""
    for uid, node_name in assumed.items():
        if cluster.node_of(uid) != node_name:
            yield f"pod {uid} is assumed on {node_name}, but counts on {cluster.node_of(uid)}"
    total: Counter[str] = Counter()
    for node_name, pods in cluster.on_node.items():
        for uid in pods:
            total[uid] += 1
            if cluster.node_of(uid) != node_name:
                yield f"pod {uid} is kept on {node_name}, but counts on {cluster.node_of(uid)}"
    for uid, times in total.items():
        if times > 1:
            yield f"pod {uid} is on {times} nodes"
    if cluster.stranded.keys() != {uid for uid in cluster.pods if cluster.node_of(uid) not in cluster.nodes.rows}:
        yield f"pods known to be on no known node: {sorted(cluster.stranded)}"
    if total.keys() != cluster.pods.keys():
        yield f"pods known and pods on nodes differ by {sorted(total.keys() ^ cluster.pods.keys())}"
