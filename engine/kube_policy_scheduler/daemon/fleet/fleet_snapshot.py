"""What the status page of a fleet shows, taken on the event loop in small steps; put into words in a thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec

from kube_policy_scheduler.daemon.fleet.engine import Engine
from kube_policy_scheduler.daemon.fleet.fleet_records import FleetRecords
from kube_policy_scheduler.daemon.observing.live_metrics import SignalRow
from kube_policy_scheduler.daemon.policies.reload import ReloadRecord
from kube_policy_scheduler.daemon.serving.status_snapshot import Replica
from kube_policy_scheduler.fleet.model import FleetCluster
from kube_policy_scheduler.policy.fleet_policies import FleetPolicies
from kube_policy_scheduler.tooling.workload_record import WorkloadRecord

MOST_WAITING = 2_500
"""Workloads without a place that are looked at one by one."""
MOST_ROOMS = 500
"""Decisions that are searched for the last room of each cluster."""
RECENT_DECISIONS = 25
_AT_ONCE = 200


class Running(msgspec.Struct):
    """What runs in one cluster by the decisions that are known."""

    workloads: int = 0
    replicas: int = 0


class LastRoom(msgspec.Struct, frozen=True):
    """The last answer about the room of a cluster."""

    at: float
    workload: str
    room: int
    by: str


class MemberRow(msgspec.Struct, frozen=True):
    """How the nodes and pods of a cluster were read last."""

    age: float | None
    """Seconds since they were read well; None: they never were."""
    problem: str
    """Why they could not be read since; "" if they could."""
    remark: str
    """What is odd about how they are read."""


class WaitingWorkload(msgspec.Struct, frozen=True):
    """One workload without a place."""

    object: str
    """`namespace/name` of what is decided."""
    since: float
    """Unix seconds."""
    last: WorkloadRecord | None
    """None: its last decision is no longer kept."""


class FleetSnapshot(msgspec.Struct, frozen=True):
    """Everything that the page is made of."""

    at: float
    replica: Replica
    clusters: Sequence[FleetCluster]
    running: Mapping[str, Running]
    rooms: Mapping[str, LastRoom]
    members: Mapping[str, MemberRow]
    """By cluster, of those whose nodes and pods are read."""
    workloads: int
    failing: int
    queued: int
    """That wait for nothing but their turn."""
    waiting: Sequence[WaitingWorkload]
    decided: int
    policies: FleetPolicies
    has_policies: bool
    """Whether there is a folder of policies at all."""
    hash: str
    generation: int
    reloads: Sequence[ReloadRecord]
    decisions: Sequence[WorkloadRecord]
    metrics: Sequence[SignalRow]
    shadow: Mapping[str, Any] | None


class FleetSources(msgspec.Struct, frozen=True):
    """Who is asked."""

    engine: Engine
    records: FleetRecords
    replica: Callable[[], Replica]
    metrics: Callable[[], Sequence[SignalRow]]
    has_policies: bool
    clock: Callable[[], float]
    """Unix seconds."""
    steady: Callable[[], float]
    """Seconds on a clock that nobody sets."""


def take(sources: FleetSources) -> Generator[None, None, FleetSnapshot]:
    """Take the state of now, in steps; between two of them anything may happen."""
    maker, records = sources.engine.maker, sources.records
    running: dict[str, Running] = {}
    for number, targets in enumerate(sources.engine.placements()):
        for name, replicas in targets.items():
            each = running.setdefault(name, Running())
            each.workloads += 1
            each.replicas += replicas
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
    rooms: dict[str, LastRoom] = {}
    newest = records.log.newest(MOST_ROOMS)
    for number, record in enumerate(newest):
        for said in record.clusters:
            if said.room is not None and said.cluster not in rooms:
                rooms[said.cluster] = LastRoom(record.time, record.key, said.room, said.room_by)
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
    now, ahead = sources.clock(), sources.clock() - sources.steady()
    waiting = [
        WaitingWorkload(name, since + ahead, records.log.latest(name))
        for name, since in (
            ("/".join(filter(None, key)), since) for key, since in maker.waiting.failing_since(MOST_WAITING)
        )
    ]
    return FleetSnapshot(
        at=now,
        replica=sources.replica(),
        clusters=maker.fleet.clusters,
        running=running,
        rooms=rooms,
        members={
            name: MemberRow(None if each.at is None else sources.steady() - each.at, each.problem, each.remark)
            for name, each in maker.tallies.members.items()
        },
        workloads=len(maker.waiting),
        failing=maker.waiting.failing,
        queued=maker.waiting.queued(),
        waiting=waiting,
        decided=records.log.decided,
        policies=records.policies,
        has_policies=sources.has_policies,
        hash=records.hash,
        generation=records.generation,
        reloads=tuple(records.reloads),
        decisions=newest[:RECENT_DECISIONS],
        metrics=tuple(sources.metrics()),
        shadow=records.shadow.summary() if records.shadow is not None else None,
    )
