"""The context of a scheduler in a test: one object does all that leaves the process."""

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.framework.decide.cycle import Cycle
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue


def context_of(
    hands: Any, cluster: Cluster | None = None, queue: SchedulingQueue | None = None, **more: Any
) -> SchedulerContext:
    """Return a context in which `hands` is the binder, evictor, reporter and so on, unless `more` has another."""
    parts = dict.fromkeys(("binder", "evictor", "volumes", "claims", "reporter", "observer"), hands)
    return SchedulerContext(
        Cluster() if cluster is None else cluster,
        SchedulingQueue() if queue is None else queue,
        **{"cycle": Cycle()} | parts | more,
    )
