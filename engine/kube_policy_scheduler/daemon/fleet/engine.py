"""What an engine of many clusters is to the decision maker: its objects come in, its work goes out.

Karmada is one. What differs between engines is here; leases, policies, metrics, probes and the loop do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec

from kube_policy_scheduler.adapters.kube.events import EventRecorder
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.configuration.settings import Settings
from kube_policy_scheduler.daemon.observing.observers import ShadowOutcome
from kube_policy_scheduler.daemon.watching.resources import Handler
from kube_policy_scheduler.fleet.model import NOTHING, Fleet, Outcome
from kube_policy_scheduler.fleet.tallies import Tallies
from kube_policy_scheduler.fleet.waiting import Waiting
from kube_policy_scheduler.policy.fleet_rules import FleetRules
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome

CONFLICTS_TOLD = 4
"""So many conflicts in a row, over 7 s, are told: of one, the watch has long shown what has changed."""
Shown: TypeAlias = Callable[[tuple[str, str]], Mapping[str, Any] | None]
"""Returns what would be decided now about an object by namespace and name; None if it is none of ours."""


class Maker(Protocol):
    """Knows the objects of an engine, and what is to be decided next. It does no I/O."""

    @property
    def fleet(self) -> Fleet:
        """The clusters as they are now."""
        ...

    @property
    def waiting(self) -> Waiting[Any]:
        """What is to be decided."""
        ...

    @property
    def tallies(self) -> Tallies:
        """What happened so far."""
        ...


class Due(Protocol):
    """What is to be done about an object."""

    @property
    def key(self) -> Any:
        """By which the object waits."""
        ...


class FleetDecision(msgspec.Struct, frozen=True, eq=False):
    """What became of one workload: told once it is written, or could not be."""

    key: tuple[str, str]
    """Namespace and name of the object that was decided."""
    generation: int
    workload: RecordedWorkload
    outcome: Outcome
    became: WorkloadOutcome
    before: Mapping[str, int] = NOTHING
    """Replicas by cluster before."""
    trigger: str = ""
    """Why it was decided."""
    unread: str = ""
    """Why the labels and annotations of the template are missing; "" if they are not."""
    attempt: int = 1
    """1 for the first since it was last placed."""
    problem: str = ""
    """Why it could not be written."""
    theirs: Mapping[str, int] = NOTHING
    """Replicas by cluster that another scheduler decided."""
    compared: ShadowOutcome | None = None
    """How they compare with ours; None if no other scheduler decides."""
    clauses: frozenset[str] = frozenset()
    """Filters and clauses that reject what the other chose, or everything."""


class Engine(Protocol):
    """One engine, with what is known of it."""

    lease_namespace: str
    """Where the lease is, unless the settings say otherwise."""

    @property
    def maker(self) -> Maker:
        """What decides."""
        ...

    def use(self, rules: FleetRules, now: Steady) -> None:
        """Decide by these policies from now on."""
        ...

    def handler(self, kind: type) -> Handler[Any]:
        """Return what takes the objects of a kind."""
        ...

    def next(self, now: Steady) -> Due | None:
        """Return what is to be done next, None if there is nothing now; ask again after `maker.waiting.due()`."""
        ...

    async def carry_out(self, work: Any) -> FleetDecision | None:
        """Do what `next` returned, and note how it ended; return what is to be logged of it, None if nothing is."""
        ...

    def broke(self, work: Any, now: Steady) -> None:
        """Take note that `carry_out` broke through a fault of ours; it is tried again after a pause."""
        ...

    def look_again(self, now: Steady) -> None:
        """Look at what nothing asks to decide, but policies may change: called from time to time."""
        ...

    def placements(self) -> Iterable[Mapping[str, int]]:
        """Return the replicas by cluster of each workload of now; others may come and go while they are read."""
        ...

    @property
    def shown(self) -> Mapping[str, Shown]:
        """What the HTTP server answers, by path."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What an engine is given."""

    settings: Settings
    transport: Transport
    """To its API server."""
    events: EventRecorder
    fence: Fence
    """Whether this replica may write."""


@dataclass(frozen=True)
class EngineKind:
    """How an engine is made."""

    resources: Sequence[Resource[Any]]
    """What is watched; nothing is decided before all of it is listed."""
    make: Callable[[Surroundings], Engine]


def lasts(attempt: int) -> bool:
    """Return whether people are told of a conflict. attempt: how many there were in a row, with this one."""
    return attempt >= CONFLICTS_TOLD


def shown_choice(before: Iterable[str], chosen: Iterable[str], outcome: Outcome) -> Mapping[str, Any]:
    """Return how the clusters of an object without replicas would be chosen now, for people. before: those it has."""
    return {
        "has": list(before),
        "select": list(chosen),
        "reason": outcome.reason.value,
        "message": outcome.message if not outcome.placed else "",
        "clusters": msgspec.to_builtins(dict(outcome.verdicts)),
    }
