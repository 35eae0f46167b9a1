"""What is left of a gang that lost pods is evicted, once they have been away for as long as the gang may wait."""

from __future__ import annotations

import logging

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.daemon.scheduling.evictions import Eviction, Evictions
from kube_policy_scheduler.daemon.scheduling.in_flight import InFlight
from kube_policy_scheduler.framework.groups.short_gangs import ShortGang, ShortGangs
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)


class ShortGangEvictions:
    """Evicts the rest of gangs that run with too few pods."""

    def __init__(self, context: SchedulerContext, gangs: ShortGangs, in_flight: InFlight, evictions: Evictions) -> None:
        self._context, self._gangs = context, gangs
        self._in_flight, self._evictions = in_flight, evictions
        self._has_begun = False
        self.evicted = 0
        """Pods that were evicted."""

    def look(self, now: Steady) -> None:
        """Start the evictions that are due. If one fails, it is tried again after the `within` of the gang."""
        if not self._has_begun:
            self._has_begun = True
            self._gangs.begin(now)
        for gang in self._gangs.due(now):
            mine = [pod for pod in gang.rest if self._is_ours(pod)]
            logger.warning(
                "Evicting the rest of a gang that lost pods",
                extra={"gang": str(gang.requirement.group), "pods": len(mine), "why": gang.why},
            )
            for pod in mine:
                if not self._in_flight.has(pod.uid):
                    self._in_flight.start(pod.uid, self._evict(pod, gang))

    def stop(self) -> None:
        """Evict nobody until `look` is called again: another replica leads."""
        self._has_begun = False

    def _is_ours(self, pod: PodInfo) -> bool:
        """Return whether this replica evicts a pod: each does so on its own nodes."""
        sharding, nodes = self._context.sharding, self._context.cluster.nodes
        if sharding is None or sharding.is_alone:
            return True
        row = nodes.rows.get(pod.node_name)
        return row is not None and bool(sharding.own_nodes(nodes)[row])

    async def _evict(self, pod: PodInfo, gang: ShortGang) -> None:
        if await self._evictions.evict(pod, by=pod) is Eviction.DELETED:
            self.evicted += 1
            self._context.reporter.gang_is_short(pod, gang.why)
