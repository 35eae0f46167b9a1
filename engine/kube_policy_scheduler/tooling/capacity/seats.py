"""Pods tried out on a cluster: each goes where the scheduler would put it, and all of it can be undone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.framework.decide.rejection_memo import is_alike
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, outermost_first
from kube_policy_scheduler.framework.plugin import Scope
from kube_policy_scheduler.policy.answer import Answer, Answers, Placed, Unschedulable
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, DecisionInputs, Rules
from kube_policy_scheduler.policy.pending import Pending
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rulesets import Ruleset
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster

Stop: TypeAlias = Callable[[], bool]
"""Asked between two pods: True ends the work, and what is done so far is the answer."""


def never() -> bool:
    """Return False: work until the end."""
    return False


@dataclass(slots=True)
class Seated:
    """The pods that got a place, and those that did not."""

    placed: dict[str, str] = field(default_factory=dict)
    """Node by uid."""
    rejected: dict[str, str] = field(default_factory=dict)
    """By uid: why there is no node."""
    complete: bool = True
    """Whether all of them were decided."""


class Seats(UndoableCluster):
    """Places pods where the scheduler would; all of it can be undone."""

    def __init__(
        self,
        there: ClusterState,
        ruleset: Ruleset,
        *,
        signals: Signals = Signals.EMPTY,
        now: float,
        seed: int = 0,
        answers: Answers | None = None,
    ) -> None:
        """Prepare.

        Args:
            there: changed by what is tried; as before once that is undone.
            ruleset: decides about the pods that it governs; Kubernetes' own rules decide about the others.
            signals: metrics.
            now: Unix seconds of all decisions.
            seed: of the tie-break.
            answers: those that keep columns already, in place of new ones with this seed.
        """
        super().__init__(there.cluster, now=now)
        self.there = there
        self._ruleset, self._signals = ruleset, signals
        self._kubernetes = msgspec.structs.replace(
            KUBERNETES, profile=msgspec.structs.replace(KUBERNETES.profile, preempts=False)
        )
        self._answers = answers or Answers(seed=seed, remembers=True)

    # --- decisions -----------------------------------------------------------------------------------

    def rules(self, pod: PodInfo) -> Rules:
        """Return what decides about a pod."""
        return self._ruleset.rules(pod) or self._kubernetes

    def inputs(self, pod: PodInfo) -> DecisionInputs:
        """Return the inputs of a decision, as the cluster stands."""
        return DecisionInputs(pod, self.cluster, self.rules(pod), self._signals, self.now, queued=pod.created)

    def is_alike(self, pod: PodInfo) -> bool:
        """Return whether a pod is decided as any other of its template."""
        return is_alike(pod, self.rules(pod).profile)

    def answer(self, pod: PodInfo) -> Answer:
        """Return what becomes of a pod without a node, as the cluster stands."""
        return self._answers.answer(self.inputs(pod), preempts=False)

    def ranked(self, pod: PodInfo) -> tuple[IntArray, FloatArray]:
        """Return the rows that take a pod outside every gang, ascending, and `float64[rows]`: their totals."""
        return self._answers.ranked(self.inputs(pod))

    def on(self, pod: PodInfo, row: int) -> Placed:
        """Return the answer that puts a pod on one of its best nodes."""
        return self._answers.on(self.inputs(pod), row)

    def may_take(self, pods: Iterable[PodInfo]) -> BoolArray:
        """Return `bool[nodes]`: those that may have one of some pods, as far as their own facts and taints tell.

        What other pods are where changes nothing about it.
        """
        found: BoolArray = np.zeros(self.cluster.nodes.size, np.bool_)
        for pod in {pod.template: pod for pod in pods}.values():
            inputs = self.inputs(pod)
            lasting = [plugin for plugin in inputs.profile.filters if plugin.scope is Scope.TEMPLATE]
            found |= np.logical_and.reduce([inputs.probe(plugin).passes() for plugin in lasting], initial=True)
        return found

    def seat(self, pod: PodInfo) -> Answer:
        """Decide a pod, and place it where it fits."""
        answer = self.answer(pod)
        if isinstance(answer, Placed):
            self.count(pod, answer)
        return answer

    def count(self, pod: PodInfo, answer: Placed) -> None:
        """Count a pod on the node that it gets."""
        decision = answer.decision
        assert decision.host is not None
        self.place(pod, decision.host, order=decision.device_order, devices=decision.devices)

    def seat_all(
        self, pods: Sequence[PodInfo], *, stop: Stop = never, progress: Callable[[int], None] = lambda done: None
    ) -> Seated:
        """Place as many pods as fit, in the given order; members of a gang that stays incomplete get no node.

        A pod that was rejected is tried again after others were placed, as an event would do in the scheduling queue.
        """
        found = Seated()
        waiting: Sequence[PodInfo] = pods
        while waiting and not stop():
            before, failed = len(found.placed), dict[Group, str]()
            for pod in waiting:
                if stop():
                    break
                if pod.uid in found.placed:
                    continue  # with another one of its gang
                short = self._short_gang(pod)
                if short is None:
                    answer = self.seat(pod)
                    placed, why = ({pod.uid: answer.host} if answer.host is not None else {}), answer.text
                elif short in failed:
                    placed, why = {}, failed[short]
                else:
                    placed, why = self.seat_gang(pod, [each for each in pods if each.uid not in found.placed])
                    if not placed:
                        failed[short] = why
                found.placed |= placed
                for uid in placed:
                    found.rejected.pop(uid, None)
                if placed:
                    progress(len(found.placed))
                else:
                    found.rejected[pod.uid] = why
            if len(found.placed) == before or len(found.placed) == len(pods):
                break
            waiting = [pod for pod in pods if pod.uid not in found.placed]
        found.complete = len(found.placed) + len(found.rejected) == len(pods)
        self.drop_short_gangs(pods, found)
        return found

    def seat_gang(self, pod: PodInfo, waiting: Iterable[PodInfo]) -> tuple[dict[str, str], str]:
        """Place a pod with all others that its gangs need, or none of them.

        Returns:
            The nodes by uid, and why there are none.
        """
        inputs = msgspec.structs.replace(self.inputs(pod), pending=Pending(waiting))
        answer = self._answers.answer(inputs, preempts=False)
        found = self._answers.seats(inputs) if isinstance(answer, Placed) else None
        for seat in found or ():
            self.count(seat.pod, self.on(seat.pod, self.cluster.nodes.rows[seat.node_name]))
        return {seat.pod.uid: seat.node_name for seat in found or ()}, answer.text

    def _short_gang(self, pod: PodInfo) -> Group | None:
        """Return a gang of a pod that is not complete, the widest one; None: there is none."""
        size_of = self.cluster.counters.group_size
        short = [gang for gang in self.gangs(pod) if gang.filled(size_of) < gang.size]
        return outermost_first(short)[0].group if short else None

    def drop_short_gangs(self, pods: Sequence[PodInfo], found: Seated) -> None:
        """Take back the nodes of members of gangs that are not complete."""
        size_of = self.cluster.counters.group_size
        members = [(pod, self.gangs(pod)) for pod in pods if pod.uid in found.placed]
        members = [(pod, gangs) for pod, gangs in members if gangs]
        again = bool(members)
        while again:  # a gang that gives its nodes back may leave another, of which its pods are members too, short
            again = False
            for pod, gangs in members:
                short = next((gang for gang in gangs if gang.filled(size_of) < gang.size), None)
                if short is not None and pod.uid in found.placed:
                    del found.placed[pod.uid]
                    found.rejected[pod.uid] = f"{short}, and only some of them get a node"
                    again = True
            for pod, _ in members:
                if pod.uid in found.rejected and self.cluster.node_of(pod.uid) is not None:
                    self.take_off(pod)

    def gangs(self, pod: PodInfo) -> tuple[GangRequirement, ...]:
        """Return what the gangs of a pod require; none if that is not known."""
        try:
            return self.inputs(pod).gang_requirements()
        except ValueError:
            return ()

    def goes_with_others(self, pod: PodInfo) -> bool:
        """Return whether its gangs say that a pod starts, runs or ends with others, or where these are."""
        return any(
            each.size > 1 or each.levels or each.evicts_whole or each.tree is not None for each in self.gangs(pod)
        )

    def preempt(self, pods: Sequence[PodInfo], *, stop: Stop = never) -> tuple[int, list[PodInfo], dict[str, str]]:
        """Place pods at the cost of pods of lower priority, which are then decided again in their turn.

        Returns how many pods were evicted, the pods without a node in the end, and why there is none, by uid.
        """
        waiting, left = in_turn(pods), list[PodInfo]()
        messages: dict[str, str] = {}
        evicted = 0
        while waiting and not stop():
            pod = waiting.pop(0)
            answer = self._preempting(pod)
            found = answer.decision.preemption if isinstance(answer, Unschedulable) else None
            if found is not None and found.victims:
                victims = [self.take_off(victim) for victim in found.victims]
                evicted += len(victims)
                waiting = in_turn([*waiting, *(victim for victim in victims if not is_of_node(victim))])
                answer = self.answer(pod)
            if isinstance(answer, Placed):
                self.count(pod, answer)
            else:
                left.append(pod)
                messages[pod.uid] = answer.text
        left += waiting
        messages |= {pod.uid: "not decided" for pod in waiting}
        return evicted, left, messages

    def _preempting(self, pod: PodInfo) -> Answer:
        inputs = self.inputs(pod)
        policy = inputs.rules.policy
        profile = policy.profile if policy is not None else KUBERNETES.profile  # those of a ruleset do not preempt
        return self._answers.answer(inputs.under(profile), preempts=True)


def in_turn(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods in the order of kube-scheduler's queue: by priority, then the oldest first."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.key))
