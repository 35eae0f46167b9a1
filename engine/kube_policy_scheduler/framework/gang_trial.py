"""Whether a gang would be complete if others gave way: tried out on the columns, then undone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Protocol, Self

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.framework.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.claim_reservation import ClaimReservation, has_claims, reserve_on, undo
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.device_room import claimed_kinds
from kube_policy_scheduler.framework.frame import DeviceOrder
from kube_policy_scheduler.framework.gang_domains import Members, free_now, free_without, places_of
from kube_policy_scheduler.framework.permit import GangRequirement, Group, Permit
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.preemption import Preemption
from kube_policy_scheduler.framework.queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.refusal_memo import RefusalMemo
from kube_policy_scheduler.framework.victims import Budgets, Victims

MOST_FREE_SECONDS = 0.1
"""For so long at a time it is tried whether a gang finds free nodes, or places that others give back."""
MOST_EVICTING_SECONDS = 1.0
"""Time limit for a search for the victims of a gang: enough for a few hundred members on 5,000 nodes."""


class AssumedPod(Protocol):
    """A pod that counts on its node and is not bound yet."""

    @property
    def queued(self) -> QueuedPod:
        """Return the pod."""
        ...

    @property
    def host(self) -> str:
        """Return the name of its node."""
        ...

    @property
    def requirements(self) -> tuple[GangRequirement, ...]:
        """Return what its groups require."""
        ...

    @property
    def has_devices(self) -> bool:
        """Return whether devices are reserved for its claims."""
        ...

    def unreserve(self, cluster: Cluster) -> None:
        """Undo the reservations in memory; nothing was written yet."""
        ...

    def free_devices(self, cluster: Cluster) -> Callable[[], None]:
        """Free the devices of its claims, to try something; return what reserves them again."""
        ...


class GangTrial:
    """Tries places for the members of gangs."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        stopwatch: Callable[[], float],
        permit: Permit,
        waiting: Mapping[str, AssumedPod],
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where places are tried.
            queue: of the pending pods.
            algorithm: decides.
            stopwatch: seconds, for how long a try takes.
            permit: the pods that wait for their gang.
            waiting: by uid, their places.
        """
        self._cluster, self._queue, self._stopwatch = cluster, queue, stopwatch
        self._permit = permit
        self._waiting = waiting
        self._algorithm = algorithm
        self._refused_beside = RefusalMemo()
        """Of members that found no node beside nominated pods."""
        self._beside_at: Hashable = None
        """The state of everything for which that is so."""

    def placed(self, requirement: GangRequirement) -> int:
        """Return how many members of a group have a place, as far as it needs them, those that wait included."""
        return requirement.filled(self._cluster.counters.group_size)

    def is_surplus(self, requirement: GangRequirement) -> bool:
        """Return whether a pod would fill no place that its group needs, which is not complete."""
        placed = self.placed(requirement)
        return placed < requirement.size and placed == requirement.filled(self._cluster.counters.group_size, joining=1)

    def _is_surplus(self, member: QueuedPod, group: Group) -> bool:
        """Return whether a member would fill no place that a group needs."""
        own = (each for each in self._algorithm.gang_requirements(member) if each.group == group)
        return any(self.is_surplus(requirement) for requirement in own)

    def siblings(self, requirements: Sequence[GangRequirement]) -> list[QueuedPod]:
        """Return the pods of the same groups that are not decided yet, as the queue would serve them."""
        found = {
            uid: queued
            for requirement in requirements
            for uid, queued in self._queue.group(requirement.group).items()
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE) and not queued.errors
        }
        return sorted(found.values(), key=lambda queued: (-queued.pod.priority, queued.timestamp))

    # --- free nodes, and places of others ------------------------------------------------------------

    def make_way(self, queued: QueuedPod, requirement: GangRequirement) -> dict[str, GangRequirement]:
        """Return who has to give its place back so that the pod's group is complete; nobody where that would not help.

        Only groups of lower priority, or that began later, give way, and only to a group that then is complete: so
        of two groups that each hold what the other needs, one always gets on.
        """
        mine = self._precedence(requirement.group, queued)
        others = [group for group in self._permit.groups() if not requirement.encloses(group)]
        later = sorted((group for group in others if self._precedence(group) > mine), key=self._precedence)
        gone: dict[str, GangRequirement] = {}
        end = self._stopwatch() + MOST_FREE_SECONDS
        for group in reversed(later):
            for uid in self._permit.members(group):
                gone[uid] = next(c for c in self._waiting[uid].requirements if c.group == group)
            fits = self._fits_without(gone, queued, requirement, end=end)
            if fits is None:
                break
            if fits:
                return gone
        return {}

    def _precedence(self, group: Group, pending: QueuedPod | None = None) -> tuple[float, float]:
        since = self._permit.since(group)
        members = [self._waiting[uid].queued for uid in self._permit.members(group)]
        priority = max(each.pod.priority for each in ([*members, pending] if pending is not None else members))
        return (-priority, since if since is not None else float("inf"))

    def fits(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether the group would be complete on free nodes, as far as that is known in a short time."""
        return self._fits_without((), queued, requirement, end=self._stopwatch() + MOST_FREE_SECONDS) is not False

    def places(self, queued: QueuedPod, requirement: GangRequirement) -> dict[str, str] | None:
        """Return free nodes by uid for all members that a group still needs, the pod first; None: it does not fit."""
        members = self._members(queued, requirement)
        with self._attempt(self._stopwatch() + MOST_FREE_SECONDS) as attempt:
            if not self._has_room(members, requirement, priority=None):
                return None
            most_left = len(members) + self.placed(requirement) - requirement.size
            self._place_free(attempt, members, requirement, most_left=most_left)
            if self.placed(requirement) < requirement.size:
                return None
            hosts = {uid: self._cluster.node_of(uid) for uid in attempt.placed}
            return {uid: host for uid, host in hosts.items() if host is not None}

    def needed(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place that a group needs to be complete, the pod first."""
        return self._members(queued, requirement)[: max(1, requirement.size - self.placed(requirement))]

    def _fits_without(
        self, gone: Iterable[str], queued: QueuedPod, requirement: GangRequirement, *, end: float
    ) -> bool | None:
        """Try it out once some have given their places back; None where the time is up before it is known."""
        members = self._members(queued, requirement)
        with self._attempt(end) as attempt:
            for uid in gone:
                attempt.displace(uid)
            if not self._has_room(members, requirement, priority=None):
                return False
            self._place_free(
                attempt, members, requirement, most_left=len(members) + self.placed(requirement) - requirement.size
            )
            return self.placed(requirement) >= requirement.size or (None if attempt.is_over else False)

    def _members(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        return [queued, *(other for other in self.siblings((requirement,)) if other is not queued)]

    def _place_free(
        self, attempt: _Attempt, members: Sequence[QueuedPod], requirement: GangRequirement, *, most_left: int
    ) -> list[QueuedPod]:
        """Place members while the group is not complete; return those for whom there is no free node.

        most_left: with more of these it is of no use to go on.
        """
        left: list[QueuedPod] = []
        for member in members:
            if self.placed(requirement) >= requirement.size or len(left) > most_left or attempt.is_over:
                break
            if member.pod.uid in attempt.placed:
                continue
            if requirement.roles and self._is_surplus(member, requirement.group):
                continue
            decision = attempt.decide(member, preempts=False)
            if decision.host is not None:
                attempt.place(member, decision.host, order=decision.device_order)
            else:
                left.append(member)
        return left

    def beside_nominated(self, queued: QueuedPod) -> Decision:
        """Decide a member where it leaves every nominated pod its room, also those over which it has precedence."""
        if self._beside_at != self._algorithm.state:
            self._beside_at = self._algorithm.state
            self._refused_beside.clear()
        with self._cluster.keeping_nominated():
            return self._algorithm.decide(queued, preempts=False, memo=self._refused_beside)

    # --- evictions -----------------------------------------------------------------------------------

    def preempt(
        self, queued: QueuedPod, requirement: GangRequirement, *, last: bool = False
    ) -> dict[str, Decision] | None:
        """Return for whom others must be evicted so that the pod's group is complete, by uid; None: it would not be.

        Members take free nodes first, and only as many evict as the group needs. A member that waits for its victims
        to end counts as placed. With nobody in the answer there is nobody to evict: the group will be complete.

        last: whether the pod itself leaves free nodes to the others that the group needs.
        """
        found: dict[str, Decision] = {}
        members = self._members(queued, requirement)
        if last:
            before = max(0, requirement.size - self.placed(requirement) - 1)
            members = [*members[1 : 1 + before], queued, *members[1 + before :]]
        with self._attempt(self._stopwatch() + MOST_EVICTING_SECONDS) as attempt:
            for member in self._awaiting_victims(requirement):
                if member is not queued:
                    self._place_nominated(attempt, member)
            if not self._has_room(members, requirement, priority=queued.pod.priority):
                return None
            left = self._place_free(attempt, members, requirement, most_left=len(members))
            for number, member in enumerate(left):
                if requirement.roles and self._is_surplus(member, requirement.group):
                    continue
                placed = self.placed(requirement)
                if placed >= requirement.size or attempt.is_over or placed + len(left) - number < requirement.size:
                    break
                decision = attempt.next_candidate(member) or attempt.decide(member, preempts=True)
                preemption = decision.preemption
                if decision.host is not None:
                    attempt.place(member, decision.host, order=decision.device_order)
                elif preemption is None:
                    continue
                elif preemption.keeps_nomination and member.pod.nominated_node:
                    self._place_nominated(attempt, member)
                elif preemption.nominated_node and not any(v.uid in attempt.placed for v in preemption.victims):
                    attempt.evict(member, preemption)
                    found[member.pod.uid] = decision
                    attempt.keep_candidates(member, decision)
            return found if self.placed(requirement) >= requirement.size else None

    def _awaiting_victims(self, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place whose victims are being evicted, or are on their way out."""
        return [
            member
            for uid, member in self._queue.group(requirement.group).items()
            if member.pod.nominated_node and not member.errors and uid not in self._cluster.pods
        ]

    def _place_nominated(self, attempt: _Attempt, member: QueuedPod) -> None:
        node_name = member.pod.nominated_node
        for other in list(self._cluster.pods_on(node_name).values()):
            if other.terminating and other.priority < member.pod.priority:
                attempt.displace(other.uid)
        attempt.place(member, node_name)

    # --- what needs no trial -------------------------------------------------------------------------

    def _has_room(self, members: Sequence[QueuedPod], requirement: GangRequirement, *, priority: int | None) -> bool:
        """Return whether the nodes have the resources and devices for enough members, whatever else refuses them.

        Costs one look at the columns for each kind of member, where a trial costs a decision for each member.

        priority: what pods of lower priority hold counts as free; None: it does not.
        """
        needed = requirement.size - self.placed(requirement)
        profile = self._algorithm.profile(members[0].pod)
        if profile is None or not any(isinstance(plugin, NodeResourcesFit) for plugin in profile.filters):
            return True
        alike: dict[PodTemplate, list[QueuedPod]] = {}
        for member in members:
            alike.setdefault(member.pod.template, []).append(member)
        room, free = 0, free_now(self._cluster) if priority is None else free_without(self._cluster, priority)
        for template, pods in alike.items():
            devices = claimed_kinds(self._algorithm.frame(pods[0]))
            everywhere = Members(template, len(pods), np.ones(self._cluster.nodes.size, np.bool_), devices)
            room += min(len(pods), int(places_of(self._cluster, everywhere, free=free).sum()))
            if room >= needed:
                return True
        return room >= needed

    def _attempt(self, end: float) -> _Attempt:
        return _Attempt(self._cluster, self._algorithm, waiting=self._waiting, stopwatch=self._stopwatch, end=end)


class _Attempt:
    """Placements that are taken back at the end."""

    def __init__(
        self,
        cluster: Cluster,
        algorithm: ScheduleAlgorithm,
        *,
        waiting: Mapping[str, AssumedPod],
        stopwatch: Callable[[], float],
        end: float,
    ) -> None:
        """waiting: by uid, who waits at Permit: they hold devices that are not written yet."""
        self._cluster = cluster
        self._algorithm = algorithm
        self._waiting = waiting
        self._stopwatch = stopwatch
        self._end = end
        self._refused = RefusalMemo()
        """Since the last placement: of pods alike one is looked at."""
        self._candidates: dict[PodTemplate, tuple[Decision, list[tuple[str, Victims]]]] = {}
        """Other nodes with victims that a search found for a pod of a template, the best last."""
        self._frees_others = False
        """Whether evictions made room on other nodes than those they were for."""
        self._budgets: Budgets | None = None
        self.placed: set[str] = set()
        self._displaced: list[tuple[PodInfo, str]] = []
        self._reserved: list[ClaimReservation] = []
        self._freed: dict[str, Callable[[], None]] = {}
        """By uid of those displaced: what reserves their devices again."""

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._stopwatch() > self._end

    def decide(self, queued: QueuedPod, *, preempts: bool) -> Decision:
        """Decide a member on the changed cluster."""
        return self._algorithm.decide(queued, preempts=preempts, memo=self._refused)

    def keep_candidates(self, queued: QueuedPod, decision: Decision) -> None:
        """Keep what a search for victims found beside the node that was taken, for the next member that is alike."""
        found, template = decision.preemption, queued.pod.template
        if (
            found is None
            or not found.candidates
            or self._frees_others
            or template in self._candidates
            or not self._algorithm.is_alike(queued)
        ):
            return
        now, name = self._algorithm.frame(queued).now, found.nominated_node
        others = [(node, victims) for node, victims in found.candidates.items() if node != name]
        others.sort(key=lambda other: (other[1].order(now), other[0]), reverse=True)
        self._candidates[template] = msgspec.structs.replace(decision, preemption=None), others

    def next_candidate(self, queued: QueuedPod) -> Decision | None:
        """Return the next of these that would still do; None where a search is needed.

        A search looks at every node, and a gang has many members that are alike. What it found for one of them holds
        for another one, unless budgets, or others who wait for the same node, have a say: then it is searched again.
        """
        decision, others = self._candidates.get(queued.pod.template, (None, []))
        if decision is None or not self._algorithm.is_alike(queued):
            return None
        self._budgets = self._budgets or Budgets(self._cluster)
        while others:
            name, victims = others.pop()
            there = self._cluster.pods_on(name)
            if name in self._cluster.nominated or not all(victim.uid in there for victim in victims.pods):
                continue
            if self._budgets.covers(victims.pods):
                break
            mark = len(self._displaced)
            for victim in victims.pods:
                self.displace(victim.uid)
            does = self._algorithm.passes(queued, name)
            self._put_back(mark)
            if does:
                return msgspec.structs.replace(decision, pod=queued.pod, preemption=Preemption(name, victims.pods))
        del self._candidates[queued.pod.template]
        return None

    def evict(self, member: QueuedPod, preemption: Preemption) -> None:
        """Place a pod where victims make room for it."""
        there = self._cluster.pods_on(preemption.nominated_node or "")
        if any(victim.uid not in there for victim in preemption.victims):
            self._frees_others = True  # a whole gang: the next member may find free nodes where its members were
            self._candidates.clear()
        for victim in preemption.victims:
            self.displace(victim.uid)
        self.place(member, preemption.nominated_node or "")

    def place(self, member: QueuedPod, node_name: str, *, order: DeviceOrder | None = None) -> None:
        """Place a pod that had no place, with the devices that it claims. order: what selects among them."""
        pod, row = member.pod, self._cluster.nodes.rows.get(node_name)
        if row is not None and has_claims(pod.template, self._cluster):
            reserved = reserve_on(self._algorithm.frame(member).at(np.array([row])).ordered(order))
            if isinstance(reserved, ClaimReservation):
                self._reserved.append(reserved)
        self._cluster.place(pod, node_name)
        self.placed.add(pod.uid)
        self._refused.clear()

    def displace(self, uid: str) -> None:
        """Displace a pod that had one."""
        node_name = self._cluster.node_of(uid)
        pod = self._cluster.displace(uid)
        if pod is not None and node_name is not None:
            self._displaced.append((pod, node_name))
            assumed = self._waiting.get(uid)
            if assumed is not None and assumed.has_devices:
                self._freed[uid] = assumed.free_devices(self._cluster)
            self._refused.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reserved in reversed(self._reserved):
            undo(reserved, self._cluster)
        for uid in self.placed:
            self._cluster.displace(uid)
        self._put_back(0)

    def _put_back(self, mark: int) -> None:
        """Take back what was displaced since there were so many."""
        for pod, node_name in reversed(self._displaced[mark:]):
            self._cluster.place(pod, node_name)
            if (reserve_again := self._freed.pop(pod.uid, None)) is not None:
                reserve_again()
        del self._displaced[mark:]
