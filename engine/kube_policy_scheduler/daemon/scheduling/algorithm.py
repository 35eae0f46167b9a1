"""Finds the node for one pod, by the policies and signals in force. Changes nothing; knows neither queue nor API."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.daemon.observing.observers import Decided
from kube_policy_scheduler.daemon.scheduling.context import Policies, SchedulerContext
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.evaluation import passes
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue import QueuedPod
from kube_policy_scheduler.framework.refusal_memo import RefusalMemo, is_alike

NO_POLICY = "no policy governs this pod: none of the scheduler's policies has a matching `for pods where`"


class Algorithm:
    """The one way in which the daemon asks the cycle."""

    def __init__(self, context: SchedulerContext) -> None:
        self.policies: Policies | None = None
        """None until a policy set is in force: nothing is decided without one."""
        self.missing_nodes: Mapping[str, int] = {}
        """By PromQL: how many nodes had no value in the last reading."""
        self.signals = Signals.EMPTY
        """The readings that decisions rest on."""
        self._cluster, self.cycle, self._clock = context.cluster, context.cycle, context.clock
        self._wakeups = context.wakeups
        self._sharding = context.sharding
        self._refused = RefusalMemo()
        self._placements = 0

    def use_policies(self, policies: Policies) -> None:
        """Decide by these policies."""
        self.policies = policies
        if self._sharding is not None:
            self._sharding.use_policies(policies)

    def use_signals(self, signals: Signals) -> None:
        """Decide by these readings."""
        self.signals = signals
        if self.policies is not None:
            self.missing_nodes = self.policies.lay_out(signals, self._cluster.nodes, now=self._clock())

    def frame(self, queued: QueuedPod) -> Frame:
        """Return what rules may look at for a pod, now."""
        return queued.frame(self._cluster, self._clock(), signals=self.signals)

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are, and is not another replica's."""
        if self.policies is None or not self.policies.serves(pod):
            return False
        return self._sharding is None or self._sharding.is_ours(pod)

    @property
    def reads_pod_states(self) -> bool:
        """Return whether a policy asks which pods are ready or started."""
        return self.policies is not None and self.policies.reads_pod_states

    def keeps_room_for(self, pod: PodInfo) -> bool:
        """Return whether one of our nodes keeps room for a pending pod that is another replica's."""
        if self._sharding is None or self.policies is None or not self.policies.serves(pod):
            return False
        return self._sharding.keeps_room_for(pod)

    def passed_to(self, pod: PodInfo) -> str | None:
        """Return the node of another replica for which we passed a pod on, None where we did not."""
        if self._sharding is None or self.policies is None or not self.policies.serves(pod):
            return None
        return self._sharding.passed_to(pod)

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        return self.policies.profile(pod) if self.policies is not None else None

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; raises ValueError where a size has no value."""
        return self.policies.gang_requirements(queued, self.frame) if self.policies is not None else ()

    @property
    def state(self) -> Hashable:
        """Return what is another value as soon as a pod may be decided otherwise."""
        return self._wakeups.changes, self._placements

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
        known = memo.get(pod, profile, self._wakeups.changes, preempts=preempts)
        if known is not None:
            return replace(known, pod=pod)
        decision = self._decide(queued, profile, preempts=preempts)
        memo.note(decision, profile, self._wakeups.changes, preempts=preempts)
        return decision

    def _decide(self, queued: QueuedPod, profile: Profile, *, preempts: bool) -> Decision:
        frame, sharding = self.frame(queued), self._sharding
        if sharding is None or sharding.is_alone:
            return self.cycle.decide(frame, profile, preempts=preempts)
        # a gang is all of one replica's, or part of it might bind though another replica refuses the rest
        is_bound_to_ours = bool(queued.groups)
        decision = self.cycle.decide(frame, sharding.narrowed(profile, preempts=is_bound_to_ours), preempts=preempts)
        if decision.host is not None or is_bound_to_ours or sharding.was_passed_here(queued.pod):
            return decision
        return self.cycle.decide(frame, profile, preempts=preempts)

    def would_decide(self, frame: Frame, profile: Profile) -> Decision:
        """Return what a profile that does not govern the pod would decide; nothing of it is remembered."""
        sharding = self._sharding
        if sharding is None or sharding.is_alone:
            return self.cycle.decide(frame, profile)
        decision = self.cycle.decide(frame, sharding.narrowed(profile, preempts=False))
        return decision if decision.host is not None else self.cycle.decide(frame, profile)

    def record(self, queued: QueuedPod, decision: Decision, *, seconds: float, waits: str = "") -> Decided:
        """Return a decision as observers receive it."""
        profile = self.profile(queued.pod)
        return Decided(
            decision,
            policy=profile.name if profile is not None else None,
            at=self._clock(),
            seconds=seconds,
            attempts=queued.attempts,
            queued=queued.queued,
            waits=waits,
            frame=self.frame(queued),
            entered=queued.timestamp,
        )

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
