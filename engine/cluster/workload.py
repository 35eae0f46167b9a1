"""Which pods are to be expected: how often each template was met. Knows no rules.

Told by whoever knows (a simulation has its list), or learned from the pods that come to nodes. What was learned is
taken over now and then, by the number of pods alone: the same pods in the same order give the same decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.cluster.nodes import NodeTable
from engine.cluster.pods import PodTemplate

_FIRST_PODS = 50
"""What was learned is first taken over after this many pods, then whenever there are a tenth more."""
_MOST_TEMPLATES = 1000
"""Templates told apart; of more, those met least often are forgotten."""


class Workload:
    """How many pods of each template."""

    def __init__(self, nodes: NodeTable) -> None:
        self.learns = False
        """Whether it wants to know of every pod that comes to a node."""
        self.counts: Mapping[PodTemplate, int] = {}
        """What is expected, in proportion."""
        self.version = 0
        """Changes with what is expected."""
        self.derived: dict[str, Any] = {}
        """What others made of it."""
        self._nodes = nodes
        self._seen: dict[PodTemplate, int] = {}
        self._total = 0
        self._next = 0

    @property
    def known(self) -> bool:
        """Return whether it was told what to expect, or learns it."""
        return self.learns or self.version > 0

    def declare(self, counts: Mapping[PodTemplate, int]) -> None:
        """Say what is to be expected, from now on."""
        self.learns = False
        self._take_over(counts)

    def learn(self, placed: Iterable[PodTemplate]) -> None:
        """Learn from now on, beginning with the pods that are there."""
        self.learns = True
        for template in placed:
            self._seen[template] = self._seen.get(template, 0) + 1
            self._total += 1
        self._settle()

    def saw(self, template: PodTemplate) -> None:
        """Note that a pod came to a node."""
        self._seen[template] = self._seen.get(template, 0) + 1
        self._total += 1
        if self._total >= self._next:
            self._settle()

    def _settle(self) -> None:
        if len(self._seen) > _MOST_TEMPLATES:
            often = sorted(self._seen.items(), key=lambda item: -item[1])[: _MOST_TEMPLATES // 2]
            self._seen = dict(often)
        self._next = max(_FIRST_PODS, self._total + max(1, self._total // 10))
        self._take_over(dict(self._seen))

    def _take_over(self, counts: Mapping[PodTemplate, int]) -> None:
        self.counts = counts
        self.version += 1
        self._nodes.version += 1  # what is kept about nodes may follow from it
