"""What is simulated: a cluster, and pods that come and go. The same for every policy; knows none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kube_policy_scheduler.cluster import objects


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod that comes."""

    at: float
    """Seconds from the beginning."""
    name: str
    """Different for every pod of a scenario."""
    pod: objects.Pod
    """What it wants; many arrivals may share it. Its own name counts for nothing."""
    lasts: float | None = None
    """Seconds from its binding to its end; None: it stays."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster and a stream of pods."""

    things: Sequence[Any]
    """API objects as stored: nodes, pods that are bound, whatever else rules read."""
    arrivals: Sequence[Arrival]
    """In the order in which they come."""
    workload: Sequence[tuple[objects.Pod, int]] = ()
    """Which pods are to be expected, with how many of each; none: policies learn it from the pods that come."""
    drops: bool = False
    """A pod that fits nowhere is dropped, nobody leaves, and time does not matter; else it waits for room."""
    until: float | None = None
    """The share of the main resource whose arrival ends it, as far as the list was made for one."""
    marks: tuple[float, ...] = field(default=())
    """Shares of the main resource: results are told for the moments at which so much of it was asked for."""
    starts_at: float = 0.0
    """Unix seconds of the beginning, for policies that look at the clock."""
    notes: tuple[str, ...] = ()
    """What people should know about how it was read."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that results are told about."""

    name: str
    """Kubernetes' name."""
    devices: bool = False
    """Whether it comes in devices that may be shared."""


def amount_wanted(requests: Mapping[str, int], resource: Resource) -> float:
    """Return what a pod with these requests wants, in column units; of devices that may be shared in devices."""
    whole = float(requests.get(resource.name, 0))
    return whole + requests.get(f"{resource.name}-milli", 0) / 1000 if resource.devices else whole
