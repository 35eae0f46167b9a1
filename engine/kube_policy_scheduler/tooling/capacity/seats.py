"""A cluster on which pods are tried out: the scheduling cycle places them, and all of it can be undone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.devices.node_devices import Chosen
from kube_policy_scheduler.cluster.nodes import FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.taints import UNSCHEDULABLE_KEY
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import Shortfall, narrowed
from kube_policy_scheduler.framework.decide.refusal_memo import RefusalMemo, is_alike
from kube_policy_scheduler.framework.permit import GangRequirement
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back, take_claims
from kube_policy_scheduler.policy.decision_inputs import KUBERNETES, DecisionInputs, Rules
from kube_policy_scheduler.tooling.cluster_state import ClusterState, is_of_node
from kube_policy_scheduler.tooling.rulesets import Ruleset

Stop: TypeAlias = Callable[[], bool]
"""Asked between two pods: True ends the work, and what is done so far is the answer."""


def never() -> bool:
    """Return False: work until the end."""
    return False


@dataclass(frozen=True, slots=True)
class _Placed:
    pod: PodInfo
    nominated: str
    give_back: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Removed:
    pod: PodInfo
    host: str
    devices: Mapping[str, Chosen] | None
    take_back: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    before: objects.Node | None


@dataclass(slots=True)
class Seated:
    """What became of some pods."""

    placed: dict[str, str] = field(default_factory=dict)
    """Node by uid."""
    refused: dict[str, str] = field(default_factory=dict)
    """By uid: why there is no node."""
    complete: bool = True
    """Whether all of them were decided."""


class Seats:
    """Places pods by the policy's own cycle; `mark` and `undo_to` take it all back."""

    def __init__(
        self,
        there: ClusterState,
        ruleset: Ruleset,
        *,
        signals: Signals = Signals.EMPTY,
        now: float,
        seed: int = 0,
        cycle: Cycle | None = None,
    ) -> None:
        """Prepare.

        Args:
            there: changed by what is tried; as before once that is undone.
            ruleset: decides about the pods that it governs; Kubernetes' own rules decide about the others.
            signals: metrics.
            now: Unix seconds of all decisions.
            seed: of the tie-break.
            cycle: one with columns that are kept already, in place of a new one with this seed.
        """
        self.there, self.cluster = there, there.cluster
        self.now = now
        self._ruleset, self._signals = ruleset, signals
        self._kubernetes = replace(KUBERNETES, profile=replace(KUBERNETES.profile, preempts=False))
        self._cycle = cycle or Cycle(seed=seed)
        self._refused = RefusalMemo()
        self._log: list[_Placed | _Removed | _Node] = []

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

    def decide(self, pod: PodInfo) -> Decision:
        """Return the node for a pod without one, or why there is none."""
        inputs = self.inputs(pod)
        held = inputs.hold_reason()
        if held is not None:
            return Decision(pod, None, message=f"held: {held}")
        try:
            requirements = inputs.gang_requirements()
        except ValueError as error:
            return Decision(pod, None, message=str(error))
        profile = inputs.profile
        if requirements:
            inside = narrowed(inputs.frame(), profile, requirements, self._cycle)
            if isinstance(inside, Shortfall):
                return Decision(pod, None, message=inside.message)
            profile = inside
        epoch = self.cluster.ledger.epoch
        known = self._refused.get(pod, profile, epoch, preempts=False)
        if known is not None:
            return known
        decision = self._cycle.decide(inputs.frame(), profile, preempts=False)
        self._refused.note(decision, profile, epoch, preempts=False)
        return decision

    def ranked(self, pod: PodInfo) -> tuple[IntArray, FloatArray]:
        """Return the rows that take a pod outside every gang, ascending, and `float64[rows]`: their totals."""
        inputs = self.inputs(pod)
        return self._cycle.ranked(inputs.frame(), inputs.profile)

    def decision_on(self, pod: PodInfo, row: int) -> Decision:
        """Return the decision that puts a pod on one of its best nodes."""
        inputs = self.inputs(pod)
        devices = self._cycle.devices(inputs.frame(), inputs.profile, row)
        name = self.cluster.nodes.infos[row].name
        return Decision(pod, name, devices=devices, device_order=inputs.profile.devices)

    def seat(self, pod: PodInfo) -> Decision:
        """Decide a pod, and place it where it fits."""
        decision = self.decide(pod)
        if decision.host is not None:
            self.place(pod, decision)
        return decision

    def seat_all(
        self, pods: Sequence[PodInfo], *, stop: Stop = never, progress: Callable[[int], None] = lambda done: None
    ) -> Seated:
        """Place as many pods as fit, in the given order; members of a gang that stays incomplete get no node.

        A pod that was refused is tried again after others were placed, as an event would do in the scheduling queue.
        """
        found = Seated()
        waiting: Sequence[PodInfo] = pods
        while waiting and not stop():
            before = len(found.placed)
            for pod in waiting:
                if stop():
                    break
                decision = self.seat(pod)
                if decision.host is not None:
                    found.placed[pod.uid] = decision.host
                    found.refused.pop(pod.uid, None)
                    progress(len(found.placed))
                else:
                    found.refused[pod.uid] = decision.message
            if len(found.placed) == before or len(found.placed) == len(pods):
                break
            waiting = [pod for pod in pods if pod.uid not in found.placed]
        found.complete = len(found.placed) + len(found.refused) == len(pods)
        self.drop_short_gangs(pods, found)
        return found

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
                    found.refused[pod.uid] = f"{short}, and only some of them get a node"
                    again = True
            for pod, _ in members:
                if pod.uid in found.refused and self.cluster.node_of(pod.uid) is not None:
                    self.take_off(pod)

    def gangs(self, pod: PodInfo) -> tuple[GangRequirement, ...]:
        """Return what the gangs of a pod require; none if that is not known."""
        try:
            return self.inputs(pod).gang_requirements()
        except ValueError:
            return ()

    # --- changes, each of which can be undone --------------------------------------------------------

    def place(self, pod: PodInfo, decision: Decision) -> None:
        """Count a pod on the node that was chosen for it."""
        assert decision.host is not None
        give_back = take_claims(self.cluster, pod, decision.host, now=self.now, order=decision.device_order)
        self.cluster.place(pod, decision.host, devices=decision.devices or None)
        nominated = pod.nominated_node if self.cluster.is_nominated(pod.uid) else ""
        self.cluster.nominate(pod, "")
        self._log.append(_Placed(pod, nominated, give_back))

    def put(self, pod: PodInfo, host: str) -> None:
        """Count a pod on a node without a decision, as one that belongs to the node."""
        self.cluster.place(pod, host)
        self._log.append(_Placed(pod, "", _nothing))

    def preempt(self, pods: Sequence[PodInfo], *, stop: Stop = never) -> tuple[int, list[PodInfo], dict[str, str]]:
        """Place pods at the cost of pods of lower priority, which are then decided again in their turn.

        Returns how many pods were evicted, the pods without a node in the end, and why there is none, by uid.
        """
        waiting, left = in_turn(pods), list[PodInfo]()
        messages: dict[str, str] = {}
        evicted = 0
        while waiting and not stop():
            pod = waiting.pop(0)
            decision = self._preempting(pod)
            if decision.host is None and decision.preemption is not None and decision.preemption.victims:
                victims = [self.take_off(victim) for victim in decision.preemption.victims]
                evicted += len(victims)
                waiting = in_turn([*waiting, *(victim for victim in victims if not is_of_node(victim))])
                decision = self.decide(pod)
            if decision.host is None:
                left.append(pod)
                messages[pod.uid] = decision.message
            else:
                self.place(pod, decision)
        left += waiting
        messages |= {pod.uid: "not decided" for pod in waiting}
        return evicted, left, messages

    def _preempting(self, pod: PodInfo) -> Decision:
        inputs = self.inputs(pod)
        held = inputs.hold_reason()
        if held is not None:
            return Decision(pod, None, message=f"held: {held}")
        policy = inputs.rules.policy
        profile = policy.profile if policy is not None else KUBERNETES.profile  # those of a ruleset do not preempt
        return self._cycle.decide(inputs.frame(), profile, preempts=True)

    def take_off(self, pod: PodInfo) -> PodInfo:
        """Take a pod off its node; return it as it would wait."""
        uid, cluster = pod.uid, self.cluster
        host = cluster.node_of(uid)
        assert host is not None, "it counts on a node"
        devices = cluster.devices.held(uid) if cluster.devices.tables else None
        removed = cluster.displace(uid)
        assert removed is not None
        take_back = give_claims_back(cluster, removed, ends=False)
        self._log.append(_Removed(removed, host, devices, take_back))
        return msgspec.structs.replace(removed, node_name="", nominated_node="")

    def set_node(self, node: objects.Node) -> None:
        """Add a node, or change it."""
        name = node.metadata.name
        row = self.cluster.nodes.rows.get(name)
        before = self.cluster.nodes.infos[row].node if row is not None else None
        self.cluster.set_node(node)
        self._log.append(_Node(name, before))

    def cordon(self, name: str) -> None:
        """Keep new pods off a node, as `kubectl cordon` does."""
        node = self.cluster.nodes.infos[self.cluster.nodes.rows[name]].node
        if node.spec.unschedulable:
            return
        taint = objects.Taint(key=UNSCHEDULABLE_KEY, effect="NoSchedule")
        spec = msgspec.structs.replace(node.spec, unschedulable=True, taints=[*(node.spec.taints or ()), taint])
        self.set_node(msgspec.structs.replace(node, spec=spec))

    def remove_node(self, name: str) -> list[PodInfo]:
        """Remove a node, and all pods on it; return these as they would wait."""
        pods = [self.take_off(pod) for pod in list(self.cluster.pods_on(name).values())]
        before = self.cluster.nodes.infos[self.cluster.nodes.rows[name]].node
        self.cluster.remove_node(name)
        self._log.append(_Node(name, before))
        return pods

    def mark(self) -> int:
        """Return where the changes are now, for `undo_to`."""
        return len(self._log)

    def undo_to(self, mark: int) -> None:
        """Undo the changes since a mark, the last first."""
        while len(self._log) > mark:
            match self._log.pop():
                case _Placed(pod, nominated, give_back):
                    self.cluster.displace(pod.uid)
                    give_back()
                    if nominated:
                        self.cluster.nominate(pod, nominated)
                case _Removed(pod, host, devices, take_back):
                    take_back()
                    self.cluster.place(pod, host, devices=devices)
                case _Node(name, before):
                    if before is None:
                        self.cluster.remove_node(name)
                    else:
                        self.cluster.set_node(before)


def in_turn(pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Return pods in the order of kube-scheduler's queue: by priority, then the oldest first."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.created, pod.key))


def _nothing() -> None:
    return
