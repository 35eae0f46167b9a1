"""Pods of queues that use more than their `max` are evicted, one pod or gang after the other (`reclaim above max`)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.context import Policies, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.evictions import Eviction, Evictions
from kube_policy_scheduler.daemon.scheduling.in_flight import InFlight
from kube_policy_scheduler.daemon.scheduling.queue_evictions import EvictionRule, QueueEvictions
from kube_policy_scheduler.framework.preempt.above_max import AboveMax, AboveMaxReclaim
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)


class AboveMaxEvictions:
    """Evicts what queues use above their `max`."""

    def __init__(
        self,
        context: SchedulerContext,
        in_flight: InFlight,
        evictions: Evictions,
        counts: QueueEvictions,
        *,
        decides_queues: Callable[[], bool],
    ) -> None:
        """Begin.

        Args:
            context: of the scheduler.
            in_flight: what is under way.
            evictions: evict.
            counts: count who was evicted.
            decides_queues: whether this replica decides the pods of queues, as one does for all of them.
        """
        self._context, self._in_flight, self._evictions, self._counts = context, in_flight, evictions, counts
        self._decides_queues = decides_queues
        self.reclaim = AboveMaxReclaim(context.cluster)
        self.evicted = 0
        """Pods that were evicted."""

    def look(self, policies: Policies, now: Steady) -> None:
        """Start the eviction that is due. If it fails, the next look tries it again.

        Pods of other schedulers go like any others: they count in the queue, too.
        """
        if not self._decides_queues():
            return
        each = (profile.queues for profile in policies.profiles if profile.queues is not None)
        found = self.reclaim.due(lambda: next(each, None), now)
        if found is None:
            return
        extra = {"queue": found.queue, "pods": [pod.key for pod in found.pods], "why": found.why}
        logger.info("Evicting pods of a queue above its max", extra=extra)
        for pod in found.pods:
            if not self._in_flight.has(pod.uid):
                self._in_flight.start(pod.uid, self._evict(pod, found))

    async def _evict(self, pod: PodInfo, found: AboveMax) -> None:
        if await self._evictions.evict(pod, by=pod) is Eviction.DELETED:
            self.evicted += 1
            self._counts.note(pod, EvictionRule.MAX)
            self._context.reporter.above_max(pod, found.why)
