"""What all parts of the scheduler share: cache, queue, clock, what writes to the API server, what tells people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from kube_policy_scheduler.adapters.kube.binding import Outcome, Unknown
from kube_policy_scheduler.adapters.kube.pod_status import NotPassedOn, PassedOn
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.objects import ResourceClaim
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.daemon.watching.freshness import AlwaysCurrent, ClusterView
from kube_policy_scheduler.framework.claim_reservation import ClaimReservation
from kube_policy_scheduler.framework.claim_reservation import undo as undo_claims
from kube_policy_scheduler.framework.cycle import Cycle, Decision
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue import QueuedPod, QueuePosition, SchedulingQueue
from kube_policy_scheduler.framework.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.volume_reservation import undo as undo_volumes
from kube_policy_scheduler.policy.policy_set import FrameOf


class Binder(Protocol):
    """Tells the API server where a pod goes."""

    async def bind(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str] | None = None,
        after: Unknown | None = None,
        still_holds: Callable[[], bool] = ...,
    ) -> Outcome:
        """Bind a pod; settles doubts (lost answers, conflicts) before it returns.

        Args:
            namespace: of the pod.
            name: of the pod.
            uid: of the pod.
            node: where it goes.
            annotations: what the API server adds to the pod.
            after: what is known of an earlier binding of this pod to this node.
            still_holds: asked right before a request goes out; False: nothing is sent, and the outcome is `Outdated`.
        """
        ...

    async def settle(self, *, namespace: str, name: str, uid: str, node: str, after: Unknown) -> Outcome:
        """Find out what became of a binding, without trying it again."""
        ...


class VolumeBinder(Protocol):
    """Has volumes bound before their pod is."""

    async def bind(self, reservation: VolumeReservation) -> str:
        """Bind all volumes of a reservation; return why that failed, "" where it did not. Never raises."""
        ...


class ClaimBinder(Protocol):
    """Has claims for devices written before their pod is bound. Never raises."""

    async def bind(self, reservation: ClaimReservation) -> str:
        """Write all claims of a reservation; return why that failed, "" where it did not."""
        ...

    async def unreserve(self, reservation: ClaimReservation) -> None:
        """Give back what was reserved for a pod that is not bound after all."""
        ...

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Take a claim's devices away."""
        ...

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim for extended resources that an earlier attempt has left."""
        ...


class Evictor(Protocol):
    """Evicts one pod through the API."""

    async def evict(self, victim: PodInfo) -> None:
        """Mark and delete the pod; raises KubeError."""
        ...


class Nominator(Protocol):
    """Passes pods on by their status."""

    async def pass_on(self, pod: PodInfo, *, node: str) -> PassedOn | NotPassedOn:
        """Pass the pod on to the owner of a node; settles doubts before it returns. Never raises."""
        ...


class Reporter(Protocol):
    """Tells people what became of a pod; returns at once, works in the background, never raises."""

    def bound(self, pod: PodInfo, node_name: str, *, by_us: bool) -> None:
        """Report that a pod is bound; by_us: False if another replica or scheduler bound it to the same node."""
        ...

    def unschedulable(self, decision: Decision) -> None:
        """Report that a pod fits nowhere."""
        ...

    def held(self, pod: PodInfo, why: str) -> None:
        """Report that a pod must wait before it is decided at all."""
        ...

    def waiting(self, pod: PodInfo, why: str) -> None:
        """Report that a pod has a place and waits for others of its group."""
        ...

    def failed(self, pod: PodInfo, why: str) -> None:
        """Report an attempt that ended with an error."""
        ...

    def preempted(self, victim: PodInfo, *, by: PodInfo, node_name: str) -> None:
        """Report that a pod had to go."""
        ...

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Report which node is kept for a pod; "" for none any more."""
        ...


class Policies(Protocol):
    """Which profile governs which pod."""

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are."""
        ...

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        ...

    def hold(self, queued: QueuedPod, frame: FrameOf) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        ...

    def turn(self, queued: QueuedPod, frame: FrameOf) -> QueuePosition:
        """Return when the pod's turn is."""
        ...

    def lay_out(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, int]:
        """Lay new readings over the nodes ahead of decisions; return by PromQL how many nodes have no value."""
        ...

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the unit of pods that one replica decides alone."""
        ...

    def gang_requirements(self, queued: QueuedPod, frame: FrameOf) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind.

        Raises:
            MissingPodGroupError: a PodGroup is not there.
            ValueError: a size has no value.
        """
        ...


class Wakeups:
    """Wakes the pods that an event may help, and the loop that schedules them."""

    def __init__(self, queue: SchedulingQueue, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self.requested = asyncio.Event()
        """Set when there may be something to do."""
        self.changes = 0
        """Grows with everything that may change a decision, other than what the scheduler itself places."""

    def move_on_event(self, event: ClusterEvent) -> None:
        """Move the pods that an event may help to the active or backoff queue."""
        self.changes += 1
        if self._queue.move_on_event(event, self._clock()):
            self.requested.set()

    def devices_freed(self) -> None:
        """Wake pods that wait for devices: some that were allocated in memory are free again."""
        self.move_on_event(ClusterEvent.RESOURCE_CLAIM)


@dataclass(frozen=True)
class SchedulerContext:
    """What each part of the scheduler is given."""

    cluster: Cluster
    queue: SchedulingQueue
    cycle: Cycle
    binder: Binder
    evictor: Evictor
    volumes: VolumeBinder
    claims: ClaimBinder
    reporter: Reporter
    observer: Observer
    nominator: Nominator | None = None
    """Passes pods on; None where no replicas share the work."""
    sharding: Sharding | None = None
    """Which pods and nodes are ours; None: all of them."""
    view: ClusterView = field(default_factory=AlwaysCurrent)
    """Whether what is known of the cluster is fit to decide by."""
    clock: Callable[[], float] = time.time
    """Unix seconds."""
    stopwatch: Callable[[], float] = time.perf_counter
    """Seconds, for how long things take."""

    @cached_property
    def wakeups(self) -> Wakeups:
        """Wakes pods and the loop."""
        return Wakeups(self.queue, self.clock)

    def nominate(self, queued: QueuedPod, node_name: str) -> None:
        """Keep a node for a pod in our own books, before anything is sent; "" for none any more.

        Pods of lower priority that waited for the same node lose their nomination: they would count on room that
        is gone.
        """
        cluster, pod = self.cluster, queued.pod
        for other in list(cluster.nominated.get(node_name, {}).values()) if node_name else ():
            if other.priority < pod.priority:
                cluster.nominate(other, "")
                self.reporter.nominated(other, "")
        cluster.nominate(pod, node_name)
        queued.pod = replace(pod, nominated_node=node_name)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision rests on, as far as others can change it; equal ones mean that nobody has."""

    losses: int
    """How often the view of the cluster had ceased to be current."""
    mark: int | None
    """Of the node (`EventHandlers.mark`)."""
    broken_gangs: int
    """How often a member of a gang gave its place back; 0 for a pod that is in none."""


@dataclass(frozen=True, slots=True, eq=False)
class AssumedPod:
    """A pod that counts on its node and is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    volumes: VolumeReservation | None
    requirements: tuple[GangRequirement, ...]
    basis: Basis
    devices: ClaimReservation | None = None

    def unreserve(self, cluster: Cluster) -> None:
        """Take back what was reserved in memory; nothing of it was written."""
        if self.volumes is not None:
            undo_volumes(self.volumes, cluster)
        if self.devices is not None:
            undo_claims(self.devices, cluster)
