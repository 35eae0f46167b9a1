"""Bounds by resources alone: what no scheduler can beat, whatever its rules. Pure arithmetic on columns.

Shapes: `int64[nodes]` in column units (cpu in millicores, others in units).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.device_room import provided_kind

SLOTS = "pods"
"""One of each pod's requests: a place among the pods that a node takes."""


def requests_of(pod: PodInfo) -> Mapping[str, int]:
    """Return what a pod that is to be placed takes, with its place on the node."""
    return {**pod.template.requests, SLOTS: 1}


def total(pods: Iterable[PodInfo]) -> Counter[str]:
    """Return what pods take together."""
    found: Counter[str] = Counter()
    for pod in pods:
        found.update(requests_of(pod))
    return found


_NOT_COUNTED = 2**40
"""What is free of a resource that nodes do not count: more than pods ask for, and sums of it stay exact."""


def free(cluster: Cluster, resource: str, usable: BoolArray) -> IntArray:
    """Return `int64[nodes]`: what is free of a resource; 0 where nodes are not usable or more than full.

    A resource that no node must offer, because it is ignored or devices provide it, is never short.
    """
    nodes = cluster.nodes
    if resource in cluster.ignored_resources or provided_kind(cluster, resource) is not None:
        return np.where(usable, _NOT_COUNTED, 0)
    taken = nodes.pod_count if resource == SLOTS else nodes.requested(resource)
    result: IntArray = np.where(usable, np.maximum(nodes.allocatable(resource) - taken, 0), 0)
    return result


def most_copies(cluster: Cluster, pod: PodInfo, usable: BoolArray) -> int:
    """Return how many copies of a pod the free resources suffice for, node by node.

    usable: `bool[nodes]`, those on which it may be.
    """
    copies = None
    for resource, amount in requests_of(pod).items():
        if amount > 0:
            each = free(cluster, resource, usable) // amount
            copies = each if copies is None else np.minimum(copies, each)
    return int(copies.sum()) if copies is not None else 0


def least_unplaced(cluster: Cluster, pods: Sequence[PodInfo], usable: BoolArray) -> int:
    """Return how many of some pods at least have no room: the smallest first, each resource on its own.

    usable: `bool[nodes]`, those on which some of them may be.
    """
    least = 0
    for resource in {name for pod in pods for name in requests_of(pod)}:
        room = int(free(cluster, resource, usable).sum())
        amounts = np.sort(np.array([requests_of(pod).get(resource, 0) for pod in pods], np.float64))
        least = max(least, len(pods) - int(np.searchsorted(np.cumsum(amounts), room, side="right")))
    return least


def least_nodes(pods: Sequence[PodInfo], offered: Mapping[str, int]) -> int:
    """Return how many nodes that offer this much some pods need at least.

    Each resource on its own, by the bound L2 of Martello and Toth (Knapsack Problems, 1990, 8.3): pods that take
    more than half of a node need one each, and what these leave takes only so much of the others.
    """
    least = 1 if pods else 0
    for resource, amount in total(pods).items():
        room = offered.get(resource, 0)
        if amount > 0 and room > 0:
            least = max(least, _bins([requests_of(pod).get(resource, 0) for pod in pods], room))
    return least


def _bins(sizes: Sequence[int], room: int) -> int:
    """Return how many bins of a size some items need at least: the bound L2."""
    sizes = sorted(size for size in sizes if size > 0)
    sums = [0, *accumulate(sizes)]
    half, count = bisect_right(sizes, room // 2), len(sizes)
    least = -(-sums[count] // room)
    for small in sorted({0, *sizes[:half]}):  # items smaller than this are left out
        medium = max(half, bisect_right(sizes, room - small))
        alone = count - medium  # nothing that is not left out fits beside them
        first = bisect_left(sizes, small)
        spare = (medium - half) * room - (sums[medium] - sums[half])
        rest = max(0, sums[half] - sums[first] - spare)
        least = max(least, alone + (medium - half) + -(-rest // room))
    return least


def most_removable(
    cluster: Cluster, sizes: Mapping[str, Mapping[str, int]], need: Mapping[str, int], usable: BoolArray
) -> int:
    """Return how many of some nodes can go at most while the others have room for what moves.

    Args:
        cluster: as it is.
        usable: `bool[nodes]`, those on which some of what moves may be.
        sizes: by the name of each node that may go: what it offers to pods that can move.
        need: what the pods that can move take on these nodes, by resource.
    """
    most = len(sizes)
    rows = cluster.nodes.rows
    for resource in need:
        elsewhere = free(cluster, resource, usable)
        elsewhere[[rows[name] for name in sizes]] = 0
        spare = int(elsewhere.sum()) + sum(size.get(resource, 0) for size in sizes.values()) - need[resource]
        smallest = np.sort(np.array([size.get(resource, 0) for size in sizes.values()], np.float64))
        most = min(most, int(np.searchsorted(np.cumsum(smallest), spare, side="right")))
    return most
