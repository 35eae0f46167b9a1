"""Who is in a gang at this moment: members with a place, those that are tried out included, and members without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo, PodTemplate
from kube_policy_scheduler.cluster.quotas.quota_usage import Amounts, QuotaUsage
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.device_room import claimed_kinds
from kube_policy_scheduler.framework.decide.gang_domains import Domain, Rest, Where
from kube_policy_scheduler.framework.decide.gang_room import Members
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.attempt import Attempt
from kube_policy_scheduler.framework.preempt.gang_units import rows_of
from kube_policy_scheduler.framework.preempt.trials import VERDICT_WORK
from kube_policy_scheduler.framework.queue.scheduling_queue import Place, QueuedPod, SchedulingQueue

MOST_KINDS = 32
"""Of so many kinds of members, it is looked on which nodes they may be; the others count as if they may be on any."""
MOST_DIFFERING = 256
"""If more members of a group are pending, each counts the others as pods like itself. The decision of each member looks
at all others, so the work for a gang grows as the square of its members: 0.1 s for 256."""


class GangMembers:
    """The members of gangs, on the columns, in the queue, and in what is tried out."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, algorithm: ScheduleAlgorithm) -> None:
        self._cluster, self._queue, self._algorithm = cluster, queue, algorithm
        self.attempt: Attempt | None = None
        """What is tried out at this moment."""
        self._differing: tuple[tuple[Group, int] | None, Sequence[PodInfo]] = None, ()
        algorithm.differing_members = self._that_differ

    # --- with a place ----------------------------------------------------------------------------------

    def placed(self, requirement: GangRequirement) -> int:
        """Return how many members of a group have a place, as far as it needs them, those that wait included."""
        return requirement.filled(self._number_of)

    def lacks(self, requirement: GangRequirement) -> bool:
        """Return whether a group has fewer members with a place than it needs."""
        return self.placed(requirement) < requirement.size

    def have_begun(self, requirement: GangRequirement) -> bool:
        """Return whether any members of a group have a node."""
        return requirement.members(self._cluster.counters.group_size) > 0

    def are_in(self, requirement: GangRequirement, where: Where | None) -> bool:
        """Return whether members of a group have a node, and all of them are where the group was settled.

        Nodes may get other labels since, and other schedulers place members, too.
        """
        if not isinstance(where, Domain):
            return where is not None and self.have_begun(requirement)
        rows = rows_of(self._cluster, requirement)
        return bool(rows) and where.has_all(self._cluster, rows)

    def is_surplus(self, member: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether a member would fill no place that a group needs, which is not complete: others have its role.

        requirement: of the group, for any of its members.
        """
        if not requirement.roles:
            return False
        mine = (each for each in self._algorithm.gang_requirements(member) if each.group == requirement.group)
        return any(self.placed(each) == each.filled(self._number_of, joining=1) < each.size for each in mine)

    def _number_of(self, group_of: GroupOf, group: Group) -> int:
        noted = self.attempt.number_of(group) if self.attempt is not None else 0
        return self._cluster.counters.group_size(group_of, group) + noted

    # --- without a place -------------------------------------------------------------------------------

    def _that_differ(self, queued: QueuedPod, group: Group) -> Sequence[PodInfo]:
        """Return the pending members of a group; empty if they are alike, or more than `MOST_DIFFERING`.

        The list is kept until the pods of the group change. It contains the members that were not in flight when it was
        made; the caller leaves out those that have got a place since.
        """
        if len(self._queue.group(group)) > MOST_DIFFERING:
            return ()
        asked = group, self._queue.group_version(group)
        if self._differing[0] != asked:
            of_group = (each for each in self._algorithm.gang_requirements(queued) if each.group == group)
            found = [other.pod for other in self.pending(queued, of_group)]
            are_alike = all(pod.template is queued.pod.template for pod in found)
            self._differing = asked, () if are_alike else found
        return self._differing[1]

    def siblings(self, requirements: Iterable[GangRequirement]) -> list[QueuedPod]:
        """Return the pods of the same groups that are not decided yet, as the queue would serve them."""
        found = {
            uid: queued
            for requirement in requirements
            for uid, queued in self._queue.group(requirement.group).items()
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE) and not queued.errors
        }
        return sorted(found.values(), key=lambda queued: (-queued.pod.priority, queued.timestamp))

    def pending(self, queued: QueuedPod, requirements: Iterable[GangRequirement]) -> list[QueuedPod]:
        """Return a pod and its siblings in these groups, the pod first."""
        return [queued, *(other for other in self.siblings(requirements) if other is not queued)]

    def needed(self, queued: QueuedPod, requirement: GangRequirement) -> list[QueuedPod]:
        """Return the members without a place that a group needs to be complete, the pod first if it is one of them."""
        return self.filling(self.pending(queued, (requirement,)), requirement) or [queued]

    def filling(self, members: Sequence[QueuedPod], requirement: GangRequirement) -> list[QueuedPod]:
        """Return those first members of some that fill the places that a group needs, by their roles and groups."""
        missing = requirement.size - self.placed(requirement)
        if not requirement.roles and requirement.tree is None:
            return list(members[: max(0, missing)])
        found, chosen = list[QueuedPod](), Counter[Group]()

        def number_of(group_of: GroupOf, group: Group) -> int:
            return self._number_of(group_of, group) + chosen[group]

        for member in members:
            if len(found) >= missing:
                break
            chosen.update(member.groups)
            if requirement.filled(number_of) > requirement.size - missing + len(found):
                found.append(member)
            else:
                chosen.subtract(member.groups)
        return found

    def nominated_rows(self, group: Group) -> list[int]:
        """Return the rows of the nodes on which members without a place wait for victims to end."""
        if not self._cluster.nominated:
            return []
        rows = self._cluster.nodes.rows
        names = (member.pod.nominated_node for member in self._queue.group(group).values() if not member.has_place)
        return [rows[name] for name in names if name in rows]

    def awaiting_victims(self, requirement: GangRequirement) -> Iterator[QueuedPod]:
        """Yield the members without a place whose victims are being evicted, or are on their way out."""
        for uid, member in self._queue.group(requirement.group).items():
            if member.pod.nominated_node and not member.errors and uid not in self._cluster.pods:
                yield member

    def evicting(self, queued: QueuedPod, requirements: Iterable[GangRequirement]) -> list[QueuedPod]:
        """Return the other members of a pod's groups that are nominated and in flight: pods are being evicted for them.

        They are not among the `pending`, and get their places once these pods are gone.
        """
        awaiting = (member for requirement in requirements for member in self.awaiting_victims(requirement))
        in_flight = {id(member): member for member in awaiting if member.place is Place.IN_FLIGHT}
        return [member for member in in_flight.values() if member is not queued]

    def victims_of(self, member: QueuedPod) -> list[str]:
        """Return the uids of the pods that end on the node that a member is nominated to, and that it may have evicted.

        These have a lower priority, or any if there is `reclaim`.
        """
        frame, profile = self._algorithm.frame(member), self._algorithm.profile(member.pod)
        rules = profile.queues if profile is not None else None
        takes_any, priority = rules is not None and rules.reclaim_of(frame) is not None, member.pod.priority
        there = self._cluster.pods_on(member.pod.nominated_node).values()
        ending = (pod for pod in there if self._cluster.is_going(pod, frame.steady))
        return [pod.uid for pod in ending if takes_any or pod.priority < priority]

    def await_victims(self, requirement: GangRequirement) -> bool:
        """Return whether pods that members of a group evicted are still on their nodes."""
        if not self._cluster.nominated:
            return False
        return any(self.victims_of(member) for member in self.awaiting_victims(requirement))

    def quota_request(self, queued: QueuedPod, requirements: Sequence[GangRequirement], usage: QuotaUsage) -> Amounts:
        """Return what a pod, or all members that its group needs, ask a queue for."""
        if not requirements:
            return usage.amounts(queued.pod)
        return usage.request(member.pod for member in self.needed(queued, requirements[0]))

    # --- by template -----------------------------------------------------------------------------------

    def are_alike(self, queued: QueuedPod, requirement: GangRequirement) -> bool:
        """Return whether all pending members of a pod's group request the same, may be anywhere, and await no victims.

        Then the group is rejected, for lack of room or quota, as any other of its size and requests is.
        """
        group, pod = requirement.group, queued.pod
        is_special = requirement.levels or requirement.roles or requirement.tree is not None
        if is_special or self.nominated_rows(group):
            return False
        profile = self._algorithm.profile(pod)
        return all(
            other.pod.priority == pod.priority
            and other.pod.template.requests == pod.template.requests
            and self._algorithm.profile(other.pod) is profile
            for other in self._queue.group(group).values()
            if other.pod.template is not pod.template
        )

    def rest(self, queued: QueuedPod, requirement: GangRequirement, *, anywhere: bool = False) -> Rest:
        """Return what is left to place of a group; anywhere: as for `unplaced`."""
        rows = rows_of(self._cluster, requirement) if self.have_begun(requirement) else ()
        return Rest(
            requirement.levels,
            self.unplaced(queued, requirement, anywhere=anywhere),
            max(1, requirement.size - self.placed(requirement)),
            np.array(rows, np.intp) if rows else None,
        )

    def unplaced(self, queued: QueuedPod, requirement: GangRequirement, *, anywhere: bool = False) -> list[Members]:
        """Return the members without a place by template; those that cannot be decided now count as the pod itself.

        anywhere: whether nodes that are full, or reject them for now, count too: victims may make room there.
        """
        alike = self.by_template(self.pending(queued, (requirement,)))
        numbers = Counter({template: len(pods) for template, pods in alike.items()})
        missing = requirement.size - self.placed(requirement) - numbers.total()
        if missing > 0:
            alike.setdefault(queued.pod.template, [queued])
            numbers[queued.pod.template] += missing
        everywhere = np.ones(self._cluster.nodes.size, np.bool_)
        self._algorithm.work += VERDICT_WORK * min(len(numbers), MOST_KINDS) if not anywhere else 0
        return [
            Members(
                template,
                number,
                everywhere if anywhere or kind >= MOST_KINDS else self._algorithm.feasible(alike[template][0]),
                claimed_kinds(self._algorithm.frame(alike[template][0])),
                requirement.role_of(template),
            )
            for kind, (template, number) in enumerate(numbers.items())
        ]

    def by_template(self, members: Sequence[QueuedPod]) -> dict[PodTemplate, list[QueuedPod]]:
        """Return by template those of some members for whom no place is tried out."""
        there = self.attempt.placed if self.attempt is not None else {}
        found: dict[PodTemplate, list[QueuedPod]] = {}
        for member in members:
            if member.pod.uid not in there:
                found.setdefault(member.pod.template, []).append(member)
        return found
