"""Counts pods of queues that were evicted, by the rule that allowed it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.kept_views import KeptView
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_overview import others
from kube_policy_scheduler.framework.bounded_counts import BoundedCounts
from kube_policy_scheduler.framework.preempt.preemption import Preemption

MOST_QUEUES_COUNTED = 1000
"""Queues by a key for which evicted pods are counted: there can be as many as the texts in labels."""
MOST_KNOWN = 4096


class EvictionRule(Enum):
    """Why a pod of a queue was evicted, as the metric says it."""

    GUARANTEE = "guarantee"
    """`reclaim`: a queue got back what is guaranteed to it."""
    SHARE = "share"
    """`reclaim fair`: a queue with a smaller share got the room."""
    PRIORITY = "priority"
    """A pod of higher priority got the room."""
    MAX = "max"
    """`reclaim above max`: the queue used more than its `max`."""


def rule_of(found: Preemption) -> EvictionRule:
    """Return why victims of a pod are evicted."""
    if not found.reclaims:
        return EvictionRule.PRIORITY
    return EvictionRule.SHARE if found.sharing else EvictionRule.GUARANTEE


class QueueEvictions:
    """The counts since the start."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin at 0. cluster: with the queues."""
        self._cluster = cluster
        self.reclaimed = BoundedCounts(MOST_QUEUES_COUNTED)
        """By queue: pods that were evicted for pods of other queues."""
        self._by_rule = {rule: BoundedCounts(MOST_QUEUES_COUNTED) for rule in EvictionRule}
        self._known: KeptView[str, None] = KeptView(most=MOST_KNOWN)
        """The uids of the last ones: several pods may evict one victim before the watch shows that it ends."""

    def by_rule(self) -> Mapping[str, Mapping[str, int]]:
        """Return by rule and queue how many pods were evicted."""
        return {rule.value: counts for rule, counts in self._by_rule.items()}

    def note(self, victim: PodInfo, rule: EvictionRule, *, by: PodInfo | None = None) -> None:
        """Count a pod that was evicted. by: for which pod; None: for none."""
        usage = self._cluster.quota_usage
        queue = usage.quota_of(victim.template) if usage is not None else None
        if usage is None or queue is None or victim.uid in self._known:
            return
        self._known.set(victim.uid, None)
        declared = usage.declared(victim.template)
        rest = None if declared == queue.name else others(declared)
        self._by_rule[rule].add(queue.name, others=rest)
        if by is not None and queue is not usage.quota_of(by.template):
            self.reclaimed.add(queue.name, others=rest)
