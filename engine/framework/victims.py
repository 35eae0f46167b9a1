"""Victims of preemption: how important pods are, which budgets protect them, and which set is the least to lose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.cluster.cluster import Cluster
from engine.cluster.objects import PodDisruptionBudget
from engine.cluster.pods import PodInfo
from engine.cluster.selectors import Selector, SelectorError, label_selector

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
        first = self.pods[0]  # of the highest priority, and of those the one that runs longest
        total = sum([pod.priority for pod in self.pods]) + len(self.pods) * _PRIORITY_SHIFT
        return self.violations, first.priority, total, len(self.pods), -started(first, now)


def started(pod: PodInfo, now: float) -> float:
    """Return when the pod started, `now` where it has not yet."""
    return now if pod.started is None else pod.started


def by_importance(pods: Iterable[PodInfo], now: float) -> list[PodInfo]:
    """Return pods sorted: higher priority first, then those that run longer, then by name."""
    return sorted(pods, key=lambda pod: (-pod.priority, started(pod, now), pod.namespace, pod.name))


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

    def covers(self, pods: Iterable[PodInfo]) -> bool:
        """Return whether any budget protects any of some pods."""
        return any(
            pod.labels and budget.metadata.namespace == pod.namespace and selector.matches(pod.labels)
            for pod in pods
            for budget, selector in self._budgets
        )

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
