"""Which pods are to be expected: how often each template was met. Knows no rules.

Given by the caller (a simulation has its list), or learned: the pods that are on nodes. Of few pods every change
counts at once, of many whenever a tenth has changed: the same pods in the same order give the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.pods import PodTemplate

_FEW_PODS = 100
"""Up to this number of pods the expected values follow immediately."""


class Workload:
    """How many pods of each template."""

    def __init__(self, nodes: NodeTable) -> None:
        self.learns = False
        """Whether it must be called for every pod that is added to a node."""
        self.counts: Mapping[PodTemplate, int] = {}
        """What is expected, in proportion."""
        self.version = 0
        """Changes with what is expected."""
        self.derived: dict[str, Any] = {}
        """What others made of it."""
        self._nodes = nodes
        self._there: dict[PodTemplate, int] = {}
        self._total = 0
        self._changes = 0

    @property
    def known(self) -> bool:
        """Return whether the expected pods are given or learned."""
        return self.learns or self.version > 0

    def declare(self, counts: Mapping[PodTemplate, int]) -> None:
        """Say what is to be expected, from now on."""
        self.learns = False
        self._take_over(counts)

    def learn(self, placed: Iterable[PodTemplate]) -> None:
        """Learn from now on, beginning with the pods that are there."""
        self.learns = True
        for template in placed:
            self._count(template, 1)
        self._take_over(dict(self._there))

    def saw(self, template: PodTemplate, step: int) -> None:
        """Note that a pod was added to a node (step 1) or removed (-1)."""
        self._count(template, step)
        self._changes += 1
        if self._total <= _FEW_PODS or self._changes * 10 >= self._total:
            self._changes = 0
            self._take_over(dict(self._there))

    def _count(self, template: PodTemplate, step: int) -> None:
        number = self._there.pop(template, 0) + step
        if number > 0:
            self._there[template] = number
        self._total += step

    def _take_over(self, counts: Mapping[PodTemplate, int]) -> None:
        self.counts = counts
        self.version += 1
        self._nodes.static_changes.note_all()  # what is kept about nodes may follow from it
