"""What all parts of the scheduler share: cache, queue, clock, writers to the API server, reporters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from kube_policy_scheduler.adapters.kube.binding import Begun, Bound, Outcome, Unknown
from kube_policy_scheduler.adapters.kube.pod_status import NotPassedOn, PassedOn
from kube_policy_scheduler.adapters.process.settable_clock import SettableClock
from kube_policy_scheduler.adapters.process.turn_watch import TurnWatch
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.ledger import Ledger
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.objects import ResourceClaim
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.guarantees import Parts
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.observing.observers import Observer
from kube_policy_scheduler.daemon.scheduling.extenders import Extenders
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.daemon.watching.freshness import AlwaysCurrent, ClusterView
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.evaluate.nominations import nominate
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod, QueuePosition, SchedulingQueue
from kube_policy_scheduler.framework.reserve.claim_reservation import ClaimReservation, redo
from kube_policy_scheduler.framework.reserve.claim_reservation import undo as undo_claims
from kube_policy_scheduler.framework.reserve.volume_reservation import VolumeReservation
from kube_policy_scheduler.framework.reserve.volume_reservation import undo as undo_volumes
from kube_policy_scheduler.policy.decision_inputs import Rules
from kube_policy_scheduler.policy.policy_set import FrameOf
from kube_policy_scheduler.times import Steady


class Binder(Protocol):
    """Writes bindings to the API server."""

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
        """Bind a pod. Resolves unknown results (lost answers, conflicts) before it returns.

        Args:
            namespace: of the pod.
            name: of the pod.
            uid: of the pod.
            node: where it goes.
            annotations: what the API server adds to the pod.
            after: the known result of an earlier binding of this pod to this node.
            still_holds: called just before a request is sent. If it returns False, nothing is sent and the result is
            `Outdated`.
        """
        ...

    def begin(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        still_holds: Callable[[], bool],
        done: Callable[[Bound | Begun], None],
    ) -> bool:
        """Bind a pod without a task, where nothing stands in its way; return whether.

        done: called in a later turn of the event loop.
        """
        ...

    async def finish(self, begun: Begun) -> Outcome:
        """Go on with what `begin` has sent until its outcome is known."""
        ...

    async def settle(self, *, namespace: str, name: str, uid: str, node: str, after: Unknown) -> Outcome:
        """Check the result of a binding, without sending it again."""
        ...


class VolumeBinder(Protocol):
    """Binds volumes before their pod."""

    async def bind(self, reservation: VolumeReservation) -> str:
        """Bind all volumes of a reservation; return the reason of a failure, or "". Never raises."""
        ...


class ClaimBinder(Protocol):
    """Writes ResourceClaims before their pod is bound. Never raises."""

    async def bind(self, reservation: ClaimReservation) -> str:
        """Write all claims of a reservation; return the reason of a failure, or ""."""
        ...

    async def unreserve(self, reservation: ClaimReservation) -> None:
        """Unreserve the claims of a pod that is not bound after all."""
        ...

    def delivered(self, claim: ResourceClaim, *, gone: bool = False) -> None:
        """Note a claim as the watch shows it, or of its end; the cluster knows already."""
        ...

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Deallocate a claim."""
        ...

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim for extended resources that is left over from an earlier attempt."""
        ...


class Evictor(Protocol):
    """Evicts one pod through the API."""

    async def try_evict(self, victim: PodInfo) -> None:
        """Change nothing; raises KubeError if the API server would reject to delete the pod."""
        ...

    async def evict(self, victim: PodInfo) -> None:
        """Mark and delete the pod; raises KubeError."""
        ...


class Nominator(Protocol):
    """Passes pods on to other replicas, through the pod status."""

    async def pass_on(self, pod: PodInfo, *, node: str) -> PassedOn | NotPassedOn:
        """Pass the pod on to the owner of a node. Resolves unknown results before it returns. Never raises."""
        ...

    def on_not_given_back(self, listener: Callable[[str, str], None]) -> None:
        """Call a listener with the uid of a pod that the API server still shows as passed on to us, and why.

        It was to be given back, and the write was rejected for good.
        """
        ...


class Reporter(Protocol):
    """Writes events and conditions of pods. Returns at once, works in the background, and never raises."""

    def bound(self, pod: PodInfo, node_name: str, *, by_us: bool) -> None:
        """Report that a pod is bound; by_us: False if another replica or scheduler bound it to the same node."""
        ...

    def unschedulable(self, decision: Decision) -> None:
        """Report that a pod is unschedulable."""
        ...

    def held(self, pod: PodInfo, why: str) -> None:
        """Report that a pod is gated."""
        ...

    def waiting(self, pod: PodInfo, why: str) -> None:
        """Report that a pod has a node and waits for the rest of its gang."""
        ...

    def failed(self, pod: PodInfo, why: str) -> None:
        """Report an attempt that ended with an error."""
        ...

    def preempted(self, victim: PodInfo, *, by: PodInfo, node_name: str) -> None:
        """Report that a pod was preempted."""
        ...

    def gang_is_short(self, victim: PodInfo, why: str) -> None:
        """Report that a pod was evicted because its gang lost others."""
        ...

    def above_max(self, victim: PodInfo, why: str) -> None:
        """Report on an evicted pod which queue uses more than its `max`."""
        ...

    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Report the nominated node of a pod; "" clears it."""
        ...


class Policies(Protocol):
    """Selects the profile of a pod."""

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod's schedulerName is served by this scheduler."""
        ...

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile of the pod, or None if no policy governs it."""
        ...

    def rules(self, pod: PodInfo) -> Rules | None:
        """Return the rules that decide the pod, for callers that try a decision; None if no policy governs it."""
        ...

    @property
    def queries(self) -> Sequence[Query]:
        """Return the queries of all policies."""
        ...

    @property
    def profiles(self) -> Iterable[Profile]:
        """Return the profiles of all policies."""
        ...

    def preparing(self, cluster: Cluster) -> Iterator[None]:
        """Make in steps what the first decisions by these policies would make of all nodes and pods in one."""
        ...

    def hold(self, queued: QueuedPod, frame: FrameOf) -> str | None:
        """Return why the pod must wait outside the active queue, or None."""
        ...

    def position(self, queued: QueuedPod, frame: FrameOf) -> QueuePosition:
        """Return the position of the pod in the queue."""
        ...

    def unusable(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, str]:
        """Return by PromQL why an answer has no value for any node."""

    def lay_out(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, int]:
        """Join new signal values to the nodes; return, by PromQL, the number of nodes without a value."""
        ...

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the unit of pods that one replica decides alone."""
        ...

    def gang_requirements(self, queued: QueuedPod, frame: FrameOf) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind.

        Raises:
            MissingGroupError: a PodGroup is not there.
            ValueError: a size has no value.
        """
        ...


class Wakeups:
    """Wakes the scheduling loop, also when an event in the cluster may help pods."""

    def __init__(self, queue: SchedulingQueue, ledger: Ledger, clock: Callable[[], Steady]) -> None:
        """Have the queue follow the ledger of the cluster from now on."""
        self.requested = asyncio.Event()
        """Set if there may be work for the loop."""
        self._ledger = ledger
        queue.follow(ledger, clock, moved=self.requested.set)

    @property
    def changes(self) -> int:
        """Return a number that grows with everything that may change a decision."""
        return self._ledger.epoch


class SchedulerContext(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The shared state of the scheduler, passed to each of its parts."""

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
    """Passes pods on; None without sharding."""
    sharding: Sharding | None = None
    """Selects this replica's pods and nodes; None: all of them."""
    extenders: Extenders | None = None
    """The HTTP extenders of the configuration; None: there are none."""
    preempts_for_resizes: bool = False
    """Whether pods are evicted so that others, whose resize in place is deferred, can grow."""
    view: ClusterView = msgspec.field(default_factory=AlwaysCurrent)
    """Whether the cache is current enough for scheduling."""
    clock: Callable[[], Steady] = msgspec.field(default_factory=SettableClock)
    """The time, for whatever is to last some seconds."""
    stopwatch: Callable[[], float] = time.perf_counter
    """Seconds, for measuring durations."""
    turns: TurnWatch[QueuedPod] = msgspec.field(default_factory=TurnWatch)
    """Is told what is done in a turn of the event loop."""

    @cached_property
    def wakeups(self) -> Wakeups:
        """Wakes pods and the loop."""
        return Wakeups(self.queue, self.cluster.ledger, self.clock)

    def wall(self) -> float:
        """Return Unix seconds by the wall clock: for people, for what policies ask, and beside the times of objects."""
        return self.clock() + self.cluster.ahead

    def nominate(self, queued: QueuedPod, node_name: str, *, together: Parts = ()) -> None:
        """Nominate a pod to a node in the cache, before anything is sent; "" clears the nomination.

        together: see `Frame.together`.
        """
        for other in nominate(self.cluster, queued, node_name, together=together):
            if other.resource_version:  # one without stands for a pod that is still to come
                self.reporter.nominated(other, "")

    def announce(self, queued: QueuedPod, node_name: str) -> None:
        """Write as nominated node where an assumed pod waits to be bound, so that others know; it counts there already.

        Autoscalers then count it on its node, and another replica that takes over tries this node first.
        """
        pod = queued.pod
        if pod.nominated_node != node_name:
            self.reporter.nominated(pod, node_name)
            queued.pod = msgspec.structs.replace(pod, nominated_node=node_name)

    def clear_nomination(self, queued: QueuedPod) -> None:
        """Keep no node for a pod, in the cache and in the API server."""
        pod = queued.pod
        if pod.nominated_node:
            self.nominate(queued, "")
            self.reporter.nominated(pod, "")


class Basis(msgspec.Struct, frozen=True):
    """The preconditions of a decision that others can change. If two are equal, nobody has changed them."""

    losses: int
    """Number of times that the cache was not current."""
    mark: int | None
    """Of the node (`EventHandlers.mark`)."""


class AssumedPod(msgspec.Struct, frozen=True, eq=False):
    """An assumed pod: it counts on its node and is not bound yet."""

    queued: QueuedPod
    host: str
    began: float
    """When its attempt began, for measurements."""
    volumes: VolumeReservation | None
    requirements: tuple[GangRequirement, ...]
    basis: Basis
    devices: ClaimReservation | None = None

    @property
    def has_devices(self) -> bool:
        """Return whether devices are reserved for its claims."""
        return self.devices is not None

    def unreserve(self, cluster: Cluster) -> None:
        """Undo the reservations in memory; nothing was written yet."""
        if self.volumes is not None:
            undo_volumes(self.volumes, cluster)
        if self.devices is not None:
            undo_claims(self.devices, cluster)

    def free_devices(self, cluster: Cluster) -> Callable[[], None]:
        """Free the devices of its claims, to try something; return what reserves them again."""
        if self.devices is not None:
            undo_claims(self.devices, cluster)
        return lambda: redo(self.devices, cluster) if self.devices is not None else None
