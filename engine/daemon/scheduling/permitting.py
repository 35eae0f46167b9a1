"""Carries out Permit: what pods that wait for their group hold, and how they bind, go on waiting, or give it back.

A group is placed in one go as far as possible: with its first member that finds a place the others are decided at
once, out of turn. Where two groups hold room that only one of them can use, the later one gives its room back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.cluster.cluster import Cluster
from engine.cluster.pods import PodInfo
from engine.daemon.observing.observers import Observer
from engine.daemon.scheduling.binding import Reserved
from engine.daemon.scheduling.collaborators import Reporter
from engine.daemon.scheduling.deciding import Deciding
from engine.daemon.scheduling.gang_states import GangStates
from engine.daemon.scheduling.gang_trial import GangTrial
from engine.daemon.watching.informer import Informer
from engine.framework.cycle import Decision
from engine.framework.events import ClusterEvent
from engine.framework.permit import Claim, Group, Permit
from engine.framework.preemption import Preemption
from engine.framework.queue import Place, QueuedPod, SchedulingQueue
from engine.framework.volume_reservation import undo

logger = logging.getLogger(__name__)

MOST_RESTS = 4
"""After this many time-outs a group's rests grow no longer: 2^4 times as long as it holds places."""


class Permitting:
    """The pods that wait at Permit, with what they hold."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        deciding: Deciding,
        reporter: Reporter,
        observer: Observer,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._deciding = deciding
        self._reporter = reporter
        self._observer = observer
        self._clock = clock
        self._stopwatch = stopwatch
        self.permit = Permit()
        self._waiting: dict[str, Reserved] = {}
        self.trial = GangTrial(cluster, queue, permit=self.permit, waiting=self._waiting)
        self.states = GangStates(cluster, queue, permit=self.permit, trial=self.trial, deciding=deciding, clock=clock)
        self._next: deque[str] = deque()
        self._rests: dict[Group, tuple[float, int]] = {}
        """Until when a group holds no places for members that have none yet, and how often its time was up."""

    # --- before a member is decided ------------------------------------------------------------------

    def groups(self, queued: QueuedPod) -> tuple[Group, ...]:
        """Return the groups of a pod; none where a size has no value: its attempt tells."""
        try:
            return tuple(claim.group for claim in self._deciding.claims(queued))
        except ValueError:
            return ()

    def short(self, queued: QueuedPod) -> str | None:
        """Return why a pod's groups cannot be complete whatever room there is: too few of their pods are there."""
        return self._short(self._deciding.claims(queued), queued)

    def claims(self, queued: QueuedPod) -> tuple[tuple[Claim, ...], str | None]:
        """Return the groups of a pod, and why it cannot be decided yet."""
        try:
            claims = self._deciding.claims(queued)
        except ValueError as error:
            return (), str(error)
        return claims, self._short(claims, queued) if claims else None

    def _short(self, claims: Iterable[Claim], queued: QueuedPod) -> str | None:
        for claim in claims:
            there = self._queue.group(claim.group).keys() | {queued.pod.uid}
            number = self.trial.placed(claim) + sum(uid not in self._cluster.pods for uid in there)
            if number < claim.size:
                return f"waiting for more pods of gang {claim.group}: {number} of {claim.size} are there ({claim.text})"
        return None

    def next(self) -> QueuedPod | None:
        """Take the next member of a group that is being placed; None where none is."""
        while self._next:
            queued = self._queue.take(self._next.popleft())
            if queued is not None:
                return queued
        return None

    def has_next(self) -> bool:
        """Return whether members of a group are still to be placed."""
        return bool(self._next)

    # --- a member is decided -------------------------------------------------------------------------

    def make_room(self, queued: QueuedPod, claims: tuple[Claim, ...]) -> bool:
        """Have others give their places back if the pod's group is complete then; return whether any did."""
        if not len(self.permit):
            return False
        gone = self.trial.make_way(queued, claims, self._decide_anew)
        self._deciding.forget_refusals()
        if gone:
            self._return_places(gone, f"gave its place back to {queued.pod.key}, which is complete with it")
        return bool(gone)

    def preempt(
        self, queued: QueuedPod, claims: tuple[Claim, ...], decision: Decision
    ) -> tuple[Decision, list[tuple[QueuedPod, Decision]]]:
        """Have others evicted only if the pod's group is complete then.

        Returns what becomes of the pod, and the other members that must have somebody evicted at the same time: they
        are taken out of the queue.
        """
        preemption = decision.preemption
        if preemption is None or not preemption.victims:
            return decision, []
        if all(self.trial.placed(claim) >= claim.size for claim in claims):
            return decision, []  # one more of a group that is complete without it
        found = self.trial.preempt(queued, claims[0], self._decide_anew) if len(claims) == 1 else None
        self._deciding.forget_refusals()
        if found is None or queued.pod.uid not in found:
            why = "preemption: nobody is evicted for a part of a gang that does not fit as a whole"
            if found is not None:
                why = "preemption: nobody need be evicted for its gang"
            return replace(decision, preemption=Preemption(), message=f"{_without_dot(decision)}. {why}."), []
        others = ((uid, other) for uid, other in found.items() if uid != queued.pod.uid)
        taken = [(member, other) for uid, other in others if (member := self._queue.take(uid)) is not None]
        return found[queued.pod.uid], taken

    def _decide_anew(self, queued: QueuedPod) -> Decision:
        self._deciding.forget_refusals()
        return self._deciding.decide(queued)

    def resting(self, queued: QueuedPod, claims: Iterable[Claim]) -> str | None:
        """Return why a member must not take a place now, None where it may."""
        now = self._clock()
        for claim in claims:
            until, times = self._rests.get(claim.group, (0.0, 0))
            if until > now and self.trial.placed(claim) < claim.size and not self._fits(queued, claim):
                return (
                    f'gang "{claim.group}" does not fit as a whole, and held places in vain {times} times: '
                    f"it holds none for {until - now:.0f} s ({claim.text})"
                )
        return None

    def _fits(self, queued: QueuedPod, claim: Claim) -> bool:
        try:
            return self.trial.fits_without((), queued, claim, self._decide_anew)
        finally:
            self._deciding.forget_refusals()

    def arrive(self, reserved: Reserved) -> list[Reserved]:
        """Let a pod wait that has a place; return who may bind now."""
        queued = reserved.queued
        uid = queued.pod.uid
        self._waiting[uid] = reserved
        self.permit.wait(uid, reserved.claims, self._clock())
        self._queue.wait(queued)
        released = [self._waiting.pop(other) for other in self.permit.release(uid, self.trial.placed)]
        for each in released:
            self._queue.resume(each.queued)
            for claim in each.claims:
                self._rests.pop(claim.group, None)
        if not released and not self._next:
            self._next.extend(other.pod.uid for other in self.trial.siblings(reserved.claims))
        return released

    def refused(self, claims: Sequence[Claim]) -> str:
        """Let a group rest that has no room for one of its members; return how far it came, for people."""
        self._next.clear()
        parts = [
            f'gang "{claim.group}": {min(self.trial.placed(claim), claim.size)} of {claim.size} members have a place'
            for claim in claims
        ]
        return "; ".join(parts)

    # --- places are given back -----------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Have those give their places back whose group was not complete in time; such groups rest.

        While a group rests it starts only where all of it fits at once: others get the room that it holds in vain,
        for twice as long as it held it, and longer each time.
        """
        gone = self.permit.expire(now)
        if not gone:
            return
        self._rests = {group: rest for group, rest in self._rests.items() if rest[0] > now - 3600.0}
        for claim in {claim.group: claim for claim in gone.values()}.values():
            times = self._rests.get(claim.group, (0.0, 0))[1] + 1
            self._rests[claim.group] = (now + claim.within_seconds * 2.0 ** min(times, MOST_RESTS), times)
        self._return_places(gone, "not enough members had a place in time")

    def clock_was_set(self, seconds: float) -> None:
        """Move all times by as much as the clock was set."""
        self.permit.clock_was_set(seconds)
        self._rests = {group: (until + seconds, times) for group, (until, times) in self._rests.items()}

    def evict(self, victims: Iterable[PodInfo], *, by: PodInfo) -> frozenset[str]:
        """Have victims of a preemption that wait here give their places back; return their uids.

        Nobody need be deleted for that: they do not run yet. Their groups are not complete without them and give all
        their places back.
        """
        waiting = [self._waiting[victim.uid] for victim in victims if victim.uid in self._waiting]
        gone = {uid: claim for each in waiting for claim in each.claims for uid in self.permit.members(claim.group)}
        if gone:
            self._return_places(gone, f"its place goes to {by.key}, of higher priority")
        return frozenset(each.queued.pod.uid for each in waiting)

    def _return_places(self, gone: Mapping[str, Claim], why: str) -> None:
        """Free the places first, then back off with all, and only then wake others: they are to have the room."""
        numbers = {claim.group: self.trial.placed(claim) for claim in gone.values()}
        returned = [(reserved, gone[uid]) for uid in gone if (reserved := self._give_back(uid)) is not None]
        for reserved, claim in returned:
            text = f'gang "{claim.group}": {numbers[claim.group]} of {claim.size} members had a place'
            self._tell_returned(reserved, f"{text}; {why} ({claim.text})")
        # their siblings back off with them, or these would take the room again before anyone else can
        groups = {claim.group for _, claim in returned}
        for queued in [queued for group in groups for queued in self._queue.group(group).values()]:
            if queued.place in (Place.PERMIT, Place.ACTIVE, Place.UNSCHEDULABLE):
                self._queue.returned(queued, self._clock())
        self._deciding.forget_refusals()
        if returned:
            self._informer.happened(ClusterEvent.POD_DELETE)

    def _tell_returned(self, reserved: Reserved, why: str) -> None:
        queued = reserved.queued
        decision = Decision(queued.pod, None, message=why)
        self._observer.on_decided(self._deciding.record(queued, decision, seconds=self._stopwatch() - reserved.began))
        self._reporter.unschedulable(decision)
        logger.info("Gave back a place", extra={"pod": queued.pod.key, "node": reserved.host, "why": why})

    def _give_back(self, uid: str) -> Reserved | None:
        """Free what a waiting pod holds, and return it; the caller puts it back into the queue."""
        self.permit.leave(uid)
        reserved = self._waiting.pop(uid, None)
        if reserved is None:
            return None
        if self._informer.assumed.pop(uid, None) is not None:
            self._cluster.displace(uid)
        if reserved.reservation is not None:
            undo(reserved.reservation, self._cluster)
        return reserved

    def _withdraw(self, reserved: Reserved) -> None:
        """Have a waiting pod decided anew, at once."""
        if self._give_back(reserved.queued.pod.uid) is not None:
            self._queue.activate(reserved.queued, self._clock())
            self._informer.happened(ClusterEvent.POD_DELETE)

    def withdraw_all(self) -> None:
        """Have all who wait decided anew."""
        for reserved in list(self._waiting.values()):
            self._withdraw(reserved)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone, or was bound by someone else; its room is not ours to free."""
        if self.permit.leave(uid):
            reserved = self._waiting.pop(uid)
            if reserved.reservation is not None:
                undo(reserved.reservation, self._cluster)

    def node_changed(self, name: str) -> None:
        """Look again at the pods that wait with a place on a node: it may be gone, or no longer take them."""
        for reserved in [reserved for reserved in self._waiting.values() if reserved.host == name]:
            if not self._deciding.still_fits(reserved.queued, reserved.host):
                logger.info("a place is lost", extra={"pod": reserved.queued.pod.key, "node": name})
                self._withdraw(reserved)


def _without_dot(decision: Decision) -> str:
    return decision.message.rstrip(".")
