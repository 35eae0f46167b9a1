"""Permit: pods that have a node and wait for the rest of their gang; they bind together, or give their places back.

A group is placed in one go as far as possible: with its first member that finds a place the others are decided at
once, out of turn. Where two groups hold room that only one of them can use, the later one gives its room back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, Quota, QuotaUsage
from kube_policy_scheduler.framework.bounded_counts import largest
from kube_policy_scheduler.framework.deadlines import Deadlines
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY, ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds
from kube_policy_scheduler.framework.decide.gang_domains import (
    MOST_TOPOLOGIES,
    OTHER_TOPOLOGY,
    Domain,
    DomainCounts,
    Members,
    Preference,
    Shortfall,
    choose,
    domain_of,
    free_without,
    holding,
    inside_of,
    preference,
    rows_of,
)
from kube_policy_scheduler.framework.evaluate.diagnosis import refusal_message
from kube_policy_scheduler.framework.evaluate.nominations import is_kept_for_others
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.groups.attempt import AssumedPod
from kube_policy_scheduler.framework.groups.pacing import GangPacing
from kube_policy_scheduler.framework.groups.state import GangState, gang_state
from kube_policy_scheduler.framework.groups.trial import Evictions, GangTrial, Unfinished
from kube_policy_scheduler.framework.permit import (
    GangRequirement,
    Group,
    MissingGroupError,
    Permit,
    outermost_first,
    whole,
)
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from kube_policy_scheduler.framework.preempt.reclaim import RETRY_SECONDS, NotReclaimed, reclaim, request_of
from kube_policy_scheduler.framework.preempt.trials import WORK_SECONDS
from kube_policy_scheduler.framework.queue.scheduling_queue import (
    NO_GROUPS,
    Membership,
    Place,
    QueuedPod,
    SchedulingQueue,
)
from kube_policy_scheduler.framework.quota import QUOTA, RECLAIM, quota_message, refusal
from kube_policy_scheduler.times import Steady

AssumedT = TypeVar("AssumedT", bound=AssumedPod)
HeardT = TypeVar("HeardT", bound=AssumedPod, contravariant=True)

GATHER_EVERY_SECONDS = 1.0
"""How often, at most, the other members of a group are decided out of turn because one more of it found a place."""
REST_LOOK_SECONDS = 5.0
"""How often it is looked whether a group that rests would fit now."""
NOT_AS_A_WHOLE = "preemption: not attempted, because the gang does not fit as a whole"
NOT_NEEDED = "preemption: not needed by the gang"
MOST_DOMAINS_TRIED = 8
"""Domains that a gang tries in one attempt, if not all of its members fit in those that have the room."""
DOMAIN_RETRY_SECONDS = 10.0
"""For so long a gang tries other domains first."""
MOST_SHORTFALLS = 10_000
RESTS = "gang that rests"
"""The rejector of pods whose gang waits before its next attempt. When the wait ends, one pod is retried for all."""
NOTHING_WAKES: Mapping[str, frozenset[ClusterEvent]] = {NO_POLICY: frozenset(), RESTS: frozenset()}
"""But other policies, which always do."""


class PermitObserver(Protocol[HeardT]):
    """Hears of places that waiting pods give back."""

    def rejected(self, assumed: HeardT, why: str) -> None:
        """A waiting pod gave its place back."""
        ...

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """So many pods of a gang gave their places back."""
        ...

    def no_longer_fits(self, assumed: HeardT) -> None:
        """The node of a waiting pod changed: the pod is decided again."""
        ...

    def withdrawn(self, assumed: HeardT) -> None:
        """A waiting pod gave its place back and is decided again at once."""
        ...


class WaitingPods(Generic[AssumedT]):
    """The pods that wait at Permit, with what they hold."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        observer: PermitObserver[AssumedT],
        clock: Callable[[], Steady],
        look_seconds: float = REST_LOOK_SECONDS,
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where pods are assumed.
            queue: of the pending pods.
            algorithm: decides.
            observer: hears of places that are given back.
            clock: the time.
            look_seconds: how often it is looked whether a group that rests would fit.
        """
        self._cluster, self._queue = cluster, queue
        queue.hold_templates(cluster.templates_in_use)
        self._clock = clock
        self._observer = observer
        self._algorithm = algorithm
        self._look_seconds = look_seconds
        self.permit = Permit()
        self._waiting: dict[str, AssumedT] = {}
        self._waiting_on: dict[str, dict[str, AssumedT]] = {}
        """By node and uid."""
        self._unreported: dict[str, float] = {}
        """Since when the unreported ones wait, by UID, longest first."""
        self._unnominated: dict[str, float] = {}
        """Since when those wait whose node is not written as their nominated node, by UID, longest first."""
        self.trial = GangTrial(cluster, queue, algorithm, permit=self.permit, waiting=self._waiting)
        self.pacing = GangPacing(in_use=lambda group: bool(queue.group(group)))
        self._next: deque[str] = deque()
        self._failed_domains: dict[Group, Deadlines[Domain]] = {}
        """By group: domains in which not all members fit; for now others are tried first."""
        self._shortfalls: dict[Group, tuple[Hashable, Shortfall]] = {}
        """Groups for which no domain has room, and the state of everything for which that is so."""
        self.domain_counts = DomainCounts()
        self._reclaims_paused = Deadlines[Group]()
        """For these gangs no pods of other queues are evicted now, because an attempt found nobody."""
        self._first: Group | None = None
        """The last group that fits as a whole, with the room that is kept for pods of lower priority."""
        self._checked = Deadlines[Group]()
        """That one, for as long as it is not tried again whether it does."""
        self._gathered = Deadlines[Group]()
        """Groups with waiting pods whose other pods were moved forward in the queue just now."""

    # --- before a member is decided ------------------------------------------------------------------

    def membership(self, queued: QueuedPod) -> Membership:
        """Return a pod's groups, and why it can't be decided yet: one is not there, or has too few pods."""
        try:
            requirements = self._algorithm.gang_requirements(queued)
        except MissingGroupError as missing:
            return Membership((missing.group,), why=str(missing), waits_for=missing.group)
        except ValueError as error:
            return Membership(why=str(error))
        if not requirements:
            return NO_GROUPS
        groups = tuple(dict.fromkeys(group for requirement in requirements for group in requirement.groups))
        for requirement in requirements:
            if self._there(requirement, queued) < requirement.size:
                # kube-scheduler's words; no number of those that are there: it would change with each that comes
                why = f"waiting for minCount pods from a gang to appear in scheduling queue: {requirement}"
                waits_for = requirement.group if requirement.is_settled else None
                return Membership(groups, requirements, why=why, waits_for=waits_for, missing_members=requirement)
        return Membership(groups, requirements)

    def _there(self, requirement: GangRequirement, queued: QueuedPod) -> int:
        """Return how many pods that a group needs there are, with a place or without, a pending one included."""
        size_of = self._cluster.counters.group_size
        return requirement.filled(
            lambda group_of, group: size_of(group_of, group) + self._queue.without_place(group),
            joining=int(requirement.group not in queued.groups),
        )

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

    def rests(
        self, queued: QueuedPod, requirements: Iterable[GangRequirement], *, most_work: int | None = None
    ) -> str | Unfinished | None:
        """Return why a member must not take a place now, None where it may; most_work: as for `decide`."""
        now = self._clock()
        for requirement in requirements:
            group = requirement.group
            if requirement.roles and self.trial.is_surplus(requirement):
                self.pacing.look_at(group, now + self._look_seconds)
                mine = f"with {requirement.role.text} " if requirement.role is not None else ""
                return f"{requirement}; enough members {mine}have a node, so this one waits until the gang is complete"
            if not self.pacing.rests(group, now) or self.trial.placed(requirement) >= requirement.size:
                continue
            fits = self._try_whole(queued, requirement, now, most_work)
            if isinstance(fits, Unfinished):
                return fits
            if fits:
                self.pacing.succeeded(group)
                continue
            self.pacing.look_again(group, now, after_seconds=self._look_seconds)
            why = "it does not fit as a whole and released its nodes; it waits before the next attempt"
            return f"{requirement}; {why}"
        return None

    def _may_try(self, group: Group, state: Hashable, now: Steady) -> bool:
        """Return whether a group may be tried as a whole now; see `GangPacing.may_try`.

        Of a large one, a part is let into the queue first: without the others it would not fit.
        """
        if self._queue.is_letting_in(group):
            self.pacing.look_at(group, now)
            return False
        return self.pacing.may_try(group, state, now)

    def _try_whole(
        self, queued: QueuedPod, requirement: GangRequirement, now: Steady, most_work: int | None
    ) -> bool | Unfinished:
        """Return whether a group would find free nodes for all that it needs."""
        state = self._algorithm.state, RESTS  # once it rests no longer, evictions may help in the same state
        if not self._may_try(requirement.group, state, now):
            return False
        began = self._algorithm.work
        fits = (
            not self._confine(queued, (requirement,))
            if requirement.levels
            else self.trial.fits(queued, requirement, most_work=most_work)
        )
        if isinstance(fits, Unfinished):
            self._go_on_with(queued, requirement, now, began)
            return fits
        if fits or self._share_devices(queued, requirement):
            return True
        self.pacing.failed(requirement.group, state, now, seconds=self._seconds_since(began), verdict="")
        return False

    def decide(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], *, most_work: int | None = None
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Return what happens to a member, and of others of its group that must have somebody evicted at the same time.

        These others are taken out of the queue. Others give their places back, or are evicted, only if the pod's
        group is complete then; whether that is so is tried for the group, not for each of its members.

        most_work: of the search for victims of this member, before its decision is given up as unfinished; see
            `Cycle.decide`.
        """
        refused = self._quota_refusal(queued, requirements)
        if refused is None:
            decision, others = self._decide_members(queued, requirements, most_work)
            if decision.is_unfinished:
                return decision, ()
            acts = decision.preemption is not None and (
                decision.preemption.victims or decision.preemption.keeps_nomination
            )
            if decision.host is not None or acts or others:
                return decision, others
            refused = decision
        return self._reclaim(queued, requirements, refused)

    def _decide_members(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], most_work: int | None
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Decide as `decide`, but for quotas that lend."""
        if any(requirement.levels or self._algorithm.is_confined(requirement.group) for requirement in requirements):
            return self._decide_in_domain(queued, requirements, most_work)
        if all(self.trial.placed(requirement) >= requirement.size for requirement in requirements):
            return self._algorithm.decide(queued, most_work=most_work), ()  # one more of a group that is complete
        decision = self._algorithm.decide(queued, preempts=bool(queued.pod.nominated_node), most_work=most_work)
        if decision.is_unfinished:
            return decision, ()
        waits_for_victims = decision.preemption is not None and decision.preemption.keeps_nomination
        if waits_for_victims:
            return decision, ()
        if decision.host is not None:
            return self._beside_nominated(queued, requirements, decision, decision.host), ()
        if (requirement := whole(requirements)) is None:
            return self._with_verdict(decision, NOT_AS_A_WHOLE), ()
        state, now = self._algorithm.state, self._clock()
        if not self._may_try(requirement.group, state, now):
            return self._with_verdict(decision, self.pacing.verdict(requirement.group)), ()
        began, alone = self._algorithm.work, None
        if not self.trial.is_under_way(queued, requirement):
            if self._share_devices(queued, requirement):
                self.pacing.succeeded(requirement.group)
                return self._algorithm.decide(queued, preempts=False), ()
            if gone := self.trial.make_way(queued, requirement):
                self.pacing.succeeded(requirement.group)
                self._return_places(gone, f"its node is given to gang {requirement.group}, which it completes")
                return self._algorithm.decide(queued, preempts=False), ()
            alone = self._algorithm.decide(queued, most_work=most_work)
            if alone.is_unfinished:
                self.pacing.went_on(requirement.group, now, seconds=self._seconds_since(began))
                return alone, ()
        found, verdict = self._preempt(queued, requirement, alone, most_work)
        if isinstance(found, Unfinished):
            self._go_on_with(queued, requirement, now, began)
            return Decision(queued.pod, None, preemption=Preemption(is_unfinished=True)), ()
        if found is not None:
            self.pacing.succeeded(requirement.group)
            others = ((uid, other) for uid, other in found.items() if uid != queued.pod.uid)
            taken = [(member, other) for uid, other in others if (member := self._queue.take(uid)) is not None]
            return found[queued.pod.uid], taken
        self.pacing.failed(requirement.group, state, now, seconds=self._seconds_since(began), verdict=verdict)
        return self._with_verdict(decision, verdict), ()

    def _share_devices(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Have all that a group needs take fewer devices, or parts of devices, if it does not fit otherwise.

        Those that wait are decided again: one of them may have a whole device where half of it would do.
        """
        if self.trial.thrifty_order(queued, requirement) is None:
            return False
        self._withdraw_members(requirement.group)
        return True

    def _beside_nominated(
        self, queued: QueuedPod, requirements: Sequence[GangRequirement], decision: Decision, host: str
    ) -> Decision:
        """Return a decision on a member that leaves nominated pods their room, unless its group is complete with it.

        Pods were evicted to make that room. A group that stays incomplete must not keep it from those it was made for.

        decision: without regard to nominated pods of lower priority. host: the node that it chose.
        """
        if not is_kept_for_others(queued.pod, host, self._cluster):
            return decision
        beside = self.trial.beside_nominated(queued)
        if beside.host is not None:
            return beside
        return decision if self._comes_first(queued, requirements) else self._with_verdict(beside, NOT_AS_A_WHOLE)

    def _comes_first(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> bool:
        """Return whether a member's group would be complete with the room of nominated pods of lower priority."""
        requirement = whole(requirements)
        if requirement is None:
            return False
        group, state, now = requirement.group, self._algorithm.state, self._clock()
        if self._first == group and self._checked.pauses(group, now):
            return True
        if not self._may_try(group, state, now):
            return False
        began = self._algorithm.work
        if self.trial.fits(queued, requirement) or self.trial.preempt(queued, requirement) is not None:
            self.pacing.succeeded(group)
            self._first = group
            self._checked.pause(group, now, seconds=GATHER_EVERY_SECONDS)
            return True
        self.pacing.failed(group, state, now, seconds=self._seconds_since(began), verdict=NOT_AS_A_WHOLE)
        return False

    def _go_on_with(self, queued: QueuedPod, requirement: GangRequirement, now: Steady, began: int) -> None:
        """Have a trial go on in the next turn; began: the work that had been done before this one."""
        self._next.appendleft(queued.pod.uid)  # before its siblings, of which each would begin a trial of its own
        self.pacing.went_on(requirement.group, now, seconds=self._seconds_since(began))

    def _seconds_since(self, work: int) -> float:
        """Return what was decided since so much work was done takes."""
        return (self._algorithm.work - work) * WORK_SECONDS

    def siblings(self, requirement: GangRequirement) -> Iterable[QueuedPod]:
        """Return the members of a group that are not decided yet."""
        return self.trial.siblings((requirement,))

    def has_begun(self, requirement: GangRequirement) -> bool:
        """Return whether members of a group have a node."""
        return self._has_places(requirement)

    def others_wait(self, group: Group) -> bool:
        """Return whether members of other groups hold nodes in wait for the rest of their group."""
        return any(other != group for other in self.permit.groups())

    def are_alike(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether all pending members of a pod's group request the same, may be anywhere, and await no victims.

        Then the group is refused, for lack of room or quota, as any other of its size and requests is.
        """
        group, pod = requirement.group, queued.pod
        if requirement.levels or requirement.roles or requirement.tree is not None or self._nominated_rows(group):
            return False
        if self.pacing.rests(group, self._clock()):
            return False
        profile = self._algorithm.profile(pod)
        return all(
            other.pod.priority == pod.priority
            and other.pod.template.requests == pod.template.requests
            and self._algorithm.profile(other.pod) is profile
            for other in self._queue.group(group).values()
            if other.pod.template is not pod.template
        )

    def quota_request(self, queued: QueuedPod, requirements: Sequence[GangRequirement], usage: QuotaUsage) -> Amounts:
        """Return what a pod, or all members that its group needs, ask a queue for."""
        if not requirements:
            return usage.amounts(queued.pod)
        return request_of(usage, (member.pod for member in self.trial.needed(queued, requirements[0])))

    # --- quotas that lend ----------------------------------------------------------------------------

    def _quota_refusal(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Decision | None:
        """Return the refusal of a gang whose queue has no quota for all members that it needs; None: it has."""
        profile = self._algorithm.profile(queued.pod)
        rules = profile.queues if profile is not None else None
        if rules is None:
            return None
        usage = self._cluster.usage_of(rules.tree)
        for requirement in requirements:
            by_queue: dict[Quota, list[PodInfo]] = {}
            for member in self.trial.needed(queued, requirement):
                queue = usage.quota_of(member.pod.template)
                if queue is not None:
                    by_queue.setdefault(queue, []).append(member.pod)
            gang = frozenset(self._queue.group(requirement.group))
            earlier = list[tuple[Quota, Amounts]]()  # of other queues, which may share a limit above them
            for queue, pods in by_queue.items():
                amounts = request_of(usage, pods)
                with usage.counting(earlier):
                    found = refusal(self._cluster, usage, queue, queued.pod, amounts, gang=gang)
                earlier.append((queue, amounts))
                if found is not None:
                    message = f"{requirement}: {quota_message(found, gang='the gang')}."
                    total = self._cluster.nodes.size
                    return Decision(queued.pod, None, total=total, message=message, refused_by=frozenset((QUOTA,)))
        return None

    def _reclaim(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], decision: Decision
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Evict pods of queues that borrow for a whole gang, if that completes it; as `decide`."""
        profile, now = self._algorithm.profile(queued.pod), self._clock()
        rules = profile.queues if profile is not None else None
        requirement = self._evicting(requirements)
        if rules is None or not rules.reclaims or requirement is None:
            return decision, ()
        group = requirement.group
        if self.trial.placed(requirement) >= requirement.size:
            return decision, ()
        if self._queue.is_letting_in(group) or self._reclaims_paused.pauses(group, now):
            return self._look_later(decision), ()
        usage = self._cluster.usage_of(rules.tree)
        request = request_of(usage, (member.pod for member in self.trial.needed(queued, requirement)))
        found = reclaim(
            self._algorithm.frame(queued),
            rules,
            request,
            lambda: self._places(queued, requirement),
            own=frozenset(each.group for each in requirements),
        )
        if found.victims and queued.pod.uid in found.places:
            victims = Preemption(found.places[queued.pod.uid], found.victims, reclaims=True)
            taken = [
                (member, msgspec.structs.replace(decision, pod=member.pod, preemption=Preemption(host)))
                for uid, host in found.places.items()
                if uid != queued.pod.uid and (member := self._queue.take(uid)) is not None
            ]
            return msgspec.structs.replace(decision, preemption=victims), taken
        if not found.waits:
            self._algorithm.release(group)
        if found.why is NotReclaimed.NO_VICTIMS:
            self._reclaims_paused.pause(group, now, seconds=RETRY_SECONDS)
        if found.message:
            message = f"{decision.message.rstrip('.')}. {found.message}"
            decision = msgspec.structs.replace(
                decision, message=message, preemption=Preemption(keeps_nomination=found.waits), reclaim=found
            )
        return (self._look_later(decision) if found.look_later else decision), ()

    def _look_later(self, decision: Decision) -> Decision:
        return msgspec.structs.replace(decision, refused_by=decision.refused_by | {RECLAIM})

    def _places(self, queued: QueuedPod, requirement: GangRequirement) -> dict[str, str] | None:
        """Return free nodes by uid for all members that a group needs, in one domain if it must; None: it has none."""
        if not requirement.levels:
            return self.trial.places(queued, requirement)
        rows, tried = rows_of(self._cluster, requirement), set[Domain]()
        for _ in range(MOST_DOMAINS_TRIED):
            found = choose(
                self._cluster,
                requirement.levels,
                self._unplaced(queued, requirement),
                needed=max(1, requirement.size - self.trial.placed(requirement)),
                placed=np.array(rows, np.intp) if rows else None,
                skipped=tried,
            )
            if isinstance(found, Shortfall):
                return None
            self._algorithm.confine(requirement.group, found)
            places = self.trial.places(queued, requirement)
            if places is not None or found is None:
                return places
            tried.add(found)
        return None

    # --- in one domain -------------------------------------------------------------------------------

    def _decide_in_domain(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], most_work: int | None
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Decide a member whose groups must be in one topology domain each; as `decide`.

        A domain is chosen by how much room it has. If not all members fit there after all, they try the next one.
        """
        shares = False
        for _ in range(MOST_DOMAINS_TRIED):
            why = self._confine(queued, requirements)
            if why:
                if self._leave_wider(requirements):
                    continue
                return self._evict_in_domain(queued, requirements, why)
            short = [each for each in requirements if self.trial.placed(each) < each.size]
            preempts = not short or bool(queued.pod.nominated_node)
            decision = self._algorithm.decide(queued, preempts=preempts, most_work=most_work)
            if decision.is_unfinished:
                return decision, ()
            waits_for_victims = decision.preemption is not None and decision.preemption.keeps_nomination
            if waits_for_victims or not short:
                return decision, ()
            if decision.host is not None:
                return self._beside_nominated(queued, requirements, decision, decision.host), ()
            outer = whole(short) if not shares else None
            shares = True
            if outer is not None and self._share_devices(queued, outer):
                continue
            confined = [each for each in short if each.levels]
            if not confined or any(self._nominated_rows(each.group) for each in confined):
                break
            self._leave_domain(outermost_first(confined)[-1].group)
        return self._with_verdict(decision, NOT_AS_A_WHOLE), ()

    def _confine(self, queued: QueuedPod, requirements: Iterable[GangRequirement]) -> str:
        """Choose the domains of a pod's groups, the outermost first; return why there is none, or ""."""
        within: BoolArray | None = None
        ordered = outermost_first(requirements)
        for number, requirement in enumerate(ordered):
            group = requirement.group
            if not requirement.levels:
                self._algorithm.release(group)
                continue
            found = self._domain(queued, requirement, within, inner=ordered[number + 1 :])
            if isinstance(found, Shortfall):
                if not self._has_members(requirement):
                    self._algorithm.release(group)
                return f"{requirement}: {found.message}"
            self._algorithm.confine(group, found)
            if found is not None and requirement is not ordered[-1]:
                mask = found.mask(self._cluster)
                within = mask if within is None else within & mask
        return ""

    def _leave_wider(self, requirements: Sequence[GangRequirement]) -> bool:
        """Leave the domains of larger groups whose members all wait here, as a smaller one has no room there."""
        if len(requirements) < 2:
            return False
        wider = [
            each
            for each in requirements
            if each.levels and self._algorithm.domain(each.group) is not None and not self._is_settled(each)
        ]
        for each in wider:
            self._leave_domain(each.group)
        return bool(wider)

    def _has_members(self, requirement: GangRequirement) -> bool:
        """Return whether members of a group have a node, or wait for victims on one."""
        return self._has_places(requirement) or bool(self._nominated_rows(requirement.group))

    def _has_places(self, requirement: GangRequirement) -> bool:
        return requirement.members(self._cluster.counters.group_size) > 0

    def _is_settled(self, requirement: GangRequirement) -> bool:
        """Return whether members of a group run, are being bound, or wait for victims: they cannot be placed again."""
        waiting = self.permit.number(requirement.group)
        placed = requirement.members(self._cluster.counters.group_size)
        return placed > waiting or bool(self._nominated_rows(requirement.group))

    def _domain(
        self,
        queued: QueuedPod,
        requirement: GangRequirement,
        within: BoolArray | None,
        *,
        inner: Sequence[GangRequirement],
    ) -> Domain | Shortfall | None:
        """Return the domain of a group: where its members are, or the one that has room for those that it needs.

        Args:
            queued: a member.
            requirement: of the group.
            within: nodes to choose from; None: all.
            inner: what narrower groups of the pod require: only their domains with enough room count.
        """
        group, now = requirement.group, self._clock()
        failed = self._failed_domains[group].pausing(now) if group in self._failed_domains else set[Domain]()
        has_members = self._has_places(requirement)
        is_confined, known = self._algorithm.is_confined(group), self._algorithm.domain(group)
        if is_confined and has_members and (known is None or known not in failed):
            return known
        if nominated := self._nominated_rows(group):
            if is_confined:
                return known
            return domain_of(self._cluster, requirement.levels, nominated)
        state = self._algorithm.state, frozenset(failed)
        before = self._shortfalls.get(group)
        if before is not None and before[0] == state:
            return before[1]
        placed = rows_of(self._cluster, requirement) if has_members else ()
        for each in inner:
            if each.levels and not self._has_members(each):
                needed, members = max(1, each.size - self.trial.placed(each)), self._unplaced(queued, each)
                usable = holding(self._cluster, each.levels, members, needed=needed, within=within)
                within = inside_of(within, usable)
        found = choose(
            self._cluster,
            requirement.levels,
            self._unplaced(queued, requirement),
            needed=max(1, requirement.size - self.trial.placed(requirement)),
            prefers=self._preference(queued),
            placed=np.array(placed, np.intp) if placed else None,
            within=within,
            skipped=failed,
        )
        if isinstance(found, Shortfall):
            if len(self._shortfalls) >= MOST_SHORTFALLS:
                self._shortfalls.clear()
            self._shortfalls[group] = state, found
            if failed:
                self.pacing.look_at(group, now + DOMAIN_RETRY_SECONDS)
        else:
            self._shortfalls.pop(group, None)
        return found

    def shortfalls(self) -> dict[str, tuple[int, int]]:
        """Return by topology: how many pending gangs have no domain, and how many members their best domains lack."""
        found: dict[str, tuple[int, int]] = {}
        for group, (_, shortfall) in self._shortfalls.items():
            if self._queue.without_place(group):
                gangs, missing = found.get(shortfall.key, (0, 0))
                found[shortfall.key] = gangs + 1, missing + shortfall.missing
        gangs_of = largest({key: gangs for key, (gangs, _) in found.items()}, MOST_TOPOLOGIES, others=OTHER_TOPOLOGY)
        rest = sum(missing for key, (_, missing) in found.items() if key not in gangs_of)
        return {key: (gangs, found[key][1] if key in found else rest) for key, gangs in gangs_of.items()}

    def _preference(self, queued: QueuedPod) -> Preference:
        """Return which of several domains the policy of a pod prefers."""
        profile = self._algorithm.profile(queued.pod)
        return preference(profile.domains if profile is not None else None, self._algorithm.frame(queued))

    def _nominated_rows(self, group: Group) -> list[int]:
        """Return the rows of the nodes on which members without a place wait for victims to end."""
        if not self._cluster.nominated:
            return []
        rows = self._cluster.nodes.rows
        names = (member.pod.nominated_node for member in self._queue.group(group).values() if not member.has_place)
        return [rows[name] for name in names if name in rows]

    def _unplaced(self, queued: QueuedPod, requirement: GangRequirement, *, anywhere: bool = False) -> list[Members]:
        """Return the members without a place by template; those that cannot be decided now count as the pod itself.

        anywhere: whether nodes that are full, or refuse them for now, count too: victims may make room there.
        """
        pods = {queued.pod.template: queued}
        numbers = Counter([queued.pod.template])
        for other in self.trial.siblings((requirement,)):
            if other is not queued:
                pods.setdefault(other.pod.template, other)
                numbers[other.pod.template] += 1
        missing = requirement.size - self.trial.placed(requirement) - numbers.total()
        numbers[queued.pod.template] += max(0, missing)
        size = self._cluster.nodes.size
        return [
            Members(
                template,
                number,
                np.ones(size, np.bool_) if anywhere else self._algorithm.feasible(pods[template]),
                claimed_kinds(self._algorithm.frame(pods[template])),
            )
            for template, number in numbers.items()
        ]

    def _leave_domain(self, group: Group) -> None:
        """Give back the places of a group in a domain in which not all of its members fit; try others first for now."""
        domain = self._algorithm.domain(group)
        if domain is not None:
            self.domain_counts.count(self.domain_counts.left, domain)
            if len(self._failed_domains) >= MOST_SHORTFALLS:
                self._failed_domains.clear()
            failed = self._failed_domains.setdefault(group, Deadlines[Domain]())
            failed.pause(domain, self._clock(), seconds=DOMAIN_RETRY_SECONDS)
        self._algorithm.release(group)
        self._withdraw_members(group)

    def _evict_in_domain(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...], why: str
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Look for a domain in which evictions make room for all that a group needs; as `decide`."""
        refusal = Decision(queued.pod, None, total=self._cluster.nodes.size, message=f"{why}.")
        requirement = self._evicting(requirements)
        if requirement is None or self._nominated_rows(requirement.group):
            return refusal, ()  # no others are evicted while victims end
        group, now, state = requirement.group, self._clock(), self._algorithm.state
        profile = self._algorithm.profile(queued.pod)
        if profile is None or not profile.preempts or not self._cluster.priorities.has_below(queued.pod.priority):
            return refusal, ()
        if not self._may_try(group, state, now):
            return refusal, ()
        began, tried = self._algorithm.work, set[Domain]()
        rows = rows_of(self._cluster, requirement)
        members = self._unplaced(queued, requirement, anywhere=True)
        for _ in range(MOST_DOMAINS_TRIED):
            found = choose(
                self._cluster,
                requirement.levels,
                members,
                needed=max(1, requirement.size - self.trial.placed(requirement)),
                prefers=self._preference(queued),
                placed=np.array(rows, np.intp) if rows else None,
                skipped=tried,
                free=free_without(self._cluster, queued.pod.priority),
                most_free_first=True,
            )
            if isinstance(found, Shortfall):
                break
            self._algorithm.confine(group, found)
            victims = self.trial.preempt(queued, requirement, last=True)
            if isinstance(victims, dict) and victims:
                self.pacing.succeeded(group)
                others = ((uid, other) for uid, other in victims.items() if uid != queued.pod.uid)
                taken = [(member, other) for uid, other in others if (member := self._queue.take(uid)) is not None]
                return victims.get(queued.pod.uid, refusal), taken
            self._algorithm.release(group)
            if found is None:
                break
            tried.add(found)
        self.pacing.failed(group, state, now, seconds=self._seconds_since(began), verdict="")
        return refusal, ()

    # --- evictions for a group -----------------------------------------------------------------------

    def _evicting(self, requirements: Sequence[GangRequirement]) -> GangRequirement | None:
        """Return the requirement that includes all others, for which others may be evicted; None if there is none.

        With domains inside its own, none is: whether the members then fit in those is not tried.
        """
        found = whole(requirements)
        return None if any(each.levels for each in requirements if each is not found) else found

    def _preempt(
        self, queued: QueuedPod, requirement: GangRequirement, alone: Decision | None, most_work: int | None
    ) -> tuple[Evictions | Unfinished | None, str]:
        """Return for whom others must be evicted, or None and why nobody is.

        Args:
            queued: a member.
            requirement: of its group.
            alone: what is decided about the pod alone; None: it would evict others, and the trial for all goes on.
            most_work: see `GangTrial.preempt`.
        """
        if alone is not None and (alone.preemption is None or not alone.preemption.victims):
            return None, alone.preemption.message.rstrip(".") if alone.preemption is not None else ""
        found = self.trial.preempt(queued, requirement, most_work=most_work)
        if found is None:
            return None, NOT_AS_A_WHOLE
        if isinstance(found, Unfinished):
            return found, ""
        return (found, "") if queued.pod.uid in found else (None, NOT_NEEDED)

    def _with_verdict(self, decision: Decision, verdict: str) -> Decision:
        """Return a refusal, with what happened to the attempt to make room for the group as a whole."""
        diagnosis, profile, message = decision.diagnosis, self._algorithm.profile(decision.pod), decision.message
        if diagnosis is not None and profile is not None:
            message = refusal_message(diagnosis, profile, after=f"{verdict}." if verdict else "")
        return msgspec.structs.replace(decision, preemption=Preemption(), message=message)

    def arrive(self, assumed: AssumedT) -> list[AssumedT]:
        """Let a pod wait that has a place; return who may bind now."""
        queued, now = assumed.queued, self._clock()
        uid = queued.pod.uid
        self._waiting[uid] = assumed
        self._waiting_on.setdefault(assumed.host, {})[uid] = assumed
        self._unreported[uid] = self._unnominated[uid] = now
        self.permit.wait(uid, assumed.requirements, now)
        self._queue.wait(queued)
        released = [self._forget(other) for other in self.permit.release(uid, self._cluster.counters.group_size)]
        self._count_domains(released)
        for each in released:
            self._queue.resume(each.queued)
            for requirement in each.requirements:
                self.pacing.complete(requirement.group)
                self._algorithm.order_devices(requirement.group, None)
        if released:  # those that were too many may start now
            started = [requirement for requirement in assumed.requirements if requirement.roles]
            self._next.extend(other.pod.uid for other in self.trial.siblings(started))
        if not released and not self._next:
            self._gather(assumed.requirements, now)
        return released

    def _count_domains(self, released: Sequence[AssumedT]) -> None:
        """Count the domains of the gangs that start now."""
        confined = {each.group: each for pod in released for each in pod.requirements if each.levels}
        for group, requirement in confined.items():
            new = sum(any(each.group == group for each in pod.requirements) for pod in released)
            if requirement.members(self._cluster.counters.group_size) - new < requirement.size:
                self.domain_counts.count(self.domain_counts.started, self._algorithm.domain(group))

    def _gather(self, requirements: Sequence[GangRequirement], now: Steady) -> None:
        """Have the others of some groups decided out of turn."""
        fresh = [requirement for requirement in requirements if not self._gathered.pauses(requirement.group, now)]
        for requirement in fresh:
            self._gathered.pause(requirement.group, now, seconds=GATHER_EVERY_SECONDS)
        self._next.extend(other.pod.uid for other in self.trial.siblings(fresh))

    def are_complete(self, requirements: Sequence[GangRequirement]) -> bool:
        """Return whether enough members have a node and need not wait here: they run, or are being bound."""
        return all(
            self.trial.placed(requirement) - self.permit.number(requirement.group) >= requirement.size
            for requirement in requirements
        )

    def refused(self, requirements: Sequence[GangRequirement]) -> str:
        """Go on with other groups where there is no room for a member; return what it waits for, for people."""
        self._next.clear()
        return "; ".join(map(str, requirements))

    # --- people --------------------------------------------------------------------------------------

    def states(self, queued: QueuedPod) -> tuple[GangState, ...]:
        """Return how far the gangs of a pod have come; none where a size has no value: the pod's refusal tells."""
        try:
            return tuple(self._state(requirement) for requirement in self._algorithm.gang_requirements(queued))
        except ValueError:
            return ()

    def describe(self, requirements: Iterable[GangRequirement], *, joining: int = 1) -> str:
        """Return what a member waits for, for people; joining: whether it has just found a place (1) or not (0)."""
        return "; ".join(self._state(requirement, joining=joining).sentence() for requirement in requirements)

    def _state(self, requirement: GangRequirement, *, joining: int = 0) -> GangState:
        """joining: how many pending members are about to get a place."""
        since, size_of = self.permit.since(requirement.group), self._cluster.counters.group_size
        return gang_state(
            requirement,
            placed=lambda group_of, group: size_of(group_of, group) + joining * (group in requirement.groups),
            pending=lambda _, group: self._queue.without_place(group) - joining * (group in requirement.groups),
            holding=self.permit.number(requirement.group) + joining,
            since=self._clock() if since is None and joining else since,
            domain=str(self._algorithm.domain(requirement.group) or "") if requirement.levels else "",
        )

    def unreported(self, *, since: float) -> list[QueuedPod]:
        """Return who has a place and waits since this time or longer, and was not asked for here before."""
        found = []
        for uid, at in self._unreported.items():
            if at > since:
                break
            found.append(self._waiting[uid].queued)
        for queued in found:
            del self._unreported[queued.pod.uid]
        return found

    def unnominated(self, *, since: float) -> list[AssumedT]:
        """Return who waits since this time or longer, and was not asked for here before."""
        found = []
        for uid, at in self._unnominated.items():
            if at > since:
                break
            found.append(self._waiting[uid])
        for assumed in found:
            del self._unnominated[assumed.queued.pod.uid]
        return found

    @property
    def unnominated_since(self) -> float | None:
        """Since when the first of those waits; None: there are none."""
        return next(iter(self._unnominated.values()), None)

    def waits_for(self, queued: QueuedPod) -> str | None:
        """Return what a pod that has a place waits for, for people; None where it waits no longer."""
        assumed = self._waiting.get(queued.pod.uid)
        if assumed is None:
            return None
        requirements = assumed.requirements
        return f"waiting for minCount pods from a gang to be scheduled: {'; '.join(map(str, requirements))}"

    # --- places are given back -----------------------------------------------------------------------

    def expire(self, now: Steady) -> None:
        """Have those give their places back whose group was not complete in time; such groups rest.

        While a group rests it starts only where all of it fits at once: others get the room that it held without use,
        for twice as long as it held it, and longer each time.
        """
        if (group := self.pacing.due(now)) is not None:
            self._wake_one(group)
        gone = self.permit.expire(now)
        if not gone:
            return
        requirements = {requirement.group: requirement for requirement in gone.values()}
        for requirement in requirements.values():
            self.pacing.rest(requirement.group, now, held_seconds=requirement.within_seconds)
        self._return_places(gone, "rejected due to timeout after waiting at permit: not enough members had a node")

    def _wake_one(self, group: Group) -> None:
        """Have one member of a group tried again: if there is room, the others follow it."""
        waiting = self._queue.group(group).values()
        queued = next((each for each in waiting if each.place is Place.UNSCHEDULABLE), None)
        if queued is not None:
            self._queue.activate(queued, self._clock())

    def next_due(self) -> float | None:
        """Return when time brings something to do."""
        times = [at for at in (self.permit.next_due(), self.pacing.next_due()) if at is not None]
        return min(times, default=None)

    def evict(self, victims: Iterable[PodInfo], *, by: PodInfo) -> frozenset[str]:
        """Have victims of a preemption that wait here give their places back; return their uids.

        Nobody need be deleted for that: they do not run yet. Their groups are not complete without them and give all
        their places back.
        """
        waiting = [self._waiting[victim.uid] for victim in victims if victim.uid in self._waiting]
        requirements = {requirement.group: requirement for each in waiting for requirement in each.requirements}
        gone = {
            uid: requirement for requirement in requirements.values() for uid in self.permit.members(requirement.group)
        }
        if gone:
            self._return_places(gone, f"its node is given to {by.key}, which has a higher priority")
        return frozenset(each.queued.pod.uid for each in waiting)

    def _return_places(self, gone: Mapping[str, GangRequirement], why: str) -> None:
        """Free the places first, then back off with all, and only then wake others: they are to have the room."""
        with self._cluster.ledger.together():
            self._return_all(gone, why)

    def _return_all(self, gone: Mapping[str, GangRequirement], why: str) -> None:
        returned = [(assumed, gone[uid]) for uid in gone if (assumed := self._give_back(uid)) is not None]
        groups: dict[Group, int] = {}
        for assumed, requirement in returned:
            groups[requirement.group] = groups.get(requirement.group, 0) + 1
            self._observer.rejected(assumed, f"{requirement}; {why}")
        for group, number in groups.items():
            self._observer.gang_rejected(group, number, why)
            self._algorithm.order_devices(group, None)
        # their siblings back off with them, or these would take the room again before anyone else can
        for queued in [queued for group in groups for queued in self._queue.group(group).values()]:
            if queued.place in (Place.PERMIT, Place.ACTIVE, Place.UNSCHEDULABLE):
                self._queue.returned(queued, self._clock())

    def _give_back(self, uid: str) -> AssumedT | None:
        """Free what a waiting pod holds, and return it; the caller puts it back into the queue."""
        if uid not in self._waiting:
            return None
        self.permit.leave(uid)
        assumed = self._forget(uid)
        self._cluster.forget(uid)
        assumed.unreserve(self._cluster)
        return assumed

    def _forget(self, uid: str) -> AssumedT:
        self._unreported.pop(uid, None)
        self._unnominated.pop(uid, None)
        assumed = self._waiting.pop(uid)
        there = self._waiting_on[assumed.host]
        del there[uid]
        if not there:
            del self._waiting_on[assumed.host]
        for requirement in assumed.requirements:
            if not self.permit.number(requirement.group):
                self._gathered.end(requirement.group)
        return assumed

    def _withdraw(self, assumed: AssumedT, *, keeps_nomination: bool = False) -> None:
        """Have a waiting pod decided again, at once."""
        if self._give_back(assumed.queued.pod.uid) is not None:
            if keeps_nomination:
                pod = assumed.queued.pod
                self._cluster.nominate(pod, pod.nominated_node)
            else:
                self._observer.withdrawn(assumed)
            self._queue.activate(assumed.queued, self._clock())

    def _withdraw_members(self, group: Group) -> None:
        with self._cluster.ledger.together():
            for uid in self.permit.members(group):
                self._withdraw(self._waiting[uid])

    def withdraw_all(self, *, keeps_nominations: bool = False) -> None:
        """Have all who wait decided again; keeps_nominations: another replica leads, and tries their nodes first."""
        with self._cluster.ledger.together():
            for assumed in list(self._waiting.values()):
                self._withdraw(assumed, keeps_nomination=keeps_nominations)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone, or was bound by someone else; its room is not ours to free."""
        if self.permit.leave(uid):
            self._forget(uid).unreserve(self._cluster)

    def nodes_changed(self, names: Iterable[str]) -> None:
        """Look again at the pods that wait with a place on one of these nodes; as `node_changed` for each."""
        if self._waiting_on:
            for name in names:
                self.node_changed(name)

    def node_changed(self, name: str) -> None:
        """Look again at the pods that wait with a place on a node: it may be gone, or no longer take them."""
        for assumed in list(self._waiting_on.get(name, {}).values()):
            if not self._algorithm.still_fits(assumed.queued, assumed.host):
                self._observer.no_longer_fits(assumed)
                self._withdraw(assumed)
