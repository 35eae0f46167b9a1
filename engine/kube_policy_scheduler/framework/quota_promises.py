"""What was made free in the queues for nominated pods, and is kept for them from pods of no queue.

Where queues keep amounts that they do not lend, pods of no queue leave less to be lent. Such a pod may be evicted so
that a pod of a queue gets quota. Came it again before that one starts, it would be evicted again, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaTree, QuotaUsage
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.plugin import SKIP, FilterPlugin, PreFilterResult, Reads
from kube_policy_scheduler.framework.quota import MORE_QUOTA, comes_before, quantity
from kube_policy_scheduler.framework.status import Code, Rejection, Status

_Promised = Sequence[tuple[Quota, Amounts]]


class QueuePromises(FilterPlugin):
    """Rejects a pod of no queue if, beside it, nominated pods that come before it would no longer get their quota."""

    name = "QueuePromises"
    reads = Reads.POD | Reads.CLOCK | Reads.ELSEWHERE
    events = MORE_QUOTA | {ClusterEvent.POD_ADD}  # a nominated pod has started: what was kept for it counts as used

    def __init__(self, tree: QuotaTree) -> None:
        self.tree = tree

    def pre_filter(self, frame: Frame) -> PreFilterResult:
        """Reject the pod, or have nothing more to say."""
        cluster = frame.cluster
        if not cluster.nominated or self.tree.find(frame.template) is not None:
            return SKIP
        usage = cluster.track_usage(self.tree)
        promised = [
            (queue, amounts)
            for uid, (queue, amounts, other) in usage.nominated().items()
            if uid not in cluster.pods and comes_before(cluster, other, frame.pod)
        ]
        message = _shortage(usage, promised, self.tree.amounts(frame.pod)) if promised else None
        # evictions would not help for longer than it takes until the nominated pods have started
        return SKIP if message is None else Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, self.name, (message,))

    def filter(self, frame: Frame, state: Any) -> BoolArray:
        """Let all nodes pass."""
        return np.ones(frame.size, np.bool_)

    def rejections(self, frame: Frame, state: Any) -> Sequence[Rejection]:
        """Return nothing: the pod was rejected as a whole, or not at all."""
        return []


def _shortage(usage: QuotaUsage, promised: _Promised, amounts: Amounts) -> str | None:
    """Return of what too little would be left to be lent, for people; None: of nothing."""
    asked = {resource for _, wanted in promised for resource, _ in wanted}
    with usage.counting(promised):
        for resource, amount in amounts:
            if resource in asked and usage.lends_too_little(resource, amount):
                name = usage.tree.resources[resource]
                return (
                    f"queues could no longer lend what was made free for other pods: {quantity(name, amount)} {name} "
                    "requested; it waits until these have started"
                )
    return None
