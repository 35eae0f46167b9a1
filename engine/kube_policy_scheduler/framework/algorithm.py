"""Finds the node for one pod, by the rules and signals in force. Knows neither queue nor API; places nothing.

The daemon, and everything that simulates it, asks the scheduling cycle through this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Protocol

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.cycle import Cycle, Decision
from kube_policy_scheduler.framework.evaluation import passes
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue import QueuedPod
from kube_policy_scheduler.framework.refusal_memo import RefusalMemo, is_alike

NO_POLICY = "no policy governs this pod: none of the scheduler's policies has a matching `for pods where`"


class ClusterEvents(Protocol):
    """Passes events on to the pods that they may help."""

    @property
    def changes(self) -> int:
        """Return a number that grows with everything that may change a decision, other than our own placements."""
        ...

    def move_on_event(self, event: ClusterEvent) -> None:
        """Move the pods that an event may help to the active or backoff queue."""
        ...

    def devices_freed(self) -> None:
        """Move pods that wait for devices, because devices that were allocated in memory are free again."""
        ...


class ScheduleAlgorithm(ABC):
    """Asks the cycle about pods, and remembers refusals until something changes."""

    def __init__(self, cluster: Cluster, cycle: Cycle, events: ClusterEvents, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        self.signals = Signals.EMPTY
        """The readings that decisions rest on."""
        self.cycle = cycle
        self._cluster, self._events, self._clock = cluster, events, clock
        self._refused = RefusalMemo()
        self._placements = 0

    @abstractmethod
    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""

    @abstractmethod
    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind.

        Raises:
            MissingGroupError: a group of the API is not there.
            ValueError: a size has no value.
        """

    def frame(self, queued: QueuedPod) -> Frame:
        """Return what rules may look at for a pod, now."""
        return queued.frame(self._cluster, self._clock(), signals=self.signals)

    @property
    def state(self) -> Hashable:
        """Return what is another value as soon as a pod may be decided otherwise."""
        return self._events.changes, self._placements

    def decide(self, queued: QueuedPod, *, preempts: bool = True, memo: RefusalMemo | None = None) -> Decision:
        """Return the pod's node, or why there is none; a refusal is remembered until something changes.

        Args:
            queued: the pod.
            preempts: whether it is looked for pods to evict.
            memo: where refusals are remembered, for callers that try placements out.
        """
        pod, memo = queued.pod, memo if memo is not None else self._refused
        profile = self.profile(pod)
        if profile is None:
            return Decision(pod, None, total=self._cluster.nodes.size, message=NO_POLICY)
        known = memo.get(pod, profile, self._events.changes, preempts=preempts)
        if known is not None:
            return replace(known, pod=pod)
        decision = self._decide(queued, profile, preempts=preempts)
        memo.note(decision, profile, self._events.changes, preempts=preempts)
        return decision

    def _decide(self, queued: QueuedPod, profile: Profile, *, preempts: bool) -> Decision:
        return self.cycle.decide(self.frame(queued), profile, preempts=preempts)

    def is_alike(self, queued: QueuedPod) -> bool:
        """Return whether a pod is decided as any other of its template."""
        profile = self.profile(queued.pod)
        return profile is not None and is_alike(queued.pod, profile)

    def forget_refusals(self) -> None:
        """Take note that our own placements changed: who was refused may not be now, or the other way round."""
        self._refused.clear()
        self._placements += 1

    def still_fits(self, queued: QueuedPod, host: str) -> bool:
        """Return whether a pod that counts on a node would still be placed there."""
        if host not in self._cluster.nodes.rows:
            return False
        self._cluster.displace(queued.pod.uid)
        try:
            return self.passes(queued, host)
        finally:
            self._cluster.place(queued.pod, host)

    def passes(self, queued: QueuedPod, host: str) -> bool:
        """Return whether a node passes every filter for a pod, as the cluster stands."""
        row, profile = self._cluster.nodes.rows.get(host), self.profile(queued.pod)
        return row is not None and profile is not None and passes(self.frame(queued), profile, row)
