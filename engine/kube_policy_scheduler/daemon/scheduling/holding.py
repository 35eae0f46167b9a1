"""Pods that must wait before they are decided at all: let in when their time has come, told why until then.

Events let in most of them. What no event tells is looked for every few seconds, a little at a time: ten thousand pods
that wait hold nobody else up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.daemon.observing.observers import Held, Observer
from kube_policy_scheduler.daemon.scheduling.collaborators import Reporter
from kube_policy_scheduler.daemon.scheduling.deciding import Deciding
from kube_policy_scheduler.daemon.scheduling.permitting import Permitting
from kube_policy_scheduler.daemon.scheduling.preempting import nominate
from kube_policy_scheduler.daemon.watching.informer import Informer
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import Place, QueuedPod, SchedulingQueue, gates

logger = logging.getLogger(__name__)

HELD_EVERY_SECONDS = 5.0
"""How late a pod may be let in that a policy holds until some hour, or while some metric is high; and how long a pod
waits, held or for its group, before people are told."""
LOOK_SECONDS = 0.002
"""For so long at a time; then decisions have their turn."""


class Holding:
    """Looks after pods that are held, and tells of those that wait for their group."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        deciding: Deciding,
        permitting: Permitting,
        reporter: Reporter,
        observer: Observer,
        stopwatch: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._deciding = deciding
        self._permitting = permitting
        self._reporter = reporter
        self._observer = observer
        self._stopwatch = stopwatch
        self._looked_at = 0.0
        self._round: Iterator[Callable[[], object]] | None = None

    @property
    def is_looking(self) -> bool:
        """Whether a round has begun and is not over."""
        return self._round is not None

    def look(self, now: float) -> None:
        """Begin a round when it is time, and go on with one for a little while."""
        if self._round is None:
            if 0 <= now - self._looked_at < HELD_EVERY_SECONDS:
                return
            self._looked_at = now
            self._round = self._go_round(now)
        end = self._stopwatch() + LOOK_SECONDS
        for work in self._round:
            try:
                work()
            except Exception:
                logger.exception("unexpected error about a pod that waits")
            if self._stopwatch() > end:
                return
        self._round = None

    def _go_round(self, now: float) -> Iterator[Callable[[], object]]:
        """Yield what is to be done at once for each pod or group; between two of them anything may have happened."""
        for group in self._queue.short_groups():
            yield partial(self._queue.recheck_group, group)
        for queued in self._queue.held_by_policy():
            yield partial(self._queue.recheck, queued)
        for queued in self._queue.newly_held(since=now - HELD_EVERY_SECONDS):
            if self._queue.get(queued.pod.uid) is not queued or queued.place is not Place.HELD:
                continue
            yield partial(self._tell_held, queued, now)
        for queued in self._permitting.untold(since=now - HELD_EVERY_SECONDS):
            yield partial(self._tell_waiting, queued)
        self._informer.happened(ClusterEvent.CLOCK)

    def _tell_held(self, queued: QueuedPod, now: float) -> None:
        self.drop_nomination(queued)
        self.tell(queued, now)

    def tell(self, queued: QueuedPod, now: float) -> None:
        """Tell why a pod is held that has been for a while; of gates the API server tells itself."""
        why = queued.held_because
        if now - queued.queued < HELD_EVERY_SECONDS or gates(queued) is not None:
            return
        is_known = queued.told == why
        self._queue.told(queued)
        if is_known:
            return
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

    def _tell_waiting(self, queued: QueuedPod) -> None:
        """Tell what a pod waits for that has a place and waits for its group."""
        why = self._permitting.waits_for(queued)
        if why is not None and queued.told != why:
            queued.told = why
            self._reporter.waiting(queued.pod, why)

    def drop_nomination(self, queued: QueuedPod) -> None:
        """Keep no room for a pod that will not come to take it."""
        pod = queued.pod
        if pod.nominated_node:
            nominate(self._cluster, queued, Preemption(), self._reporter)
            self._reporter.nominated(pod, "")
            self._deciding.forget_refusals()
            self._informer.happened(ClusterEvent.POD_DELETE)
