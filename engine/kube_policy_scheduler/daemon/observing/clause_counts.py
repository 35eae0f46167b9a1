"""How often each clause of the live policies was asked, and what it said. Counts only; knows no text of policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube_policy_scheduler.policy.detail import Plugin, PluginVerdict


@dataclass(slots=True)
class Counts:
    """What one plugin said since its policies came into force, in the decisions that were looked at closely."""

    decisions: int = 0
    asked: int = 0
    """Nodes; 1 a decision for a rule about the pod as a whole."""
    refused: int = 0
    missing: int = 0
    degraded: int = 0
    """Decisions in which a value was missing for at least one node."""
    seconds: float = 0.0
    """What asking took in all."""
    low: float | None = None
    high: float | None = None


class ClauseCounts:
    """Counts by plugin. A new policy set has new plugins, hence begins at 0."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}
        self.decisions = 0
        """How many decisions were looked at."""

    def clear(self) -> None:
        """Start again."""
        self._counts = {}
        self.decisions = 0

    def add(self, verdicts: Iterable[PluginVerdict]) -> None:
        """Add one decision."""
        self.decisions += 1
        counts = self._counts
        for verdict in verdicts:
            found = counts.get(id(verdict.plugin))
            if found is None:
                found = counts[id(verdict.plugin)] = Counts()
            found.decisions += 1
            found.asked += verdict.asked
            found.refused += verdict.refused
            found.missing += verdict.missing
            found.seconds += verdict.seconds
            found.degraded += verdict.missing > 0
            low, high = verdict.low, verdict.high
            if low is not None and (found.low is None or low < found.low):
                found.low = low
            if high is not None and (found.high is None or high > found.high):
                found.high = high

    def of(self, plugin: Plugin) -> Counts:
        """Return a copy of a plugin's counts."""
        found = self._counts.get(id(plugin))
        return Counts() if found is None else Counts(**{name: getattr(found, name) for name in Counts.__slots__})
