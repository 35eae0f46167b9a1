"""One run: a scenario under one contender, decision by decision in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kube_policy_scheduler.tooling.simulation.contender import Contender
from kube_policy_scheduler.tooling.simulation.dropping import place_or_drop
from kube_policy_scheduler.tooling.simulation.measures import Sample
from kube_policy_scheduler.tooling.simulation.scenario import Scenario
from kube_policy_scheduler.tooling.simulation.stage import Progress, Stage
from kube_policy_scheduler.tooling.simulation.waiting import Waiting

Stopwatch = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run."""

    contender: str
    seed: int
    resources: tuple[str, ...]
    """The main one first."""
    capacity: Mapping[str, float]
    samples: tuple[Sample, ...]
    marks: Mapping[float, float]
    """What was in use of the main resource, as a share, when so much of it (a share too) had been asked for."""
    arrived: int
    placed: int
    """Bindings; a pod that was evicted and placed again counts twice."""
    left: int
    """Pods that came to their end."""
    evicted: int
    unplaced: int
    """Dropped, or still waiting in the end."""
    reasons: Mapping[str, int]
    """Of those, how many for which reason."""
    wait_seconds: tuple[float, ...]
    """From arrival to binding, of every pod that was bound; empty where pods do not wait."""
    decisions: int
    seconds: float
    """How long the run itself took."""

    @property
    def last(self) -> Sample:
        """Return the last moment."""
        return self.samples[-1]

    def mean_used(self, resource: str) -> float:
        """Return the share in use over time, each moment weighed by how long it lasted."""
        if len(self.samples) < 2 or self.samples[-1].at <= self.samples[0].at:
            return self.last.used[resource]
        pairs = zip(self.samples, self.samples[1:], strict=False)
        total = sum(one.used[resource] * (other.at - one.at) for one, other in pairs)
        return total / (self.samples[-1].at - self.samples[0].at)


def run(
    scenario: Scenario,
    contender: Contender,
    *,
    seed: int,
    stopwatch: Stopwatch,
    progress: Progress = lambda done: None,
) -> Run:
    """Simulate a scenario under a contender.

    Args:
        scenario: what happens.
        contender: who decides.
        seed: breaks ties.
        stopwatch: seconds, for how long it took.
        progress: told how far it is.
    """
    began = stopwatch()
    stage = Stage(scenario, contender, seed=seed)
    if scenario.drops:
        place_or_drop(stage, progress=progress)
    else:
        Waiting(stage).run(progress=progress)
    tally = stage.tally
    capacity = {resource.name: stage.measures.capacity[resource.name] for resource in stage.measures.resources}
    return Run(
        contender=contender.name,
        seed=seed,
        resources=tuple(capacity),
        capacity=capacity,
        samples=tuple(tally.samples),
        marks=tally.marks,
        arrived=tally.arrived,
        placed=tally.placed,
        left=tally.left,
        evicted=tally.evicted,
        unplaced=sum(tally.reasons.values()),
        reasons=dict(sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))),
        wait_seconds=tuple(tally.wait_seconds),
        decisions=tally.decisions,
        seconds=stopwatch() - began,
    )
