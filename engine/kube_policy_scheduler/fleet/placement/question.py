"""What is asked about a workload, and why it cannot be answered."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.fleet.model import NOTHING, AffinityTerm, Fleet, FleetCluster, Reason, Verdict, Workload

MULTIPLE_POD_TEMPLATES = "MultiplePodTemplatesScheduling"
WORKLOAD_AFFINITY = "WorkloadAffinity"


class Question(msgspec.Struct, frozen=True):
    """Where a workload is to run, by one of its affinity terms if it has any."""

    workload: Workload
    fleet: Fleet
    term: AffinityTerm | None = None

    @property
    def divided(self) -> bool:
        """Return whether its replicas are divided among clusters; otherwise each cluster runs all of them."""
        scheduling = self.workload.placement.scheduling
        return scheduling is not None and scheduling.type == "Divided"

    @property
    def overflows(self) -> bool:
        """Return whether replicas without room go to further tiers of clusters."""
        return self.term is not None and bool(self.term.overflow)

    @property
    def in_sets(self) -> bool:
        """Return whether its components are placed together, in one cluster."""
        workload = self.workload
        return (
            MULTIPLE_POD_TEMPLATES in self.fleet.features
            and bool(workload.components)
            and any(each.field == "cluster" and each.least == each.most == 1 for each in workload.placement.spread)
        )


class Candidate(msgspec.Struct, frozen=True):
    """A cluster that passed all filters."""

    name: str
    """Of the cluster."""
    cluster: FleetCluster
    room: int
    """Replicas that still fit beside what it has; whole sets, if components are placed together."""
    room_by: str
    has: int
    """Replicas that it has now."""
    score: float
    tier: int

    @property
    def available(self) -> int:
        """Return how many replicas the cluster can have in all."""
        return self.room + self.has

    @property
    def order(self) -> tuple[int, float, int, str]:
        """Return the key by which candidates are sorted, the best first."""
        return self.tier, -self.score, -self.available, self.name


class PlacementError(Exception):
    """A workload cannot be placed; `str()` is the message of its condition."""

    def __init__(self, reason: Reason, message: str, verdicts: Mapping[str, Verdict] = NOTHING) -> None:
        super().__init__(message)
        self.reason = reason
        self.verdicts = verdicts
