"""What queues used in the past, apart from pods and policies: it outlives a replica, a leader, and new queues."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.times import Steady

FADED = 0.01
"""Past usage below this, in column units, is forgotten."""


class PastUsage(msgspec.Struct, frozen=True):
    """Usage with the memory of a half-life, at one moment."""

    at: Steady
    """When it was so; in the Lease this is a time of the wall clock."""
    resources: tuple[str, ...]
    queues: Mapping[str, tuple[float, ...]]
    """By name of the queue, for each of the resources, in column units; what has faded is left out. Queues that use the
    largest part of the cluster first."""

    def faded_to(self, now: Steady, half_life: float, resources: tuple[str, ...]) -> dict[str, list[float]]:
        """Return what is left of it now, by name of the queue, for each of some resources; 0 for those it lacks.

        Args:
            now: the time; a moment before `at`, as clocks of nodes differ, is `at`.
            half_life: seconds.
            resources: in the order of the answer.
        """
        keep = math.pow(0.5, max(0.0, now - self.at) / half_life)
        places = [self.resources.index(name) if name in self.resources else None for name in resources]
        found = {}
        for name, was in self.queues.items():
            left = [keep * was[place] if place is not None else 0.0 for place in places]
            if max(left, default=0.0) >= FADED:
                found[name] = left
        return found
