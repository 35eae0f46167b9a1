"""The same pods decided one after another under two sets of policies, each on its own cluster, and why they differ.

Each placement changes its cluster for the pods that follow, as it did then. Nobody is evicted for anybody. The members
of a gang are decided one after another under both sets, even if only one of them has the gang; if it is not complete
then, they give their nodes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from kube_policy_scheduler.cluster.signals import Signals
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.device_columns import names_of_devices
from kube_policy_scheduler.framework.evaluate.evaluation import evaluate
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement, Group
from kube_policy_scheduler.framework.groups.state import gang_state
from kube_policy_scheduler.framework.profile import Profile
from kube_policy_scheduler.framework.quota import QUOTA, quota_message
from kube_policy_scheduler.framework.reserve.claims_in_memory import give_claims_back
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES, KubernetesRules
from kube_policy_scheduler.lang.checking.queues import declared_queues
from kube_policy_scheduler.policy.answer import Answer, Answers, GangWaits, Held, NoDomain, Placed
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules, unbound
from kube_policy_scheduler.tooling.cluster_state import ClusterState, cluster_state, is_of_node
from kube_policy_scheduler.tooling.decision_record import DecisionRecord, Outcome
from kube_policy_scheduler.tooling.rulesets import Clause, Ruleset, gang_of, governed, leads, rejection_by
from kube_policy_scheduler.tooling.undoable_cluster import UndoableCluster
from kube_policy_scheduler.tooling.waiting_members import WaitingMembers
from kube_policy_scheduler.wording import amount, listed, signed, some

EARLIER = "pods before it moved"
_DIGITS = 9
"""Differences of scores below are rounding."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What made the difference."""

    kind: str
    """`filter`, `score`, `tie` (`ties by`), `devices` (the order of devices), `earlier` (the pods before it), `held`,
    `gang` (it is not complete) or `ungoverned`."""
    clause: str
    """The clause as written, or Kubernetes' name of the rule; for `earlier` a few words."""
    place: str = ""
    """`FILE:LINE:COLUMN`; "" for a rule of Kubernetes."""
    text: str = ""
    """The rest of the sentence."""


def reason(old: DecisionInputs, new: DecisionInputs, *, to_node: str, new_message: str, answers: Answers) -> Reason:
    """Return why the pod, decided by both over the same cluster, ends at `to_node`.

    Args:
        old: the cluster under the old policies.
        new: the same cluster under the new ones.
        to_node: where the pod goes; "" for nowhere.
        new_message: why it goes nowhere.
        answers: of both rules over the new cluster; kept from pod to pod.
    """
    now, again = answers.answer(new), answers.answer(old)
    if isinstance(now, Held):
        return _held(now, f"holds it back: {now.reason}")
    if isinstance(again, Held):
        return _held(again, "held it back")
    if (again.host or "") == to_node:
        return Reason("earlier", EARLIER)
    # over one and the same cluster the two differ by their clauses alone; where the pod went before may be full by now
    from_node, old_message = again.host or "", again.text
    if from_node:
        found = _rejection(now, from_node, f"rejects {from_node}")
        if found is not None or not to_node:
            return found or Reason("filter", new_message)
    if to_node:
        found = _rejection(again, to_node, f"rejected {to_node} before")
        if found is not None or not from_node:
            return found or Reason("earlier", EARLIER, text=old_message)
    return _scores(again.inputs, now.inputs, from_node=from_node, to_node=to_node)


def _held(answer: Held, text: str) -> Reason:
    clause = answer.clause
    return Reason("held", clause.text, str(clause.span), text) if clause is not None else Reason("held", answer.reason)


def _rejection(answer: Answer, node: str, text: str) -> Reason | None:
    found = rejection_by(answer, node)
    if found is not None and found.text == QUOTA:
        return _quota(answer.inputs) or Reason("filter", found.text, found.place, text)
    if found is not None and found == gang_of(answer):
        return Reason("gang", found.text, found.place, f"{text}: the gang is in {listed(answer.domains)}")
    return None if found is None else Reason("filter", found.text, found.place, text)


def _quota(inputs: DecisionInputs) -> Reason | None:
    """Return why the queue of a pod has no quota for it, None if it has."""
    frame, rules, policy = inputs.frame(), inputs.profile.queues, inputs.rules.policy
    usage = frame.cluster.track_usage(rules.tree) if rules is not None else None
    queue = usage.quota_of(frame.template) if usage is not None else None
    rejected = usage.rejection(queue, usage.amounts(frame.pod)) if usage is not None and queue is not None else None
    if rejected is None:
        return None
    name = rejected.queue if rejected.is_of_nodes else rejected.at
    declared = declared_queues([policy.compiled.checked] if policy is not None else [])
    place = next((str(each.tree.span) for each in declared if each.name == name.partition("/")[0]), "")
    return Reason("filter", f"queue {name}", place, quota_message(rejected))


def _scores(old: DecisionInputs, new: DecisionInputs, *, from_node: str, to_node: str) -> Reason:
    """Return the score whose lead of the new node over the old one grew most."""
    before, after = (_leads(inputs.frame(), inputs.profile, to_node, from_node) for inputs in (old, new))
    if before is None or after is None:
        return Reason("earlier", EARLIER)
    grown = {
        name: round(sum(side[name][0] * sign for side, sign in ((after, 1), (before, -1)) if name in side), _DIGITS)
        for name in sorted(after | before)
    }
    # of two that count alike, the clause that is new says more than the one that is gone
    name, most = max(grown.items(), key=lambda item: (item[1], item[0] in after), default=("", 0))
    if most <= 0:
        return Reason("tie", f"ties by {new.profile.ties.value}", text="selects one of equally good nodes")
    if name in after:
        lead, clause = after[name]
        had = f", was {signed(before[name][0])}" if name in before else ""
        return Reason("score", name, clause.place, f"{signed(lead)} for {to_node} over {from_node}{had}")
    lead, clause = before[name]
    return Reason("score", name, clause.place, f"no longer favours {from_node}, by {amount(-lead)}")


def _leads(frame: Frame, profile: Profile, node: str, over: str) -> dict[str, tuple[float, Clause]] | None:
    feasible = evaluate(frame, Profile(profile.name, profile.filters)).feasible
    rows = frame.cluster.nodes.rows
    if rows[node] not in feasible or rows[over] not in feasible:
        return None
    return leads(frame, profile, feasible, node=node, over=over)


class State(Enum):
    """What happened to a pod."""

    PLACED = "placed"
    UNSCHEDULABLE = "unschedulable"
    HELD = "held"
    UNGOVERNED = "ungoverned"
    """No policy governs it: it waits for ever."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One decision about one pod."""

    state: State
    node: str = ""
    policy: str = ""
    message: str = ""
    """Why it has no node."""
    gang: str = ""
    """The gang without which it must not start, as written, if that is why it has no node."""
    devices: tuple[str, ...] = ()
    """The devices that it gets on its node, by name."""

    def differs(self, other: Placement) -> bool:
        """Return whether the outcome is another: another node, other devices on the same one, or none."""
        mine, theirs = ((one.state, one.node, one.devices) for one in (self, other))
        return mine[:2] != theirs[:2] or sorted(mine[2]) != sorted(theirs[2])


@dataclass(frozen=True, slots=True)
class Step:
    """One pod to be decided, and when."""

    pod: objects.Pod
    now: float
    """Unix seconds; the clock of the decision."""
    queued: float | None = None
    """Unix seconds at which it entered the queue; None: when it was created."""
    was: str = ""
    """The node that it really got; "" where it got none."""

    @property
    def key(self) -> str:
        """Return the pod's `namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


@dataclass(frozen=True, slots=True)
class Change:
    """A pod whose outcome differs."""

    pod: str
    old: Placement
    new: Placement
    reason: Reason

    @property
    def kind(self) -> str:
        """Return what differs.

        `moved`, `devices` (other devices of the same node), `lost` (it had a node and has none), `gained`, or `other`:
        none, for another reason.
        """
        if self.old.node and self.new.node:
            return "devices" if self.old.node == self.new.node else "moved"
        return "lost" if self.old.node else "gained" if self.new.node else "other"


@dataclass(frozen=True, slots=True)
class Replay:
    """The results of both runs."""

    old: ClusterState
    """The cluster afterwards."""
    new: ClusterState
    decided: int
    placed: tuple[int, int]
    """Pods with a node, under the old and under the new policies."""
    as_was: int
    """Pods that the old policies put where they really are."""
    were: int
    """Pods that really are somewhere."""
    changes: tuple[Change, ...]
    left: int
    """Pods on nodes that stay where they are: no policy of either set governs them, or they belong to their node."""


class ReplayedPolicies:
    """One set of policies over a cluster of its own."""

    def __init__(
        self, ruleset: Ruleset, things: Iterable[Any], signals: Signals, *, seed: int, kubernetes: KubernetesRules
    ) -> None:
        self.ruleset, self.signals = ruleset, signals
        self.state = cluster_state(things, kubernetes)
        self._tried = UndoableCluster(self.state.cluster)
        self._answers = Answers(seed=seed)
        self._members = WaitingMembers()
        self._waiting: dict[str, tuple[PodInfo, tuple[GangRequirement, ...]]] = {}
        """By uid: placed members of gangs, until all members were decided."""
        self.other = Answers(seed=seed)
        """What both sets of policies would decide over this cluster."""

    def info(self, step: Step) -> PodInfo:
        """Return a pod as this cluster keeps it."""
        return self.state.cluster.templates.pod(step.pod)

    def inputs(self, step: Step, rules: Rules) -> DecisionInputs:
        """Return the inputs of a decision, over the cluster as it stands."""
        return DecisionInputs.of(
            step.pod, self.state.cluster, rules, signals=self.signals, now=step.now, queued=step.queued
        )

    def decide(self, step: Step) -> tuple[Placement, Callable[[], None]]:
        """Return what happens to a pod, and what makes it so."""
        pod = self.info(step)
        rules = self.ruleset.rules(pod)
        if rules is None:
            return Placement(State.UNGOVERNED, message="no policy governs it"), _nothing
        answer, policy = self._answers.answer(self.inputs(step, rules)), rules.profile.name
        match answer:
            case Placed():
                names = names_of_devices(answer.inputs.frame(), answer.decision)
                placement = Placement(State.PLACED, answer.decision.host or "", policy, devices=names)
                return placement, partial(self._place, pod, answer, step.now)
            case Held():
                return Placement(State.HELD, policy=policy, message=answer.reason), _nothing
            case GangWaits():
                gang = answer.requirement.text if answer.requirement is not None else "its gang"
                return Placement(State.HELD, policy=policy, message=answer.text, gang=gang), _nothing
            case NoDomain():
                gang = answer.requirements[0].text
                return Placement(State.UNSCHEDULABLE, policy=policy, message=answer.text, gang=gang), _nothing
            case _:
                return Placement(State.UNSCHEDULABLE, policy=policy, message=answer.text), _nothing

    def _place(self, pod: PodInfo, answer: Placed, now: float) -> None:
        decision, self._tried.now = answer.decision, now
        self._tried.place(pod, decision.host or "", order=decision.device_order, devices=decision.devices)
        if answer.requirements:
            self._waiting[pod.uid] = pod, answer.requirements
            self._members.wait(pod.uid, answer.requirements, now)

    def free(self, step: Step) -> None:
        """Take a pod out of the cluster, to decide it again."""
        if self.state.cluster.node_of(step.pod.metadata.uid) is not None:
            self._tried.take_off(self.info(step))
        else:
            give_claims_back(self.state.cluster, self.info(step), ends=False)
        self._tried.nominate(self.info(step), "")

    def gangs(self, step: Step) -> tuple[GangRequirement, ...]:
        """Return what the gangs of a pod require; none if that is unknown."""
        rules = self.ruleset.rules(self.info(step))
        if rules is None:
            return ()
        try:
            return self.inputs(step, rules).gang_requirements()
        except ValueError:
            return ()

    def is_surplus(self, step: Step) -> bool:
        """Return whether a pod would fill no place that its gang still needs, because enough have its role."""
        size_of = self.state.cluster.counters.group_size
        found = [gang for gang in self.gangs(step) if gang.roles]
        return any(gang.filled(size_of) == gang.filled(size_of, joining=1) < gang.size for gang in found)

    def start_gangs(self, members: Sequence[Step]) -> dict[str, Placement]:
        """Start the gangs that are complete; return by uid what becomes of the members of the others.

        members: all pods of these gangs; those with a node give it back.
        """
        self._members.release(self.state.cluster.counters.group_size)
        pending = [info.template for info in map(self.info, members) if self.state.cluster.node_of(info.uid) is None]

        def number_pending(group_of: GroupOf, group: Group) -> int:
            return sum(group_of(template) == group for template in pending)

        found: dict[str, Placement] = {}
        size_of = self.state.cluster.counters.group_size
        for uid in self._members:
            requirements = self._waiting[uid][1]
            short = next((each for each in requirements if self._filled(each) < each.size), requirements[0])
            message = gang_state(short, placed=size_of, pending=number_pending).sentence()
            found[uid] = Placement(State.UNSCHEDULABLE, policy=short.policy, message=message, gang=short.text)
        self._members = WaitingMembers()
        for uid in found:
            self._tried.take_off(self._waiting[uid][0])
        self._waiting.clear()
        return found

    def _filled(self, requirement: GangRequirement) -> int:
        return requirement.filled(self.state.cluster.counters.group_size)


def _nothing() -> None:
    return


def replay(
    things: Sequence[Any],
    old: Ruleset,
    new: Ruleset,
    *,
    steps: Sequence[Step],
    signals: Signals = Signals.EMPTY,
    seed: int = 0,
    kubernetes: KubernetesRules = DEFAULT_RULES,
    progress: Callable[[int, int], None] = lambda done, whole: None,
) -> Replay:
    """Take the pods out of both clusters, then decide them one after another in each.

    Args:
        things: API objects of the cluster; pods on nodes that are not among the steps stay there.
        old: the policies in force.
        new: those that would be.
        steps: the pods, in order.
        signals: the metrics that both read.
        seed: draws among nodes that are equally good.
        kubernetes: by whose rules.
        progress: called with the number of decided pods and of all.
    """
    before, after = (ReplayedPolicies(side, things, signals, seed=seed, kubernetes=kubernetes) for side in (old, new))
    for side in (before, after):
        for step in steps:
            side.free(step)
    left = len(before.state.cluster.pods)
    changes: list[Change] = []
    placed, as_was = [0, 0], 0
    decided = 0
    for together in _by_gang(steps, (before, after)):
        made = list(_decide_together(before, after, together))
        incomplete = before.start_gangs(together), after.start_gangs(together)
        for step, was, now, why in made:
            was, now = (each.get(step.pod.metadata.uid, one) for each, one in zip(incomplete, (was, now), strict=True))
            placed = [placed[0] + bool(was.node), placed[1] + bool(now.node)]
            as_was += bool(step.was) and was.node == step.was
            if was.differs(now):
                changes.append(Change(step.key, was, now, _gang_reason(was, now) or why or Reason("earlier", EARLIER)))
        decided += len(together)
        progress(decided, len(steps))
    were = sum(1 for step in steps if step.was)
    return Replay(before.state, after.state, len(steps), (placed[0], placed[1]), as_was, were, tuple(changes), left)


def _by_gang(steps: Sequence[Step], sides: Sequence[ReplayedPolicies]) -> Iterator[list[Step]]:
    """Yield the steps in order, each with those whose pods start together with its pod under either set."""
    groups = [{gang.group for side in sides for gang in side.gangs(step)} for step in steps]
    members: dict[Group, list[int]] = {}
    for number, found in enumerate(groups):
        for group in found:
            members.setdefault(group, []).append(number)
    done: set[int] = set()
    for first in range(len(steps)):
        if first in done:
            continue
        together, ahead = {first}, [first]
        while ahead:
            for group in groups[ahead.pop()]:
                others = set(members.pop(group, ())) - together
                together |= others
                ahead += others
        done |= together
        yield [steps[number] for number in sorted(together)]


def _decide_together(
    before: ReplayedPolicies, after: ReplayedPolicies, together: Sequence[Step]
) -> Iterator[tuple[Step, Placement, Placement, Reason | None]]:
    """Decide some pods one after another in both clusters; those whose role is taken come last."""
    ahead, deferred = deque(together), set[str]()
    while ahead:
        step = ahead.popleft()
        if step.key not in deferred and len(together) > 1 and (before.is_surplus(step) or after.is_surplus(step)):
            deferred.add(step.key)
            ahead.append(step)
            continue
        (was, settle_old), (now, settle_new) = before.decide(step), after.decide(step)
        yield step, was, now, _reason(before, after, step, was, now) if was.differs(now) else None
        settle_old()
        settle_new()


def _gang_reason(was: Placement, now: Placement) -> Reason | None:
    """Return the reason of a difference that a gang makes which is not complete; None: none does."""
    if now.gang:
        return Reason("gang", now.gang, text=f"is not complete: {now.message}")
    return Reason("gang", was.gang, text=f"was not complete: {was.message}") if was.gang else None


def _reason(before: ReplayedPolicies, after: ReplayedPolicies, step: Step, was: Placement, now: Placement) -> Reason:
    """Return why a pod's outcome differs: both sets are asked about the new cluster, as it stands before the pod."""
    pod = after.info(step)
    old, new = before.ruleset.rules(pod), after.ruleset.rules(pod)
    if new is None:
        return Reason("ungoverned", "no policy", text="of the new ones governs it")
    if old is None:
        return Reason("ungoverned", "no policy", text="of the old ones governed it")
    if was.node == now.node and now.node:
        return _of_devices(old, new, was, now)
    inputs = after.inputs(step, new)
    return reason(
        msgspec.structs.replace(inputs, rules=old), inputs,
        to_node=now.node, new_message=now.message, answers=after.other,
    )  # fmt: skip


def _of_devices(old: Rules, new: Rules, was: Placement, now: Placement) -> Reason:
    """Return why a pod gets other devices on the same node."""
    lost = [name for name in was.devices if name not in now.devices]
    got = [name for name in now.devices if name not in was.devices]
    text = f"gets {some(got, limit=4) or 'none'} instead of {some(lost, limit=4) or 'none'}"
    before, after = (rules.profile.devices for rules in (old, new))
    if (before.text if before is not None else "") == (after.text if after is not None else ""):
        return Reason("earlier", EARLIER, text=text)
    order = f"devices by {after.text}" if after is not None else "kube-scheduler's order of devices"
    return Reason("devices", order, text=text)


# --- which pods ------------------------------------------------------------------------------------------


def steps_of(there: ClusterState, rulesets: Sequence[Ruleset], *, now: float) -> list[Step]:
    """Return the pods of a cluster that some policy governs: those on nodes by age, then those that wait by priority.

    Finished pods, pods that are being deleted, pods of daemon sets and pods of the node itself are left alone.
    """
    bound: list[tuple[float, str, Step]] = []
    waiting: list[tuple[int, float, str, Step]] = []
    for key, pod in there.pods.items():
        info = there.cluster.templates.pod(pod)
        if info.terminal or info.terminating or is_of_node(info) or not governed(info, rulesets):
            continue
        host = there.cluster.node_of(info.uid) or ""
        step = Step(unbound(pod, keep_status=False), now, was=host)
        if host:
            bound.append((info.started or info.created, key, step))
        else:
            waiting.append((-info.priority, info.created, key, step))
    bound.sort(key=lambda item: item[:2])
    waiting.sort(key=lambda item: item[:3])
    return [*(item[2] for item in bound), *(item[3] for item in waiting)]


_DECIDED = frozenset(Outcome) - {Outcome.BIND_FAILED, Outcome.FAILED}


def recorded_steps(records: Iterable[DecisionRecord], rulesets: Sequence[Ruleset]) -> list[Step]:
    """Return the last decision about each pod, in the order and at the times at which they were made.

    Pods that no policy of either set governs are left out.
    """
    templates = Templates()
    last: dict[str, DecisionRecord] = {}
    for record in records:
        if record.outcome in _DECIDED:
            uid = record.pod.metadata.uid or record.key
            last.pop(uid, None)  # of those made at one time, the one that was written last comes last
            last[uid] = record
    steps = []
    for uid, record in sorted(last.items(), key=lambda item: item[1].time):
        info = templates.pod(record.pod)
        if is_of_node(info) or not governed(info, rulesets):
            continue
        pod = record.pod
        if not pod.metadata.uid:
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))
        made = unbound(pod, keep_status=False)
        steps.append(Step(made, record.time, queued=record.queued or None, was=record.place))
    return steps
