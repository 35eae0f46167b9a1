"""NodeName: a pod that names its node fits only there.

Such a pod reaches no scheduler in practice, as a pod with `spec.nodeName` counts as bound.
"""

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.cluster.node_selectors import NAME_FIELD, FieldTest
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, Default, PreFilterResult, Reads, Ready
from kube_policy_scheduler.framework.plugins.base import Filter


class NodeName(Filter):
    """Rejects nodes with another name than the pod's `spec.nodeName`."""

    name = "NodeName"
    default = Default(2, needed_by_kubelet=True)
    reads = Reads.POD  # the template leaves the node's name out
    events = frozenset({ClusterEvent.NODE_ADD})
    reason = "node(s) didn't match the requested node name"

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Skip pods that name no node."""
        return Ready() if frame.pod.node_name else SKIP

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Return `bool[rows]`: the nodes that pass."""
        return FieldTest(NAME_FIELD, frame.pod.node_name, equal=True).mask(frame.cluster.nodes, frame.rows)
