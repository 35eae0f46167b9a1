"""What becomes of a pod that fits nowhere: it waits for events that may help, or has others evicted first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.scheduling.binding import Bindings
from kube_policy_scheduler.daemon.scheduling.collaborators import Reporter
from kube_policy_scheduler.daemon.scheduling.deciding import NO_POLICY, Deciding
from kube_policy_scheduler.daemon.scheduling.permitting import Permitting
from kube_policy_scheduler.daemon.scheduling.preempting import Evictor, evict_all, nominate
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import QueuedPod, SchedulingQueue

RESTS = "gang that rests"
"""The rejector of pods whose gang must hold no places now: one of them is tried again when it is time, for all."""
NOTHING_WAKES: Mapping[str, frozenset[ClusterEvent]] = {NO_POLICY: frozenset(), RESTS: frozenset()}
"""But other policies, which always do."""


class Rejecting:
    """Carries refusals out."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        deciding: Deciding,
        bindings: Bindings,
        permitting: Permitting,
        evictor: Evictor,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._deciding = deciding
        self._bindings = bindings
        self._permitting = permitting
        self._evictor = evictor
        self._reporter = reporter
        self._clock = clock

    def reject(self, queued: QueuedPod, decision: Decision) -> None:
        """Put a pod back, and keep room for it if there will be some."""
        found = decision.preemption
        if found is not None and not found.keeps_nomination and (found.nominated_node or queued.pod.nominated_node):
            nominate(self._cluster, queued, found, self._reporter)
            self._deciding.forget_refusals()
        if found is not None and found.victims:
            found = self._without_waiting(queued, found)
        given_up = found.claims if found is not None else None
        if found is not None and (found.victims or (given_up is not None and given_up.acts)):
            self._bindings.start(queued, self._preempt(queued, decision.rejectors, found))
        else:
            self._wait_for_events(queued, decision.rejectors)

    def rest(self, queued: QueuedPod) -> None:
        """Put back a pod whose gang rests."""
        self._queue.rejected(queued, frozenset((RESTS,)), self._clock(), wakes=NOTHING_WAKES)

    def _without_waiting(self, queued: QueuedPod, found: Preemption) -> Preemption:
        """Take their places from victims that wait at Permit; return whom that leaves to be evicted."""
        gone = self._permitting.evict(found.victims, by=queued.pod)
        for victim in found.victims:
            if victim.uid in gone:
                self._reporter.preempted(victim, by=queued.pod, node_name=found.nominated_node or "")
        return replace(found, victims=tuple(victim for victim in found.victims if victim.uid not in gone))

    def _wait_for_events(self, queued: QueuedPod, rejectors: frozenset[str]) -> None:
        profile = self._deciding.profile(queued.pod)
        if profile is None:
            rejectors, wakes = frozenset((NO_POLICY,)), NOTHING_WAKES
        else:
            wakes = profile.wakes
        self._queue.rejected(queued, rejectors, self._clock(), wakes=wakes)

    async def _preempt(self, queued: QueuedPod, rejectors: frozenset[str], found: Preemption) -> None:
        """Evict, with the pod in flight: the end of a victim is then an event that it will not miss.

        Claims that are in the way lose their devices first; that, too, is an event.
        """
        if found.claims is not None:
            await self._bindings.deallocate(found.claims)
        if await evict_all(self._evictor, queued, found, self._reporter):
            self._wait_for_events(queued, rejectors)
        else:
            self._queue.failed(queued, self._clock())
