"""PodDisruptionBudgets in virtual time: an eviction takes a disruption from each; a ready replacement returns it.

What a budget allows at the beginning is what its status says. From then on, only pods that are evicted, or whose node
is removed, and their replacements count: what pods that arrive or end change depends on the replicas of their
controllers, which a simulation does not know.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.objects import PodDisruptionBudget
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.preempt.victims import Budgets


class DisruptionBudgets:
    """Keeps the status of the budgets of one simulated cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Take over what the budgets of a cluster allow now."""
        self._cluster = cluster
        self._allowed = {_key(budget): budget.status.disruptions_allowed for budget in cluster.all(PodDisruptionBudget)}
        """At the beginning."""
        self._missing: Counter[tuple[str, str]] = Counter()
        """Replacements that are not ready yet, by budget."""
        self._awaited: set[str] = set()
        """Their uids."""

    def disrupted(self, pod: PodInfo, replacement: str) -> None:
        """Note that a pod is gone; replacement: the uid of the pod that its controller creates instead."""
        if self._allowed and self._change(pod, 1):
            self._awaited.add(replacement)

    def ready(self, pod: PodInfo) -> None:
        """Note that a pod is ready."""
        if pod.uid in self._awaited:
            self._awaited.remove(pod.uid)
            self._change(pod, -1)

    def _change(self, pod: PodInfo, step: int) -> bool:
        """Count a replacement that is missing (1) or ready (-1); return whether a budget protects it."""
        protecting = list(Budgets(self._cluster).protecting(pod))
        for budget in protecting:
            key = _key(budget)
            self._missing[key] += step
            allowed = max(0, self._allowed[key] - self._missing[key])
            if allowed != budget.status.disruptions_allowed:
                status = msgspec.structs.replace(budget.status, disruptions_allowed=allowed)
                self._cluster.set_object(msgspec.structs.replace(budget, status=status))
        return bool(protecting)


def _key(budget: PodDisruptionBudget) -> tuple[str, str]:
    return budget.metadata.namespace, budget.metadata.name
