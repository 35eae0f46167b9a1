"""One attempt: a pod is decided, and what follows from that is set going. It waits for nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.replicas.passing import Passing
from kube_policy_scheduler.daemon.scheduling.binding import Bindings, Reserved
from kube_policy_scheduler.daemon.scheduling.collaborators import Reporter
from kube_policy_scheduler.daemon.scheduling.deciding import Deciding
from kube_policy_scheduler.daemon.scheduling.holding import Holding
from kube_policy_scheduler.daemon.scheduling.permitting import Permitting
from kube_policy_scheduler.daemon.scheduling.rejecting import Rejecting
from kube_policy_scheduler.daemon.watching.informer import Informer
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.dynamic_resources.reservation import ClaimReservation, has_claims
from kube_policy_scheduler.framework.dynamic_resources.reservation import reserve_on as reserve_claims
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import Claim
from kube_policy_scheduler.framework.queue import Membership, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.volume_reservation import reserve as reserve_volumes

logger = logging.getLogger(__name__)


class Attempting:
    """Takes pods that were popped from the queue to what becomes of them."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        deciding: Deciding,
        bindings: Bindings,
        permitting: Permitting,
        rejecting: Rejecting,
        holding: Holding,
        passing: Passing | None,
        reporter: Reporter,
        observer: Observer,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._deciding = deciding
        self._bindings = bindings
        self._permitting = permitting
        self._rejecting = rejecting
        self._holding = holding
        self._passing = passing
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._stopwatch = stopwatch

    def attempt(self, queued: QueuedPod) -> None:
        """Decide about a pod; whatever comes of it, the pod is in a place afterwards, or being bound."""
        began = self._stopwatch()
        logger.debug("Attempting to schedule pod", extra={"pod": queued.pod.key})
        self._guard(queued, began, partial(self._attempt, queued, began))

    def _guard(self, queued: QueuedPod, began: float, work: Callable[[], None]) -> None:
        """Do something with a pod in flight; where that breaks off anywhere, put the pod back."""
        try:
            work()
        except Exception as error:
            logger.exception("unexpected error in an attempt", extra={"pod": queued.pod.key})
            self._abandon(queued, f"internal error: {error!r}; see the scheduler's log", began)

    def _attempt(self, queued: QueuedPod, began: float) -> None:
        if self._passing is not None and not self._deciding.serves(queued.pod):
            self._informer.disown(queued)
            return
        membership = self._permitting.membership(queued)
        if membership.why is not None:
            self._hold(queued, membership)
            return
        claims = membership.claims
        if claims and (why := self._permitting.rests(queued, claims)) is not None:
            self._rest(queued, why, began)
            return
        decision, others = self._decide(queued, claims)
        if decision.host is None:
            for member, refusal in others:
                self._guard(member, began, partial(self._refuse, member, claims, refusal, began))
            self._refuse(queued, claims, decision, began)
        elif self._passing is not None and self._passing.is_for_another(decision.host):
            self._tell_decided(queued, decision, began, waits="its node is another replica's, which is to bind it")
            self._passing.pass_on(queued, decision.host, began=began)
        else:
            self._place(queued, decision, decision.host, claims, began)

    def _place(self, queued: QueuedPod, decision: Decision, host: str, claims: tuple[Claim, ...], began: float) -> None:
        pod = queued.pod
        volumes = self._reserve_volumes(pod, host) if pod.volumes else None
        if isinstance(volumes, str):
            self._bindings.broken(queued, f"volumes on {host} cannot be had: {volumes}", began=began)
            return
        devices = self._reserve_claims(pod, host) if has_claims(pod.template, self._cluster) else None
        basis = self._bindings.basis(host, claims)
        reserved = Reserved(queued, host, began, volumes, claims, basis, None if isinstance(devices, str) else devices)
        if isinstance(devices, str):
            reserved.undo(self._cluster)
            self._bindings.broken(queued, f"devices on {host} cannot be had: {devices}", began=began)
            return
        try:
            self._tell_decided(queued, decision, began, waits=self._permitting.states.waits(claims))
            self._cluster.nominate(pod, "")
            self._cluster.place(pod, host, devices=decision.devices)
        except Exception:
            reserved.undo(self._cluster)
            raise
        self._informer.assumed[pod.uid] = host
        self._deciding.forget_refusals()
        for each in self._permitting.arrive(reserved) if claims else (reserved,):
            self._bindings.bind(each)

    def _abandon(self, queued: QueuedPod, why: str, began: float) -> None:
        """Give back what a pod holds and put it back, unless it is being bound already."""
        uid = queued.pod.uid
        if self._bindings.is_under_way(uid):
            return
        self._permitting.forget(uid)
        self._bindings.give_back(uid)
        if self._cluster.node_of(uid) is not None:
            self._cluster.displace(uid)
        self._bindings.broken(queued, why, began=began)

    def _refuse(self, queued: QueuedPod, claims: tuple[Claim, ...], decision: Decision, began: float) -> None:
        if claims and (far := self._permitting.refused(claims)) not in decision.message:
            decision = replace(decision, message=f"{decision.message} {far}.")
        self._tell_decided(queued, decision, began)
        # who waits for long is tried again and again, for the same reason
        level = logging.INFO if decision.message != queued.refused_for else logging.DEBUG
        told = {"pod": queued.pod.key, "why": decision.message}
        if claims:
            told["gang"] = self._permitting.states.waits(claims, joining=0)
        logger.log(level, "Unable to schedule pod", extra=told)
        queued.refused_for = decision.message
        self._reporter.unschedulable(decision)
        if self._passing is not None:
            self._passing.give_back(queued)
        self._rejecting.reject(queued, decision)

    def _rest(self, queued: QueuedPod, why: str, began: float) -> None:
        """Put back a pod whose group must hold no places now; the group itself is looked at again."""
        self._holding.drop_nomination(queued)
        decision = Decision(queued.pod, None, total=self._cluster.nodes.size, message=why)
        self._tell_decided(queued, decision, began)
        queued.refused_for = why
        self._reporter.unschedulable(decision)
        self._rejecting.rest(queued)

    def _hold(self, queued: QueuedPod, membership: Membership) -> None:
        self._queue.hold(queued, membership, self._clock())
        self._holding.drop_nomination(queued)
        self._holding.tell(queued, self._clock())

    def _decide(
        self, queued: QueuedPod, claims: tuple[Claim, ...]
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Return what becomes of a pod, and of others of its group that evict at the same time."""
        return self._permitting.decide(queued, claims) if claims else (self._deciding.decide(queued), ())

    def _tell_decided(self, queued: QueuedPod, decision: Decision, began: float, *, waits: str = "") -> None:
        seconds = self._stopwatch() - began
        self._observer.on_decided(self._deciding.record(queued, decision, seconds=seconds, waits=waits))

    def _frame_on(self, pod: PodInfo, host: str) -> Frame:
        return Frame(pod, self._cluster, self._clock(), rows=np.array([self._cluster.nodes.rows[host]]))

    def _reserve_claims(self, pod: PodInfo, host: str) -> ClaimReservation | str | None:
        return reserve_claims(self._frame_on(pod, host), share_id=str(uuid4())[:24])

    def _reserve_volumes(self, pod: PodInfo, host: str) -> VolumeReservation | str | None:
        """Assume the pod's volumes on its node; None where nothing is left to do for them."""
        found = reserve_volumes(self._frame_on(pod, host))
        return None if isinstance(found, VolumeReservation) and found.empty else found
