"""Bindings under way: volumes first, then the pod; what is refused gives its room back. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_never

from engine.adapters.kube.binding import Bound, Refused, Unknown
from engine.cluster.cluster import Cluster
from engine.cluster.devices import ANNOTATION, annotation
from engine.cluster.pods import PodInfo
from engine.daemon.observing.observers import AttemptFailed, Observer, PodBound
from engine.daemon.scheduling.collaborators import Binder, Reporter, VolumeBinder
from engine.daemon.watching.informer import Informer
from engine.framework.events import ClusterEvent
from engine.framework.permit import Claim
from engine.framework.queue import QueuedPod, SchedulingQueue
from engine.framework.volume_reservation import VolumeReservation

logger = logging.getLogger(__name__)

MAX_BINDING = 512
"""Bindings under way; beyond it deciding waits, so that a slow API server is not buried."""


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """A pod with a place that is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    reservation: VolumeReservation | None
    claims: tuple[Claim, ...]


class Bindings:
    """What runs beside the decisions: bindings, and other work that waits for the API server."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        binder: Binder,
        volumes: VolumeBinder,
        reporter: Reporter,
        observer: Observer,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._binder = binder
        self._volumes = volumes
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._stopwatch = stopwatch
        self._wake = wake
        self._under_way: set[asyncio.Task[None]] = set()
        self._awaiting_volumes = 0
        """Of those under way, how many wait for a volume controller: a slow one must not hold up other pods."""

    @property
    def saturated(self) -> bool:
        """Whether so much is under way that deciding must wait."""
        return len(self._under_way) - self._awaiting_volumes >= MAX_BINDING

    def bind(self, reserved: Reserved) -> None:
        """Bind a pod that has its place."""
        self.start(self._bind(reserved))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the decisions."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a binding broke in an unforeseen way", exc_info=error)
        self._wake()

    async def _bind(self, reserved: Reserved) -> None:
        queued, host, began = reserved.queued, reserved.host, reserved.began
        pod = queued.pod
        if reserved.reservation is not None and (why := await self._bind_volumes(reserved.reservation)):
            self._give_back(pod.uid)
            self.broken(queued, why, began=began)
            return
        while True:
            outcome = await self._binder.bind(
                namespace=pod.namespace, name=pod.name, uid=pod.uid, node=host, annotations=self._annotations(pod)
            )
            match outcome:
                case Bound():
                    self._queue.done(pod.uid)
                    self._observer.on_bound(
                        PodBound(
                            pod,
                            host,
                            at=self._clock(),
                            seconds=self._stopwatch() - began,
                            attempts=queued.attempts,
                            queued=queued.queued,
                        )
                    )
                    told = {"pod": pod.key, "node": host, "attempts": queued.attempts}
                    logger.info("Successfully bound pod to node", extra=told)
                    self._reporter.bound(pod, host)
                    return
                case Refused(message=why):
                    self._give_back(pod.uid)
                    self.broken(queued, f"binding to {host} was refused: {why}", began=began)
                    return
                case Unknown(message=why):
                    # It may be bound: its room stays taken until the watch or another try tells.
                    if pod.uid not in self._informer.assumed:
                        return
                    logger.warning("binding in doubt, asking again", extra={"pod": pod.key, "node": host, "why": why})
                case _:
                    assert_never(outcome)

    def _annotations(self, pod: PodInfo) -> dict[str, str] | None:
        """Return what the pod is told with its binding: which devices it got, so that a restarted scheduler knows."""
        devices = self._cluster.devices.held(pod.uid)
        return {ANNOTATION: annotation(devices)} if devices else None

    async def _bind_volumes(self, reservation: VolumeReservation) -> str:
        self._awaiting_volumes += 1
        try:
            return await self._volumes.bind(reservation)
        finally:
            self._awaiting_volumes -= 1

    def _give_back(self, uid: str) -> None:
        """Free the room of a pod that was assumed and is not bound after all."""
        if self._informer.assumed.pop(uid, None) is not None:
            self._cluster.displace(uid)
            self._informer.happened(ClusterEvent.POD_DELETE)

    def broken(self, queued: QueuedPod, why: str, *, began: float) -> None:
        """Put back a pod whose attempt broke, and tell."""
        logger.warning("Error scheduling pod; retrying", extra={"pod": queued.pod.key, "why": why})
        self._observer.on_failed(AttemptFailed(queued.pod, why, self._clock(), self._stopwatch() - began))
        self._queue.failed(queued, self._clock())
        if self._queue.get(queued.pod.uid) is queued:
            self._reporter.failed(queued.pod, why)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def cancel(self) -> None:
        """Drop everything where it stands."""
        for task in self._under_way:
            task.cancel()
