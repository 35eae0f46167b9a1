"""Bindings under way: volumes first, then the pod; what is refused gives its room back. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Outdated, Refused, Unknown
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.devices import ANNOTATION, annotation
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import AttemptFailed, Observer, PodBound
from kube_policy_scheduler.daemon.scheduling.collaborators import Binder, ClaimBinder, Reporter, VolumeBinder
from kube_policy_scheduler.daemon.watching.freshness import STALE_POLL_SECONDS, ClusterView
from kube_policy_scheduler.daemon.watching.informer import Informer
from kube_policy_scheduler.framework.dynamic_resources.reservation import ClaimReservation
from kube_policy_scheduler.framework.dynamic_resources.reservation import undo as undo_claims
from kube_policy_scheduler.framework.permit import Claim
from kube_policy_scheduler.framework.plugins.dynamic_resources import Deallocation
from kube_policy_scheduler.framework.queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.volume_reservation import undo as undo_volumes

logger = logging.getLogger(__name__)

MAX_BINDING = 512
"""Bindings under way; beyond it deciding waits, so that a slow API server is not buried."""


DOUBT_SECONDS = 5.0
"""Between two rounds of questions about a binding whose outcome could not be had in minutes."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    uid: str
    since: float
    """Event loop's time."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision rests on, as far as others can change it; equal ones mean that nobody has."""

    losses: int
    """How often the view of the cluster had ceased to be current."""
    mark: int | None
    """Of the node (`Informer.mark`)."""
    broken_gangs: int
    """How often a member of a gang gave its place back; 0 for a pod that is in none."""


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """A pod with a place that is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    reservation: VolumeReservation | None
    claims: tuple[Claim, ...]
    basis: Basis
    devices: ClaimReservation | None = None

    def undo(self, cluster: Cluster) -> None:
        """Take back what was reserved in memory; nothing of it was written."""
        if self.reservation is not None:
            undo_volumes(self.reservation, cluster)
        if self.devices is not None:
            undo_claims(self.devices, cluster)


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
        claims: ClaimBinder,
        reporter: Reporter,
        observer: Observer,
        view: ClusterView,
        still_fits: Callable[[QueuedPod, str], bool],
        are_complete: Callable[[Sequence[Claim]], bool],
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._view = view
        self._still_fits = still_fits
        self._are_complete = are_complete
        self._broken_gangs = 0
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._binder = binder
        self._volumes = volumes
        self._claims = claims
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._stopwatch = stopwatch
        self._wake = wake
        self._under_way: dict[asyncio.Task[None], _UnderWay] = {}
        self._awaiting_others = 0
        """Of those under way, how many wait for volume controllers or drivers: a slow one must not hold up others."""

    @property
    def saturated(self) -> bool:
        """Whether so much is under way that deciding must wait."""
        return len(self._under_way) - self._awaiting_others >= MAX_BINDING

    def __len__(self) -> int:
        """Return how many are under way."""
        return len(self._under_way)

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of those under way has been so, by the event loop's clock; 0.0 where there is none."""
        since = next((each.since for each in self._under_way.values()), None)
        return asyncio.get_running_loop().time() - since if since is not None else 0.0

    def is_under_way(self, uid: str) -> bool:
        """Return whether something is done for a pod that waits for the API server."""
        return any(each.uid == uid for each in self._under_way.values())

    def basis(self, host: str, claims: Sequence[Claim]) -> Basis:
        """Return what a decision for a node, of a pod with these gangs, rests on now."""
        return Basis(self._view.losses, self._informer.mark(host), self._broken_gangs if claims else 0)

    def bind(self, reserved: Reserved) -> None:
        """Bind a pod that has its place."""
        self.start(reserved.queued, self._bind(reserved))

    def settle(self, queued: QueuedPod) -> None:
        """Find out what became of a pod in flight for which nothing is done: bind it, or put it back."""
        host = self._informer.assumed.get(queued.pod.uid)
        if host is None:
            self.broken(queued, "its attempt was lost", began=self._stopwatch())
            return
        reserved = Reserved(queued, host, self._stopwatch(), None, (), self.basis(host, ()))
        self.start(queued, self._bind(reserved, after=self._in_doubt("its binding was lost")))

    def start(self, queued: QueuedPod, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a pod in flight, beside the decisions; the pod is in another place at its end."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._guarded(queued, work, began=self._stopwatch()))
        self._under_way[task] = _UnderWay(queued.pod.uid, loop.time())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("unexpected error after a binding", exc_info=error)
        self._wake()

    async def _guarded(self, queued: QueuedPod, work: Coroutine[Any, Any, None], *, began: float) -> None:
        try:
            await work
        except Exception as error:
            logger.exception("unexpected error", extra={"pod": queued.pod.key})
            if self._queue.get(queued.pod.uid) is queued and queued.place is Place.IN_FLIGHT:
                self.give_back(queued.pod.uid)
                self.broken(queued, f"internal error: {error!r}; see the scheduler's log", began=began)

    async def _bind(self, reserved: Reserved, *, after: Unknown | None = None) -> None:
        """Bind a pod, volumes and claims first. after: what is known of an earlier binding to the same node."""
        try:
            await self._bind_all(reserved, after)
        finally:
            self._cluster.resource_claims.let_go(reserved.queued.pod.uid)

    async def _bind_all(self, reserved: Reserved, after: Unknown | None) -> None:
        queued, host, began = reserved.queued, reserved.host, reserved.began
        pod = queued.pod
        if why := await self._pre_bind(reserved):
            self.give_back(pod.uid)
            self.broken(queued, why, began=began)
            return
        basis = reserved.basis
        while True:
            while not self._view():  # noqa: ASYNC110 (asked by turns, as the loop does)
                await asyncio.sleep(STALE_POLL_SECONDS)
            if pod.uid not in self._informer.assumed:
                if pod.uid not in self._cluster.pods:
                    await self._unreserve(reserved)
                return  # the watch has told what became of it
            objection, basis = self._look_again(reserved, basis)
            if objection and after is None:
                self._broken_gangs += bool(reserved.claims)
                self.give_back(pod.uid)
                await self._unreserve(reserved)
                self.broken(queued, objection, began=began)
                return
            outcome = await self._ask_binder(reserved, basis, after, tries=not objection)
            match outcome:
                case Bound():
                    self._queue.done(pod.uid)
                    self._tell_bound(reserved)
                    return
                case Refused(message=why):
                    self.give_back(pod.uid)
                    await self._unreserve(reserved)
                    self.broken(queued, f"binding to {host} was refused: {why}", began=began)
                    return
                case Unknown(message=why):
                    # It may be bound: its room stays taken until the watch or another question tells.
                    logger.warning("binding in doubt, asking again", extra={"pod": pod.key, "node": host, "why": why})
                    after = outcome
                    await asyncio.sleep(DOUBT_SECONDS)
                case Outdated():
                    pass
                case _:
                    assert_never(outcome)

    def _look_again(self, reserved: Reserved, basis: Basis) -> tuple[str, Basis]:
        """Return why what was decided may not be sent any more, "" where it may, and what that rests on."""
        host = reserved.host
        now = self.basis(host, reserved.claims)
        if now == basis:
            return "", now
        if not self._still_fits(reserved.queued, host):
            return f"{host} changed before the binding was sent, and no longer takes the pod", now
        if not self._are_complete(reserved.claims):
            return f"other members of its gang lost their places before its binding to {host} was sent", now
        return "", now

    def _holds(self, reserved: Reserved, basis: Basis) -> bool:
        """Return whether nobody else has changed what a decision rests on; the last look before it is sent."""
        return self.basis(reserved.host, reserved.claims) == basis and self._view()

    async def _ask_binder(self, reserved: Reserved, basis: Basis, after: Unknown | None, *, tries: bool) -> Outcome:
        """tries: whether it may be sent (again); else it is only found out what became of it."""
        pod, host = reserved.queued.pod, reserved.host
        try:
            if after is not None and not tries:
                return await self._binder.settle(
                    namespace=pod.namespace, name=pod.name, uid=pod.uid, node=host, after=after
                )
            return await self._binder.bind(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                node=host,
                annotations=self._annotations(pod),
                after=after,
                still_holds=partial(self._holds, reserved, basis),
            )
        except Exception as error:
            logger.exception("unexpected error while a pod was bound", extra={"pod": pod.key})
            return self._in_doubt(f"internal error: {error!r}")

    def _in_doubt(self, why: str) -> Unknown:
        return Unknown(why, since=asyncio.get_running_loop().time())

    def _tell_bound(self, reserved: Reserved) -> None:
        queued, host = reserved.queued, reserved.host
        pod = queued.pod
        self._observer.on_bound(
            PodBound(
                pod,
                host,
                at=self._clock(),
                seconds=self._stopwatch() - reserved.began,
                attempts=queued.attempts,
                queued=queued.queued,
            )
        )
        told = {"pod": pod.key, "node": host, "attempts": queued.attempts}
        logger.info("Successfully bound pod to node", extra=told)
        self._reporter.bound(pod, host)

    def _annotations(self, pod: PodInfo) -> dict[str, str] | None:
        """Return what the pod is told with its binding: which devices it got, so that a restarted scheduler knows."""
        devices = self._cluster.devices.held(pod.uid)
        return {ANNOTATION: annotation(devices)} if devices else None

    async def _pre_bind(self, reserved: Reserved) -> str:
        """Have volumes and claims bound, in this order; return why that failed, "" where it did not."""
        if reserved.reservation is None and reserved.devices is None:
            return ""
        self._awaiting_others += 1
        why = "the scheduler is ending"  # what a cancellation leaves
        try:
            why = await self._volumes.bind(reserved.reservation) if reserved.reservation is not None else ""
            if not why and reserved.devices is not None:
                why = await self._claims.bind(reserved.devices)
            return why
        finally:
            self._awaiting_others -= 1
            if reserved.devices is not None:
                if why:
                    undo_claims(reserved.devices, self._cluster)
                self._informer.claims_settled(one.claim for one in reserved.devices.claims)
                if why:
                    self._informer.devices_freed()

    async def _unreserve(self, reserved: Reserved) -> None:
        """Give back the claims of a pod that is not bound after all."""
        if reserved.devices is not None:
            await self._claims.unreserve(reserved.devices)

    async def deallocate(self, given_up: Deallocation) -> None:
        """Take the devices of one claim away, and delete claims that earlier attempts have left."""
        for claim in given_up.one_of[:1]:
            await self._claims.deallocate(claim)
        for claim in given_up.delete:
            await self._claims.delete(claim)

    def give_back(self, uid: str) -> None:
        """Free the room of a pod that was assumed and is not bound after all."""
        self._informer.take_back(uid)

    def broken(self, queued: QueuedPod, why: str, *, began: float) -> None:
        """Put back a pod whose attempt broke, and tell."""
        self._queue.failed(queued, self._clock())
        logger.warning("Error scheduling pod; retrying", extra={"pod": queued.pod.key, "why": why})
        try:
            self._observer.on_failed(AttemptFailed(queued.pod, why, self._clock(), self._stopwatch() - began))
            if self._queue.get(queued.pod.uid) is queued:
                self._reporter.failed(queued.pod, why)
        except Exception:
            logger.exception("unexpected error in a report", extra={"pod": queued.pod.key})

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def cancel(self) -> None:
        """Drop everything where it stands."""
        for task in list(self._under_way):
            task.cancel()
