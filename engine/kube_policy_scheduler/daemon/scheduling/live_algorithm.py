"""Finds the node for one pod, by the policies in force, among the nodes of this replica and of others."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

import msgspec

from kube_policy_scheduler.builtins import metrics
from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Query, Signals
from kube_policy_scheduler.daemon.observing.observers import Decided
from kube_policy_scheduler.daemon.scheduling.context import Policies, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.sharding import Sharding
from kube_policy_scheduler.framework.decide.algorithm import ScheduleAlgorithm
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.member_run import MemberRun
from kube_policy_scheduler.framework.decide.new_nodes import AwaitingNodes, needs_of
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod
from kube_policy_scheduler.policy.answer import Answer, Answers
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.times import Steady


class LiveAlgorithm(ScheduleAlgorithm):
    """The one way in which the daemon asks the cycle."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context.cluster, context.cycle, context.clock)
        self.policies: Policies | None = None
        """None until a policy set is in force: nothing is decided without one."""
        self._sharding = context.sharding
        self.awaiting_nodes = AwaitingNodes()
        """The pods that no node takes."""

    def use_policies(self, policies: Policies) -> None:
        """Decide by these policies."""
        self.policies = policies
        self.forget_domains()
        self.awaiting_nodes.clear()
        self.cycle.keep_only(policies.profiles)
        metrics.keep_only(policies.queries, self._cluster.nodes)
        if self._sharding is not None:
            self._sharding.use_policies(policies)

    def use_signals(self, signals: Signals) -> None:
        """Decide by these readings."""
        self.signals = signals
        self.missing_nodes()  # here, so that no decision waits for it

    def missing_nodes(self) -> Mapping[str, int]:
        """Return by PromQL how many nodes have no value now."""
        if self.policies is None:
            return {}
        return self.policies.lay_out(self.signals, self._cluster.nodes, now=self._clock() + self._cluster.ahead)

    def unusable_metrics(self) -> Mapping[str, str]:
        """Return by PromQL why an answer has no value for any node now."""
        if self.policies is None:
            return {}
        return self.policies.unusable(self.signals, self._cluster.nodes, now=self._clock() + self._cluster.ahead)

    def joining(self, queries: Iterable[Query], signals: Signals) -> Iterator[None]:
        """Lay readings over the nodes in steps, so that decisions by them do not have to."""
        for query in queries:
            yield from metrics.joining(query, self._cluster.nodes, signals=signals)

    def serves(self, pod: PodInfo) -> bool:
        """Return whether the pod asks for a scheduler that we are, and is not another replica's."""
        if self.policies is None or not self.policies.serves(pod):
            return False
        return self._sharding is None or self._sharding.is_ours(pod)

    def decides_queues(self) -> bool:
        """Return whether pods of queues are this replica's to decide."""
        return self._sharding is None or self._sharding.decides_queues

    def is_nominated_to_ours(self, pod: PodInfo) -> bool:
        """Return whether a pending pod of another replica is nominated to one of our nodes."""
        if self._sharding is None or self.policies is None or not self.policies.serves(pod):
            return False
        return self._sharding.is_nominated_to_ours(pod)

    def passed_to(self, pod: PodInfo) -> str | None:
        """Return the node of another replica for which we passed a pod on, None where we did not."""
        if self._sharding is None or self.policies is None or not self.policies.serves(pod):
            return None
        return self._sharding.passed_to(pod)

    def was_passed_here(self, pod: PodInfo) -> bool:
        """Return whether another replica passed a pod on to us, for one of our nodes."""
        if self._sharding is None or self.policies is None or not self.policies.serves(pod):
            return False
        return self._sharding.was_passed_here(pod)

    def profile(self, pod: PodInfo) -> Profile | None:
        """Return the profile that places the pod, or None where no policy governs it."""
        return self.policies.profile(pod) if self.policies is not None else None

    def gang_requirements(self, queued: QueuedPod) -> tuple[GangRequirement, ...]:
        """Return the groups without which the pod must not bind; raises ValueError where a size has no value."""
        return self.policies.gang_requirements(queued, self.frame) if self.policies is not None else ()

    def deciding_under(self, queued: QueuedPod, profile: Profile, *, preempts: bool) -> Generator[int, None, Decision]:
        """Return what becomes of a pod under a profile, on this replica's nodes before those of others."""
        frame = self.frame_with_gang(queued) if queued.groups else self.frame(queued)  # most pods have no gang
        sharding = self._sharding
        if sharding is None or sharding.is_alone:
            return self.cycle.deciding(frame, profile, preempts=preempts)
        return self._deciding_ours_first(frame, profile, sharding, preempts=preempts)

    def _deciding_ours_first(
        self, frame: Frame, profile: Profile, sharding: Sharding, *, preempts: bool
    ) -> Generator[int, None, Decision]:
        # a gang is all of one replica's, or part of it might bind though another replica rejects the rest
        is_bound_to_ours = bool(frame.groups)
        decision = self.cycle.decide(frame, sharding.narrowed(profile, preempts=is_bound_to_ours), preempts=preempts)
        if decision.host is not None or is_bound_to_ours or sharding.was_passed_here(frame.pod):
            return decision
        return (yield from self.cycle.deciding(frame, profile, preempts=preempts))

    def on_own_nodes(self, profile: Profile) -> Profile:
        """Return a profile for the nodes of this replica."""
        sharding = self._sharding
        return profile if sharding is None or sharding.is_alone else sharding.narrowed(profile, preempts=True)

    def begin_run(self, frame: Frame, profile: Profile) -> MemberRun | None:
        """Decide one by one while nodes are shared with other replicas."""
        return super().begin_run(frame, profile) if self._sharding is None or self._sharding.is_alone else None

    def feasible(self, queued: QueuedPod) -> BoolArray:
        """Return `bool[nodes]`: those that pass every filter for a pod, of this replica's."""
        passing = super().feasible(queued)
        if self._sharding is not None and not self._sharding.is_alone:
            passing = passing & self._sharding.own_nodes(self._cluster.nodes)
        return passing

    def would_answer(self, inputs: DecisionInputs, *, verdict: ExtenderVerdict | None = None) -> Answer:
        """Return what would become of a pod by rules that do not govern it; nothing of it is remembered."""
        sharding, answers = self._sharding, Answers(cycle=self.cycle)
        if sharding is not None and not sharding.is_alone:
            ours = inputs.under(sharding.narrowed(inputs.profile, preempts=False))
            found = answers.answer(ours, verdict=verdict)
            if found.host is not None:
                return found
        return answers.answer(inputs, verdict=verdict)

    def with_new_nodes(
        self, queued: QueuedPod, decision: Decision, requirements: Iterable[GangRequirement]
    ) -> Decision:
        """Return a rejection that says whether new nodes would help the pod, with its gang as a whole."""
        needs = needs_of(requirements, self._cluster.counters.group_size)
        found = self.awaiting_nodes.judge(
            self.frame(queued),
            self.profile(queued.pod),
            decision.diagnosis,
            gang=needs.gang,
            together=needs.together,
            fills=needs.fills,
        )
        return msgspec.structs.replace(decision, new_nodes=found)

    def record(
        self,
        queued: QueuedPod,
        decision: Decision,
        *,
        now: Steady,
        seconds: float,
        waits: str = "",
        others: Sequence[Decision] = (),
    ) -> Decided:
        """Return a decision as observers receive it."""
        profile, ahead = self.profile(queued.pod), self._cluster.ahead
        return Decided(
            decision,
            policy=profile.name if profile is not None else None,
            at=now + ahead,
            seconds=seconds,
            attempts=queued.attempts,
            queued=queued.queued + ahead,
            waits=waits,
            frame=queued.frame(self._cluster, now, signals=self.signals, ahead=ahead),
            entered=queued.timestamp + ahead,
            others=others,
        )
