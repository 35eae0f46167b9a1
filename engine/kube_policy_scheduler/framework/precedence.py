"""Which pending pods, for which preemption made room, come before another one."""

from __future__ import annotations

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.queue_quota import has_precedence


def comes_before(cluster: Cluster, other: PodInfo, pod: PodInfo) -> bool:
    """Return whether a nominated pod keeps what it is to get from another one: as one with a node of its own would."""
    if cluster.keeps_nominated:
        return True
    by_quota = has_precedence(cluster, other, pod) if cluster.queue_usage is not None else None
    return other.priority >= pod.priority if by_quota is None else by_quota
