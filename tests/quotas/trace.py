"""What happened in a run, step by step, each with the state before and after: of the model, or of the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.quotas.accounts import State, workload


@dataclass(frozen=True, slots=True)
class Started:
    """Pods began to run, one, or several of a gang; the state is that before and after."""

    at: float
    names: tuple[str, ...]
    before: State
    after: State


@dataclass(frozen=True, slots=True)
class Evicted:
    """Pods had to go for another."""

    at: float
    by: str
    """The evictor; of a gang, one of its members."""
    victims: tuple[str, ...]
    node: str
    """To which it is nominated."""
    before: State
    after: State
    """With the nominations that came of it."""
    changes: int
    """How many changes from outside there were before."""


@dataclass(frozen=True, slots=True)
class Rested:
    """All that could be done at a moment is done; after the last one of a run, nothing more will happen."""

    at: float
    state: State
    miscounted: tuple[str, ...] = ()
    """What the scheduler's counters say otherwise than its own recount."""
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What the scheduler says that queues use."""


Step = Started | Evicted | Rested


@dataclass
class Trace:
    """All that happened."""

    steps: list[Step] = field(default_factory=list)

    @property
    def evictions(self) -> Iterator[Evicted]:
        """Yield the evictions."""
        return (step for step in self.steps if isinstance(step, Evicted))

    @property
    def last(self) -> State:
        """Return the state at the end."""
        return next(step.state for step in reversed(self.steps) if isinstance(step, Rested))

    @property
    def ends_at(self) -> float:
        """Return the time of the end."""
        return max(step.at for step in self.steps)

    @property
    def pending(self) -> int:
        """Return how many pods wait in the end."""
        return sum(not pod.holds for pod in self.last.pods.values())

    @property
    def evicted(self) -> Counter[str]:
        """Return how many pods were evicted, by queue."""
        found = Counter[str]()
        for step in self.evictions:
            found.update(step.before.pods[name].queue for name in step.victims)
        return found

    @property
    def starts(self) -> dict[str, float]:
        """Return when each pod started first."""
        found: dict[str, float] = {}
        for step in self.steps:
            for name in step.names if isinstance(step, Started) else ():
                found.setdefault(name, step.at)
        return found

    @property
    def returned(self) -> frozenset[str]:
        """Return the pods of workloads that evicted others and were evicted since a change; see `Asker.shares`."""
        last = max((step.changes for step in self.evictions), default=0)
        evictors, found = set[object](), set[object]()
        for step in self.evictions:
            if step.changes == last:
                found |= {workload(step.before.pods[name]) for name in step.victims} & evictors
            evictors.add(workload(step.before.pods[step.by]))
        return frozenset(pod.name for pod in self.last.pods.values() if workload(pod) in found)
