"""What the demo of a fleet does, step by step, and where replicas must be for the step to count.

The checks know what each policy says; they ask the scheduler nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NAMESPACE = "shop"
PACE = 2
"""Replicas of a workload that return at a time, as the policies say."""

Targets = Mapping[str, int]
"""Replicas by cluster."""


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """A cluster of one node."""

    name: str
    region: str
    provider: str
    price: int
    """Of a core, per hour."""
    cores: int


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment; each replica requests a core."""

    name: str
    tier: str
    replicas: int


CLUSTERS = (
    FleetCluster("berlin", region="eu", provider="own", price=3, cores=10),
    FleetCluster("frankfurt", region="eu", provider="aws", price=2, cores=8),
    FleetCluster("iowa", region="us", provider="gcp", price=4, cores=16),
)
WORKLOADS = (Workload("web", "web", 6), Workload("api", "web", 4), Workload("report", "batch", 4))

WEB = """\
for workloads where workload.label.tier == "web"

score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
divide best first
rebalance at most 2 rest 2s if cluster.condition_age.Ready ?? 0s > 3s
"""

BATCH = """\
for workloads where workload.label.tier == "batch"

score -(cluster.price ?? 9)
divide best first
"""

BATCH_RETURNS = BATCH + "rebalance at most 2 rest 2s if cluster.condition_age.Ready ?? 0s > 3s\n"


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the demo."""

    title: str
    targets: Mapping[str, Targets]
    """Where each workload must be in the end."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Files to write first; the others stay."""
    lost: str = ""
    """The region that is lost meanwhile."""
    paced: bool = False
    """Whether no more than `PACE` replicas of a workload move at a time."""


_HOME: Mapping[str, Targets] = {"web": {"berlin": 6}, "api": {"berlin": 4}, "report": {"frankfurt": 4}}
_AWAY: Mapping[str, Targets] = {each.name: {"iowa": each.replicas} for each in WORKLOADS}

STEPS = (
    Step(
        "the own data centre first; batch work where it is cheapest",
        targets=_HOME,
        policies={"web.policy": WEB, "batch.policy": BATCH},
    ),
    Step("region eu is lost: everything moves to the cluster that is left", targets=_AWAY, lost="eu"),
    Step(
        f"region eu is back: web and api return, {PACE} replicas at a time; report stays, as its policy says nothing",
        targets={**_HOME, "report": _AWAY["report"]},
        paced=True,
    ),
    Step(
        f"an edit while the scheduler runs: report may return, {PACE} replicas at a time",
        targets=_HOME,
        policies={"batch.policy": BATCH_RETURNS},
        paced=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """A placement that was written."""

    workload: str
    before: Targets
    after: Targets

    @property
    def moved(self) -> int:
        """Return how many replicas left a cluster."""
        return sum(max(0, count - self.after.get(name, 0)) for name, count in self.before.items())


def problems(step: Step, placed: Mapping[str, Targets], decisions: Iterable[Decision]) -> list[str]:
    """Return what is not as the step says; nothing if all is."""
    found = [
        f"{name} is on {told(placed.get(name, {}))}, expected {told(wanted)}"
        for name, wanted in step.targets.items()
        if placed.get(name, {}) != wanted
    ]
    if step.paced:
        found += [
            f"{each.workload} moved {each.moved} replicas at a time, expected {PACE} at most"
            for each in decisions
            if each.moved > PACE
        ]
    return found


def told(targets: Targets) -> str:
    """Return replicas by cluster as words."""
    return ", ".join(f"{name} {count}" for name, count in sorted(targets.items())) or "no cluster"
