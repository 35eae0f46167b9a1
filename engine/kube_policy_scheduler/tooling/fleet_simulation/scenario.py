"""What is simulated: the fleet at the beginning, what comes to it, what happens to it, and who decides."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.fleet.karmada.decision_maker import Key, Template
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.fleet.model import NOTHING
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.fleet_members import MemberObjects
from kube_policy_scheduler.tooling.short_forms import Json
from kube_policy_scheduler.tooling.simulation.metrics_over_time import MetricsOverTime

SCHEDULER = "policy-scheduler"
"""`spec.schedulerName` of all workloads: the policies also decide those that name another one."""


class FleetAction(StrEnum):
    """What happens to the fleet."""

    LOSE = "lose"
    """Nobody reaches clusters any more; what ran there does not run."""
    RECOVER = "recover"
    CHANGE = "change"
    ADD = "add"
    REMOVE = "remove"
    """A cluster leaves the fleet in order: it is deleted."""
    SCALE = "scale"
    END = "end"
    """A workload is deleted."""


class FleetEvent(msgspec.Struct, frozen=True):
    """One event."""

    at: float
    """Seconds from the beginning."""
    action: FleetAction
    clusters: tuple[str, ...] = ()
    """That it is about; names of all that may be there."""
    told: str = ""
    """How people call them, such as "region eu"."""
    object: Json = msgspec.field(default_factory=dict)
    """Of `add`: the Cluster. Of `change`: what is laid over it."""
    form: Json = msgspec.field(default_factory=dict)
    """Of these: as it is written."""
    workload: str = ""
    """Of `scale` and `end`: NAMESPACE/NAME."""
    replicas: int = 0


class Pace(msgspec.Struct, frozen=True):
    """How fast what is not the scheduler works."""

    start: float = 30.0
    """Seconds from the placement of a replica until it is healthy."""
    evict_after: float = 300.0
    """Seconds for which a workload stays on a cluster that is not ready: what Karmada's webhook gives every workload
    that tolerates nothing itself (`--default-not-ready-toleration-seconds`)."""
    grace: float = 600.0
    """Seconds after which an eviction ends although the workload is not healthy elsewhere
    (`--graceful-eviction-timeout`)."""
    status_every: float = 10.0
    """Seconds between two reports of what is free in a cluster (`--cluster-status-update-frequency`)."""


class FleetEvents(msgspec.Struct, frozen=True):
    """What a file says."""

    events: tuple[FleetEvent, ...] = ()
    """In the order of time."""
    pace: Pace = Pace()


class WorkloadArrival(msgspec.Struct, frozen=True):
    """A workload that comes."""

    at: float
    """Seconds from the beginning."""
    binding: ResourceBinding
    template: Template
    lasts: float | None = None
    """Seconds from its arrival to its end; None: it stays."""


class FleetScenario(msgspec.Struct, frozen=True):
    """A fleet, and what happens to it."""

    clusters: tuple[KarmadaCluster, ...]
    bindings: tuple[ResourceBinding, ...]
    """That are there at the beginning."""
    templates: Mapping[Key, Template]
    """What the templates of these say, by namespace and name of the binding."""
    starts_at: float
    """Unix seconds."""
    arrivals: tuple[WorkloadArrival, ...] = ()
    happens: FleetEvents = FleetEvents()
    duration: float | None = None
    """Seconds; None: until nothing changes any more."""
    notes: tuple[str, ...] = ()
    """What people should know about how it was read."""
    members: MemberObjects = NOTHING
    """Nodes and pods of clusters, by name: they stay as they are, whatever happens."""

    def with_members(self, members: MemberObjects) -> FleetScenario:
        """Return the same fleet with nodes and pods of its clusters."""
        return msgspec.structs.replace(self, members=members)

    def with_events(self, happens: FleetEvents) -> FleetScenario:
        """Return the same fleet to which this happens."""
        return msgspec.structs.replace(self, happens=happens)


class FleetVariant(msgspec.Struct, frozen=True):
    """One of those that are compared."""

    name: str
    policies: FleetPolicies | None = None
    """None: the Placements alone decide, as karmada-scheduler does."""
    signals: Signals = Signals.EMPTY
    """What metrics say all the time."""
    metrics: MetricsOverTime | None = None
    """What they say over time, in Unix seconds."""
