"""Plans a gang whole: places for all members that it needs, tried out on the columns and taken back.

As in kube-scheduler's pod group cycle, nothing is assumed before all members that are needed are pending and fit
together. What is tried out is undone: in one turn of the event loop, or in several for a large gang.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import is_
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.objects import PodDisruptionBudget
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds, thrifty_orders
from kube_policy_scheduler.framework.decide.gang_domains import (
    Domain,
    Preference,
    Rest,
    Shortfall,
    choose,
    domain_of,
    holding,
    inside_of,
    largest_first,
    preference,
    rows_of,
)
from kube_policy_scheduler.framework.decide.gang_room import (
    Members,
    are_independent,
    free_now,
    free_without,
    needs_others,
    places_of,
)
from kube_policy_scheduler.framework.decide.gang_table import ANYWHERE, Anywhere, GangRecord, GangTable
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, outermost_first
from kube_policy_scheduler.framework.groups.attempt import Attempt, WaitingPod
from kube_policy_scheduler.framework.groups.search import WORK_CUT, SeatSearch
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from kube_policy_scheduler.framework.preempt.trials import VERDICT_WORK
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims

MOST_SPARED = 1024
"""Checks of whether a member still fits if a victim stays: 0.1 s. In larger gangs nobody is spared."""
NO_ROOM = "the nodes have no room for all pods that it needs at once"
MOST_SEARCHED = 32
"""Members of a larger gang are not searched for: no search of so few steps would come to its end."""
MOST_DEPENDENT = 8
"""The same, where members exclude or need each other: then no node is like another, and each step costs more."""
_MOST_KINDS = 32
"""Of so many kinds of members, it is looked on which nodes they may be; the others count as if they may be on any."""
_MOST_NODES = 1_000_000
"""Of all kinds of members together, that are looked at for room: 10 ms."""
_MOST_UNDER_WAY = 8
_MOST_RESTARTS = 8
"""A plan that changes in the cluster set back so often is finished in one turn."""
_MOST_DEPTH = 16
"""Groups within groups that are planned inside each other."""


Evictions: TypeAlias = dict[str, Decision]
"""Decisions with nominated nodes, and with victims where there are some, by the uid of the member they are for."""


class Plan(msgspec.Struct, eq=False):
    """Places for all members that a group needs."""

    decisions: dict[str, Decision]
    """By uid, in the order in which they were found."""


class _Basis(NamedTuple):
    """What a plan depends on besides nodes and the pods on them. If it changes, the plan starts over."""

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


Outcome: TypeAlias = Plan | Shortfall | Evictions | None
Steps: TypeAlias = Generator[int, None, Outcome]


class _UnderWay(NamedTuple):
    """A plan that goes on in another turn."""

    queued: QueuedPod
    """The member that it was begun for."""
    basis: _Basis
    attempt: Attempt
    steps: Steps
    evicts: bool


class _Draft:
    """What a plan has tried so far, of which any part can be taken back: places on the columns, and rules of groups."""

    def __init__(self, attempt: Attempt, gangs: GangTable) -> None:
        self.attempt, self._gangs = attempt, gangs
        self._rules: list[Callable[[], None]] = []
        """What undoes each, the oldest first."""

    def mark(self) -> tuple[int, int]:
        """Return what `undo_to` goes back to."""
        return self.attempt.mark(), len(self._rules)

    def undo_to(self, mark: tuple[int, int]) -> None:
        """Take back what was tried since."""
        self.attempt.undo_to(mark[0])
        while len(self._rules) > mark[1]:
            self._rules.pop()()

    def forget_rules(self) -> None:
        """Have domains and orders of devices be what they were; the places are taken back by others."""
        while self._rules:
            self._rules.pop()()

    def settle(self, group: Group, where: Domain | Anywhere) -> None:
        """Place members of a group there from now on."""
        self._rules.append(partial(self._gangs.settle, group, self._gangs.where(group)))
        self._gangs.settle(group, where)

    def order(self, group: Group, order: Thrifty) -> None:
        """Give members of a group devices in an order from now on."""
        self._rules.append(partial(self._gangs.order_devices, group, None))
        self._gangs.order_devices(group, order)


class Planner:
    """Finds places for the members of gangs."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        waiting: Mapping[str, WaitingPod],
        left: Callable[[Domain], None] = lambda domain: None,
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where places are tried.
            queue: of the pending pods.
            algorithm: decides.
            waiting: by uid, the pods that are assumed and wait for the rest of their gang.
            left: told of each domain in which a gang did not fit though there seemed to be room.
        """
        self.cluster, self._queue, self.algorithm = cluster, queue, algorithm
        self._waiting, self._left = waiting, left
        self._gangs = algorithm.gangs
        self._under_way: deque[GangRecord] = deque()
        """The gangs whose plans go on in another turn, the one begun first first."""
        self._attempt: Attempt | None = None
        """What is tried out at this moment."""

    # --- members ---------------------------------------------------------------------------------------

    def placed(self, requirement: GangRequirement) -> int:
        """Return how many members of a group have a place, as far as it needs them, those that wait included."""
        return requirement.filled(self._number_of)

    def is_surplus(self, requirement: GangRequirement) -> bool:
        """Return whether a pod would fill no place that its group needs, which is not complete."""
        placed = self.placed(requirement)
        return placed < requirement.size and placed == requirement.filled(self._number_of, joining=1)

    def _number_of(self, group_of: GroupOf, group: Group) -> int:
        noted = self._attempt.number_of(group) if self._attempt is not None else 0
        return self.cluster.counters.group_size(group_of, group) + noted

    def siblings(self, requirements: Sequence[GangRequirement]) -> list[QueuedPod]:
        """Return the pods of the same groups that are not decided yet, as the queue would serve them."""
        found = {
            uid: queued
            for requirement in requirements
            for uid, queued in self._queue.group(requirement.group).items()
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE) and not queued.errors
        }
        return sorted(found.values(), key=lambda queued: (-queued.pod.priority, queued.timestamp))

    def needed(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place that a group needs to be complete, the pod first."""
        return self._members(queued, requirement)[: max(1, requirement.size - self.placed(requirement))]

    def _members(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        return [queued, *(other for other in self.siblings((requirement,)) if other is not queued)]

    def nominated_rows(self, group: Group) -> list[int]:
        """Return the rows of the nodes on which members without a place wait for victims to end."""
        if not self.cluster.nominated:
            return []
        rows = self.cluster.nodes.rows
        names = (member.pod.nominated_node for member in self._queue.group(group).values() if not member.has_place)
        return [rows[name] for name in names if name in rows]

    # --- free nodes ------------------------------------------------------------------------------------

    def plan(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement]
    ) -> Generator[int, None, Plan | Shortfall]:
        """Return free nodes for all that the groups of a pod need, or why there are none.

        Yields the work (see `trials.NODE_WORK`). If it ends there, the plan pauses: the next call continues it, or
        starts over if something has changed that the plan depends on.

        Args:
            queued: a member.
            requirements: of its groups that are not complete.
        """
        members = [queued, *(other for other in self.siblings(requirements) if other is not queued)]
        attempt = self._new_attempt(len(members))
        begun = _UnderWay(
            queued,
            self._basis(queued, requirements, members, evicts=False),
            attempt,
            self._planning(attempt, queued, tuple(requirements)),
            evicts=False,
        )
        found = yield from self._going_on(begun, outermost_first(requirements)[0].group)
        assert isinstance(found, Plan | Shortfall)
        return found

    def places(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> dict[str, str] | None:
        """Return free nodes by uid for all that the groups of a pod need, as the cluster stands; None: none."""
        with self._trying(len(self.siblings(requirements)) + 1) as attempt:
            found = now(self._planning(attempt, queued, tuple(requirements)))
        if not isinstance(found, Plan):
            return None
        return {uid: decision.host for uid, decision in found.decisions.items() if decision.host is not None}

    def _planning(
        self, attempt: Attempt, queued: QueuedPod, requirements: tuple[GangRequirement, ...]
    ) -> Generator[int, None, Plan | Shortfall]:
        """Plan; yields where a turn may end. Domains and orders of devices stay as they were unless there is a plan."""
        draft, is_complete = _Draft(attempt, self._gangs), False
        begin = draft.mark()
        try:
            short = yield from self._place_all(draft, queued, requirements)
            if short is not None:
                draft.undo_to(begin)
                for order in self._thrifty_orders(queued, requirements):
                    draft.order(outermost_first(requirements)[0].group, order)
                    if (yield from self._place_all(draft, queued, requirements)) is None:
                        short = None
                        break
                    draft.undo_to(begin)
            is_complete = short is None
            return short if short is not None else Plan(dict(attempt.decisions))
        finally:
            if not is_complete:
                draft.forget_rules()

    def _place_all(
        self, draft: _Draft, queued: QueuedPod, requirements: Sequence[GangRequirement]
    ) -> Generator[int, None, Shortfall | None]:
        """Place what the groups of a pod need; return why that is not possible."""
        for requirement in outermost_first(requirements):
            if self.placed(requirement) < requirement.size:
                short = yield from self._complete(draft, requirement, queued, ())
                if short is not None:
                    return (
                        None if draft.attempt.placed else short
                    )  # a wider group that is complete may start without it
        return None

    def _complete(
        self,
        draft: _Draft,
        requirement: GangRequirement,
        first: QueuedPod,
        around: tuple[GangRequirement, ...],
    ) -> Generator[int, None, Shortfall | None]:
        """Place what a group needs, in one domain if it must be in one; return why that is not possible.

        Args:
            draft: what is placed so far.
            requirement: of the group.
            first: the member to begin with.
            around: the groups inside which this one is placed.
        """
        if len(around) >= _MOST_DEPTH:
            return Shortfall(f"more than {_MOST_DEPTH} groups depend on each other")
        if not requirement.levels:
            return (yield from self._seat(draft, requirement, first, around))
        mark, tried, cut = draft.mark(), dict[Domain, Shortfall](), ""
        while True:
            found = self._domain(first, requirement, around, tried)
            if isinstance(found, Shortfall):
                return msgspec.structs.replace(found, message=_cut(tried, cut)) if cut else found
            draft.settle(requirement.group, found if found is not None else ANYWHERE)
            yield draft.attempt.step()
            short = yield from self._seat(draft, requirement, first, around)
            if short is None:
                return None
            draft.undo_to(mark)
            if found is None or found in tried or draft.attempt.is_over:
                return short
            tried[found] = short
            cut = cut or short.cut
            self._left(found)

    def _domain(
        self,
        first: QueuedPod,
        requirement: GangRequirement,
        around: tuple[GangRequirement, ...],
        tried: Collection[Domain],
    ) -> Domain | Shortfall | None:
        """Return the next domain to try for a group: where its members are, or one that may have room for the rest."""
        group, cluster, within = requirement.group, self.cluster, None
        known = self._gangs.where(group)
        has_places = requirement.members(cluster.counters.group_size) > 0
        if known is not None and has_places:
            return known if isinstance(known, Domain) else None
        if not has_places and (nominated := self.nominated_rows(group)):
            if known is not None:
                return known if isinstance(known, Domain) else None
            return domain_of(cluster, requirement.levels, nominated)
        for other in around:
            if other.levels and (domain := self._gangs.domain(other.group)) is not None:
                mask = domain.mask(cluster)
                within = mask if within is None else within & mask
        for inner in self._inside(first, requirement, around):
            within = inside_of(within, holding(cluster, self._rest(first, inner), within=within))
        rest = self._rest(first, requirement)
        return choose(cluster, rest, prefers=self._preference(first), within=within, skipped=tried)

    def _rest(self, queued: QueuedPod, requirement: GangRequirement, *, anywhere: bool = False) -> Rest:
        """Return what is left to place of a group; anywhere: as for `_unplaced`."""
        rows = rows_of(self.cluster, requirement) if requirement.members(self.cluster.counters.group_size) else ()
        return Rest(
            requirement.levels,
            self._unplaced(queued, requirement, anywhere=anywhere),
            max(1, requirement.size - self.placed(requirement)),
            np.array(rows, np.intp) if rows else None,
        )

    def _inside(
        self, first: QueuedPod, requirement: GangRequirement, around: tuple[GangRequirement, ...]
    ) -> Iterator[GangRequirement]:
        """Yield the narrower groups of a pod that must be in one domain each, and have no place yet."""
        size_of, known = self.cluster.counters.group_size, {requirement.group, *(each.group for each in around)}
        for each in outermost_first(self.algorithm.gang_requirements(first)):
            if each.levels and each.group not in known and not each.members(size_of):
                yield each

    def _preference(self, queued: QueuedPod) -> Preference:
        """Return which of several domains the policy of a pod prefers."""
        profile = self.algorithm.profile(queued.pod)
        return preference(profile.domains if profile is not None else None, self.algorithm.frame(queued))

    def _unplaced(self, queued: QueuedPod, requirement: GangRequirement, *, anywhere: bool = False) -> list[Members]:
        """Return the members without a place by template; those that cannot be decided now count as the pod itself.

        anywhere: whether nodes that are full, or reject them for now, count too: victims may make room there.
        """
        there = self._attempt.placed if self._attempt is not None else {}
        pods, numbers = dict[PodTemplate, QueuedPod](), Counter[PodTemplate]()
        for member in self._members(queued, requirement):
            if member.pod.uid not in there:
                pods.setdefault(member.pod.template, member)
                numbers[member.pod.template] += 1
        missing = requirement.size - self.placed(requirement) - numbers.total()
        if missing > 0:
            pods.setdefault(queued.pod.template, queued)
            numbers[queued.pod.template] += missing
        everywhere = np.ones(self.cluster.nodes.size, np.bool_)
        self.algorithm.work += VERDICT_WORK * min(len(numbers), _MOST_KINDS) if not anywhere else 0
        return [
            Members(
                template,
                number,
                everywhere if anywhere or kind >= _MOST_KINDS else self.algorithm.feasible(pods[template]),
                claimed_kinds(self.algorithm.frame(pods[template])),
                requirement.role_of(template),
            )
            for kind, (template, number) in enumerate(numbers.items())
        ]

    # --- seats -----------------------------------------------------------------------------------------

    def _seat(
        self,
        draft: _Draft,
        requirement: GangRequirement,
        first: QueuedPod,
        around: tuple[GangRequirement, ...],
    ) -> Generator[int, None, Shortfall | None]:
        """Place what a group needs: as the queue serves its members; if they differ, in other orders before it fails.

        These are: the largest first; the largest first, each on the fullest node; then any, in a bounded search.
        """
        members = self._members(first, requirement)
        if not self._has_room(members, requirement, priority=None):
            return Shortfall(NO_ROOM, rejected_by=_resource_plugins(members, self.cluster))
        mark, inside = draft.mark(), (*around, requirement)
        short = yield from self._fill(draft, members, inside)
        if short is None or self._has_inner(members, inside):
            return short
        draft.undo_to(mark)
        yield draft.attempt.step()
        rejected = self._queue.get(short.rejection.pod.uid) if short.rejection is not None else None
        is_needed = len(members) + self.placed(requirement) <= requirement.size  # none can take its place
        alone = rejected is not None and is_needed and not needs_others(rejected.pod.template)
        if rejected is not None and alone and not self.algorithm.feasible(rejected).any():
            return short  # it fits nowhere, in whatever order
        kinds = self._kinds(first, requirement)
        independent = all(are_independent(kind.template) for kind in kinds)
        if independent and not _differ(kinds):
            return short
        yield draft.attempt.step()
        place = {template: number for number, template in enumerate(largest_first(self.cluster, kinds))}
        members = sorted(
            members, key=lambda each: (needs_others(each.pod.template), place.get(each.pod.template, len(place)))
        )
        for fullest in (False, True):
            draft.undo_to(mark)
            if (yield from self._fill(draft, members, inside, fullest=fullest)) is None:
                return None
        draft.undo_to(mark)
        if requirement.size - self.placed(requirement) > (MOST_SEARCHED if independent else MOST_DEPENDENT):
            return msgspec.structs.replace(short, cut="there are too many pods to try every way to seat them")
        search = SeatSearch(
            draft.attempt,
            self.algorithm,
            self.cluster,
            requirement,
            kinds,
            placed=self.placed,
            is_surplus=self.is_surplus_of,
            independent=independent,
        )
        if (yield from search.seats(members)):
            return None
        return msgspec.structs.replace(short, cut=search.left_out)

    def _kinds(self, first: QueuedPod, requirement: GangRequirement) -> list[Members]:
        """Return the members by template; of very many templates, each may be anywhere."""
        kinds = {member.pod.template for member in self._members(first, requirement)}
        return self._unplaced(first, requirement, anywhere=len(kinds) > _MOST_KINDS)

    def _has_inner(self, members: Sequence[QueuedPod], inside: tuple[GangRequirement, ...]) -> bool:
        """Return whether some members are in further groups that are not complete."""
        known = _groups_of(inside)
        return any(
            self._next_inside(member, inside) is not None
            for member in {member.pod.template: member for member in members}.values()
            if not known.issuperset(member.groups)
        )

    def _next_inside(self, member: QueuedPod, inside: tuple[GangRequirement, ...]) -> GangRequirement | None:
        """Return the widest group of a member that must be complete before it is placed, and is not begun yet."""
        groups = {each.group for each in inside}
        for each in outermost_first(self.algorithm.gang_requirements(member)):
            if each.group not in groups and self.placed(each) < each.size:
                return each
        return None

    def _fill(
        self,
        draft: _Draft,
        members: Sequence[QueuedPod],
        inside: tuple[GangRequirement, ...],
        *,
        fullest: bool = False,
    ) -> Generator[int, None, Shortfall | None]:
        """Place members in turn until the innermost group is complete; return why it is not in the end.

        fullest: whether each gets the node that is fullest with it, instead of the one with the best score.
        """
        requirement, known = inside[-1], _groups_of(inside)
        most_left = len(members) + self.placed(requirement) - requirement.size
        left, found, closed = 0, None, set[Group]()
        for member in members:
            if self.placed(requirement) >= requirement.size or left > most_left:
                break
            if draft.attempt.is_over:
                return Shortfall(WORK_CUT, cut=WORK_CUT)
            if member.pod.uid in draft.attempt.placed:
                continue
            if requirement.roles and self.is_surplus_of(member, requirement.group):
                continue
            inner = self._next_inside(member, inside) if not known.issuperset(member.groups) else None
            if inner is None:
                decision = draft.attempt.decide(member)
                if decision.host is not None:
                    draft.attempt.seat(member, self._on_fullest(member) if fullest else decision)
                else:
                    left += 1
                    found = found or Shortfall("", rejection=decision)
            elif inner.group in closed:
                left += 1
            else:
                mark = draft.mark()
                short = yield from self._complete(draft, inner, member, inside)
                if short is not None:
                    draft.undo_to(mark)
                    closed.add(inner.group)
                    left += 1
                    found = found or short
            yield draft.attempt.step()
        if self.placed(requirement) >= requirement.size:
            return None
        return found or Shortfall(NO_ROOM)

    def _on_fullest(self, member: QueuedPod) -> Decision:
        """Return that a member, which has feasible nodes, gets the one that is fullest with it."""
        return self.algorithm.on_row(member, self.algorithm.by_fullness(member, most=1)[0])

    def is_surplus_of(self, member: QueuedPod, group: Group) -> bool:
        """Return whether a member would fill no place that a group needs."""
        own = (each for each in self.algorithm.gang_requirements(member) if each.group == group)
        return any(self.is_surplus(requirement) for requirement in own)

    def _thrifty_orders(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Sequence[Thrifty]:
        """Return the orders of devices in which members may leave more to others; none if they claim no devices."""
        kinds = {member.pod.template: member for member in [queued, *self.siblings(requirements)]}
        claiming = [member for template, member in kinds.items() if has_claims(template, self.cluster)]
        return max((thrifty_orders(self.algorithm.frame(member)) for member in claiming), key=len, default=())

    # --- evictions -------------------------------------------------------------------------------------

    def is_evicting(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether the last `evictions` for a pod go on."""
        record = self._gangs.get(requirement.group)
        trial = record.under_way if record is not None else None
        return isinstance(trial, _UnderWay) and trial.evicts and trial.queued is queued

    def evictions(
        self, queued: QueuedPod, requirement: GangRequirement, *, last: bool = False
    ) -> Generator[int, None, Evictions | None]:
        """Return where the members go that a group needs once others are evicted, and who; None: not even so.

        Members take free nodes first, then the room that evictions for others leave, and only as many evict as the
        group needs. A member that waits for its victims to end counts as placed, and is not in the answer. With nobody
        in the answer there is nobody to evict: the group will be complete. Yields as `plan`.

        Args:
            queued: a member.
            requirement: of its group.
            last: whether the pod itself leaves free nodes to the others that the group needs.
        """
        members = self._members(queued, requirement)
        if last:
            before = max(0, requirement.size - self.placed(requirement) - 1)
            members = [*members[1 : 1 + before], queued, *members[1 + before :]]
        awaiting = [member for member in self._awaiting_victims(requirement) if member is not queued]
        attempt = self._new_attempt(0)
        begun = _UnderWay(
            queued,
            self._basis(queued, (requirement,), [*members, *awaiting], evicts=True),
            attempt,
            self._evicting(attempt, members, awaiting, requirement, priority=queued.pod.priority),
            evicts=True,
        )
        found = yield from self._going_on(begun, requirement.group)
        assert not isinstance(found, Plan | Shortfall)
        return found

    def _evicting(
        self,
        attempt: Attempt,
        members: Sequence[QueuedPod],
        awaiting: Sequence[QueuedPod],
        requirement: GangRequirement,
        *,
        priority: int,
    ) -> Generator[int, None, Evictions | None]:
        """Try evictions; see `evictions`. Yields where a turn may end."""
        for member in awaiting:
            self._place_nominated(attempt, member)
            yield attempt.step()
        if not self._has_room(members, requirement, priority=priority):
            return None
        left = yield from self._place_free(attempt, members, requirement)
        victims: Evictions = {}
        for number, member in enumerate(left):
            if requirement.roles and self.is_surplus_of(member, requirement.group):
                continue
            placed = self.placed(requirement)
            if placed >= requirement.size or attempt.is_over or placed + len(left) - number < requirement.size:
                break
            decision = attempt.free_again(member)
            if decision is not None and decision.host is not None:
                attempt.seat(member, decision)
            elif (opened := attempt.opened_node(member)) is not None:
                attempt.place_beside(member, opened)
            else:
                decision = attempt.next_candidate(member) or (yield from attempt.deciding(member))
                if decision is not None and self._evict(attempt, member, decision):
                    victims[member.pod.uid] = decision
            yield attempt.step()
        if self.placed(requirement) < requirement.size:
            return None
        if not victims:
            return {}
        victims = self._without_spared(attempt, victims, members)
        waits = {member.pod.uid for member in awaiting}
        by_uid = {member.pod.uid: member.pod for member in members}
        return {
            uid: victims[uid] if uid in victims else Decision(by_uid[uid], None, preemption=Preemption(host))
            for uid, host in attempt.placed.items()
            if uid not in waits
        }

    def _without_spared(self, attempt: Attempt, victims: Evictions, members: Sequence[QueuedPod]) -> Evictions:
        """Return evictions without those victims that may stay after all, as later ones made enough room.

        The last one that was chosen is looked at first. Members of a gang stay together or not at all, and only where
        all of it that goes makes room for the same pod.
        """
        placed = [member for member in members if member.pod.uid in attempt.placed]
        if (
            sum(len(each.preemption.victims) for each in victims.values() if each.preemption) * len(placed)
            > MOST_SPARED
        ):
            return victims
        gangs = {
            victim.uid: attempt.gangs_of(victim)
            for decision in victims.values()
            if decision.preemption is not None
            for victim in decision.preemption.victims
        }
        members_of = Counter(group for groups in gangs.values() for group in groups or ())
        found: Evictions = {}
        for uid, decision in reversed(victims.items()):
            preemption = decision.preemption
            assert preemption is not None
            stay: set[str] = set()
            for unit in _together(preemption.victims[::-1], gangs):
                here = Counter(group for victim in unit for group in gangs[victim.uid] or ())
                is_whole = all(members_of[group] == number for group, number in here.items())
                is_known = all(gangs[victim.uid] is not None for victim in unit)
                if is_known and is_whole and attempt.spares(unit, placed):
                    stay |= {victim.uid for victim in unit}
            left = tuple(victim for victim in preemption.victims if victim.uid not in stay)
            if left:
                made = replace(preemption, victims=left)
                found[uid] = msgspec.structs.replace(decision, preemption=made)
        return dict(reversed(found.items()))

    def _place_free(
        self, attempt: Attempt, members: Sequence[QueuedPod], requirement: GangRequirement
    ) -> Generator[int, None, list[QueuedPod]]:
        """Place members on free nodes while the group is not complete; return those for whom there is none.

        Yields where a turn may end.
        """
        left: list[QueuedPod] = []
        for member in members:
            if self.placed(requirement) >= requirement.size or attempt.is_over:
                break
            if member.pod.uid in attempt.placed:
                continue
            if requirement.roles and self.is_surplus_of(member, requirement.group):
                continue
            decision = attempt.decide(member)
            if decision.host is not None:
                attempt.seat(member, decision)
            else:
                left.append(member)
            yield attempt.step()
        return left

    def _evict(self, attempt: Attempt, member: QueuedPod, decision: Decision) -> bool:
        """Try what was decided about a member; return whether others are evicted for it."""
        preemption = decision.preemption
        if decision.host is not None:
            attempt.seat(member, decision)
        elif preemption is None:
            return False
        elif preemption.keeps_nomination and member.pod.nominated_node:
            self._place_nominated(attempt, member)
        elif preemption.nominated_node and not any(v.uid in attempt.placed for v in preemption.victims):
            attempt.keep_candidates(member, decision)
            attempt.evict(member, preemption)
            return True
        return False

    def domain_with_evictions(
        self, queued: QueuedPod, requirement: GangRequirement, tried: Collection[Domain]
    ) -> Domain | Shortfall | None:
        """Return a domain that has room for all that a group needs once pods of lower priority are gone."""
        return choose(
            self.cluster,
            self._rest(queued, requirement, anywhere=True),
            prefers=self._preference(queued),
            skipped=tried,
            free=free_without(self.cluster, queued.pod.priority),
            most_free_first=True,
        )

    def awaits_victims(self, requirement: GangRequirement) -> bool:
        """Return whether pods that members of a group evicted are still on their nodes."""
        if not self.cluster.nominated:
            return False
        return any(self._victims_of(member) for member in self._awaiting_victims(requirement))

    def _awaiting_victims(self, requirement: GangRequirement) -> Iterator[QueuedPod]:
        """Yield the members without a place whose victims are being evicted, or are on their way out."""
        for uid, member in self._queue.group(requirement.group).items():
            if member.pod.nominated_node and not member.errors and uid not in self.cluster.pods:
                yield member

    def _victims_of(self, member: QueuedPod) -> list[str]:
        """Return the uids of the pods that end on the node that a member is nominated to."""
        now, priority = self.algorithm.frame(member).steady, member.pod.priority
        there = self.cluster.pods_on(member.pod.nominated_node).values()
        return [pod.uid for pod in there if pod.priority < priority and self.cluster.is_going(pod, now)]

    def _place_nominated(self, attempt: Attempt, member: QueuedPod) -> None:
        for uid in self._victims_of(member):
            attempt.displace(uid)
        attempt.place(member, member.pod.nominated_node)

    # --- turns -----------------------------------------------------------------------------------------

    def _basis(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement], members: Sequence[QueuedPod], *, evicts: bool
    ) -> _Basis:
        facts = (
            evicts,
            self.algorithm.profile(queued.pod),
            tuple((requirement, self.placed(requirement)) for requirement in requirements),
            self.cluster.store.version(PodDisruptionBudget),
        )
        return _Basis(facts, members, [member.pod for member in members], self.algorithm.signals)

    def _going_on(self, begun: _UnderWay, group: Group) -> Generator[int, None, Outcome]:
        """Go on with the plan that is under way for a group if it is the same, or begin one."""
        record, store = self._gangs.of(group), self.cluster.store
        with self.cluster.ledger.silent():
            trial = self._resumed(record, begun.basis) or begun
            may_pause = record.restarts < _MOST_RESTARTS
            attempt = self._attempt = trial.attempt
            try:
                with search_work(store).at_once():
                    while True:
                        done = next(trial.steps)
                        if may_pause:
                            yield done
            except StopIteration as end:
                attempt.undo()
                record.restarts = 0
                found: Outcome = end.value
                return found
            except GeneratorExit:
                self._pause(trial, record)
                raise
            except BaseException:
                attempt.undo()
                raise
            finally:
                self._attempt = None

    def _pause(self, trial: _UnderWay, record: GangRecord) -> None:
        """Take back what a plan tried until it goes on."""
        trial.attempt.pause()
        while len(self._under_way) >= _MOST_UNDER_WAY:
            _drop(self._under_way.popleft())
        record.under_way = trial
        self._under_way.append(record)

    def _resumed(self, record: GangRecord, basis: _Basis) -> _UnderWay | None:
        """Return the plan that this call continues, with its placements tried again; None: it starts over.

        A group has one: if its members took turns to begin their own, none of these would come to its end.
        """
        trial = record.under_way
        if not isinstance(trial, _UnderWay):
            record.restarts = 0
            return None
        record.under_way = None
        self._under_way.remove(record)
        if trial.basis.is_same(basis) and trial.attempt.resume():
            return trial
        trial.steps.close()
        record.restarts += 1
        return None

    def drop(self, group: Group) -> None:
        """Drop the plan of a gang that is under way, if there is one: it has started."""
        record = self._gangs.get(group)
        if record is not None and record.under_way is not None:
            self._under_way.remove(record)
            _drop(record)

    def forget(self) -> None:
        """Drop the plans that are under way: the rules have changed."""
        while self._under_way:
            _drop(self._under_way.popleft())

    # --- what needs no trial ---------------------------------------------------------------------------

    def _has_room(self, members: Sequence[QueuedPod], requirement: GangRequirement, *, priority: int | None) -> bool:
        """Return whether the nodes have the resources and devices for enough members, whatever else rejects them.

        Costs one look at the columns for each kind of member, where a trial costs a decision for each member. Of very
        many kinds, those with the most members are looked at, and the others count as if there were room.

        priority: what pods of lower priority hold counts as free; None: it does not.
        """
        needed = requirement.size - self.placed(requirement)
        profile = self.algorithm.profile(members[0].pod)
        if profile is None or not any(isinstance(plugin, NodeResourcesFit) for plugin in profile.filters):
            return True
        alike: dict[PodTemplate, list[QueuedPod]] = {}
        there = self._attempt.placed if self._attempt is not None else {}
        for member in members:
            if member.pod.uid not in there:
                alike.setdefault(member.pod.template, []).append(member)
        room, free = 0, free_now(self.cluster) if priority is None else free_without(self.cluster, priority)
        most_kinds = max(1, _MOST_NODES // max(1, self.cluster.nodes.size))
        for number, (template, pods) in enumerate(sorted(alike.items(), key=lambda each: -len(each[1]))):
            if number >= most_kinds:
                room += len(pods)
                continue
            devices = claimed_kinds(self.algorithm.frame(pods[0]))
            everywhere = Members(template, len(pods), np.ones(self.cluster.nodes.size, np.bool_), devices)
            room += min(len(pods), int(places_of(self.cluster, everywhere, free=free).sum()))
            if room >= needed:
                return True
        return room >= needed

    def _new_attempt(self, members: int) -> Attempt:
        """Return one for a plan with so many members that are decided once in any case."""
        return Attempt(self.cluster, self.algorithm, waiting=self._waiting, members=members)

    @contextmanager
    def _trying(self, members: int) -> Iterator[Attempt]:
        """Take everything back at the end."""
        attempt, before = self._new_attempt(members), self._attempt
        self._attempt = attempt
        with self.cluster.ledger.silent(), search_work(self.cluster.store).at_once():
            try:
                yield attempt
            finally:
                attempt.undo()
                self._attempt = before


def _drop(record: GangRecord) -> None:
    """Drop the plan of a gang that is under way."""
    if isinstance(record.under_way, _UnderWay):
        record.under_way.steps.close()
    record.under_way, record.restarts = None, 0


def _groups_of(inside: Sequence[GangRequirement]) -> frozenset[Group]:
    """Return the groups that some are, with those of their roles."""
    return frozenset(group for each in inside for group in (each.group, *(role.group for role in each.roles)))


def _resource_plugins(members: Sequence[QueuedPod], cluster: Cluster) -> frozenset[str]:
    """Return the plugins that say that there is no room for some pods."""
    claim = any(has_claims(template, cluster) for template in {member.pod.template for member in members})
    return frozenset((NodeResourcesFit.name, DynamicResources.name) if claim else (NodeResourcesFit.name,))


def _cut(tried: Collection[Domain], why: str) -> str:
    """Return what is known of domains in which not every seating was tried."""
    return f"{min(tried, key=str).name} may have room; {why}"


def _differ(kinds: Sequence[Members]) -> bool:
    """Return whether it matters in which order members of some kinds are placed."""
    first = kinds[0]
    return any(
        each.template.requests != first.template.requests
        or each.devices != first.devices
        or not np.array_equal(each.feasible, first.feasible)
        for each in kinds[1:]
    )


def _together(victims: Sequence[PodInfo], gangs: Mapping[str, frozenset[Group] | None]) -> list[list[PodInfo]]:
    """Return victims by what shares a gang, also by way of others; in the given order. gangs: theirs, by uid."""
    found: list[tuple[set[Group], list[PodInfo]]] = []
    for victim in victims:
        groups, unit = set(gangs[victim.uid] or ()), [victim]
        others = [each for each in found if not each[0].isdisjoint(groups)]
        for each in others:
            found.remove(each)
            groups |= each[0]
            unit = [*each[1], *unit]
        found.append((groups, unit))
    return [unit for _, unit in found]
