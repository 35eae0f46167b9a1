"""The one question about a gang: is there a plan for all members that it needs, or of what is it short?

As in kube-scheduler's pod group cycle, nothing is assumed before all members that are needed are pending and fit
together. A plan has free nodes for them, or evicts others for them: by `reclaim`, or else by priority. All of it is
tried on the columns, and taken back: in one turn of the event loop, or in several for a large gang.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from operator import is_
from typing import NamedTuple, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.objects import PodDisruptionBudget
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaRejection, QuotaUsage
from kube_policy_scheduler.cluster.search_work import search_work
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import Domain, DomainCounts, Shortfall, Where
from kube_policy_scheduler.framework.decide.gang_table import GangRecord
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, outermost_first, whole
from kube_policy_scheduler.framework.groups.attempt import Attempt, WaitingPod
from kube_policy_scheduler.framework.groups.eviction import Nominations, evictions, place_awaiting
from kube_policy_scheduler.framework.groups.members import MOST_KINDS, GangMembers
from kube_policy_scheduler.framework.groups.seating import Seating
from kube_policy_scheduler.framework.groups.whole_preemption import (
    NeededRoom,
    Preemptor,
    choices_for,
    is_whole,
    preempt_whole,
    told_of,
)
from kube_policy_scheduler.framework.preempt.preemption import EvictionRules, Preemption, why_never
from kube_policy_scheduler.framework.preempt.reclaim import (
    NOTHING_RECLAIMED,
    RETRY_SECONDS,
    NotReclaimed,
    Reclaimed,
    reclaim,
)
from kube_policy_scheduler.framework.preempt.trials import WORK_SECONDS
from kube_policy_scheduler.framework.queue.scheduling_queue import ASKED_AT_ONCE, QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.quota import QUOTA, quota_message, rejection
from kube_policy_scheduler.times import Steady

NOT_AS_A_WHOLE = "preemption: not attempted, because the gang does not fit as a whole"
NOT_PLANNED = Shortfall("it waits for its turn to be planned as a whole", is_known=False)
MOST_DOMAINS_TRIED = 8
"""Domains in which evictions for a gang are tried in one attempt."""
_MOST_ASKED = 4
"""Members that complete a gang, for which `reclaim` is tried in one attempt."""
_MOST_UNDER_WAY = 8
_LET_IN_WORK = 4 * ASKED_AT_ONCE
"""To let members in once, see `trials.NODE_WORK`: 4 to 8 µs each."""
_MOST_RESTARTS = 8
"""A plan that changes in the cluster set back so often is finished in one turn."""


class Plan(msgspec.Struct, eq=False):
    """Places for all members that a group needs: free nodes, or room that others make for them."""

    decisions: dict[str, Decision] = msgspec.field(default_factory=dict)
    """By uid, in the order in which they were found; empty if others must go first."""
    nominations: Nominations = msgspec.field(default_factory=dict)
    """By uid of members; empty if they get free nodes."""
    instead_of: Shortfall | None = None
    """Why there are no free nodes; None: there are."""


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


Steps: TypeAlias = Generator[int, None, Plan | Shortfall]
"""Yields where a turn may end, the work since the last time (see `trials.NODE_WORK`)."""


class _UnderWay(NamedTuple):
    """A plan that goes on in another turn."""

    queued: QueuedPod
    """The member that it was begun for."""
    basis: _Basis
    attempt: Attempt
    """As far as it has come."""
    steps: Steps


class Planner:
    """Plans gangs."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        clock: Callable[[], Steady],
        waiting: Mapping[str, WaitingPod],
        domains: DomainCounts | None = None,
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where places are tried.
            queue: of the pending pods.
            algorithm: decides.
            clock: the time.
            waiting: by uid, the pods that are assumed and wait for the rest of their gang.
            domains: counts the domains of gangs; None: nobody asks.
        """
        self.cluster, self._queue, self.algorithm, self._clock = cluster, queue, algorithm, clock
        self._waiting, self._gangs = waiting, algorithm.gangs
        queue.keep_groups_in(self._gangs)
        self.members = GangMembers(cluster, queue, algorithm)
        self.seating = Seating(cluster, queue, algorithm, self.members, domains=domains or DomainCounts())
        self._under_way: deque[GangRecord] = deque()
        """The gangs whose plans go on in another turn, the one begun first first."""

    def plan(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Steps:
        """Return a plan for all that the groups of a pod need, or why there is none.

        If it ends where it yields, the plan pauses: the next call continues it, or starts over if something has changed
        that the plan depends on.

        Args:
            queued: a member.
            requirements: of its groups, not all of which are complete.
        """
        incomplete = tuple(filter(self.members.lacks, requirements))
        while self._queue.is_letting_in(outermost_first(incomplete)[0].group):
            self._queue.ask_again()
            yield _LET_IN_WORK
        found: Plan | Shortfall | None = self._over_quota(queued, requirements)
        if found is None:
            found = yield from self._plan_within_quota(queued, requirements, incomplete)
        if isinstance(found, Plan) or found.reclaim is not None or (found.awaits_victims and queued.pod.nominated_node):
            return found
        return self._reclaim(queued, requirements, found)

    def places(
        self,
        queued: QueuedPod,
        requirements: Sequence[GangRequirement],
        *,
        beside: Sequence[QueuedPod] = (),
        settles: bool = True,
    ) -> dict[str, str] | None:
        """Return free nodes by uid for all that the groups of a pod need, as the cluster stands; None: none.

        Args:
            queued: a member.
            requirements: of its groups.
            beside: members that get the nodes to which they are nominated, where they fit there; not in the answer.
            settles: whether the groups are to be placed there from now on.
        """
        with self._trying(len(self.members.siblings(requirements)) + 1) as attempt:
            for member in beside:
                attempt.place_if_it_fits(member, member.pod.nominated_node)
            short = now(self.seating.place(attempt, queued, requirements))
            found = {uid: each.host for uid, each in attempt.decisions.items() if each.host is not None}
            if short is not None or not settles:
                attempt.give_up()
            return found if short is None else None

    # --- quotas ----------------------------------------------------------------------------------------

    def _over_quota(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Shortfall | None:
        """Return why queues have no quota for all members that a gang needs; None: they have."""
        profile = self.algorithm.profile(queued.pod)
        rules = profile.queues if profile is not None else None
        if rules is None:
            return None
        usage = self.cluster.track_usage(rules.tree)
        for requirement in requirements:
            members = self.members.pending(queued, (requirement,))
            found = self._rejected_by_quota(queued, requirement, members, usage)
            if found is None:
                continue
            place = usage.tree.resources.index(found.resource)
            least = sorted(members, key=lambda member: dict(usage.amounts(member.pod)).get(place, 0))
            if self._rejected_by_quota(queued, requirement, least, usage) is not None:
                message = f"{requirement}: {quota_message(found, gang='the gang')}"
                return Shortfall(message, rejected_by=frozenset((QUOTA,)), is_of_quota=True)
        return None

    def _rejected_by_quota(
        self, queued: QueuedPod, requirement: GangRequirement, members: Sequence[QueuedPod], usage: QuotaUsage
    ) -> QuotaRejection | None:
        """Return why queues have no quota for the first of some members that fill the places of a gang."""
        by_queue: dict[Quota, list[PodInfo]] = {}
        for member in self.members.filling(members, requirement) or [queued]:
            queue = usage.quota_of(member.pod.template)
            if queue is not None:
                by_queue.setdefault(queue, []).append(member.pod)
        gang = frozenset(self._queue.group(requirement.group))
        earlier = list[tuple[Quota, Amounts]]()  # of other queues, which may share a limit above them
        for queue, pods in by_queue.items():
            amounts = usage.request(pods)
            with usage.counting(earlier):
                found = rejection(self.cluster, usage, queue, queued.pod, amounts, gang=gang)
            earlier.append((queue, amounts))
            if found is not None:
                return found
        return None

    def _reclaim(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement], short: Shortfall
    ) -> Plan | Shortfall:
        """Evict pods of queues that borrow for a whole gang, if that completes it; else say why not, too."""
        profile, time = self.algorithm.profile(queued.pod), self._clock()
        rules = profile.queues if profile is not None else None
        requirement = whole(requirements)
        if rules is None or not rules.reclaims or requirement is None:
            return short
        record = self._gangs.of(requirement.group)
        state = self.algorithm.state, self._queue.group_version(requirement.group), time // RETRY_SECONDS
        if record.plans.reclaim_waits == state:  # another member has found so: each of them is tried
            return msgspec.structs.replace(short, reclaim=Reclaimed(why=NotReclaimed.WAITS))
        # one that is nominated may wait for pods that end, whatever an attempt found before
        if record.plans.reclaims_again_at > time and not self.cluster.is_nominated(queued.pod.uid):
            return msgspec.structs.replace(short, reclaim=Reclaimed(look_later=True))
        incomplete = tuple(filter(self.members.lacks, requirements))
        evicting = self.members.evicting(queued, incomplete)
        asked = self._that_may_reclaim(queued, requirement, evicting, self.cluster.track_usage(rules.tree))
        found = NOTHING_RECLAIMED
        for members in asked:
            frame = self.algorithm.frame(members[0])
            if record.plans.entitled_since is not None:
                frame = msgspec.structs.replace(frame, entitled=record.plans.entitled_since + frame.ahead)
            tried = reclaim(
                frame,
                rules,
                [member.pod for member in members],
                lambda: self.places(queued, incomplete, beside=evicting),
                own=frozenset(each.group for each in requirements),
            )
            first, places = members[0].pod.uid, tried.places
            if tried.victims and first in places and places.keys() <= {member.pod.uid for member in members}:
                self._gangs.succeeded(record)
                nominations = {member: Preemption(host) for member, host in places.items()}
                nominations[first] = Preemption(places[first], tried.victims, reclaims=True, sharing=tried.sharing)
                return Plan(nominations=nominations, instead_of=short)
            if tried.victims:  # others got the room, who may have other rights
                placed = [other for other in self.members.pending(queued, (requirement,)) if other.pod.uid in places]
                if len(asked) < _MOST_ASKED and not any(_are_same(placed, each) for each in asked):
                    asked.append(placed)
                tried = Reclaimed(why=NotReclaimed.NO_VICTIMS, look_later=True)
            is_settled = tried.why is not None and not tried.found_nobody
            found = tried if is_settled or found.why is None else found
            if is_settled:
                break
        if not found.waits:
            for each in incomplete:
                if each.levels and not self.members.have_begun(each):
                    self._gangs.settle(each.group, None)
        if found.is_patient and record.plans.entitled_since is None:
            record.plans.entitled_since = time
        if found.found_nobody:
            record.plans.reclaims_again_at = time + RETRY_SECONDS
        record.plans.reclaim_waits = state if found.waits else None
        return msgspec.structs.replace(short, reclaim=found)

    def _that_may_reclaim(
        self, queued: QueuedPod, requirement: GangRequirement, evicting: Sequence[QueuedPod], usage: QuotaUsage
    ) -> list[list[QueuedPod]]:
        """Return members that complete a group: those that come first, and if others ask for less, these.

        Nominated members come first. Before them come `evicting`, which count, but are not in the answer. So once pods
        are evicted for as many members as a group needs, none are evicted for other members in their place.
        """
        places, pending = range(len(usage.tree.resources)), self.members.pending(queued, (requirement,))
        members = sorted(pending, key=lambda member: not self.cluster.is_nominated(member.pod.uid))
        known = set(map(id, evicting))

        def completing(members: Sequence[QueuedPod]) -> list[QueuedPod]:
            found = self.members.filling([*evicting, *members], requirement)
            return [member for member in found if id(member) not in known]

        first = completing(members) or [queued]

        def asks(member: QueuedPod) -> list[int]:
            amounts = dict(usage.amounts(member.pod))
            return [amounts.get(place, 0) for place in places]

        least = completing(sorted(members, key=asks))
        return [first, least] if least and not _are_same(first, least) else [first]

    # --- nodes -----------------------------------------------------------------------------------------

    def _plan_within_quota(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement], incomplete: Sequence[GangRequirement]
    ) -> Steps:
        """Plan a gang unless it pauses, and note what comes of it; arguments as for `_planning`."""
        group, time = outermost_first(incomplete)[0].group, self._clock()
        state = self.algorithm.state, self._queue.group_version(group)
        record, began = self._gangs.of(group), self.algorithm.work
        awaits = any(map(self.members.await_victims, incomplete))
        if record.plans.awaits_victims and not awaits:
            self._gangs.succeeded(record)  # the room that it waited for is there
        record.plans.awaits_victims = awaits
        if not self.goes_on(queued, incomplete) and not self._gangs.may_plan(record, state, time):
            short = record.plans.shortfall or NOT_PLANNED
            return msgspec.structs.replace(short, awaits_victims=awaits, reclaim=None)  # time alone may change that
        try:
            found = yield from self._going_on(queued, requirements, incomplete, record)
        except GeneratorExit:
            self._gangs.went_on(record, seconds=self._seconds_since(began))
            raise
        if isinstance(found, Plan):
            self._gangs.succeeded(record)
        else:
            record.plans.shortfall = found
            self._gangs.failed(record, state, time, seconds=self._seconds_since(began))
        return found

    def _seconds_since(self, work: int) -> float:
        """Return what was decided since so much work was done takes."""
        return (self.algorithm.work - work) * WORK_SECONDS

    def _planning(
        self,
        queued: QueuedPod,
        requirements: Sequence[GangRequirement],
        incomplete: Sequence[GangRequirement],
        record: GangRecord,
    ) -> Steps:
        """Look for free nodes, then for evictions. Rules of groups stay as they were unless there is a plan.

        Args:
            queued: a member.
            requirements: of its groups.
            incomplete: those of them that are not complete.
            record: of the gang.
        """
        attempt = self._begin(len(self.members.pending(queued, incomplete)))
        is_complete = False
        try:
            short = yield from self.seating.place(attempt, queued, incomplete)
            if short is None:
                is_complete = True
                return Plan(dict(attempt.decisions))
        finally:
            if not is_complete:
                attempt.give_up()
        record.plans.shortfall = short
        short = msgspec.structs.replace(short, awaits_victims=record.plans.awaits_victims)
        outer = whole(incomplete)
        if record.plans.awaits_victims or not any(map(self._has_victims, self.members.pending(queued, incomplete))):
            return short
        found = self._reclaim(queued, requirements, short)  # what is guaranteed comes first, as for a pod alone
        if isinstance(found, Plan) or (found.reclaim is not None and found.reclaim.waits):
            return found
        short = found
        if outer is None or (self._has_inner_domains(queued, outer) and not is_whole(outer, self.cluster.rules)):
            return msgspec.structs.replace(short, verdict=NOT_AS_A_WHOLE)
        if outer.levels:
            return (yield from self._evicting_in_domains(queued, outer, short))
        members = self.members.pending(queued, (outer,))
        alone = yield from self._begin(0).deciding(queued)
        short = msgspec.structs.replace(short, verdict=NOT_AS_A_WHOLE)
        if alone is not None and alone.host is None and (alone.preemption is None or not alone.preemption.victims):
            verdict = alone.preemption.message.rstrip(".") if alone.preemption is not None else ""
            short = msgspec.structs.replace(short, verdict=verdict)
            if self._stands_for_all(queued, members, outer):
                return short
        made = yield from self._evicting(queued, members, outer)
        return self._room_made(made, outer, short) if made else short

    def _has_victims(self, member: QueuedPod) -> bool:
        """Return whether pods of a lower priority run, and the policy of a member has some evicted."""
        profile = self.algorithm.profile(member.pod)
        return profile is not None and profile.preempts and self.cluster.priorities.has_below(member.pod.priority)

    def _stands_for_all(self, queued: QueuedPod, members: Sequence[QueuedPod], requirement: GangRequirement) -> bool:
        """Return whether a group has no plan if nobody can be evicted from any node for this one of its members.

        It has, if it can do without the member, or if filters look beyond a node: then pods must go from several nodes,
        or others of the group must get their places first.
        """
        is_needed = len(members) + self.members.placed(requirement) <= requirement.size
        is_any = all(member.pod.template is queued.pod.template for member in members)
        return (is_needed or is_any) and not self.algorithm.looks_elsewhere(queued)

    def _has_inner_domains(self, queued: QueuedPod, outer: GangRequirement) -> bool:
        """Return whether a group of a pod inside a wider one must be in one domain."""
        requirements = self.algorithm.gang_requirements(queued)
        return any(each.levels for each in requirements if each.group != outer.group)

    def _room_made(self, found: Nominations, requirement: GangRequirement, short: Shortfall) -> Plan:
        return Plan(nominations=found, instead_of=told_of(found, requirement, short, self.cluster.rules))

    def _evicting_in_domains(self, queued: QueuedPod, requirement: GangRequirement, short: Shortfall) -> Steps:
        """Look for a domain in which evictions make room for all that a group needs; its members are to go there."""
        tried = set[Domain]()
        if self.members.nominated_rows(requirement.group):
            return short
        members = self.members.pending(queued, (requirement,))
        # the pod itself leaves free nodes to the others that the group needs
        before = max(0, requirement.size - self.members.placed(requirement) - 1)
        members = [*members[1 : 1 + before], queued, *members[1 + before :]]
        for _ in range(MOST_DOMAINS_TRIED):
            domain = self.seating.domain_with_evictions(queued, requirement, tried)
            if isinstance(domain, Shortfall):
                break
            found = yield from self._evicting(queued, members, requirement, where=domain)
            if found:
                return self._room_made(found, requirement, short)
            if not isinstance(domain, Domain):
                break
            tried.add(domain)
        return short

    def _evicting(
        self,
        queued: QueuedPod,
        members: Sequence[QueuedPod],
        requirement: GangRequirement,
        *,
        where: Where | None = None,
    ) -> Generator[int, None, Nominations]:
        """Return where members go that a group needs once others are evicted, and who; nothing: not even so.

        Args:
            queued: the pod for which it is tried.
            members: in the order in which they are tried, the pod among them.
            requirement: of the group.
            where: all of them are to be there; None: that is settled.
        """
        members = sorted(members, key=lambda member: member.pod.priority)  # free nodes for those that may evict fewer
        for way in self._ways(queued, members, requirement):
            attempt, found = self._begin(0), Nominations()
            try:
                if where is not None:
                    attempt.settle(requirement.group, where)
                awaiting = [member for member in self.members.awaiting_victims(requirement) if member is not queued]
                awaiting = yield from place_awaiting(attempt, self.members, awaiting)
                highest = max(member.pod.priority for member in members)
                if self.seating.has_room(members, requirement, priority=highest):
                    found = yield from way(attempt, members, awaiting, requirement, where)
                if found:
                    return found
            finally:
                if not found:
                    attempt.give_up()
        return {}

    def _ways(
        self, queued: QueuedPod, members: Sequence[QueuedPod], requirement: GangRequirement
    ) -> Iterator[Callable[..., Generator[int, None, Nominations]]]:
        """Yield the ways to evict for a group, the one to try first first.

        To search for victims for one member after the other takes the fewest, and looks at one node at a time. If
        filters look further, all that may go is tried to be gone, which kube-scheduler does for PodGroups anyway.
        """
        by_kubernetes = is_whole(requirement, self.cluster.rules)
        all_may = all(map(self._may_evict, _one_of_each(members)))
        if by_kubernetes:
            if not all_may:
                return  # as kube-scheduler: one pod of the group that evicts nobody speaks for it
            yield self._evicting_all
        if not self._has_inner_domains(queued, requirement):
            yield self._evicting_some
            kinds = islice(_one_of_each(members), MOST_KINDS)
            if not by_kubernetes and all_may and any(map(self.algorithm.looks_elsewhere, kinds)):
                yield self._evicting_all

    def _may_evict(self, member: QueuedPod) -> bool:
        profile = self.algorithm.profile(member.pod)
        return profile is not None and not why_never(self.algorithm.frame(member), profile)

    def _evicting_some(
        self,
        attempt: Attempt,
        members: Sequence[QueuedPod],
        awaiting: Sequence[QueuedPod],
        requirement: GangRequirement,
        _: Where | None,
    ) -> Generator[int, None, Nominations]:
        return evictions(
            attempt,
            self.members,
            members,
            awaiting,
            requirement,
            rules=partial(self._most_rules, members),
            seat=partial(self.seating.seat_what_fits, attempt, requirement, members),
        )

    def _evicting_all(
        self,
        attempt: Attempt,
        members: Sequence[QueuedPod],
        awaiting: Sequence[QueuedPod],
        requirement: GangRequirement,
        where: Where | None,
    ) -> Generator[int, None, Nominations]:
        preemptors = self._preemptors(members)
        if not preemptors:
            return {}
        unplaced = self.members.unplaced(members[0], requirement, anywhere=True)
        within = where.mask(self.cluster) if isinstance(where, Domain) else None
        every = is_whole(requirement, self.cluster.rules)
        for units in choices_for(preemptors, NeededRoom(requirement, unplaced, within)):
            seat = partial(self.seating.seat_all, attempt, requirement, members, every=every)
            found = yield from preempt_whole(attempt, self.members, members, awaiting, requirement, units, seat=seat)
            if found:
                return found
        return {}

    def _most_rules(self, members: Sequence[QueuedPod]) -> EvictionRules:
        """Return which pods are evicted together for the member that may evict most, as the cluster stands."""
        first = max(members, key=lambda member: member.pod.priority)
        profile = self.algorithm.profile(first.pod)
        assert profile is not None, "others are evicted for it"
        return EvictionRules(self.algorithm.frame(first), profile)

    def _preemptors(self, members: Sequence[QueuedPod]) -> list[Preemptor]:
        """Return one member of each kind for which other pods may go; none if these are more than `MOST_KINDS`."""
        found = dict[Hashable, Preemptor]()
        for member in _one_of_each(members):
            profile = self.algorithm.profile(member.pod)
            assert profile is not None, "it may evict others"
            are_alike = profile.preemption is None and profile.queues is None
            key: Hashable = (profile, member.pod.priority) if are_alike else member.pod.template
            if key not in found:
                found[key] = Preemptor(self.algorithm.frame(member), profile)
            if len(found) > MOST_KINDS:
                return []
        return list(found.values())

    # --- turns -----------------------------------------------------------------------------------------

    def _basis(self, queued: QueuedPod, incomplete: Sequence[GangRequirement]) -> _Basis:
        pending = self.members.pending(queued, incomplete)
        awaiting = [member for each in incomplete for member in self.members.awaiting_victims(each)]
        members = list({id(member): member for member in (*pending, *awaiting)}.values())
        facts = (
            self.algorithm.profile(queued.pod),
            tuple((requirement, self.members.placed(requirement)) for requirement in incomplete),
            self.cluster.store.version(PodDisruptionBudget),
        )
        return _Basis(facts, members, [member.pod for member in members], self.algorithm.signals)

    def _going_on(
        self,
        queued: QueuedPod,
        requirements: Sequence[GangRequirement],
        incomplete: Sequence[GangRequirement],
        record: GangRecord,
    ) -> Steps:
        """Go on with the plan that is under way for a group if it is the same, or begin one; see `_planning`."""
        basis = self._basis(queued, incomplete)
        with self.cluster.ledger.silent():
            trial = self._resumed(record, basis)
            first = trial.queued if trial is not None else queued
            steps = trial.steps if trial is not None else self._planning(queued, requirements, incomplete, record)
            may_pause = record.plans.restarts < _MOST_RESTARTS
            try:
                with search_work(self.cluster.store).at_once():
                    while True:
                        done = next(steps)
                        if may_pause:
                            yield done
            except StopIteration as end:
                record.plans.restarts = 0
                found: Plan | Shortfall = end.value
                return found
            except GeneratorExit:
                if self.members.attempt is not None:
                    self._pause(_UnderWay(first, basis, self.members.attempt, steps), record)
                raise
            finally:
                if self.members.attempt is not None:
                    self.members.attempt.hide()
                    self.members.attempt = None

    def goes_on(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> bool:
        """Return whether a plan for a group of a pod is under way that was begun for it."""
        records = (self._gangs.get(each.group) for each in requirements)
        under_way = (record.plans.under_way for record in records if record is not None)
        return any(isinstance(trial, _UnderWay) and trial.queued is queued for trial in under_way)

    def _pause(self, trial: _UnderWay, record: GangRecord) -> None:
        """Take back what a plan tried until it goes on."""
        trial.attempt.pause()
        while len(self._under_way) >= _MOST_UNDER_WAY:
            _drop(self._under_way.popleft())
        record.plans.under_way = trial
        self._under_way.append(record)

    def _resumed(self, record: GangRecord, basis: _Basis) -> _UnderWay | None:
        """Return the plan that this call continues, with its placements tried again; None: it starts over.

        A group has one: if its members took turns to begin their own, none of these would come to its end.
        """
        trial = record.plans.under_way
        if not isinstance(trial, _UnderWay):
            record.plans.restarts = 0
            return None
        record.plans.under_way = None
        self._under_way.remove(record)
        if trial.basis.is_same(basis) and trial.attempt.resume():
            self.members.attempt = trial.attempt
            return trial
        trial.steps.close()
        record.plans.restarts += 1
        return None

    def drop(self, group: Group) -> None:
        """Drop the plan of a gang that is under way, if there is one: it has started."""
        record = self._gangs.get(group)
        if record is not None and record.plans.under_way is not None:
            self._under_way.remove(record)
            _drop(record)

    def forget(self) -> None:
        """Drop the plans that are under way: the rules have changed."""
        while self._under_way:
            _drop(self._under_way.popleft())

    def _begin(self, members: int) -> Attempt:
        """Try something from now on, instead of what was given up."""
        self.members.attempt = self._new_attempt(members)
        return self.members.attempt

    def _new_attempt(self, members: int) -> Attempt:
        """Return one for a plan with so many members that are decided once in any case."""
        return Attempt(self.cluster, self.algorithm, waiting=self._waiting, members=members)

    @contextmanager
    def _trying(self, members: int) -> Iterator[Attempt]:
        """Take all places back at the end."""
        before = self.members.attempt
        with self.cluster.ledger.silent(), search_work(self.cluster.store).at_once():
            attempt = self._begin(members)
            try:
                yield attempt
            finally:
                attempt.hide()
                self.members.attempt = before


def _one_of_each(members: Sequence[QueuedPod]) -> Iterable[QueuedPod]:
    """Return one member of each template, the first."""
    return {member.pod.template: member for member in reversed(members)}.values()


def _are_same(members: Iterable[QueuedPod], others: Iterable[QueuedPod]) -> bool:
    """Return whether both are the same members, in any order."""
    return {id(member) for member in members} == {id(other) for other in others}


def _drop(record: GangRecord) -> None:
    """Drop the plan of a gang that is under way."""
    if isinstance(record.plans.under_way, _UnderWay):
        record.plans.under_way.steps.close()
    record.plans.under_way, record.plans.restarts = None, 0
