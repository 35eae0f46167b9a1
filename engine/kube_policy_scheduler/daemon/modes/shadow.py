"""The scheduler that only looks on: it decides the pods of another scheduler, and places none of them.

A pod is decided when it comes, and again when something happens that may help it; nothing of that counts in the
cluster. When the watch shows where the other has put it, the two are compared (`shadow_comparer`), and the
other's placement is what counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NoReturn

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Begun, Bound, Unknown
from kube_policy_scheduler.cluster.objects import ResourceClaim
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.modes.shadow_comparer import ShadowComparer
from kube_policy_scheduler.daemon.modes.shadow_report import facts
from kube_policy_scheduler.daemon.observing.observers import Compared, ShadowOutcome
from kube_policy_scheduler.daemon.scheduling.context import Policies, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation
from kube_policy_scheduler.framework.reserve.volume_reservation import VolumeReservation

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 1.0
"""How late a pod may be given up; thousands of pods may wait, so they are not gone through at each turn."""


@dataclass(slots=True)
class _Note:
    """What we said about a pod that waits."""

    queued: QueuedPod
    decision: Decision
    policy: str | None
    at: float
    """Unix seconds of the decision."""
    given_up: bool = False


class ShadowScheduler(Scheduler):
    """A scheduler without hands."""

    def __init__(self, context: SchedulerContext, *, give_up_seconds: float, leading: bool = True) -> None:
        """Make one.

        Args:
            context: of the scheduler; nothing in it that writes is used.
            give_up_seconds: after this long a pod that we would place counts as not bound.
            leading: whether to decide from the start.
        """
        nobody = Nobody()
        context = msgspec.structs.replace(
            context,
            binder=nobody,
            evictor=nobody,
            volumes=nobody,
            claims=nobody,
            reporter=nobody,
            nominator=None,
            sharding=None,
            extenders=None,
        )
        super().__init__(context, leading=leading)
        self._observer = context.observer
        self._give_up_seconds = give_up_seconds
        self._comparer = ShadowComparer(context.cluster, context.queue, algorithm=self.algorithm, clock=context.clock)
        self._looked_at = -inf
        self._notes: dict[str, _Note] = {}
        """By uid, of pods that were decided and wait; the oldest decision first."""

    def use_policies(self, policies: Policies) -> None:
        """Decide by these from the next pod on, and what was decided by others again."""
        super().use_policies(policies)
        for note in self._notes.values():
            if note.queued.place is Place.IN_FLIGHT:
                self.queue.activate(note.queued, self._clock())

    # --- while a pod waits ---------------------------------------------------------------------------

    def is_under_way(self, uid: str) -> bool:
        """Return True: the other is at it."""
        return True

    def schedule_one(self, queued: QueuedPod) -> None:
        """Decide about a pod, and leave it to the other scheduler."""
        try:
            self._decide(queued)
        except Exception as error:
            logger.exception("unexpected error in a scheduling attempt", extra={"pod": queued.pod.key})
            self._attempt_failed(queued, f"internal error: {error!r}; see the scheduler's log", began=self._stopwatch())

    def _decide(self, queued: QueuedPod) -> None:
        pod = queued.pod
        if pod.nominated_node:
            return  # the other scheduler nominated it: our earlier decision stands
        membership = self.waiting_pods.membership(queued)
        if membership.why is not None:
            self._notes.pop(pod.uid, None)
            self.queue.gate(queued, membership, self._clock())
            return
        decision, others = (
            self.waiting_pods.decide(queued, membership.requirements)
            if membership.requirements
            else (self.algorithm.decide(queued), ())
        )
        for member, rejection in others:
            self._note(member, rejection)
        self._note(queued, decision)
        self.waiting_pods.left_to_others(queued.pod.uid)

    def _note(self, queued: QueuedPod, decision: Decision) -> None:
        """Note what we would do with a pod."""
        pod = queued.pod
        self._notes.pop(pod.uid, None)
        profile = self.algorithm.profile(pod)
        policy = profile.name if profile is not None else None
        self._notes[pod.uid] = _Note(queued, decision, policy, self._clock())
        if decision.host is None:
            logger.debug("pod would be unschedulable", extra={"pod": pod.key, "why": decision.message})
            self._requeue(queued, decision.rejectors)
        else:
            # it stays in flight, as if it were being bound: that is what the other is at
            logger.debug("pod would be placed", extra={"pod": pod.key, "node": decision.host})

    def keep_queue(self) -> None:
        """Do the work that is due by time, and give up pods that the other has not bound for long."""
        super().keep_queue()
        now = self._clock()
        if now - self._looked_at < LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        for note in self._notes.values():
            if now - note.at < self._give_up_seconds:
                break
            if note.decision.host is not None and not note.given_up:
                note.given_up = True
                self._report(self._unplaced(note, ShadowOutcome.NOT_BOUND))

    # --- what happens to it --------------------------------------------------------------------------

    def on_assigned(self, pods: Sequence[PodInfo]) -> None:
        """Compare where the other has put pods with where we would have."""
        for pod in pods:
            self._compare(pod)

    def _compare(self, pod: PodInfo) -> None:
        queued = self.queue.get(pod.uid)
        note = self._notes.pop(pod.uid, None)
        if queued is None or self.algorithm.policies is None:
            return  # it was on its node when we first saw it, or is not to be looked at
        before = note.decision if note is not None else None
        try:
            self._report(self._comparer.compare(queued, pod.node_name, before=before))
        except Exception:
            logger.exception("unexpected error in a comparison", extra={"pod": pod.key})

    def on_left(self, uids: Sequence[str]) -> None:
        """Report pods that are gone and that we would have placed."""
        for uid in uids:
            note = self._notes.pop(uid, None)
            if note is not None and note.decision.host is not None and not note.given_up:
                self._report(self._unplaced(note, ShadowOutcome.GONE))

    def _report(self, compared: Compared) -> None:
        self._observer.on_compared(compared)
        logger.info("Compared pod", extra=facts(compared))

    def _unplaced(self, note: _Note, verdict: ShadowOutcome) -> Compared:
        queued, decision = note.queued, note.decision
        return Compared(
            queued.pod,
            verdict,
            note.policy,
            at=self.context.wall(),
            queued=queued.queued + self.cluster.ahead,
            ours=decision.host or "",
            score=decision.score,
        )


class Nobody:
    """Reports nothing, and raises if it is asked to change the cluster, which must not happen."""

    def begin(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        still_holds: Callable[[], bool],
        done: Callable[[Bound | Begun], None],
    ) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow binds nothing")

    async def finish(self, begun: Begun) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow has bound nothing")

    async def bind(
        self,
        reservation: VolumeReservation | ClaimReservation | None = None,
        *,
        namespace: str = "",
        name: str = "",
        uid: str = "",
        node: str = "",
        annotations: Mapping[str, str] | None = None,
        after: Unknown | None = None,
        still_holds: Callable[[], bool] | None = None,
    ) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow binds nothing")

    async def settle(self, *, namespace: str, name: str, uid: str, node: str, after: Unknown) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow has bound nothing")

    def delivered(self, claim: ResourceClaim, *, gone: bool = False) -> None:
        """Ignore it: a shadow writes no claims."""

    async def unreserve(self, reservation: ClaimReservation) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow has reserved nothing")

    async def deallocate(self, claim: ResourceClaim) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow deallocates nothing")

    async def delete(self, claim: ResourceClaim) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow deletes nothing")

    async def try_evict(self, victim: PodInfo) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow evicts nobody")

    async def evict(self, victim: PodInfo) -> NoReturn:
        """Reject."""
        raise AssertionError("a shadow evicts nobody")

    def bound(self, pod: PodInfo, node_name: str, *, by_us: bool) -> None:
        """Report nothing."""

    def unschedulable(self, decision: Decision) -> None:
        """Report nothing."""

    def held(self, pod: PodInfo, why: str) -> None:
        """Report nothing."""

    def waiting(self, pod: PodInfo, why: str) -> None:
        """Report nothing."""

    def failed(self, pod: PodInfo, why: str) -> None:
        """Report nothing."""

    def preempted(self, victim: PodInfo, *, by: PodInfo, node_name: str) -> None:
        """Report nothing."""

    def gang_is_short(self, victim: PodInfo, why: str) -> None:
        """Report nothing."""

    def above_max(self, victim: PodInfo, why: str) -> None:
        """Write nothing: nobody is evicted."""

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Report nothing."""
