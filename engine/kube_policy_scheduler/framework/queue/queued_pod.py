"""A pending pod as the queue keeps it: where it waits, since when, why it was rejected, and its queue position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any

import msgspec

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.quota_usage import Quota, QuotaUsage
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import Group
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.times import Steady


class Place(Enum):
    """Where a pending pod is in the queue."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"
    """Being decided, or being bound."""
    PERMIT = "permit"
    """Has a node, and waits for others of its group."""


class PodState(IntEnum):
    """What a pod is at; an integer, because each transition looks it up."""

    PENDING = 0
    """New."""
    GATED = 1
    BACKOFF = 2
    UNSCHEDULABLE = 3
    ACTIVE = 4
    IN_CYCLE = 5
    """Being decided, or others are evicted for it."""
    WAITING = 6
    """Has a node, and waits for others of its group (Permit)."""
    ASSUMED = 7
    """Has a node; its binding is about to begin."""
    BINDING = 8
    """Its volumes and devices are written and waited for (PreBind); its binding was not sent and can be cancelled."""
    SENT = 9
    """Its binding was sent, or another replica was asked to bind it: that cannot be taken back."""
    BOUND = 10
    GONE = 11
    """Deleted, or not served any more."""

    @property
    def text(self) -> str:
        """Return its name, for people."""
        return self.name.lower().replace("_", " ")

    @property
    def holds_place(self) -> bool:
        """Return whether the pod counts on a node and is not known to be bound."""
        return PodState.WAITING <= self <= PodState.SENT


PLACES: Mapping[PodState, Place] = {
    PodState.PENDING: Place.ACTIVE,
    PodState.GATED: Place.GATED,
    PodState.BACKOFF: Place.BACKOFF,
    PodState.UNSCHEDULABLE: Place.UNSCHEDULABLE,
    PodState.ACTIVE: Place.ACTIVE,
    PodState.IN_CYCLE: Place.IN_FLIGHT,
    PodState.WAITING: Place.PERMIT,
    PodState.ASSUMED: Place.IN_FLIGHT,
    PodState.BINDING: Place.IN_FLIGHT,
    PodState.SENT: Place.IN_FLIGHT,
}
"""The place in the queue of the states that have one."""
_ATTEMPTED = (Place.IN_FLIGHT, Place.PERMIT)
"""Where the current attempt of a pod is under way."""


class QueuedPod(msgspec.Struct, eq=False):
    """A pending pod and its history in the queue."""

    pod: PodInfo
    queued: Steady
    """When it was first seen."""
    timestamp: Steady
    """When it returned to the queue last: equal priorities are served in this order."""
    state: PodState = PodState.PENDING
    """Written by `pod_transitions.move` only, as is `place`, which follows from it."""
    place: Place = Place.ACTIVE
    attempts: int = 0
    unfinished: int = 0
    """How many times its present attempt was put off, so that other work gets its turn."""
    rejections: int = 0
    errors: int = 0
    """Consecutive internal errors."""
    rejectors: frozenset[str] = frozenset()
    wake_events: frozenset[ClusterEvent] | None = None
    """The events that may make it schedulable; None: any."""
    gated_because: str = ""
    rejected_for: str = ""
    """The message of the last attempt that found no node; "" if there is none."""
    reported_reason: str = ""
    """The reason for waiting, gated or with a node, that was last reported as an event and a condition."""
    is_nomination_shown: bool = False
    """Whether the API server shows the nomination of the pod, so that a pod without one has lost it."""
    shown: PodInfo | None = None
    """The pod as the API server shows it since it is assumed; if its binding fails, it is decided again as this."""
    entitled_since: Steady | None = None
    """Since when its queue could guarantee it, and it was rejected; None: that has not been."""
    groups: tuple[Group, ...] = ()
    """The groups that it starts together with."""
    has_place: bool = False
    """Whether it counts on a node: it waits there for its groups, or is being bound with them."""
    serves_time: bool = False
    """Whether its back-off must pass even if there is nothing else to decide."""
    began_at: int = 0
    """The epoch of the ledger at which its current attempt began."""
    missed: tuple[ClusterEvent, ...] = ()
    """Events since then that concern this pod alone."""
    waits_last: bool = False
    """Whether it waits behind all others, because its decisions took too long."""
    ticket: int = msgspec.field(default=0)
    """Number of its newest heap entry; older entries are stale."""
    impossible: str = ""
    """The first transition that it made against the table; "": none."""
    history: list[PodState] | None = None
    """Its last states, the newest last; None: they are not kept."""

    def update(self, pod: PodInfo) -> PodInfo:
        """Return a new state of the pod, with our own nomination if the API server does not show that yet."""
        is_shown = bool(pod.nominated_node)
        if not is_shown and not self.is_nomination_shown:
            pod = msgspec.structs.replace(pod, nominated_node=self.pod.nominated_node)
        self.is_nomination_shown = is_shown
        return pod

    def frame(self, cluster: Cluster, now: Steady, *, signals: Signals, ahead: float = 0.0) -> Frame:
        """Return what rules may read of the pod: with its waiting time, and its number of attempts.

        ahead: by how many seconds the wall clock, which policies ask, is ahead of the steady one.
        """
        return Frame(
            self.pod,
            cluster,
            now + ahead,
            signals=signals,
            queued=self.queued + ahead,
            attempts=max(0, self.attempts - (self.place in _ATTEMPTED)),  # without the current one
            entitled=(self.entitled_since if self.entitled_since is not None else now) + ahead,
            groups=self.groups,
            ahead=ahead,
        )


class FairPosition(msgspec.Struct, frozen=True):
    """The queue of a pod whose order follows the shares of queues."""

    usage: QuotaUsage
    queue: Quota | None
    """None: the pod belongs to no queue, and comes before those of queues."""
    place: int
    """Which part of the key is the share."""


class QueuePosition(msgspec.Struct, frozen=True):
    """The position of a pod: among the pods of its line, the smallest key first."""

    line: str
    """Pods of different lines are never compared by key; the heads of the lines compete by PrioritySort."""
    key: Any
    """A tuple; its first part is a tuple of the values with `slopes`, the rest breaks ties."""
    slopes: tuple[float, ...] = ()
    """The growth per second of the parts of the key's first part, by the steady clock; empty: the key is constant."""
    until: float = math.inf
    """The position is right before this moment, on the steady clock."""
    strict: bool = False
    """Whether a pod that waits for its next attempt blocks those behind it."""
    backfill: BackfillRule | None = None
    """What lets pods behind one that waits start, in a strict order; then they are not blocked. None: nothing."""
    fair: FairPosition | None = None
    """The queue of quotas that it belongs to, if the order follows their shares."""


LAST = "\0last"
"""The line behind all others; no policy has this name."""


def last_position() -> QueuePosition:
    """Return the position of a pod that waits behind all others."""
    return QueuePosition(LAST, ())


def priority_position(queued: QueuedPod) -> QueuePosition:
    """Return the position of a pod in Kubernetes' order."""
    return QueuePosition("", priority_sort(queued))


def priority_sort(queued: QueuedPod) -> tuple[float, float]:
    """Order by priority, then by time of return (PrioritySort)."""
    return (-queued.pod.priority, queued.timestamp)


def gates(queued: QueuedPod) -> str | None:
    """Return why a pod with scheduling gates waits (SchedulingGates)."""
    names = queued.pod.template.spec.scheduling_gates
    return f"waiting for scheduling gates: [{' '.join(g.name for g in names)}]" if names else None
