"""What a decision maker counts."""

from __future__ import annotations

import msgspec


class Tallies(msgspec.Struct):
    """What happened so far."""

    decisions: dict[str, int] = msgspec.field(default_factory=dict)
    """By the reason of the condition."""
    conflicts: int = 0
    """Writes that were refused, as the object had changed."""
    failed_writes: int = 0
    unread_templates: int = 0
    """Workloads that were decided though the labels and annotations of their templates could not be read."""
    estimates: dict[str, int] = msgspec.field(default_factory=dict)
    """Questions to estimators, by how they were answered."""

    def estimated(self, answer: str) -> None:
        """Count a question to the estimator of a cluster."""
        self.estimates[answer] = self.estimates.get(answer, 0) + 1

    def decided(self, reason: str) -> None:
        """Count a decision."""
        self.decisions[reason] = self.decisions.get(reason, 0) + 1
