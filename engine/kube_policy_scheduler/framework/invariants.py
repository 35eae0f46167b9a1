"""What must always hold between pods and columns: checked by a recount, from the pods alone.

Slow and simple on purpose. Tests run all of it after every step; the daemon a few nodes and pods at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import MOST_NONZERO
from kube_policy_scheduler.framework.queue.pod_transitions import validate
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.quantities.quantity import MAX_INT64

MOST_WHOLE = 5_000
"""Up to this number of pending pods a whole queue is checked while the scheduler runs: about 2 ms."""


def violations(
    cluster: Cluster,
    queue: SchedulingQueue,
    assumed: Mapping[str, str],
    *,
    is_under_way: Callable[[str], bool] = lambda uid: True,
) -> list[str]:
    """Return the violations; empty if there are none.

    Args:
        cluster: whose columns are checked against its pods.
        queue: the pending pods.
        assumed: node by uid, of pods whose binding is under way or not yet shown by the watch.
        is_under_way: whether a task handles a pod in flight, by uid.
    """
    found = checks(cluster, queue, assumed, is_under_way=is_under_way, names=_differing(cluster))
    return [*queue.misplaced(), *(problem for problems in found for problem in problems)]


def checks(
    cluster: Cluster,
    queue: SchedulingQueue,
    assumed: Mapping[str, str],
    *,
    is_under_way: Callable[[str], bool] = lambda uid: True,
    names: Iterable[str] | None = None,
) -> Iterator[Iterable[str]]:
    """Yield the violations of one node or pod after the other; the cluster may change in between.

    names: the nodes whose columns are compared; None: all.
    """
    nodes = cluster.nodes
    if not _is_dense(cluster):
        yield [f"rows are not dense: {nodes.rows}"]
        return
    for name in list(nodes.rows) if names is None else names:
        if name in nodes.rows:
            yield node_violations(cluster, name)
    for queued in list(queue):
        if queue.get(queued.pod.uid) is queued:
            yield pod_violations(cluster, queued, assumed)
            if is_lost(queued, is_under_way):
                yield [f"pod {queued.pod.key} is in flight, and no task handles it"]
    for uid, node_name in list(assumed.items()):
        if assumed.get(uid) == node_name:
            yield _assumed(cluster, uid, node_name)
    for node_name in list(cluster.on_node):
        yield _kept(cluster, node_name)
    for uid in list(cluster.pods):
        if uid in cluster.pods:
            yield _counted(cluster, uid)
    for uid in list(cluster.on_unknown_nodes):
        if uid in cluster.on_unknown_nodes and uid not in cluster.pods:
            yield [f"pod {uid} is said to be on no known node, and is not known itself"]


def _is_dense(cluster: Cluster) -> bool:
    return sorted(cluster.nodes.rows.values()) == list(range(cluster.nodes.size))


def _differing(cluster: Cluster) -> list[str]:
    """Return the nodes for which any column differs from a recount of all nodes together: `node_violations` says how.

    With many nodes that takes a fraction of the time that it takes to look at one after the other.
    """
    nodes = cluster.nodes
    if not _is_dense(cluster):
        return []
    size, resources = nodes.size, nodes.resources()
    requested = {resource: [0] * size for resource in resources}
    offered = {resource: [0] * size for resource in resources}
    cpu, memory, number = [0] * size, [0] * size, [0] * size
    by_priority: dict[int, list[int]] = {}
    differing = set[int]()
    for name, row in nodes.rows.items():
        for resource, amount in nodes.infos[row].allocatable.items():
            if resource in offered:
                offered[resource][row] = amount
            else:
                differing.add(row)
        for pod in cluster.pods_on(name).values():
            for resource, amount in pod.demand.requests.items():
                if resource in requested:
                    requested[resource][row] += amount
            cpu[row] += pod.demand.nonzero_cpu_millis
            memory[row] += pod.demand.nonzero_memory_bytes
            number[row] += 1
            if pod.priority not in by_priority:
                by_priority[pod.priority] = [0] * size
            by_priority[pod.priority][row] += 1
    compared = [
        *((nodes.requested(resource), totals, MAX_INT64) for resource, totals in requested.items()),
        *((nodes.allocatable(resource), totals, MAX_INT64) for resource, totals in offered.items()),
        (nodes.nonzero_cpu, cpu, MOST_NONZERO),
        (nodes.nonzero_memory, memory, MOST_NONZERO),
        (nodes.pod_count, number, MAX_INT64),
    ]
    below = [0] * size
    for priority in sorted(by_priority):
        below = [total + more for total, more in zip(below, by_priority[priority], strict=True)]
        compared.append((cluster.priorities.below(priority + 1, "pods", size), below, MAX_INT64))
    for column, totals, most in compared:
        shown = column.tolist()
        if shown != totals:
            differing.update(row for row in range(size) if shown[row] != min(totals[row], most))
    return [name for name, row in nodes.rows.items() if row in differing]


def node_violations(cluster: Cluster, name: str) -> Iterator[str]:
    """Compare every dynamic column of a node in the table with a recount."""
    nodes = cluster.nodes
    row = nodes.rows[name]
    pods = cluster.pods_on(name).values()
    requested: Counter[str] = Counter()
    for pod in pods:
        requested.update(pod.demand.requests)
    for resource in nodes.resources():
        column, total = int(nodes.requested(resource)[row]), min(requested[resource], MAX_INT64)
        if column != total:
            yield f"{name}: requested {resource} is {column}, the pods there request {total}"
    cpu = min(sum(pod.demand.nonzero_cpu_millis for pod in pods), MOST_NONZERO)
    memory = min(sum(pod.demand.nonzero_memory_bytes for pod in pods), MOST_NONZERO)
    found = (int(nodes.nonzero_cpu[row]), int(nodes.nonzero_memory[row]), int(nodes.pod_count[row]))
    if found != (cpu, memory, len(pods)):
        yield f"{name}: (nonzero cpu, nonzero memory, pods) is {found}, expected {(cpu, memory, len(pods))}"
    for resource in nodes.resources():
        column = int(nodes.allocatable(resource)[row])
        offered = nodes.infos[row].allocatable.get(resource, 0)
        if column != offered:
            yield f"{name}: allocatable {resource} is {column}, the node offers {offered}"
    for resource in nodes.infos[row].allocatable:
        if resource not in nodes.counted:
            yield f"{name}: offers {resource}, for which there is no column"
    by_priority = Counter(pod.priority for pod in pods)
    for priority in by_priority:
        column = int(cluster.priorities.below(priority + 1, "pods", nodes.size)[row])
        expected = sum(number for other, number in by_priority.items() if other <= priority)
        if column != expected:
            yield f"{name}: {column} pods are said to have priority {priority} or less, {expected} have"


def pod_violations(cluster: Cluster, queued: QueuedPod, assumed: Mapping[str, str]) -> Iterator[str]:
    """Check the state of a pending pod: it counts on a node only while it is being bound, or waits for its group."""
    uid = queued.pod.uid
    return validate(queued, node_name=cluster.node_of(uid), is_assumed=uid in assumed)


def is_lost(queued: QueuedPod, is_under_way: Callable[[str], bool]) -> bool:
    """Return whether a pod is in flight without a task that handles it: it would stay in flight forever."""
    return queued.place is Place.IN_FLIGHT and not is_under_way(queued.pod.uid)


def _assumed(cluster: Cluster, uid: str, node_name: str) -> Iterator[str]:
    if cluster.node_of(uid) != node_name:
        yield f"pod {uid} is assumed on {node_name}, but counts on {cluster.node_of(uid)}"


def _kept(cluster: Cluster, node_name: str) -> Iterator[str]:
    """Check that the pods kept on a node are known and count there; so none is kept on two."""
    for uid in cluster.on_node.get(node_name, ()):
        if uid not in cluster.pods:
            yield f"pod {uid} is kept on {node_name}, and is not known"
        elif cluster.node_of(uid) != node_name:
            yield f"pod {uid} is kept on {node_name}, but counts on {cluster.node_of(uid)}"


def _counted(cluster: Cluster, uid: str) -> Iterator[str]:
    """Check that a known pod is kept on its node, and is among those on unknown nodes if the table lacks it."""
    node_name = cluster.node_of(uid)
    if node_name is None or uid not in cluster.on_node.get(node_name, ()):
        yield f"pod {uid} counts on {node_name}, and is not kept there"
    if (uid in cluster.on_unknown_nodes) == (node_name in cluster.nodes.rows):
        said = "is" if uid in cluster.on_unknown_nodes else "is not"
        yield f"pod {uid} counts on {node_name} and {said} said to be on no known node"
