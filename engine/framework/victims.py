"""Victims on one node: all pods of lower priority go in thought, then as many as possible come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.cluster.cluster import Cluster
from engine.cluster.nodes import BoolArray, IntArray
from engine.cluster.objects import PodDisruptionBudget
from engine.cluster.pods import PodInfo
from engine.cluster.selectors import Selector, SelectorError, label_selector
from engine.framework.diagnosis import DiagnosisBuilder
from engine.framework.frame import Frame
from engine.framework.nominations import REFUSED, Active, nominated_for, verdict_with_nominated
from engine.framework.plugin import Scope
from engine.framework.plugins.node_resources_fit import NodeResourcesFit, Wanted, shortages
from engine.framework.status import Code, Refusal, Status

NO_VICTIMS = "No preemption victims found for incoming pod"
_PRIORITY_SHIFT = 2**31
"""Added to every priority in sums, so that more victims of negative priority are not better."""


@dataclass(frozen=True, slots=True)
class Victims:
    """What would have to go from one node."""

    pods: tuple[PodInfo, ...]
    """At least one, most important first."""
    violations: int
    """Victims whose eviction a PodDisruptionBudget does not allow."""

    def order(self, now: float) -> tuple[int, int, int, int, float]:
        """Return how bad these victims are to lose, for comparison: smaller is better.

        Violated budgets, the highest priority, the sum of priorities, the number, and how early the first of
        those with the highest priority started (a pod that has not started counts as started `now`).
        """
        highest = max(pod.priority for pod in self.pods)
        earliest = min(started(pod, now) for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _PRIORITY_SHIFT for pod in self.pods)
        return self.violations, highest, total, len(self.pods), -earliest


def started(pod: PodInfo, now: float) -> float:
    """Return when the pod started, `now` where it has not yet."""
    return now if pod.started is None else pod.started


def by_importance(pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
    """Return pods sorted: higher priority first, then those that run longer, then by name."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod, now), pod.key))


class Budgets:
    """The PodDisruptionBudgets of a cluster, compiled."""

    def __init__(self, cluster: Cluster) -> None:
        self._budgets: list[tuple[PodDisruptionBudget, Selector]] = []
        for budget in cluster.all(PodDisruptionBudget):
            try:
                selector = label_selector(budget.spec.selector)
            except SelectorError:
                continue  # matches no pod, as in kube-scheduler
            if selector is not None and not selector.empty:
                self._budgets.append((budget, selector))

    def split(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods that no budget lets go, and the others; both in the given order.

        Each pod in turn takes one disruption from every budget that matches it and has not recorded it yet.
        """
        if not self._budgets:
            return [], list(pods)
        left = [budget.status.disruptions_allowed for budget, _ in self._budgets]
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            violates = False
            for i, (budget, selector) in enumerate(self._budgets):
                if (
                    pod.labels
                    and budget.metadata.namespace == pod.namespace
                    and selector.matches(pod.labels)
                    and pod.name not in (budget.status.disrupted_pods or {})
                ):
                    left[i] -= 1
                    violates = violates or left[i] < 0
            (violating if violates else others).append(pod)
        return violating, others


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Rows that need no trial: their refusal with all pods of lower priority gone is known."""

    rows: dict[int, Status]

    def covers(self, row: int) -> bool:
        """Return whether the row is one of them."""
        return row in self.rows

    def counts(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Return reasons and how many rows have them."""
        tally: dict[tuple[str, ...], int] = {}
        for status in self.rows.values():
            tally[status.reasons] = tally.get(status.reasons, 0) + 1
        return iter(tally.items())


class Trial:
    """Finds the victims on one node after the other."""

    def __init__(self, frame: Frame, active: Active, budgets: Budgets) -> None:
        self._frame = frame
        self._active = active
        self._budgets = budgets
        self._moving = [(p, state) for p, state in active if p.scope is not Scope.TEMPLATE or state is REFUSED]
        """Filters whose answer can change when pods leave."""

    def name(self, row: int) -> str:
        """Return a node's name."""
        return self._frame.cluster.nodes.infos[row].name

    def hopeless(self, rows: IntArray) -> Hopeless:
        """Return the rows without victims, and those that would refuse the pod without all of its victims too.

        Only filters up to NodeResourcesFit that look at a node's static facts are asked, all rows at once; what
        they let through is to be tried.
        """
        frame, cluster = self._frame.at(rows), self._frame.cluster
        none = cluster.priorities.below(frame.pod.priority, "pods", cluster.nodes.size)[rows] == 0
        builder = DiagnosisBuilder(len(rows))
        builder.add("", [Refusal(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, NO_VICTIMS, none)])
        trial = ~self._with_nominated(rows)
        for plugin, state in self._active:
            if isinstance(plugin, NodeResourcesFit):
                builder.add(plugin.name, _only(self._shortages(rows, state), trial))
                continue
            if plugin.scope is not Scope.TEMPLATE or state is REFUSED:
                break
            builder.add(plugin.name, _only(plugin.refusals(frame, state), trial))
        diagnosis = builder.build()
        return Hopeless({int(rows[i]): diagnosis.status(int(i)) for i in np.flatnonzero(diagnosis.first >= 0)})

    def _with_nominated(self, rows: IntArray) -> BoolArray:
        """Return `bool[rows]`: nodes with nominated pods that count."""
        cluster, pod = self._frame.cluster, self._frame.pod
        result = np.zeros(len(rows), np.bool_)
        if cluster.nominated:
            for i, row in enumerate(rows):
                result[i] = bool(nominated_for(pod, self.name(int(row)), cluster))
        return result

    def _shortages(self, rows: IntArray, wanted: Wanted) -> list[Refusal]:
        """Return what would be short on these rows without all pods of lower priority."""
        cluster, priority = self._frame.cluster, self._frame.pod.priority
        nodes = cluster.nodes

        def left(resource: str) -> IntArray:
            held = nodes.requested(resource)
            return (held - cluster.priorities.below(priority, resource, nodes.size))[rows]

        count = (nodes.pod_count - cluster.priorities.below(priority, "pods", nodes.size))[rows]
        return shortages(
            wanted,
            cluster,
            allocatable=lambda resource: nodes.allocatable(resource)[rows],
            requested=left,
            pod_count=count,
        )

    def victims_on(self, row: int) -> Victims | Status:
        """Return the victims on a node, or the refusal that stays without all of them."""
        frame, cluster = self._frame.at(np.array([row])), self._frame.cluster
        name, now = self.name(row), frame.now
        pool = [pod for pod in cluster.pods_on(name).values() if pod.priority < frame.pod.priority]
        if not pool:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "", (NO_VICTIMS,))
        violating, others = self._budgets.split(by_importance(pool, now))
        victims: list[PodInfo] = []
        violations = 0
        with cluster.rehearse():
            for pod in pool:
                cluster.displace(pod.uid)
            status = verdict_with_nominated(frame, self._active)
            if status.code is not Code.SUCCESS:
                return status
            for group in (violating, others):
                for pod in group:
                    cluster.place(pod, name)
                    if verdict_with_nominated(frame, self._moving).code is not Code.SUCCESS:
                        cluster.displace(pod.uid)
                        victims.append(pod)
                if group is violating:
                    violations = len(victims)
        if not victims:
            return Status(Code.ERROR, "", (f"expected at least one victim pod on node {name!r}",))
        return Victims(tuple(by_importance(victims, now)), violations)


def _only(refusals: Iterable[Refusal], where: BoolArray) -> list[Refusal]:
    return [Refusal(r.code, r.reason, r.where & where) for r in refusals]
