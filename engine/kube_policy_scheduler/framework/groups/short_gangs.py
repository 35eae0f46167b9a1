"""Gangs that run with fewer pods than they need, though nobody here evicted the others: they are lost, or deleted.

What is left of such a gang keeps its nodes for as long as the `within` of its clause. If the gang is not complete by
then, the rest is to be evicted, and the gang waits as a whole: a part of it works for nobody, and holds room. That a
pod is gone does not tell whether it was lost or has done its work. So a gang is short only if it is known that a pod
was lost, or if another pod waits to take its place. PodGroups follow Kubernetes, which leaves the rest where it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.gang_table import Loss
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.preempt.gang_units import members_of
from kube_policy_scheduler.framework.queue.scheduling_queue import SchedulingQueue
from kube_policy_scheduler.times import Steady, duration
from kube_policy_scheduler.wording import plural


class ShortGang(msgspec.Struct, frozen=True):
    """A gang whose rest is to be evicted."""

    requirement: GangRequirement
    rest: tuple[PodInfo, ...]
    """Its pods on nodes that are not on their way out."""

    @property
    def why(self) -> str:
        """Return why its pods must go, for people."""
        need, there = self.requirement, plural(len(self.rest), "pod")
        return f"only {there} of its gang ran for {duration(need.within_seconds)}, and it needs {need.size}: {need}"


class ShortGangs:
    """The gangs that run with too few pods, each with the time at which its rest is to be evicted."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, algorithm: ScheduleAlgorithm) -> None:
        self._cluster, self._queue, self._algorithm = cluster, queue, algorithm
        self._gangs = algorithm.gangs
        self._numbers = count()
        self._heap: list[tuple[float, int, Group]] = []
        """When gangs are due; an entry is stale where its gang is due at another time, or not short."""

    def __len__(self) -> int:
        return sum(record.loss is not None for record in self._gangs)

    def left(self, pod: PodInfo, now: Steady, *, is_loss: bool) -> None:
        """Hear of a pod that ran and is gone.

        Args:
            pod: the pod.
            now: the time.
            is_loss: whether it is known that it had not done its work.
        """
        for requirement in self._asked_by(pod):
            if self._is_short(requirement):
                self._note(requirement, now, is_loss=is_loss)
            else:  # it was evicted as a whole, or can do without the pod
                self.completed(requirement.group)

    def begin(self, now: Steady) -> None:
        """Look for gangs that were short before this scheduler began: pods wait to complete them."""
        for queued in {group: each for each in self._queue for group in each.groups}.values():
            self.left(queued.pod, now, is_loss=False)

    def completed(self, group: Group) -> None:
        """Hear of a gang that is complete again."""
        if (record := self._gangs.get(group)) is not None:
            record.loss = None

    def until(self, group: Group) -> float | None:
        """Return when the rest of a gang is to be evicted; None if it is not short."""
        loss = self._loss(group)
        return loss.due if loss is not None else None

    def next_due(self) -> float | None:
        """Return when the rest of the next gang is to be evicted."""
        while self._heap:
            due, _, group = self._heap[0]
            if self.until(group) == due:
                return due
            heapq.heappop(self._heap)
        return None

    def due(self, now: Steady) -> Iterator[ShortGang]:
        """Yield the gangs whose rest is to be evicted now; each comes again after its `within` if it is still there."""
        while self._heap and (at := self.next_due()) is not None and at <= now:
            group = heapq.heappop(self._heap)[2]
            known = self._loss(group)
            assert known is not None, "next_due names only gangs that have lost pods"
            self.completed(group)
            rest = tuple(self._rest(known.requirement))
            requirement = next((each for pod in rest[:1] for each in self._asked_by(pod) if each.group == group), None)
            if requirement is None or not self._is_short(requirement):
                continue  # it is complete again, or gone, or its policy asks for something else
            self._note(requirement, now, is_loss=known.is_known)
            if known.is_known or self._queue.without_place(group):
                yield ShortGang(requirement, rest)

    def _note(self, requirement: GangRequirement, now: Steady, *, is_loss: bool) -> None:
        record = self._gangs.of(requirement.group)
        if record.loss is not None:
            record.loss.is_known = record.loss.is_known or is_loss
            return
        due = now + requirement.within_seconds
        record.loss = Loss(requirement, due, is_loss)
        heapq.heappush(self._heap, (due, next(self._numbers), requirement.group))

    def _loss(self, group: Group) -> Loss | None:
        record = self._gangs.get(group)
        return record.loss if record is not None else None

    def _is_short(self, requirement: GangRequirement) -> bool:
        """Return whether pods of a gang run, and too few of them."""
        size_of = self._cluster.counters.group_size
        return requirement.members(size_of) > 0 and requirement.filled(size_of) < requirement.size

    def _asked_by(self, pod: PodInfo) -> Iterable[GangRequirement]:
        """Return what the `gang` clauses of a pod's policy ask for."""
        return [each for each in self._algorithm.gangs_that_run(pod) or () if each.policy]

    def _rest(self, requirement: GangRequirement) -> Iterator[PodInfo]:
        """Yield the pods of a gang that run, without those that are on their way out."""
        for pod in members_of(self._cluster, requirement):
            if not pod.terminating and pod.uid not in self._cluster.assumed:
                yield pod
