"""Gangs: each is planned whole; what its plan places is assumed member by member, and binds together.

Nothing is assumed before all members that a gang needs are pending and fit together (`plan`). From then on its members
are assumed one after the other, before any other pod is decided. If one of them fails on the way, because its volume
cannot be reserved or an extender rejects it, all give their places back at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.backfill.backfill import Backfill
from kube_policy_scheduler.framework.backfill.reservation import Seat
from kube_policy_scheduler.framework.bounded_counts import largest
from kube_policy_scheduler.framework.decide.algorithm import NO_POLICY, ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import (
    MOST_TOPOLOGIES,
    OTHER_TOPOLOGY,
    DomainCounts,
    Shortfall,
    domain_of,
)
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.evaluate.diagnosis import rejection_message
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.gangs import (
    GangRequirement,
    Group,
    MissingGroupError,
    outermost_first,
)
from kube_policy_scheduler.framework.groups.attempt import WaitingPod
from kube_policy_scheduler.framework.groups.plan import Plan, Planner
from kube_policy_scheduler.framework.groups.short_gangs import ShortGangs
from kube_policy_scheduler.framework.groups.state import GangState, gang_state
from kube_policy_scheduler.framework.plugin import FilterPlugin
from kube_policy_scheduler.framework.preempt.gang_units import rows_of
from kube_policy_scheduler.framework.preempt.preemption import Preemption
from kube_policy_scheduler.framework.queue.scheduling_queue import (
    NO_GROUPS,
    Membership,
    Place,
    QueuedPod,
    SchedulingQueue,
)
from kube_policy_scheduler.framework.quota import RECLAIM
from kube_policy_scheduler.times import Steady, rfc3339

AssumedT = TypeVar("AssumedT", bound=WaitingPod)
HeardT = TypeVar("HeardT", bound=WaitingPod, contravariant=True)

AWAITS_VICTIMS = "preemption: not attempted, because the gang waits until evicted pods are gone"
NOTHING_WAKES: Mapping[str, frozenset[ClusterEvent]] = {NO_POLICY: frozenset()}
"""But other policies, which always do."""


class PermitObserver(Protocol[HeardT]):
    """Hears of places that assumed pods give back."""

    def rejected(self, assumed: HeardT, why: str) -> None:
        """An assumed pod gave its place back."""
        ...

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """A gang gave back the places of this many of its pods."""
        ...

    def no_longer_fits(self, assumed: HeardT) -> None:
        """The node of an assumed pod changed: the pod is decided again."""
        ...

    def withdrawn(self, assumed: HeardT) -> None:
        """An assumed pod gave its place back and is decided again at once."""
        ...


class _Start(msgspec.Struct, eq=False):
    """A plan that is being carried out: its members are assumed one after the other, and then bind together."""

    decisions: dict[str, Decision]
    """By uid, in the order in which they are assumed."""
    due: float
    """When all of them give their places back if some are not assumed by then."""
    epoch: int
    """The epoch of the cluster for which the decisions hold; it goes on with each member that is assumed, and no more
    once something else has changed."""
    left: set[str]
    """Members that are not assumed yet."""


class WaitingPods(Generic[AssumedT]):
    """The gangs of a scheduler, and their pods that are assumed and wait for the rest of the plan."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        *,
        observer: PermitObserver[AssumedT],
        clock: Callable[[], Steady],
    ) -> None:
        """Make one for a scheduler.

        Args:
            cluster: where pods are assumed.
            queue: of the pending pods.
            algorithm: decides.
            observer: hears of places that are given back.
            clock: the time.
        """
        self._cluster, self._queue = cluster, queue
        queue.hold_templates(cluster.templates_in_use)
        self._clock = clock
        self._observer = observer
        self._algorithm = algorithm
        self._waiting: dict[str, AssumedT] = {}
        self._unreported: dict[str, float] = {}
        """Since when the unreported ones wait, by UID, longest first."""
        self._unnominated: dict[str, float] = {}
        """Since when those wait whose node is not written as their nominated node, by UID, longest first."""
        self.domain_counts = DomainCounts()
        self.short = ShortGangs(cluster, queue, algorithm)
        """Those that run with too few pods."""
        self.planner = Planner(
            cluster, queue, algorithm, clock=clock, waiting=self._waiting, domains=self.domain_counts
        )
        self.members = self.planner.members
        self.backfill = Backfill(cluster, queue, frame=algorithm.frame, seats=self.seats, filters=algorithm.filters_of)
        algorithm.beside = self._beside
        self.gangs = algorithm.gangs
        self._next: deque[str] = deque()
        """Members to decide before all other pods, by uid."""
        self._starts: list[_Start] = []
        """The plans that are being carried out, the oldest first."""
        self._start_of: dict[str, _Start] = {}
        """By uid of their members."""

    def _beside(self, queued: QueuedPod) -> FilterPlugin | None:
        """Return the filter of a pod that must not delay another one, as `Backfill.beside`.

        None for a member of a plan that is being carried out: the plan respects the reservations of its time. Once the
        first member is assumed, room may be reserved for a pod that comes after the gang.
        """
        return self.backfill.beside(queued) if queued.pod.uid not in self._start_of else None

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
        """Take the next member of a gang whose plan goes on, or is carried out; None if there is none."""
        while self._next:
            queued = self._queue.take(self._next.popleft())
            if queued is not None:
                return queued
        if self._starts:
            self._drop_broken()
        return None

    def has_next(self) -> bool:
        """Return whether there are members to decide before all other pods."""
        return bool(self._next) or bool(self._starts and self._broken())

    # --- a member is decided -------------------------------------------------------------------------

    def decide(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...]
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Return what happens to a member, and to others of its gang, at once; see `deciding`."""
        return now(self.deciding(queued, requirements))

    def deciding(
        self, queued: QueuedPod, requirements: tuple[GangRequirement, ...]
    ) -> Generator[int, None, tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]]:
        """Return what happens to a member, and to others of its gang at the same time.

        A member gets a node only if there are nodes for all that its gang needs; `next` returns the others then. Or
        evictions make room for all of them: these others are nominated to nodes at the same time, and are taken out of
        the queue.

        Yields the work of a plan, or of a search for victims; if it ends there, the next one for the gang goes on.
        """
        planned = self._planned(queued)
        if planned is not None:
            return planned, ()
        self.backfill.beside(queued)  # while nothing is tried out
        if self.are_placed(requirements):  # one that its gang can do without: a pod as any other
            why = self._confine(requirements)
            decision = self._reject(queued, why) if why else (yield from self._algorithm.deciding(queued))
            is_settled = why or decision.host is not None
            return decision if is_settled else self._algorithm.reclaim_for(queued, decision), ()
        asked = [_sizes(requirements)]
        while True:
            try:
                found = yield from self.planner.plan(queued, requirements)
            except GeneratorExit:
                if self.planner.goes_on(queued, requirements):
                    self._next.appendleft(queued.pod.uid)  # each of its siblings would begin a plan of its own
                raise
            if isinstance(found, Shortfall):
                return self._rejected(queued, requirements, found), ()
            held = self._held(found)
            for uid, reason in held.items():
                self._queue.hold(uid, reason)
            more = self._asked_beyond(found) if not held else ()
            if not held and (not more or _sizes(more) in asked):
                break
            for requirement in requirements:
                self.gangs.order_devices(requirement.group, None)  # the next plan may find another one
            asked.append(_sizes(more))
            requirements = more or requirements
            waits = held.get(queued.pod.uid) or self.membership(queued).why
            if waits is not None:
                return self._reject(queued, waits), ()
        if found.instead_of is not None:
            return self._nominated(queued, found.nominations, self._rejected(queued, requirements, found.instead_of))
        return self._carry_out(queued, found, tuple(filter(self.members.lacks, requirements))), ()

    def _held(self, plan: Plan) -> dict[str, str]:
        """Return which members of a plan are held by now, and why: it was asked when they were tried last."""
        found: dict[str, str] = {}
        for uid in (*plan.decisions, *plan.nominations):
            queued = self._queue.get(uid)
            why = self._queue.why_held(queued) if queued is not None else None
            if why is not None:
                found[uid] = why
        return found

    def _asked_beyond(self, plan: Plan) -> tuple[GangRequirement, ...]:
        """Return what a member of a plan asks for that does not start with what the plan places; (): all do."""
        members = [each for uid in (*plan.decisions, *plan.nominations) if (each := self._queue.get(uid)) is not None]
        planned, size_of = (
            Counter(group for member in members for group in member.groups),
            self._cluster.counters.group_size,
        )
        for member in {member.pod.template: member for member in members}.values():
            requirements = self.membership(member).requirements
            if any(each.filled(lambda *of: size_of(*of) + planned[of[1]]) < each.size for each in requirements):
                return requirements
        return ()

    def are_placed(self, requirements: Iterable[GangRequirement]) -> bool:
        """Return whether as many members as some gangs need have a node, or are about to get one."""
        return not any(map(self.members.lacks, requirements))

    def _confine(self, requirements: Iterable[GangRequirement]) -> str:
        """Have a member of complete gangs decided where the others are; return why there is no such place, or ""."""
        for requirement in requirements:
            where = self.gangs.where(requirement.group)
            if requirement.levels and not self.members.are_in(requirement, where):
                rows = rows_of(self._cluster, requirement)
                domain = domain_of(self._cluster, requirement.levels, rows)
                if isinstance(domain, Shortfall):
                    return f"{requirement}: {domain.message}"
                self.gangs.settle(requirement.group, domain)
        return ""

    def still_fits(self, assumed: AssumedT) -> bool:
        """Return whether an assumed pod would still be placed on its node, and near the other members of its gangs.

        The domains of its gangs are found again: a reload forgets them, and others may have placed members elsewhere.
        """
        pod, host, cluster = assumed.queued.pod, assumed.host, self._cluster
        confined = [each for each in assumed.requirements if each.levels]
        if confined and host in cluster.nodes.rows:
            with cluster.ledger.silent():
                cluster.displace(pod.uid)
                try:
                    why = self._confine(filter(self.members.have_begun, confined))
                finally:
                    cluster.place(pod, host)
            if why:
                return False
        return self._algorithm.still_fits(assumed.queued, host)

    # --- rejections ------------------------------------------------------------------------------------

    def _reject(self, queued: QueuedPod, why: str, *, by: frozenset[str] = frozenset()) -> Decision:
        return Decision(queued.pod, None, total=self._cluster.nodes.size, message=f"{why}.", rejected_by=by)

    def _rejected(self, queued: QueuedPod, requirements: Sequence[GangRequirement], short: Shortfall) -> Decision:
        """Return the rejection of a member for whose gang there is no plan; it keeps its node if victims are to go."""
        if short.is_of_quota:
            decision = self._reject(queued, short.message, by=short.rejected_by)
        else:
            decision = self._without_plan(queued, requirements, short)
        if short.awaits_victims and queued.pod.nominated_node:
            return msgspec.structs.replace(decision, preemption=Preemption(keeps_nomination=True))
        found = short.reclaim
        if found is None:
            return decision
        if found.message:
            message, kept = f"{decision.message.rstrip('.')}. {found.message}", Preemption(keeps_nomination=found.waits)
            decision = msgspec.structs.replace(decision, message=message, preemption=kept, reclaim=found)
        by = decision.rejected_by | {RECLAIM} if found.look_later else decision.rejected_by
        return msgspec.structs.replace(decision, rejected_by=by)

    def _without_plan(self, queued: QueuedPod, requirements: Sequence[GangRequirement], short: Shortfall) -> Decision:
        """Return the rejection of a member whose gang found no nodes for all that it needs.

        What stands in the way of the pod itself is said first, else what stands in the way of another member.
        """
        other, verdict = short.rejection, AWAITS_VICTIMS if short.awaits_victims else short.verdict
        is_alike = other is not None and other.pod.template is queued.pod.template
        own = None if is_alike else self._algorithm.decide(queued, preempts=False)
        lacks_domain = short.is_known and other is None and not short.rejected_by
        if own is not None and own.host is None and not lacks_domain:
            decision = own
        elif other is None:
            why = f"{outermost_first(requirements)[0]}: {short.message}"
            decision = self._reject(queued, why, by=short.rejected_by)
        else:
            decision = msgspec.structs.replace(other, pod=queued.pod)
        diagnosis, profile, message = decision.diagnosis, self._algorithm.profile(queued.pod), decision.message
        if diagnosis is not None and profile is not None:
            message = rejection_message(diagnosis, profile, after=f"{verdict}." if verdict else "")
            if own is not None and other is not None and own.host is not None:
                message = f"no node for {other.pod.key}: {message}"
        return msgspec.structs.replace(decision, preemption=Preemption(), message=message)

    # --- a plan is carried out -----------------------------------------------------------------------

    def _nominated(
        self, queued: QueuedPod, nominations: Mapping[str, Preemption], rejected: Decision
    ) -> tuple[Decision, Sequence[tuple[QueuedPod, Decision]]]:
        """Return what happens to a member, and to others, for which others are evicted; `rejected`: why these are."""
        others = [
            (member, msgspec.structs.replace(rejected, pod=member.pod, preemption=found))
            for uid, found in nominations.items()
            if uid != queued.pod.uid and (member := self._queue.take(uid)) is not None
        ]
        own = nominations.get(queued.pod.uid)
        return msgspec.structs.replace(rejected, preemption=own) if own is not None else rejected, others

    def _carry_out(self, queued: QueuedPod, plan: Plan, requirements: Sequence[GangRequirement]) -> Decision:
        """Have the members of a plan assumed one after the other, and return what happens to the pod itself."""
        due = self._clock() + min(requirement.within_seconds for requirement in requirements)
        start = _Start(plan.decisions, due, self._algorithm.state, set(plan.decisions))
        self._starts.append(start)
        self._start_of.update(dict.fromkeys(plan.decisions, start))
        self._next.extendleft(uid for uid in reversed(plan.decisions) if uid != queued.pod.uid)
        planned = self._planned(queued)
        if planned is not None:
            return planned
        own = self._algorithm.decide(queued, preempts=False)
        if own.host is None:
            return own
        return self._reject(queued, f"{requirements[0]}; this pod waits until enough others of the gang have started")

    def _planned(self, queued: QueuedPod) -> Decision | None:
        """Return what the plan says of a member; None if there is no plan with it that still holds."""
        start = self._start_of.get(queued.pod.uid)
        if start is None or queued.pod.uid not in start.left:
            return None
        decision = start.decisions[queued.pod.uid]
        assert decision.host is not None
        if start.epoch == self._algorithm.state:
            start.epoch += 1  # once it is assumed, and nothing else has changed
            return decision
        # from then on the node of each member is checked: any of them may have changed
        if not self._algorithm.passes(queued, decision.host):
            return self._lose(start, queued)
        return self._algorithm.on_row(queued, self._cluster.nodes.rows[decision.host])

    def _lose(self, start: _Start, queued: QueuedPod) -> Decision | None:
        """Give up a plan because the node of a member is taken.

        Return the rejection of the member if others of its gang give places back: it backs off with them. Otherwise the
        same plan could be made and given up for ever, and no other pod would be decided. Return None if none does: then
        the gang is planned again at once.
        """
        why, gives_back = "a node that was found for one of its pods is taken", start.left != start.decisions.keys()
        self._break(start, why)
        queued.serves_time = gives_back  # as its siblings do, even if there is nothing else to decide
        return self._reject(queued, f"{queued.groups[0]}; {why}") if gives_back else None

    @property
    def waiting(self) -> Mapping[str, AssumedT]:
        """The pods that are assumed and wait for others of their plan, by uid."""
        return self._waiting

    def planned(self) -> Set[str]:
        """Return the uids of the members of gangs whose plans are being carried out."""
        return self._start_of.keys()

    def _broken(self) -> list[_Start]:
        """Return the plans of which a member that is not assumed yet will not come any more."""
        return [start for start in self._starts if any(map(self._is_lost, start.left))]

    def _is_lost(self, uid: str) -> bool:
        queued = self._queue.get(uid)
        return queued is None or queued.place in (Place.UNSCHEDULABLE, Place.BACKOFF, Place.GATED)

    def _drop_broken(self) -> None:
        """Have the assumed members of broken plans give their places back."""
        for start in self._broken():
            self._break(start, "another of its pods lost the node that was found for it")

    def _break(self, start: _Start, why: str) -> None:
        """Give up a plan: assumed members give their places back, and the others are not decided first any more."""
        self._end(start)
        self._next = deque(uid for uid in self._next if uid not in start.decisions)
        self._return_places([uid for uid in start.decisions if uid in self._waiting], why)

    def _end(self, start: _Start) -> None:
        if start in self._starts:
            self._starts.remove(start)
        for uid in start.decisions:
            if self._start_of.get(uid) is start:
                del self._start_of[uid]

    def arrive(self, assumed: AssumedT) -> list[AssumedT]:
        """Note that a member is assumed; return who may bind now: with the last of a plan all of them."""
        uid, now = assumed.queued.pod.uid, self._clock()
        self._hold(assumed, now)
        start, together = self._start_of.get(uid), [uid]
        if start is not None:
            start.left.discard(uid)
            if start.left:
                return []
            self._end(start)
            together = [other for other in start.decisions if other in self._waiting]
        asked = {(each.group, each.size): each for other in together for each in self._waiting[other].requirements}
        if any(map(self.members.lacks, asked.values())):
            self._return_places(together, "fewer of its pods have a node than one of them asks for")
            return []
        released = [self._forget(other) for other in together]
        self._count_domains(released)
        for each in released:
            self._queue.resume(each.queued)
        groups = dict.fromkeys(group for group, _ in asked)
        for group in groups:
            self.planner.drop(group)
            self.gangs.forget(group)
            self.short.completed(group)
        if start is not None:  # those that the gang can do without may start now, too
            self._queue.help_some({other: None for group in groups for other in self._queue.group(group)}, now)
        return released

    def left_to_others(self, uid: str) -> None:
        """Note that a member of a plan will not be assumed, because another scheduler places it."""
        start = self._start_of.get(uid)
        if start is not None:
            start.left.discard(uid)
            if not start.left:
                self._end(start)

    def _hold(self, assumed: AssumedT, now: Steady) -> None:
        """Let an assumed pod wait for the others of its plan."""
        uid = assumed.queued.pod.uid
        self._waiting[uid] = assumed
        self._unreported[uid] = self._unnominated[uid] = now
        for requirement in assumed.requirements:
            record = self.gangs.of(requirement.group)
            record.held_since = now if not record.holding else record.held_since
            record.holding += 1
        self._queue.wait(assumed.queued)

    def _count_domains(self, released: Sequence[AssumedT]) -> None:
        """Count the domains of the gangs that start now."""
        confined = {each.group: each for pod in released for each in pod.requirements if each.levels}
        for group, requirement in confined.items():
            new = sum(any(each.group == group for each in pod.requirements) for pod in released)
            if requirement.members(self._cluster.counters.group_size) - new < requirement.size:
                self.domain_counts.gang_started(self.gangs.domain(group))

    def are_complete(self, requirements: Sequence[GangRequirement]) -> bool:
        """Return whether enough members have a node and need not wait here: they run, or are being bound."""
        return all(
            self.members.placed(requirement) - self.gangs.holding(requirement.group)[0] >= requirement.size
            for requirement in requirements
        )

    # --- what metrics and reservations ask -----------------------------------------------------------

    def shortfalls(self) -> dict[str, tuple[int, int]]:
        """Return by topology: how many pending gangs have no domain, and how many members their best domains lack."""
        found: dict[str, tuple[int, int]] = {}
        for record in self.gangs:
            short = record.plans.shortfall
            if short is not None and short.key and record.without_place:
                gangs, missing = found.get(short.key, (0, 0))
                found[short.key] = gangs + 1, missing + short.missing
        gangs_of = largest({key: gangs for key, (gangs, _) in found.items()}, MOST_TOPOLOGIES, others=OTHER_TOPOLOGY)
        rest = sum(missing for key, (_, missing) in found.items() if key not in gangs_of)
        return {key: (gangs, found[key][1] if key in found else rest) for key, gangs in gangs_of.items()}

    def seats(self, queued: QueuedPod) -> Sequence[Seat] | None:
        """Return places for a pod, or for all that its gang needs, as the cluster stands; None: it does not fit."""
        try:
            requirements = self._algorithm.gang_requirements(queued)
        except ValueError:
            return None
        short = tuple(filter(self.members.lacks, requirements))
        if not short:
            host = self._algorithm.decide(queued, preempts=False, memo=RejectionMemo()).host
            return [Seat(queued.pod, host)] if host is not None else None
        places = self.planner.places(queued, short, settles=False)  # what is found is for later
        if places is None:
            return None
        members = {each.pod.uid: each.pod for each in (queued, *self.members.siblings(short))}
        return [Seat(members[uid], node_name) for uid, node_name in places.items()]

    # --- people --------------------------------------------------------------------------------------

    def states(self, queued: QueuedPod) -> tuple[GangState, ...]:
        """Return how far the gangs of a pod have come; none where a size has no value: the pod's rejection tells."""
        try:
            return tuple(self._state(requirement) for requirement in self._algorithm.gang_requirements(queued))
        except ValueError:
            return ()

    def describe(self, requirements: Iterable[GangRequirement], *, joining: int = 1) -> str:
        """Return what a member waits for, for people; joining: whether it has just found a place (1) or not (0)."""
        return "; ".join(self._state(requirement, joining=joining).sentence() for requirement in requirements)

    def _state(self, requirement: GangRequirement, *, joining: int = 0) -> GangState:
        """joining: how many pending members are about to get a place."""
        (holding, since), size_of = self.gangs.holding(requirement.group), self._cluster.counters.group_size
        return gang_state(
            requirement,
            placed=lambda group_of, group: size_of(group_of, group) + joining * (group in requirement.groups),
            pending=lambda _, group: self._queue.without_place(group) - joining * (group in requirement.groups),
            holding=holding + joining,
            since=self._clock() if joining and not holding else since,
            domain=str(self.gangs.domain(requirement.group) or "") if requirement.levels else "",
            rest_goes=f"at {rfc3339(goes)}" if (goes := self.short.until(requirement.group)) is not None else "",
        )

    def unreported(self, *, since: float) -> list[QueuedPod]:
        """Return who has a place and waits since this time or longer, and was not asked for here before."""
        return [assumed.queued for assumed in self._have_waited(self._unreported, since)]

    def unnominated(self, *, since: float) -> list[AssumedT]:
        """Return who waits since this time or longer, and was not asked for here before."""
        return self._have_waited(self._unnominated, since)

    def _have_waited(self, begins: dict[str, float], since: float) -> list[AssumedT]:
        """Take those who wait since a time or longer out of these, which have the longest first."""
        if not begins:
            return []
        uids = list(takewhile(lambda uid: begins[uid] <= since, begins))
        for uid in uids:
            del begins[uid]
        return [self._waiting[uid] for uid in uids]

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
        """Have those give their places back whose plan was not carried out in time, and wake a gang that paused."""
        if (group := self.gangs.due(now)) is not None:
            self._wake_one(group)
        if self._starts and not self._next:
            self._drop_broken()
        for start in [start for start in self._starts if start.due <= now]:
            self._break(start, "rejected due to timeout after waiting at permit: not enough members had a node")

    def _wake_one(self, group: Group) -> None:
        """Have one member of a group tried again: the plan is for all of them."""
        waiting = self._queue.group(group).values()
        queued = next((each for each in waiting if each.place is Place.UNSCHEDULABLE), None)
        if queued is not None:
            self._queue.activate(queued, self._clock())

    def next_due(self) -> float | None:
        """Return when gangs have something to do; the other times are those of `backfill` and `short`."""
        if not self._starts:
            return self.gangs.next_due()
        dues = (self.gangs.next_due(), *(start.due for start in self._starts))
        return min((at for at in dues if at is not None), default=None)

    def evict(self, victims: Iterable[PodInfo], *, by: PodInfo) -> frozenset[str]:
        """Have victims of a preemption that wait here give their places back; return their uids.

        Nobody need be deleted for that: they do not run yet. Their gangs are not complete without them and give all
        their places back.
        """
        waiting = [victim.uid for victim in victims if victim.uid in self._waiting]
        for start in [start for start in self._starts if not start.decisions.keys().isdisjoint(waiting)]:
            self._break(start, f"its node is given to {by.key}, which has a higher priority")
        return frozenset(waiting)

    def _return_places(self, gone: Sequence[str], why: str) -> None:
        """Free the places first, then back off with all, and only then wake others: they are to have the room."""
        if gone:
            with self._cluster.ledger.together():
                self._return_all(gone, why)

    def _return_all(self, gone: Sequence[str], why: str) -> None:
        groups: dict[Group, int] = {}
        for assumed in [assumed for uid in gone if (assumed := self._give_back(uid)) is not None]:
            requirement = assumed.requirements[0]
            groups[requirement.group] = groups.get(requirement.group, 0) + 1
            self._observer.rejected(assumed, f"{requirement}; {why}")
        for group, number in groups.items():
            self._observer.gang_rejected(group, number, why)
            self.gangs.order_devices(group, None)
        # their siblings back off with them, or these would take the room again before anyone else can
        for queued in [queued for group in groups for queued in self._queue.group(group).values()]:
            if queued.place in (Place.PERMIT, Place.ACTIVE, Place.UNSCHEDULABLE):
                self._queue.returned(queued, self._clock())

    def _give_back(self, uid: str) -> AssumedT | None:
        """Free what an assumed pod holds, and return it; the caller puts it back into the queue."""
        if uid not in self._waiting:
            return None
        assumed = self._forget(uid)
        self._cluster.forget(uid)
        assumed.unreserve(self._cluster)
        return assumed

    def _forget(self, uid: str) -> AssumedT:
        self._unreported.pop(uid, None)
        self._unnominated.pop(uid, None)
        assumed = self._waiting.pop(uid)
        for requirement in assumed.requirements:
            if (record := self.gangs.get(requirement.group)) is not None:
                record.holding -= 1
        return assumed

    def _withdraw(self, assumed: AssumedT, *, keeps_nomination: bool = False) -> None:
        """Have an assumed pod decided again, at once."""
        if self._give_back(assumed.queued.pod.uid) is not None:
            if keeps_nomination:
                pod = assumed.queued.pod
                self._cluster.nominate(pod, pod.nominated_node)
            else:
                self._observer.withdrawn(assumed)
            self._queue.activate(assumed.queued, self._clock())

    def withdraw_all(self, *, keeps_nominations: bool = False) -> None:
        """Have all who wait decided again; keeps_nominations: another replica leads, and tries their nodes first."""
        self._starts.clear()
        self._start_of.clear()
        self._next.clear()
        self.planner.forget()
        with self._cluster.ledger.together():
            for assumed in list(self._waiting.values()):
                self._withdraw(assumed, keeps_nomination=keeps_nominations)

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone, or was bound by someone else; its room is not ours to free."""
        start = self._start_of.get(uid)
        if uid in self._waiting:
            self._forget(uid).unreserve(self._cluster)
        if start is not None:
            self._break(start, "another of its pods is gone")

    def nodes_changed(self, names: Iterable[str]) -> None:
        """Look again at the pods that wait with a place on one of these nodes; as `node_changed` for each."""
        if self._waiting:
            for name in names:
                self.node_changed(name)

    def node_changed(self, name: str) -> None:
        """Look again at the pods that wait with a place on a node: it may be gone, or no longer take them."""
        there = self._cluster.pods_on(name) if self._waiting else ()
        for assumed in [self._waiting[uid] for uid in there if uid in self._waiting]:
            if not self.still_fits(assumed):
                self._observer.no_longer_fits(assumed)
                start = self._start_of.get(assumed.queued.pod.uid)
                self._withdraw(assumed)
                if start is not None:
                    self._break(start, "another of its pods lost its node")


def _sizes(requirements: Iterable[GangRequirement]) -> frozenset[tuple[Group, int]]:
    return frozenset((each.group, each.size) for each in requirements)
