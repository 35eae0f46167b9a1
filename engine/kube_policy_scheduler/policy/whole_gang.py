"""What the scheduler decides about a member of a gang whose other pods wait too: its own classes are asked, once.

A queue holds the pods of the gang while it is asked, and nothing is placed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.backfill.reservation import Seat
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import Domain, DomainCounts, Shortfall
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.attempt import WaitingPod
from kube_policy_scheduler.framework.groups.members import GangMembers
from kube_policy_scheduler.framework.groups.seating import Seating
from kube_policy_scheduler.framework.groups.waiting_pods import WaitingPods
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, SchedulingQueue, gates, priority_position
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.times import Steady


def decide_with_gang(
    inputs: DecisionInputs, requirements: Sequence[GangRequirement], cycle: Cycle, *, preempts: bool
) -> tuple[Decision, tuple[Domain, ...]]:
    """Return the decision about a pod with all pending members of its gangs, and the domains that these get.

    Args:
        inputs: of the decision; the pods that wait are known.
        requirements: of the pod's gangs, none of which lacks pods.
        cycle: decides.
        preempts: whether it is asked who would be evicted for them.
    """
    with _asking(inputs, requirements, cycle, preempts=preempts) as (gangs, queued):
        queued.attempts = inputs.attempts + 1
        decision, _ = gangs.decide(queued, gangs.membership(queued).requirements)
    found = (gangs.gangs.domain(requirement.group) for requirement in requirements if requirement.levels)
    return decision, tuple(domain for domain in found if domain is not None)


def domains_by_room(queued: QueuedPod, inputs: DecisionInputs, cycle: Cycle) -> tuple[Domain, ...] | Shortfall:
    """Return the domains that the gangs of a pod get, if their other members are pods like it, or which finds none.

    Args:
        queued: the pod.
        inputs: of the decision about it.
        cycle: decides.
    """
    requirements = inputs.gang_requirements()
    if not any(each.levels for each in requirements):
        return ()
    algorithm, queue = _ByRules(inputs, cycle), SchedulingQueue()
    members = GangMembers(inputs.cluster, queue, algorithm)
    seating = Seating(inputs.cluster, queue, algorithm, members, domains=DomainCounts())
    return seating.confine(queued, requirements)


def seats_of(inputs: DecisionInputs, requirements: Sequence[GangRequirement], cycle: Cycle) -> Sequence[Seat] | None:
    """Return places for a pod, or for all that its gangs need, as the cluster stands; None: it does not fit.

    Args:
        inputs: of the pod; the pods that wait are known.
        requirements: of its gangs, none of which lacks pods.
        cycle: decides.
    """
    with _asking(inputs, requirements, cycle, preempts=False) as (gangs, queued):
        return gangs.seats(queued)


@contextmanager
def _asking(
    inputs: DecisionInputs, requirements: Sequence[GangRequirement], cycle: Cycle, *, preempts: bool
) -> Iterator[tuple[WaitingPods[WaitingPod], QueuedPod]]:
    """Have a queue with a pod, which is taken out of it, and with the members of its gangs, and who decides them."""
    pending = inputs.pending
    assert pending is not None
    if not preempts:
        inputs = inputs.under(msgspec.structs.replace(inputs.profile, preempts=False))
    algorithm = _ByRules(inputs, cycle)
    queue, now = SchedulingQueue(), Steady(inputs.now)
    gangs = WaitingPods[WaitingPod](inputs.cluster, queue, algorithm, observer=_Nobody(), clock=lambda: now)
    queue.use(
        position=priority_position,
        hold=algorithm.hold,
        membership=gangs.membership,
        placed=inputs.cluster.counters.group_size,
    )
    mine = [pod for pod in pending.pods if pod.uid != inputs.pod.uid and _is_in(pod, requirements)]
    try:
        queue.add(inputs.pod, Steady(inputs.queued or inputs.now))
        for pod in mine:
            queue.add(pod, Steady(pod.created or inputs.now))
        while queue.has_to_ask():
            queue.ask_again()
        queued = queue.take(inputs.pod.uid)
        assert queued is not None, "nothing holds it, and its gangs lack no pods"
        yield gangs, queued
    finally:
        for each in list(queue):
            queue.remove(each.pod.uid)


def _is_in(pod: PodInfo, requirements: Sequence[GangRequirement]) -> bool:
    return any(requirement.group_of(pod.template) == requirement.group for requirement in requirements)


class _ByRules(ScheduleAlgorithm):
    """Decides a pod, and those of its gang, by the rules of one decision."""

    def __init__(self, inputs: DecisionInputs, cycle: Cycle) -> None:
        super().__init__(inputs.cluster, cycle, lambda: Steady(inputs.now - inputs.cluster.ahead))
        self.signals = inputs.signals
        self._inputs = inputs

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        asked = self._inputs_of(pod)
        return asked.profile if asked is not None else None

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; raises ValueError where that is not known."""
        asked = self._inputs_of(queued.pod)
        return asked.gang_requirements() if asked is not None else ()

    def hold(self, queued: QueuedPod) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        asked, waits = self._inputs_of(queued.pod), gates(queued)
        policy = asked.rules.policy if asked is not None else None
        return policy.hold_reason(self.frame(queued)) if waits is None and policy is not None else waits

    def _inputs_of(self, pod: PodInfo) -> DecisionInputs | None:
        return self._inputs if pod.uid == self._inputs.pod.uid else self._inputs.of_other(pod)


class _Nobody:
    """Hears of places that are given back; there are none."""

    def rejected(self, assumed: WaitingPod, why: str) -> None:
        """Hear of nothing."""

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """Hear of nothing."""

    def no_longer_fits(self, assumed: WaitingPod) -> None:
        """Hear of nothing."""

    def withdrawn(self, assumed: WaitingPod) -> None:
        """Hear of nothing."""
