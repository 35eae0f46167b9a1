"""Whether a gang would be complete if others gave way: tried out on the columns, then undone."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from operator import is_
from typing import NamedTuple, TypeAlias

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.objects import PodDisruptionBudget
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds, thrifty_orders
from kube_policy_scheduler.framework.decide.gang_domains import Members, free_now, free_without, places_of
from kube_policy_scheduler.framework.decide.refusal_memo import RefusalMemo
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.groups.attempt import AssumedPod, Attempt
from kube_policy_scheduler.framework.permit import GangRequirement, Group, Permit
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.preempt.trials import NODES_A_UNIT, VERDICT_WORK
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

MOST_FREE_WORK = 50_000
"""So much is tried at a time whether a gang finds free nodes, or places that others give back: 0.1 s of work."""
MOST_EVICTING_WORK = 500_000
"""Limit of a search for the victims of a gang, 1 s of work: enough for a few hundred members that each must search on
5,000 nodes, or for many thousands that are alike."""
_MOST_NEW_WORK = 15_000
"""A trial for free nodes decides no more than so much for members of which each is the first of its kind: 30 ms."""
_MOST_NODES = 1_000_000
"""Of all kinds of members together, that are looked at for room: 10 ms."""
_MOST_UNDER_WAY = 8
_MOST_RESTARTS = 8
"""A trial with evictions that changes in the cluster set back so often is finished in one turn, one without is left."""


class Unfinished(Enum):
    """A trial goes on in another turn of the event loop."""

    UNFINISHED = "unfinished"


UNFINISHED = Unfinished.UNFINISHED
Evictions: TypeAlias = dict[str, Decision]
"""Decisions with victims, by the uid of the member that they are for."""


class _Basis(NamedTuple):
    """What a trial depends on besides nodes and the pods on them. If it changes, the trial starts over."""

    facts: tuple[object, ...]
    members: Sequence[QueuedPod]
    pods: Sequence[PodInfo]
    """Of the members."""
    signals: Signals

    def is_same(self, other: _Basis) -> bool:
        """Return whether both are the same."""
        return (
            self.facts == other.facts
            and self.signals is other.signals
            and len(self.members) == len(other.members)
            and all(map(is_, self.members, other.members))
            and all(map(is_, self.pods, other.pods))
        )


class _UnderWay(NamedTuple):
    """A trial that goes on in another turn."""

    queued: QueuedPod
    """The member that it was begun for."""
    basis: _Basis
    attempt: Attempt
    steps: Generator[None, None, Evictions | bool | None]
    evicts: bool


class GangTrial:
    """Tries places for the members of gangs."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        permit: Permit,
        waiting: Mapping[str, AssumedPod],
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where places are tried.
            queue: of the pending pods.
            algorithm: decides.
            permit: the pods that wait for their gang.
            waiting: by uid, their places.
        """
        self._cluster, self._queue = cluster, queue
        self._permit = permit
        self._waiting = waiting
        self._algorithm = algorithm
        self._refused_beside = RefusalMemo()
        """Of members that found no node beside nominated pods."""
        self._beside_at: Hashable = None
        """The state of everything for which that is so."""
        self._under_way: dict[Group, _UnderWay] = {}
        self._restarts: dict[Group, int] = {}
        """How often changes set a trial back that is under way."""
        self._attempt: Attempt | None = None
        """What is tried out at this moment."""

    def placed(self, requirement: GangRequirement) -> int:
        """Return how many members of a group have a place, as far as it needs them, those that wait included."""
        return requirement.filled(self._number_of)

    def is_surplus(self, requirement: GangRequirement) -> bool:
        """Return whether a pod would fill no place that its group needs, which is not complete."""
        placed = self.placed(requirement)
        return placed < requirement.size and placed == requirement.filled(self._number_of, joining=1)

    def _number_of(self, group_of: GroupOf, group: Group) -> int:
        noted = self._attempt.number_of(group) if self._attempt is not None else 0
        return self._cluster.counters.group_size(group_of, group) + noted

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
        end = self._algorithm.work + MOST_FREE_WORK
        for group in reversed(later):
            for uid in self._permit.members(group):
                gone[uid] = next(c for c in self._waiting[uid].requirements if c.group == group)
            fits = self._fits_without(gone, queued, requirement, most_work=end - self._algorithm.work)
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

    def fits(
        self, queued: QueuedPod, requirement: GangRequirement, *, most_work: int | None = None
    ) -> bool | Unfinished:
        """Return whether the group would be complete on free nodes, as far as that is known after `MOST_FREE_WORK`.

        Where so many members differ that a trial would not come to its end, only the resources are looked at.

        most_work: as for `preempt`.
        """
        members = self._members(queued, requirement)
        kinds = len({member.pod.template for member in members})
        if kinds * (VERDICT_WORK + self._cluster.nodes.size // NODES_A_UNIT) > _MOST_NEW_WORK:
            return self._has_room(members, requirement, priority=None)
        if most_work is None:  # and a trial that is under way stays so
            return self._fits_without((), queued, requirement, most_work=MOST_FREE_WORK) is not False
        attempt = self._new_attempt(MOST_FREE_WORK)
        begun = _UnderWay(
            queued,
            self._basis(queued, requirement, members, evicts=False),
            attempt,
            self._fitting(attempt, members, requirement),
            evicts=False,
        )
        found = self._in_turns(begun, requirement.group, most_work)
        return found if isinstance(found, Unfinished) else found is not False

    def places(self, queued: QueuedPod, requirement: GangRequirement) -> dict[str, str] | None:
        """Return free nodes by uid for all members that a group still needs, the pod first; None: it does not fit."""
        members = self._members(queued, requirement)
        with self._trying(MOST_FREE_WORK) as attempt:
            if not self._has_room(members, requirement, priority=None):
                return None
            most_left = len(members) + self.placed(requirement) - requirement.size
            self._place_all(attempt, members, requirement, most_left=most_left)
            if self.placed(requirement) < requirement.size:
                return None
            hosts = {uid: self._cluster.node_of(uid) for uid in attempt.placed}
            return {uid: host for uid, host in hosts.items() if host is not None}

    def needed(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place that a group needs to be complete, the pod first."""
        return self._members(queued, requirement)[: max(1, requirement.size - self.placed(requirement))]

    def _fits_without(
        self, gone: Iterable[str], queued: QueuedPod, requirement: GangRequirement, *, most_work: int
    ) -> bool | None:
        """Try it out once some have given their places back; None where that is not known after so much work."""
        members = self._members(queued, requirement)
        with self._trying(most_work) as attempt:
            for uid in gone:
                attempt.displace(uid)
            steps = self._fitting(attempt, members, requirement)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    found: bool | None = end.value
                    return found

    def _fitting(
        self, attempt: Attempt, members: Sequence[QueuedPod], requirement: GangRequirement
    ) -> Generator[None, None, bool | None]:
        """Try free nodes; see `_fits_without`. Yields where a turn ends."""
        if not self._has_room(members, requirement, priority=None):
            return False
        most_left = len(members) + self.placed(requirement) - requirement.size
        yield from self._place_free(attempt, members, requirement, most_left=most_left)
        return self.placed(requirement) >= requirement.size or (None if attempt.is_over else False)

    def _members(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        return [queued, *(other for other in self.siblings((requirement,)) if other is not queued)]

    def _place_all(
        self, attempt: Attempt, members: Sequence[QueuedPod], requirement: GangRequirement, *, most_left: int
    ) -> None:
        """Place members while the group is not complete, as `_place_free`, in one turn."""
        for _ in self._place_free(attempt, members, requirement, most_left=most_left):
            pass

    def _place_free(
        self, attempt: Attempt, members: Sequence[QueuedPod], requirement: GangRequirement, *, most_left: int
    ) -> Generator[None, None, list[QueuedPod]]:
        """Place members while the group is not complete; return those for whom there is no free node.

        Yields where a turn ends. most_left: with more of these it is of no use to go on.
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
            if attempt.ends_turn:
                yield
        return left

    def thrifty_order(self, queued: QueuedPod, requirement: GangRequirement) -> Thrifty | None:
        """Return an order of devices in which all that a group needs find some, where the others wait, too; None: none.

        The members that wait with a place give it back for the trial. Those that run keep what they have.
        """
        group = requirement.group
        waiting = [self._waiting[uid].queued for uid in self._permit.members(group)]
        members = [*self._members(queued, requirement), *waiting]
        kinds = {member.pod.template: member for member in members}
        if not any(has_claims(template, self._cluster) for template in kinds):
            return None
        orders: Sequence[Thrifty] = ()
        with self._trying(MOST_FREE_WORK) as attempt:
            for member in waiting:  # what they hold is no choice any more
                attempt.displace(member.pod.uid)
            for member in kinds.values():
                orders = max(orders, thrifty_orders(self._algorithm.frame(member)), key=len)
        end = self._algorithm.work + MOST_FREE_WORK
        for order in orders:
            self._algorithm.order_devices(group, order)
            with self._trying(end - self._algorithm.work) as attempt:
                for member in waiting:
                    attempt.displace(member.pod.uid)
                most_left = len(members) + self.placed(requirement) - requirement.size
                self._place_all(attempt, members, requirement, most_left=most_left)
                if self.placed(requirement) >= requirement.size:
                    return order
        self._algorithm.order_devices(group, None)
        return None

    def beside_nominated(self, queued: QueuedPod) -> Decision:
        """Decide a member where it leaves every nominated pod its room, also those over which it has precedence."""
        if self._beside_at != self._algorithm.state:
            self._beside_at = self._algorithm.state
            self._refused_beside.clear()
        with self._cluster.keeping_nominated():
            return self._algorithm.decide(queued, preempts=False, memo=self._refused_beside)

    # --- evictions -----------------------------------------------------------------------------------

    def is_under_way(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether the last `preempt` for a pod goes on."""
        trial = self._under_way.get(requirement.group)
        return trial is not None and trial.evicts and trial.queued is queued

    def preempt(
        self, queued: QueuedPod, requirement: GangRequirement, *, last: bool = False, most_work: int | None = None
    ) -> Evictions | Unfinished | None:
        """Return for whom others must be evicted so that the pod's group is complete, by uid; None: it would not be.

        Members take free nodes first, then the room that evictions for others leave, and only as many evict as the
        group needs. A member that waits for its victims to end counts as placed. With nobody in the answer there is
        nobody to evict: the group will be complete.

        Args:
            queued: a member.
            requirement: of its group.
            last: whether the pod itself leaves free nodes to the others that the group needs.
            most_work: after which the trial pauses, see `trial.NODE_WORK`. The next call continues it, or starts over
                if something has changed that the trial depends on. None: the trial does not pause.
        """
        members = self._members(queued, requirement)
        if last:
            before = max(0, requirement.size - self.placed(requirement) - 1)
            members = [*members[1 : 1 + before], queued, *members[1 + before :]]
        awaiting = [member for member in self._awaiting_victims(requirement) if member is not queued]
        attempt = self._new_attempt(MOST_EVICTING_WORK)
        begun = _UnderWay(
            queued,
            self._basis(queued, requirement, [*members, *awaiting], evicts=True),
            attempt,
            self._evicting(attempt, members, awaiting, requirement, priority=queued.pod.priority),
            evicts=True,
        )
        found = self._in_turns(begun, requirement.group, most_work)
        assert not isinstance(found, bool)
        return found

    def _basis(
        self, queued: QueuedPod, requirement: GangRequirement, members: Sequence[QueuedPod], *, evicts: bool
    ) -> _Basis:
        facts = (
            evicts,
            self._algorithm.profile(queued.pod),
            requirement,
            self.placed(requirement),
            self._cluster.store.version(PodDisruptionBudget),
        )
        return _Basis(facts, members, [member.pod for member in members], self._algorithm.signals)

    def _in_turns(self, begun: _UnderWay, group: Group, most_work: int | None) -> Evictions | bool | Unfinished | None:
        """Go on with the trial that is under way for a group if it is the same, or begin one."""
        with self._cluster.ledger.silent():
            return self._turn_of(self._resumed(group, begun.basis) or begun, group, most_work)

    def _turn_of(self, trial: _UnderWay, group: Group, most_work: int | None) -> Evictions | bool | Unfinished | None:
        if self._restarts.get(group, 0) >= _MOST_RESTARTS:
            if not trial.evicts:
                trial.attempt.undo()
                self._restarts.pop(group, None)
                return None
            most_work = None
        attempt = self._attempt = trial.attempt
        attempt.begin_turn(most_work)
        try:
            with search_work(self._cluster.store).at_once():
                next(trial.steps)
        except StopIteration as end:
            attempt.undo()
            self._restarts.pop(group, None)
            found: Evictions | bool | None = end.value
            return found
        except BaseException:
            attempt.undo()
            raise
        finally:
            self._attempt = None
        attempt.pause()
        while len(self._under_way) >= _MOST_UNDER_WAY:
            del self._under_way[next(iter(self._under_way))]
        self._under_way[group] = trial
        return UNFINISHED

    def _resumed(self, group: Group, basis: _Basis) -> _UnderWay | None:
        """Return the trial that this call continues, with its placements tried again; None: it starts over.

        A group has one: if its members took turns to begin their own, none of these would come to its end.
        """
        trial = self._under_way.pop(group, None)
        if trial is None:
            while len(self._restarts) >= _MOST_UNDER_WAY:
                del self._restarts[next(iter(self._restarts))]
            return None
        if trial.basis.is_same(basis) and trial.attempt.resume():
            return trial
        trial.steps.close()
        self._restarts[group] = self._restarts.get(group, 0) + 1
        return None

    def _evicting(
        self,
        attempt: Attempt,
        members: Sequence[QueuedPod],
        awaiting: Sequence[QueuedPod],
        requirement: GangRequirement,
        *,
        priority: int,
    ) -> Generator[None, None, Evictions | None]:
        """Try evictions; see `preempt`. Yields where a turn ends."""
        for member in awaiting:
            self._place_nominated(attempt, member)
            if attempt.ends_turn:
                yield
        if not self._has_room(members, requirement, priority=priority):
            return None
        left = yield from self._place_free(attempt, members, requirement, most_left=len(members))
        found: Evictions = {}
        for number, member in enumerate(left):
            if requirement.roles and self._is_surplus(member, requirement.group):
                continue
            placed = self.placed(requirement)
            if placed >= requirement.size or attempt.is_over or placed + len(left) - number < requirement.size:
                break
            decision = attempt.free_again(member)
            if decision is not None and decision.host is not None:
                attempt.place(member, decision.host, order=decision.device_order)
            elif (opened := attempt.opened_node(member)) is not None:
                attempt.place_beside(member, opened)
            else:
                decision = attempt.next_candidate(member) or attempt.decide(member, preempts=True)
                while decision.is_unfinished and not attempt.is_over:
                    yield
                    decision = attempt.decide(member, preempts=True)
                if self._evict(attempt, member, decision):
                    found[member.pod.uid] = decision
            if attempt.ends_turn:
                yield
        return found if self.placed(requirement) >= requirement.size else None

    def _evict(self, attempt: Attempt, member: QueuedPod, decision: Decision) -> bool:
        """Try what was decided about a member; return whether others are evicted for it."""
        preemption = decision.preemption
        if decision.host is not None:
            attempt.place(member, decision.host, order=decision.device_order)
        elif preemption is None or preemption.is_unfinished:
            return False
        elif preemption.keeps_nomination and member.pod.nominated_node:
            self._place_nominated(attempt, member)
        elif preemption.nominated_node and not any(v.uid in attempt.placed for v in preemption.victims):
            attempt.keep_candidates(member, decision)
            attempt.evict(member, preemption)
            return True
        return False

    def _awaiting_victims(self, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place whose victims are being evicted, or are on their way out."""
        return [
            member
            for uid, member in self._queue.group(requirement.group).items()
            if member.pod.nominated_node and not member.errors and uid not in self._cluster.pods
        ]

    def _place_nominated(self, attempt: Attempt, member: QueuedPod) -> None:
        node_name, now = member.pod.nominated_node, self._algorithm.frame(member).steady
        for other in list(self._cluster.pods_on(node_name).values()):
            if self._cluster.is_going(other, now) and other.priority < member.pod.priority:
                attempt.displace(other.uid)
        attempt.place(member, node_name)

    # --- what needs no trial -------------------------------------------------------------------------

    def _has_room(self, members: Sequence[QueuedPod], requirement: GangRequirement, *, priority: int | None) -> bool:
        """Return whether the nodes have the resources and devices for enough members, whatever else refuses them.

        Costs one look at the columns for each kind of member, where a trial costs a decision for each member. Of very
        many kinds, those with the most members are looked at, and the others count as if there were room.

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
        most_kinds = max(1, _MOST_NODES // max(1, self._cluster.nodes.size))
        for number, (template, pods) in enumerate(sorted(alike.items(), key=lambda each: -len(each[1]))):
            if number >= most_kinds:
                room += len(pods)
                continue
            devices = claimed_kinds(self._algorithm.frame(pods[0]))
            everywhere = Members(template, len(pods), np.ones(self._cluster.nodes.size, np.bool_), devices)
            room += min(len(pods), int(places_of(self._cluster, everywhere, free=free).sum()))
            if room >= needed:
                return True
        return room >= needed

    def _new_attempt(self, most_work: int) -> Attempt:
        return Attempt(self._cluster, self._algorithm, waiting=self._waiting, most_work=most_work)

    @contextmanager
    def _trying(self, most_work: int) -> Iterator[Attempt]:
        """Take everything back at the end."""
        attempt = self._new_attempt(most_work)
        with self._cluster.ledger.silent(), search_work(self._cluster.store).at_once():
            try:
                yield attempt
            finally:
                attempt.undo()
