"""Carries out Permit: what pods that wait for their group hold, and how they bind, go on waiting, or give it back.

A group is placed in one go as far as possible: with its first member that finds a place the others are decided at
once, out of turn. Where two groups hold room that only one of them can use, the later one gives its room back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.cluster.cluster import Cluster
from engine.framework.cycle import Decision
from engine.framework.permit import Claim, Group, Permit
from engine.framework.queue import Place, QueuedPod, SchedulingQueue
from engine.framework.volume_reservation import VolumeReservation, undo

logger = logging.getLogger(__name__)

MOST_RESTS = 4
"""After this many time-outs a group's rests grow no longer: 2^4 times as long as it holds places."""

Decide = Callable[[QueuedPod], Decision]


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """A pod with a place that is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    reservation: VolumeReservation | None
    claims: tuple[Claim, ...]


class Permitting:
    """The pods that wait at Permit, with what they hold."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, assumed: dict[str, str]) -> None:
        """assumed: node by uid, of pods that count though the API server has not shown them there."""
        self._cluster = cluster
        self._queue = queue
        self._assumed = assumed
        self.permit = Permit()
        self._waiting: dict[str, Reserved] = {}
        self._next: deque[str] = deque()
        self._rests: dict[Group, tuple[float, int]] = {}
        """Until when a group holds no places for members that have none yet, and how often its time was up."""

    def placed(self, claim: Claim) -> int:
        """Return how many members of a group have a place, those that wait included."""
        return int(self._cluster.counters.counter(claim.members, terminating=False).per_node().sum())

    def short(self, claims: Iterable[Claim], *, pending: QueuedPod) -> str | None:
        """Return why a group cannot be complete whatever room there is: too few of its pods are there."""
        for claim in claims:
            there = self._queue.group(claim.group).keys() | {pending.pod.uid}
            number = self.placed(claim) + sum(uid not in self._cluster.pods for uid in there)
            if number < claim.size:
                return f"waiting for more pods of gang {claim.group}: {number} of {claim.size} are there ({claim.text})"
        return None

    # --- a group whose time was up -------------------------------------------------------------------

    def expire(self, now: float) -> dict[str, Claim]:
        """Return who has to give its place back now, with the claim that ran out; such groups rest.

        While a group rests it starts only where all of it fits at once: others get the room that it holds in vain,
        for twice as long as it held it, and longer each time.
        """
        gone = self.permit.expire(now)
        if gone:
            self._rests = {group: rest for group, rest in self._rests.items() if rest[0] > now - 3600.0}
        for claim in {claim.group: claim for claim in gone.values()}.values():
            times = self._rests.get(claim.group, (0.0, 0))[1] + 1
            self._rests[claim.group] = (now + claim.within_seconds * 2.0 ** min(times, MOST_RESTS), times)
        return gone

    def resting(self, queued: QueuedPod, claims: Iterable[Claim], decide: Decide, now: float) -> str | None:
        """Return why a member must not take a place now, None where it may."""
        for claim in claims:
            until, times = self._rests.get(claim.group, (0.0, 0))
            if until > now and self.placed(claim) < claim.size and not self._fits_without((), queued, claim, decide):
                return (
                    f'gang "{claim.group}" does not fit as a whole, and held places in vain {times} times: '
                    f"it holds none for {until - now:.0f} s ({claim.text})"
                )
        return None

    # --- a member is decided -------------------------------------------------------------------------

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

    def arrive(self, reserved: Reserved, now: float) -> list[Reserved]:
        """Let a pod wait that has a place; return who may bind now."""
        queued = reserved.queued
        uid = queued.pod.uid
        self._waiting[uid] = reserved
        self.permit.wait(uid, reserved.claims, now)
        self._queue.wait(queued)
        released = [self._waiting.pop(other) for other in self.permit.release(uid, self.placed)]
        for each in released:
            self._queue.resume(each.queued)
            for claim in each.claims:
                self._rests.pop(claim.group, None)
        if not released and not self._next:
            self._next.extend(other.pod.uid for other in self._siblings(reserved.claims))
        return released

    def refused(self, claims: Sequence[Claim]) -> str:
        """Let a group rest that has no room for one of its members; return how far it came, for people."""
        self._next.clear()
        parts = [
            f'gang "{claim.group}": {min(self.placed(claim), claim.size)} of {claim.size} members have a place'
            for claim in claims
        ]
        return "; ".join(parts)

    def _siblings(self, claims: Sequence[Claim]) -> list[QueuedPod]:
        """Return the pods of the same groups that are not decided yet, as the queue would serve them."""
        found = {
            uid: queued
            for claim in claims
            for uid, queued in self._queue.group(claim.group).items()
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE) and not queued.errors
        }
        return sorted(found.values(), key=lambda queued: (-queued.pod.priority, queued.timestamp))

    # --- places are given back -----------------------------------------------------------------------

    def make_way(self, queued: QueuedPod, claims: Sequence[Claim], decide: Decide) -> dict[str, Claim]:
        """Return who has to give its place back so that the pod's group is complete; nobody where that would not help.

        Only groups of lower priority, or that began later, give way, and only to a group that then is complete: so
        of two groups that each hold what the other needs, one always gets on.
        """
        if len(claims) != 1 or self.placed(claims[0]) >= claims[0].size:
            return {}
        (claim,) = claims
        mine = self._precedence(claim.group, queued)
        others = [group for group in self.permit.groups() if group != claim.group]
        later = sorted((group for group in others if self._precedence(group) > mine), key=self._precedence)
        gone: dict[str, Claim] = {}
        for group in reversed(later):
            for uid in self.permit.members(group):
                gone[uid] = next(c for c in self._waiting[uid].claims if c.group == group)
            if self._fits_without(gone, queued, claim, decide):
                return gone
        return {}

    def _precedence(self, group: Group, pending: QueuedPod | None = None) -> tuple[float, float]:
        since = self.permit.since(group)
        members = [self._waiting[uid].queued for uid in self.permit.members(group)]
        priority = max(each.pod.priority for each in ([*members, pending] if pending is not None else members))
        return (-priority, since if since is not None else float("inf"))

    def _fits_without(self, gone: Iterable[str], queued: QueuedPod, claim: Claim, decide: Decide) -> bool:
        """Try it out: whether the group is complete once some have given their places back."""
        cluster = self._cluster
        back = [(pod, self._waiting[uid].host) for uid in gone if (pod := cluster.displace(uid)) is not None]
        tried: list[str] = []
        for member in (queued, *self._siblings((claim,))):
            if self.placed(claim) >= claim.size:
                break
            host = decide(member).host
            if host is not None:
                cluster.place(member.pod, host)
                tried.append(member.pod.uid)
        complete = self.placed(claim) >= claim.size
        for uid in tried:
            cluster.displace(uid)
        for pod, host in back:
            cluster.place(pod, host)
        return complete

    def give_back(self, uid: str) -> Reserved | None:
        """Free what a waiting pod holds, and return it; the caller puts it back into the queue."""
        self.permit.leave(uid)
        reserved = self._waiting.pop(uid, None)
        if reserved is None:
            return None
        if self._assumed.pop(uid, None) is not None:
            self._cluster.displace(uid)
        if reserved.reservation is not None:
            undo(reserved.reservation, self._cluster)
        return reserved

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone, or was bound by someone else; its room is not ours to free."""
        if self.permit.leave(uid):
            reserved = self._waiting.pop(uid)
            if reserved.reservation is not None:
                undo(reserved.reservation, self._cluster)

    def waiting_on(self, node_name: str) -> list[Reserved]:
        """Return the pods that wait with a place on a node."""
        return [reserved for reserved in self._waiting.values() if reserved.host == node_name]

    def waiting(self) -> list[Reserved]:
        """Return all that wait."""
        return list(self._waiting.values())
