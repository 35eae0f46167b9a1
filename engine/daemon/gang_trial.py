"""Whether a gang would be complete if others gave their places back: tried out on the columns, then undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.cluster.cluster import Cluster
from engine.daemon.binding import Reserved
from engine.framework.cycle import Decision
from engine.framework.permit import Claim, Group, Permit
from engine.framework.queue import Place, QueuedPod, SchedulingQueue

Decide = Callable[[QueuedPod], Decision]


class GangTrial:
    """Tries places for the members of gangs."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, *, permit: Permit, waiting: Mapping[str, Reserved]
    ) -> None:
        """waiting: by uid, who waits at Permit with which place."""
        self._cluster = cluster
        self._queue = queue
        self._permit = permit
        self._waiting = waiting

    def placed(self, claim: Claim) -> int:
        """Return how many members of a group have a place, those that wait included."""
        return int(self._cluster.counters.counter(claim.members, terminating=False).per_node().sum())

    def siblings(self, claims: Sequence[Claim]) -> list[QueuedPod]:
        """Return the pods of the same groups that are not decided yet, as the queue would serve them."""
        found = {
            uid: queued
            for claim in claims
            for uid, queued in self._queue.group(claim.group).items()
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE) and not queued.errors
        }
        return sorted(found.values(), key=lambda queued: (-queued.pod.priority, queued.timestamp))

    def make_way(self, queued: QueuedPod, claims: Sequence[Claim], decide: Decide) -> dict[str, Claim]:
        """Return who has to give its place back so that the pod's group is complete; nobody where that would not help.

        Only groups of lower priority, or that began later, give way, and only to a group that then is complete: so
        of two groups that each hold what the other needs, one always gets on.
        """
        if len(claims) != 1 or self.placed(claims[0]) >= claims[0].size:
            return {}
        (claim,) = claims
        mine = self._precedence(claim.group, queued)
        others = [group for group in self._permit.groups() if group != claim.group]
        later = sorted((group for group in others if self._precedence(group) > mine), key=self._precedence)
        gone: dict[str, Claim] = {}
        for group in reversed(later):
            for uid in self._permit.members(group):
                gone[uid] = next(c for c in self._waiting[uid].claims if c.group == group)
            if self.fits_without(gone, queued, claim, decide):
                return gone
        return {}

    def _precedence(self, group: Group, pending: QueuedPod | None = None) -> tuple[float, float]:
        since = self._permit.since(group)
        members = [self._waiting[uid].queued for uid in self._permit.members(group)]
        priority = max(each.pod.priority for each in ([*members, pending] if pending is not None else members))
        return (-priority, since if since is not None else float("inf"))

    def fits_without(self, gone: Iterable[str], queued: QueuedPod, claim: Claim, decide: Decide) -> bool:
        """Try it out: whether the group is complete once some have given their places back."""
        cluster = self._cluster
        back = [(pod, self._waiting[uid].host) for uid in gone if (pod := cluster.displace(uid)) is not None]
        tried: list[str] = []
        for member in (queued, *self.siblings((claim,))):
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
