"""Whether a gang would be complete if others gave way: tried out on the columns, then undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from engine.cluster.cluster import Cluster
from engine.cluster.pods import PodInfo
from engine.daemon.scheduling.binding import Reserved
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
        with _Attempt(self._cluster) as attempt:
            for uid in gone:
                attempt.displace(uid)
            self._place_free(attempt, (queued, *self.siblings((claim,))), claim, decide)
            return self.placed(claim) >= claim.size

    def _place_free(
        self, attempt: _Attempt, members: Iterable[QueuedPod], claim: Claim, decide: Decide
    ) -> list[QueuedPod]:
        """Place members while the group is not complete; return those for whom there is no free node."""
        left = []
        for member in members:
            if self.placed(claim) >= claim.size:
                break
            if member.pod.uid in attempt.placed:
                continue
            host = decide(member).host
            if host is not None:
                attempt.place(member.pod, host)
            else:
                left.append(member)
        return left

    def preempt(self, queued: QueuedPod, claim: Claim, decide: Decide) -> dict[str, Decision] | None:
        """Return for whom others must be evicted so that the pod's group is complete, by uid; None: it would not be.

        Members take free nodes first, and only as many evict as the group needs. A member that waits for its victims
        to end counts as placed. With nobody in the answer there is nobody to evict: the group will be complete.
        """
        found: dict[str, Decision] = {}
        with _Attempt(self._cluster) as attempt:
            for member in self._awaiting_victims(claim):
                if member is not queued:
                    self._place_nominated(attempt, member)
            for member in self._place_free(attempt, (queued, *self.siblings((claim,))), claim, decide):
                if self.placed(claim) >= claim.size:
                    break
                decision = decide(member)
                preemption = decision.preemption
                if decision.host is not None:
                    attempt.place(member.pod, decision.host)
                elif preemption is None:
                    continue
                elif preemption.keeps_nomination and member.pod.nominated_node:
                    self._place_nominated(attempt, member)
                elif preemption.nominated_node and not any(v.uid in attempt.placed for v in preemption.victims):
                    for victim in preemption.victims:
                        attempt.displace(victim.uid)
                    attempt.place(member.pod, preemption.nominated_node)
                    found[member.pod.uid] = decision
            return found if self.placed(claim) >= claim.size else None

    def _awaiting_victims(self, claim: Claim) -> list[QueuedPod]:
        """Return the members without a place whose victims are being evicted, or are on their way out."""
        return [
            member
            for uid, member in self._queue.group(claim.group).items()
            if member.pod.nominated_node and not member.errors and uid not in self._cluster.pods
        ]

    def _place_nominated(self, attempt: _Attempt, member: QueuedPod) -> None:
        node_name = member.pod.nominated_node
        for other in list(self._cluster.pods_on(node_name).values()):
            if other.terminating and other.priority < member.pod.priority:
                attempt.displace(other.uid)
        attempt.place(member.pod, node_name)


class _Attempt:
    """Placements that are taken back at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.placed: set[str] = set()
        self._displaced: list[tuple[PodInfo, str]] = []

    def place(self, pod: PodInfo, node_name: str) -> None:
        """Place a pod that had no place."""
        self._cluster.place(pod, node_name)
        self.placed.add(pod.uid)

    def displace(self, uid: str) -> None:
        """Displace a pod that had one."""
        node_name = self._cluster.node_of(uid)
        pod = self._cluster.displace(uid)
        if pod is not None and node_name is not None:
            self._displaced.append((pod, node_name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for uid in self.placed:
            self._cluster.displace(uid)
        for pod, node_name in reversed(self._displaced):
            self._cluster.place(pod, node_name)
