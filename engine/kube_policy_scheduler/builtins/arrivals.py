"""Pods that came to a node after a metric was last sampled: what the metric does not know yet."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import FloatArray, NodeTable

_STARTED_WITHIN_SECONDS = 1.0
"""`status.startTime` is cut to whole seconds: a pod that started just after the sample says that it was just before."""


class _Arrivals:
    """Arrivals since one moment, counted once and then kept up to date from the node table's journal."""

    def __init__(self, cluster: Cluster, since: float) -> None:
        self.since = since
        self.version = cluster.nodes.version
        self.counts: FloatArray = np.zeros(cluster.nodes.size)
        for row, name in enumerate(cluster.nodes.names):
            self.counts[row] = self._on(cluster, name)
        self._position = cluster.nodes.journal_end

    def _on(self, cluster: Cluster, name: str) -> int:
        # a pod that no kubelet has started yet uses nothing, however long ago it was bound
        since = self.since - _STARTED_WITHIN_SECONDS
        return sum(1 for pod in cluster.pods_on(name).values() if pod.started is None or pod.started > since)

    def refresh(self, cluster: Cluster) -> bool:
        """Count again on the nodes that pods came to or left; False where too much has changed."""
        changed = cluster.nodes.changed_since(self._position)
        if changed is None:
            return False
        self._position = cluster.nodes.journal_end
        for row in set(changed):
            if row >= cluster.nodes.size:
                return False
            self.counts[row] = self._on(cluster, cluster.nodes.names[row])
        return True


_KNOWN: WeakKeyDictionary[NodeTable, dict[float, _Arrivals]] = WeakKeyDictionary()
_MOMENTS = 8
"""Sample times remembered: one per metric that policies predict from."""


def arrivals(cluster: Cluster, *, since: float) -> FloatArray:
    """Return `float64[nodes]`: pods on each node that started after a moment (unix seconds), or not at all yet."""
    known = _KNOWN.setdefault(cluster.nodes, {})
    found = known.get(since)
    if found is None or found.version != cluster.nodes.version or not found.refresh(cluster):
        known.pop(since, None)
        while len(known) >= _MOMENTS:
            del known[min(known)]
        found = known[since] = _Arrivals(cluster, since)
    return found.counts
