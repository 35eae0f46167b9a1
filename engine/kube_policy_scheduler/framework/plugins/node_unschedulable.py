"""NodeUnschedulable: cordoned nodes are only for pods that tolerate the cordon's taint."""

from __future__ import annotations

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.taints import CORDONED, tolerated
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter


class NodeUnschedulable(Filter):
    """Rejects nodes with `spec.unschedulable`."""

    name = "NodeUnschedulable"
    default = Default(1)
    reads = Reads.SPEC
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT})
    reason = "node(s) were unschedulable"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Check whether the pod tolerates the cordon."""
        template = frame.pod.template
        known: Ready | None = template.shape.get(self.name)
        if known is None:
            tolerant = tolerated(template.spec.tolerations or (), CORDONED)
            known = template.shape[self.name] = Ready(tolerant, key=tolerant)
        return known

    def filter(self, frame: Frame, state: bool) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        if state:
            return np.ones(frame.size, np.bool_)
        return ~frame.cluster.nodes.unschedulable[frame.rows]
