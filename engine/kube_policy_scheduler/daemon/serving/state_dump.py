"""What the scheduler believes, for a person who looks for a fault: places, assumed pods, nominations, and a recount.

As kube-scheduler's cache dumper and comparer on SIGUSR2: what is kept in columns and counters is added up again from
the pods themselves, and every difference is named. In a scheduler without faults there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.sum_column import exact_sum
from kube_policy_scheduler.daemon.observing.live_metrics import ShardState
from kube_policy_scheduler.framework.invariants import MOST_WHOLE, checks
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, SchedulingQueue
from kube_policy_scheduler.times import Steady

MOST_PODS = 1000
"""Pods named for each place in the queue, and of those that are assumed, nominated, or on unknown nodes; `queue` and
`columns` tell how many there are."""
_AT_ONCE = 100
"""Pending pods that are looked at in one step."""
MOST_DIFFERENCES = 100


class State(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The scheduler's state as a document."""

    at: float
    """Unix seconds."""
    queue: dict[str, int]
    """Pods by place."""
    pending: dict[str, list[dict[str, Any]]]
    """By place: the first pods of it, and what is known of each."""
    assumed: dict[str, str]
    """Node by `namespace/name`, of pods that were decided and whose binding the watch has not shown."""
    nominated: dict[str, list[str]]
    """Pods by the node on which room is kept for them."""
    on_unknown_nodes: list[str]
    """Pods on nodes that are not known."""
    columns: dict[str, Any]
    """How many nodes and pods there are, and the sums of the columns."""
    sharing: ShardState | None
    """This replica's part of the work; None where one replica does it all."""
    differences: list[str] | None
    """Where a recount comes to another result than the columns; empty in a scheduler without faults. None: not asked
    for."""


def dump_in_steps(
    cluster: Cluster,
    queue: SchedulingQueue,
    *,
    assumed: Mapping[str, str],
    now: Steady,
    leading: bool,
    recount: bool,
    shard: ShardState | None = None,
    is_under_way: Callable[[str], bool] = lambda uid: True,
) -> Generator[None, None, State]:
    """Return the state of now; between two steps anything may happen.

    A recount of 150,000 pods is half a second of work.

    Args:
        cluster: what decisions read.
        queue: pods that wait.
        assumed: node by uid.
        now: the time.
        leading: whether this replica decides.
        recount: whether to add everything up again.
        shard: of the work that replicas share.
        is_under_way: whether somebody is at a pod in flight, by uid.
    """
    nodes = cluster.nodes
    pending: dict[str, list[dict[str, Any]]] = {place.value: [] for place in Place}
    counts: Counter[Place] = Counter()
    for at, queued in enumerate(list(queue)):
        if at % _AT_ONCE == _AT_ONCE - 1:
            yield
        counts[queued.place] += 1
        named = pending[queued.place.value]
        if len(named) < MOST_PODS:
            known: dict[str, Any] = {
                "pod": queued.pod.key,
                "uid": queued.pod.uid,
                "priority": queued.pod.priority,
                "attempts": queued.attempts,
                "state": queued.state.text,
                "history": [state.text for state in queued.history or ()],
                "queuedSeconds": round(now - queued.queued, 3),
                "rejectors": sorted(queued.rejectors),
                "gatedBecause": queued.gated_because,
                "waitsBehindAll": "deciding it took too long more than once" if queued.waits_last else "",
                "waitsFor": None if queued.wake_events is None else sorted(event.value for event in queued.wake_events),
            }
            named.append({name: value for name, value in known.items() if value not in ([], "", None)})
    resources = ("cpu", "memory", "ephemeral-storage")
    differences: list[str] | None = None
    if recount:
        differences = queue.misplaced() if len(queue) <= MOST_WHOLE else []
        more = 0
        for found in checks(cluster, queue, assumed, is_under_way=is_under_way):
            differences += found
            more += len(differences[MOST_DIFFERENCES:])
            del differences[MOST_DIFFERENCES:]
            yield
        if more:
            differences.append(f"and {more} more")
    return State(
        at=now,
        queue={place.value: counts[place] for place in Place},
        pending=pending,
        assumed={
            cluster.pods[uid].key if uid in cluster.pods else uid: node
            for uid, node in islice(assumed.items(), MOST_PODS)
        },
        nominated={
            node: sorted(pod.key for pod in islice(pods.values(), MOST_PODS))
            for node, pods in islice(cluster.nominated.items(), MOST_PODS)
            if pods
        },
        on_unknown_nodes=sorted(pod.key for pod in islice(cluster.on_unknown_nodes.values(), MOST_PODS)),
        columns={
            "leading": leading,
            "nodes": nodes.size,
            "pods": len(cluster.pods),
            "assumed": len(assumed),
            "onUnknownNodes": len(cluster.on_unknown_nodes),
            "templates": len(cluster.templates),
            "requested": {resource: exact_sum(nodes.requested(resource)) for resource in resources},
            "allocatable": {resource: exact_sum(nodes.allocatable(resource)) for resource in resources},
        },
        sharing=shard,
        differences=differences,
    )
