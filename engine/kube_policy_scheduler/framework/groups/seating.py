"""Free nodes for all members that a gang needs, found by placing them one after the other.

Groups within groups are placed inside each other, each in one domain if it must be in one. What does not work out is
taken back, and tried in another order, or in another domain.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodTemplate
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds, thrifty_orders
from kube_policy_scheduler.framework.decide.gang_domains import (
    Domain,
    DomainCounts,
    Preference,
    Shortfall,
    Where,
    choose,
    domain_of,
    domains_to_try,
    holding,
    inside_of,
    largest_first,
    numbers_in,
    preference,
    roomiest,
)
from kube_policy_scheduler.framework.decide.gang_room import (
    Members,
    are_independent,
    free_now,
    free_without,
    needs_others,
    places_of,
)
from kube_policy_scheduler.framework.decide.placements import (
    FeasiblePlacement,
    Pools,
    Resources,
    best_of,
    most_allocated,
    number_compared,
)
from kube_policy_scheduler.framework.devices.thrift import Thrifty
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, outermost_first
from kube_policy_scheduler.framework.groups.attempt import Attempt, Mark
from kube_policy_scheduler.framework.groups.members import MOST_KINDS, GangMembers
from kube_policy_scheduler.framework.groups.search import WORK_CUT, SeatSearch
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.plugins.node_resources_fit import NodeResourcesFit
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, SchedulingQueue
from kube_policy_scheduler.framework.reserve.claim_reservation import has_claims
from kube_policy_scheduler.kubernetes_rules import Feature

NO_ROOM = "the nodes have no room for all pods that it needs at once"
MOST_SEARCHED = 32
"""Members of a larger gang are not searched for: no search of so few steps would come to its end."""
MOST_DEPENDENT = 8
"""The same, where members exclude or need each other: then no node is like another, and each step costs more."""
NODES_A_DECISION = 4_096
"""As many nodes are checked for room in the time of one decision. So a gang of few members is placed without that
check, which follows only if it does not fit."""
MOST_NODES = 1_000_000
"""Of all kinds of members together, that are looked at for room: 10 ms."""
_MOST_DEPTH = 16
"""Groups within groups that are placed inside each other."""

Steps = Generator[int, None, Shortfall | None]
"""Yields where a turn may end, the work since the last time; returns why it does not work out, None if it does."""


class Seating:
    """Seats members of gangs on free nodes."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        algorithm: ScheduleAlgorithm,
        members: GangMembers,
        *,
        domains: DomainCounts,
    ) -> None:
        """Make one.

        Args:
            cluster: where places are tried.
            queue: of the pending pods.
            algorithm: decides.
            members: who is in gangs.
            domains: counts the domains of gangs.
        """
        self._cluster, self._queue, self._algorithm, self._members = cluster, queue, algorithm, members
        self._gangs, self._counts = algorithm.gangs, domains

    def place(self, attempt: Attempt, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Steps:
        """Place what the groups of a pod need, with devices in other orders before it fails."""
        begin = attempt.mark()
        short = yield from self._place_all(attempt, queued, requirements)
        if short is None:
            return None
        for order in self._thrifty_orders(queued, requirements):
            attempt.undo_to(begin)
            attempt.order_devices(outermost_first(requirements)[0].group, order)
            if (yield from self._place_all(attempt, queued, requirements)) is None:
                return None
        return short

    def _place_all(self, attempt: Attempt, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Steps:
        for requirement in outermost_first(requirements):
            if self._members.lacks(requirement):
                short = yield from self._complete(attempt, requirement, queued, ())
                if short is not None:
                    return None if attempt.placed else short  # a wider group that is complete may start without it
        return None

    def _complete(
        self, attempt: Attempt, requirement: GangRequirement, first: QueuedPod, around: tuple[GangRequirement, ...]
    ) -> Steps:
        """Place what a group needs, in one domain if it must be in one.

        Args:
            attempt: what is placed so far.
            requirement: of the group.
            first: the member to begin with.
            around: the groups inside which this one is placed.
        """
        if len(around) >= _MOST_DEPTH:
            return Shortfall(f"more than {_MOST_DEPTH} groups depend on each other")
        if not requirement.levels:
            return (yield from self._seat(attempt, requirement, first, around))
        if (yield from self._seat_in_best(attempt, requirement, first, around)):
            return None
        mark, tried, cut = attempt.mark(), dict[Domain, Shortfall](), ""
        while True:
            found = self._domain(first, requirement, around, tried)
            if isinstance(found, Shortfall):
                return msgspec.structs.replace(found, message=_cut(tried, cut)) if cut else found
            attempt.settle(requirement.group, found)
            yield attempt.step()
            short = yield from self._seat(attempt, requirement, first, around)
            if short is None:
                return None
            attempt.undo_to(mark)
            if not isinstance(found, Domain) or found in tried or attempt.is_over:
                return short
            tried[found] = short
            cut = cut or short.cut
            self._counts.gang_left(found)

    def _seat_in_best(
        self, attempt: Attempt, requirement: GangRequirement, first: QueuedPod, around: tuple[GangRequirement, ...]
    ) -> Generator[int, None, bool]:
        """Place what a PodGroup needs in the domain that kube-scheduler would take; return whether that is done.

        It is not where something else chooses the domain, and where the group fits in none in the order of the queue:
        then other orders are tried, as for any other group.
        """
        prefers, inside = self._preference(first, requirement), (*around, requirement)
        if prefers.resources is None:
            return False
        members = self._members.pending(first, (requirement,))
        if self._members.have_begun(requirement) or self._has_inner(members, inside):
            return False
        rest, within = self._members.rest(first, requirement), self._around(around)
        found = domains_to_try(self._cluster, rest, prefers=prefers, within=within)
        most = number_compared(found.known, found.nodes, self._cluster.rules)
        nominated = numbers_in(self._cluster, requirement.levels[0], self._members.nominated_rows(requirement.group))
        # nominated members keep room from each other: that may hide a domain
        domains = [*found.domains, *(each for each in nominated if each not in found.domains)]
        wanted = nominated.most_common(1)[0][0] if nominated and self._is_nominated_first(first) else None
        trials = dict[FeasiblePlacement, tuple[Domain, list[tuple[QueuedPod, str]]]]()
        mark, tried = attempt.mark(), 0
        for domain in sorted(domains, key=lambda each: each != wanted):
            if attempt.is_over or len(trials) >= most:
                break
            attempt.settle(requirement.group, domain)
            yield attempt.step()
            yield from self._fill(attempt, members, inside, every=True)
            tried += 1
            if not self._members.lacks(requirement):
                seats = [(each, attempt.placed[each.pod.uid]) for each in members if each.pod.uid in attempt.placed]
                fit = _fit(self._cluster, domain, prefers.resources, {each.pod.template: 0.0 for each, _ in seats})
                trials[FeasiblePlacement(domain.value, fit, len(seats))] = domain, seats
            attempt.undo_to(mark)
            if domain == wanted and trials:
                break
        without_room = found.known - len(domains) if tried == len(domains) else 0
        self._counts.placements_compared(
            first.pod.template.spec.scheduler_name,
            known=found.known,
            feasible=len(trials),
            infeasible=tried - len(trials) + without_room,
        )
        if not trials:
            return False
        domain, seats = trials[best_of(list(trials))]
        attempt.settle(requirement.group, domain)
        return (yield from self._seat_again(attempt, requirement, seats, mark))

    def _is_nominated_first(self, member: QueuedPod) -> bool:
        """Return whether the PodGroup of a pod is placed where most of its members are nominated, if it fits there."""
        is_in_composite = any(each.tree is not None for each in self._algorithm.gang_requirements(member))
        return Feature.NOMINATED_PLACEMENT_FIRST in self._cluster.rules and not is_in_composite

    def _seat_again(
        self, attempt: Attempt, requirement: GangRequirement, seats: Sequence[tuple[QueuedPod, str]], mark: Mark
    ) -> Generator[int, None, bool]:
        """Place members where they were placed in a trial, as many as a group needs; return whether they still fit.

        A turn may have ended since, in which the nodes changed.
        """
        for member, host in seats:
            if not self._members.lacks(requirement):
                return True
            if not self._algorithm.passes(member, host, beside_nominated=True):
                attempt.undo_to(mark)
                return False
            attempt.seat(member, self._algorithm.on_row(member, self._cluster.nodes.rows[host]))
            yield attempt.step()
        return True

    def seat_what_fits(self, attempt: Attempt, requirement: GangRequirement, members: Sequence[QueuedPod]) -> Steps:
        """Place members of a group in the order given until it is complete, as many as fit if too few do."""
        return (yield from self._fill(attempt, members, (requirement,), goes_on=True))

    def seat_all(
        self, attempt: Attempt, requirement: GangRequirement, members: Sequence[QueuedPod], *, every: bool
    ) -> Steps:
        """Place members of a group in the order given, in other orders before it fails.

        every: whether those are placed too that the group can do without, as kube-scheduler does.
        """
        mark = attempt.mark()
        if (yield from self._fill(attempt, members, (requirement,), every=every)) is None:
            return None
        attempt.undo_to(mark)
        return (yield from self._seat(attempt, requirement, members[0], ()))

    # --- domains ---------------------------------------------------------------------------------------

    def confine(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> tuple[Domain, ...] | Shortfall:
        """Return the domains that the groups of a pod get, by the room that there is, or which of them finds none.

        Nothing is placed. Members that are in no queue count as pods like this one.
        """
        around: tuple[GangRequirement, ...] = ()
        for requirement in outermost_first(requirements):
            if not requirement.levels:
                continue
            found = self._domain(queued, requirement, around, ())
            if isinstance(found, Shortfall):
                best = roomiest(self._cluster, self._members.rest(queued, requirement), within=self._around(around))
                return Shortfall(f"{requirement}: {found.message}", tuple(best))
            self._gangs.settle(requirement.group, found)
            around = (*around, requirement)
        domains = (self._gangs.domain(each.group) for each in around)
        return tuple(domain for domain in domains if domain is not None)

    def _domain(
        self,
        first: QueuedPod,
        requirement: GangRequirement,
        around: tuple[GangRequirement, ...],
        tried: Collection[Domain],
    ) -> Where | Shortfall:
        """Return the next domain to try for a group: where its members are, or one that may have room for the rest."""
        group, cluster = requirement.group, self._cluster
        known = self._gangs.where(group)
        nominated = self._members.nominated_rows(group) if not self._members.have_begun(requirement) else ()
        if known is not None and (nominated or self._members.are_in(requirement, known)):
            return known
        if nominated:
            return domain_of(cluster, requirement.levels, nominated, who="its nominated members")
        within = self._around(around)
        for inner in self._inside(first, requirement, around):
            within = inside_of(within, holding(cluster, self._members.rest(first, inner), within=within))
        rest = self._members.rest(first, requirement)
        return choose(cluster, rest, prefers=self._preference(first, requirement), within=within, skipped=tried)

    def _around(self, around: Sequence[GangRequirement]) -> BoolArray | None:
        """Return `bool[nodes]`: those in the domains of the groups inside which one is placed; None: all."""
        within: BoolArray | None = None
        for other in around:
            if other.levels and (domain := self._gangs.domain(other.group)) is not None:
                mask = domain.mask(self._cluster)
                within = mask if within is None else within & mask
        return within

    def domain_with_evictions(
        self, queued: QueuedPod, requirement: GangRequirement, tried: Collection[Domain]
    ) -> Where | Shortfall:
        """Return a domain that has room for all that a group needs once pods of lower priority are gone."""
        return choose(
            self._cluster,
            self._members.rest(queued, requirement, anywhere=True),
            prefers=self._preference(queued, requirement),
            skipped=tried,
            free=free_without(self._cluster, queued.pod.priority),
            most_free_first=True,
        )

    def _inside(
        self, first: QueuedPod, requirement: GangRequirement, around: tuple[GangRequirement, ...]
    ) -> Iterator[GangRequirement]:
        """Yield the narrower groups of a pod that must be in one domain each, and have no place yet."""
        known = {requirement.group, *(each.group for each in around)}
        for each in outermost_first(self._algorithm.gang_requirements(first)):
            if each.levels and each.group not in known and not self._members.have_begun(each):
                yield each

    def _preference(self, queued: QueuedPod, requirement: GangRequirement) -> Preference:
        """Return which of several domains a group of a pod gets."""
        profile = self._algorithm.profile(queued.pod)
        return preference(profile, self._algorithm.frame(queued), requirement) if profile is not None else Preference()

    # --- seats -----------------------------------------------------------------------------------------

    def _seat(
        self, attempt: Attempt, requirement: GangRequirement, first: QueuedPod, around: tuple[GangRequirement, ...]
    ) -> Steps:
        """Place what a group needs: as the queue serves its members; if they differ, in other orders before it fails.

        These are: the largest first; the largest first, each on the fullest node; then any, in a bounded search.
        """
        members = self._members.pending(first, (requirement,))
        mark, inside = attempt.mark(), (*around, requirement)
        are_few = len(members) * NODES_A_DECISION <= self._cluster.nodes.size
        asks_first = not are_few or self._has_inner(members, inside)
        if asks_first and not self.has_room(members, requirement, priority=None):
            return Shortfall(NO_ROOM, rejected_by=_resource_plugins(members, self._cluster))
        short = yield from self._fill(attempt, members, inside)
        if short is None or self._has_inner(members, inside):
            return short
        attempt.undo_to(mark)
        if not asks_first and not self.has_room(members, requirement, priority=None):
            return Shortfall(NO_ROOM, rejected_by=_resource_plugins(members, self._cluster))
        yield attempt.step()
        rejected = self._queue.get(short.rejection.pod.uid) if short.rejection is not None else None
        is_needed = len(members) + self._members.placed(requirement) <= requirement.size  # none can take its place
        alone = rejected is not None and is_needed and not needs_others(rejected.pod.template)
        if rejected is not None and alone and not self._algorithm.feasible(rejected).any():
            return short  # it fits nowhere, in whatever order
        kinds = self._members.unplaced(first, requirement, anywhere=_are_many(members))
        independent = all(are_independent(kind.template) for kind in kinds)
        if independent and not _differ(kinds):
            return short
        yield attempt.step()
        place = {template: number for number, template in enumerate(largest_first(self._cluster, kinds))}
        members = sorted(
            members, key=lambda each: (needs_others(each.pod.template), place.get(each.pod.template, len(place)))
        )
        for fullest in (False, True):
            attempt.undo_to(mark)
            if (yield from self._fill(attempt, members, inside, fullest=fullest)) is None:
                return None
        attempt.undo_to(mark)
        if requirement.size - self._members.placed(requirement) > (MOST_SEARCHED if independent else MOST_DEPENDENT):
            return msgspec.structs.replace(short, cut="there are too many pods to try every way to seat them")
        search = SeatSearch(
            attempt,
            self._algorithm,
            self._cluster,
            requirement,
            kinds,
            members=self._members,
            independent=independent,
        )
        if (yield from search.seats(members)):
            return None
        return msgspec.structs.replace(short, cut=search.left_out)

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
        for each in outermost_first(self._algorithm.gang_requirements(member)):
            if each.group not in groups and self._members.lacks(each):
                return each
        return None

    def _fill(
        self,
        attempt: Attempt,
        members: Sequence[QueuedPod],
        inside: tuple[GangRequirement, ...],
        *,
        fullest: bool = False,
        every: bool = False,
        goes_on: bool = False,
    ) -> Steps:
        """Place members in turn until the innermost group is complete.

        Args:
            attempt: where they are placed.
            members: in turn.
            inside: the groups inside each other, the innermost last.
            fullest: whether each gets the node that is fullest with it, instead of the one with the best score.
            every: whether those are placed too that the group can do without.
            goes_on: whether it goes on though too few are left to complete the group.
        """
        requirement, known = inside[-1], _groups_of(inside)
        most_left = len(members) + self._members.placed(requirement) - requirement.size
        left, found, closed = 0, None, set[Group]()
        for member in members:
            if (left > most_left and not goes_on) or not (every or self._members.lacks(requirement)):
                break
            if attempt.is_over:
                return Shortfall(WORK_CUT, cut=WORK_CUT)
            if member.pod.uid in attempt.placed:
                continue
            if self._members.is_surplus(member, requirement):
                continue
            inner = self._next_inside(member, inside) if not known.issuperset(member.groups) else None
            if inner is None:
                decision = attempt.decide(member)
                if decision.host is not None:
                    attempt.seat(member, self._on_fullest(member) if fullest else decision)
                else:
                    left += 1
                    found = found or Shortfall("", rejection=decision)
            elif inner.group in closed:
                left += 1
            else:
                mark = attempt.mark()
                short = yield from self._complete(attempt, inner, member, inside)
                if short is not None:
                    attempt.undo_to(mark)
                    closed.add(inner.group)
                    left += 1
                    found = found or short
            yield attempt.step()
        return None if not self._members.lacks(requirement) else found or Shortfall(NO_ROOM)

    def _on_fullest(self, member: QueuedPod) -> Decision:
        """Return that a member, which has feasible nodes, gets the one that is fullest with it."""
        return self._algorithm.on_row(member, self._algorithm.by_fullness(member, most=1)[0])

    def _thrifty_orders(self, queued: QueuedPod, requirements: Sequence[GangRequirement]) -> Sequence[Thrifty]:
        """Return the orders of devices in which members may leave more to others; none if they claim no devices."""
        kinds = {member.pod.template: member for member in self._members.pending(queued, requirements)}
        claiming = [member for template, member in kinds.items() if has_claims(template, self._cluster)]
        return max((thrifty_orders(self._algorithm.frame(member)) for member in claiming), key=len, default=())

    # --- what needs no trial ---------------------------------------------------------------------------

    def has_room(self, members: Sequence[QueuedPod], requirement: GangRequirement, *, priority: int | None) -> bool:
        """Return whether the nodes have the resources and devices for enough members, whatever else rejects them.

        Costs one look at the columns for each kind of member, where a trial costs a decision for each member. Of very
        many kinds, those with the most members are looked at, and the others count as if there were room.

        priority: what pods of lower priority hold counts as free; None: it does not.
        """
        needed = requirement.size - self._members.placed(requirement)
        profile = self._algorithm.profile(members[0].pod)
        if profile is None or not any(isinstance(plugin, NodeResourcesFit) for plugin in profile.filters):
            return True
        alike, nodes = self._members.by_template(members), self._cluster.nodes
        room, free = 0, free_now(self._cluster) if priority is None else free_without(self._cluster, priority)
        most_kinds = max(1, MOST_NODES // max(1, nodes.size))
        for number, (template, pods) in enumerate(sorted(alike.items(), key=lambda each: -len(each[1]))):
            if number >= most_kinds:
                room += len(pods)
                continue
            devices = claimed_kinds(self._algorithm.frame(pods[0]))
            everywhere = Members(template, len(pods), np.ones(nodes.size, np.bool_), devices)
            room += min(len(pods), int(places_of(self._cluster, everywhere, free=free).sum()))
            if room >= needed:
                return True
        return room >= needed


def _fit(cluster: Cluster, domain: Domain, resources: Resources, added: Mapping[PodTemplate, float]) -> int:
    """Return the score of NodeResourcesFit for a domain, see `most_allocated`."""
    rows = np.flatnonzero(domain.mask(cluster))
    return int(most_allocated(cluster, Pools(rows, np.zeros(len(rows), np.intp), 1), resources, added)[0])


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


def _are_many(members: Sequence[QueuedPod]) -> bool:
    """Return whether members are of so many templates that each counts as if it may be anywhere."""
    return len({member.pod.template for member in members}) > MOST_KINDS


def _differ(kinds: Sequence[Members]) -> bool:
    """Return whether it matters in which order members of some kinds are placed."""
    first = kinds[0]
    return any(
        each.template.requests != first.template.requests
        or each.devices != first.devices
        or not np.array_equal(each.feasible, first.feasible)
        for each in kinds[1:]
    )
