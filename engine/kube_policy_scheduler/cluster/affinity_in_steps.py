"""What the pod affinity of very large pods says, found in steps: of a pod that is decided, and of those on nodes."""

from __future__ import annotations

from kube_policy_scheduler.cluster.affinity import pod_affinity
from kube_policy_scheduler.cluster.counters import PodCounters
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pod_sets import PodSet
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.cluster.steps import every

_READ_AT_ONCE = 512
"""Terms: 6 ms."""


def make_affinity(template: PodTemplate, nodes: NodeTable, counters: PodCounters) -> bool:
    """Find a part of what terms of a template, and those of placed pods, select; return whether all is found.

    Between two calls anything may happen to pods and nodes.
    """
    affinity = pod_affinity(template)
    large: list[PodSet] = []
    if affinity is not None and affinity.is_large:
        if affinity.sets is None and not nodes.under_way.go_on(
            affinity, lambda: every(_READ_AT_ONCE, affinity.asked())
        ):
            return False
        assert affinity.sets is not None
        for keys, pods in affinity.sets.large:
            if any(nodes.known_label(key) is not None for key in keys):
                large.append(pods)
    return counters.make_ready(template, large)
