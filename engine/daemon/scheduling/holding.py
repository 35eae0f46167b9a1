"""Pods that must wait before they are decided at all: let in when their time has come, told why until then."""

from __future__ import annotations

from engine.cluster.cluster import Cluster
from engine.daemon.observing.observers import Held, Observer
from engine.daemon.scheduling.collaborators import Reporter
from engine.daemon.scheduling.deciding import Deciding
from engine.daemon.scheduling.preempting import nominate
from engine.daemon.watching.informer import Informer
from engine.framework.events import ClusterEvent
from engine.framework.preemption import Preemption
from engine.framework.queue import QueuedPod, SchedulingQueue, gates

HELD_EVERY_SECONDS = 5.0
"""How late a pod may be let in that a policy holds until some hour, or while some metric is high."""


class Holding:
    """Looks after pods that are held."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        deciding: Deciding,
        reporter: Reporter,
        observer: Observer,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._deciding = deciding
        self._reporter = reporter
        self._observer = observer
        self._looked_at = 0.0

    def recheck(self, now: float) -> None:
        """Let pods in whose time has come though no event said so."""
        if 0 <= now - self._looked_at < HELD_EVERY_SECONDS:
            return
        self._looked_at = now
        self._queue.recheck_held()
        for queued in self._queue.held():
            self.drop_nomination(queued)
            self.tell(queued, now)
        self._informer.happened(ClusterEvent.CLOCK)

    def tell(self, queued: QueuedPod, now: float) -> None:
        """Tell why a pod is held that has been for a while; of gates the API server tells itself."""
        why = queued.held_because
        if queued.told != why and now - queued.queued >= HELD_EVERY_SECONDS and gates(queued) is None:
            queued.told = why
            self._reporter.held(queued.pod, why)
            profile = self._deciding.profile(queued.pod)
            self._observer.on_held(
                Held(
                    queued.pod,
                    why,
                    at=now,
                    policy=profile.name if profile is not None else None,
                    attempts=queued.attempts,
                    queued=queued.queued,
                )
            )

    def drop_nomination(self, queued: QueuedPod) -> None:
        """Keep no room for a pod that will not come to take it."""
        pod = queued.pod
        if pod.nominated_node:
            nominate(self._cluster, queued, Preemption(), self._reporter)
            self._reporter.nominated(pod, "")
            self._deciding.forget_refusals()
            self._informer.happened(ClusterEvent.POD_DELETE)
