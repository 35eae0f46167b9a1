"""What a decision maker counts."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.times import Steady


class MemberReading(msgspec.Struct, frozen=True):
    """How the last reading of a member cluster ended."""

    at: Steady | None = None
    """When it was last read well; None: never."""
    problem: str = ""
    """Why it could not be read since; "" if it could."""
    remark: str = ""
    """What is odd about how it is read."""


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
    """Questions about the room of clusters, by how they were answered."""
    members: dict[str, MemberReading] = msgspec.field(default_factory=dict)
    """By cluster; only of those that are read."""

    def estimated(self, answer: str) -> None:
        """Count a question about the room of a cluster."""
        self.estimates[answer] = self.estimates.get(answer, 0) + 1

    def decided(self, reason: str) -> None:
        """Count a decision."""
        self.decisions[reason] = self.decisions.get(reason, 0) + 1
