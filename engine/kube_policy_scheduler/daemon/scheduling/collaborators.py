"""What the scheduler asks of others: to bind, to tell people, to know the policies. Shapes only; no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from kube_policy_scheduler.adapters.kube.binding import Outcome, Unknown
from kube_policy_scheduler.cluster.nodes import NodeTable
from kube_policy_scheduler.cluster.objects import ResourceClaim
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.scheduling.preempting import PreemptionReporter
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.dynamic_resources.reservation import ClaimReservation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import Claim
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue import QueuedPod, Turn
from kube_policy_scheduler.framework.volume_reservation import VolumeReservation

FrameOf: TypeAlias = Callable[[QueuedPod], Frame]
"""Makes what rules may look at for a pod; asked by those that look."""


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


class Reporter(PreemptionReporter, Protocol):
    """Tells people what became of a pod; returns at once, works in the background, never raises."""

    def bound(self, pod: PodInfo, node_name: str) -> None:
        """Report success."""
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
        """Report an attempt that broke."""
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

    def turn(self, queued: QueuedPod, frame: FrameOf) -> Turn:
        """Return when the pod's turn is."""
        ...

    def lay_out(self, signals: Signals, nodes: NodeTable, *, now: float) -> Mapping[str, int]:
        """Lay new readings over the nodes ahead of decisions; return by PromQL how many nodes have no value."""
        ...

    def unit(self, pod: PodInfo, *, by_pod: bool) -> str:
        """Return the unit of pods that one replica decides alone."""
        ...

    def claims(self, queued: QueuedPod, frame: FrameOf) -> tuple[Claim, ...]:
        """Return the groups without which the pod must not bind.

        Raises:
            MissingPodGroupError: a PodGroup is not there.
            ValueError: a size has no value.
        """
        ...
