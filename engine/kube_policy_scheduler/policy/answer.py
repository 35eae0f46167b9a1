"""What would become of a pod: the one way to ask, for commands, the playground and canaries.

It says what the scheduler would do, in its order: gates and `hold`, the pods that a gang or PodGroup lacks, a strict
order, the domain of a gang, then the filters and scores, with quotas, limits, devices and reserved room among them.
Pure: nothing is placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import msgspec

from kube_policy_scheduler.cluster.nodes import BoolArray, FloatArray, IntArray
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.backfill.backfill import holder_of
from kube_policy_scheduler.framework.backfill.beside import BesideReservation
from kube_policy_scheduler.framework.backfill.reservation import (
    Seat,
    StartReservation,
    Unreserved,
    expected_ends,
    reserve,
)
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import (
    Domain,
    DomainRoom,
    GangTopology,
    Shortfall,
    domains_of,
)
from kube_policy_scheduler.framework.decide.rejection_memo import RejectionMemo
from kube_policy_scheduler.framework.evaluate.extender_verdict import ExtenderVerdict
from kube_policy_scheduler.framework.gangs import GangRequirement, Group, NumberOf, may_evict_alone
from kube_policy_scheduler.framework.groups.state import GangState, gang_state
from kube_policy_scheduler.framework.queue.active_queue import ActiveQueue
from kube_policy_scheduler.framework.queue.backfill_rule import BackfillRule
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, gates
from kube_policy_scheduler.lang.compiling.compiled import CompiledOrder, CompiledTest
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.policy.whole_gang import decide_with_gang, domains_by_room, seats_of
from kube_policy_scheduler.times import Steady, duration, rfc3339

_MOST_NODES = 5
"""Nodes with reserved room that are named."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    inputs: DecisionInputs
    """Those of the decision: on the nodes of the domains that the pod's gangs get, as far as these are known."""
    requirements: tuple[GangRequirement, ...] = ()
    """What the pod's gangs ask for; none where that is not known."""

    @property
    def host(self) -> str | None:
        """Return the node that the pod gets; None if it gets none."""
        return None

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Return the domains that its gangs get."""
        return domains_of(self.inputs.profile)


class Placed(_Answer, frozen=True, kw_only=True):
    """It gets a node."""

    decision: Decision
    waits: str = ""
    """What it waits for on that node, before it is bound: members of its gang that have none; "" if it need not."""

    @property
    def host(self) -> str | None:
        """Return its node."""
        return self.decision.host

    @property
    def text(self) -> str:
        """Return what else there is to say."""
        return self.waits


class Held(_Answer, frozen=True, kw_only=True):
    """It waits outside the active queue, or behind another pod of a strict order."""

    reason: str
    clause: CompiledTest | None = None
    """The `hold`; None for scheduling gates and strict orders."""
    alone: Answer | None = None
    """In a strict order: the answer if no other pod were before it."""

    @property
    def text(self) -> str:
        """Return why it waits."""
        return f"held: {self.reason}"


class GangWaits(_Answer, frozen=True, kw_only=True):
    """Its gang can't start: pods, a size or a PodGroup are missing, or room for all though one of them fits."""

    text: str
    requirement: GangRequirement | None = None
    """Whose members are missing; None: what is asked for is not known."""
    lacks_room: bool = False
    """Whether all pods are there that the gang needs: it waits in the queue, and not outside of it."""


class NoDomain(_Answer, frozen=True, kw_only=True):
    """No domain has room for its gang."""

    shortfall: Shortfall

    @property
    def text(self) -> str:
        """Return what is missing in the best domain."""
        return self.shortfall.message

    @property
    def best(self) -> tuple[DomainRoom, ...]:
        """Return the domains with the most room."""
        return self.shortfall.best


class Unschedulable(_Answer, frozen=True, kw_only=True):
    """No node takes it."""

    decision: Decision

    @property
    def text(self) -> str:
        """Return why, in kube-scheduler's words."""
        return self.decision.message


Answer = Placed | Held | GangWaits | NoDomain | Unschedulable


class Ahead(msgspec.Struct, frozen=True):
    """The first pod of a strict order, for which the pods behind it wait."""

    answer: Answer
    """What becomes of it."""
    order: CompiledOrder
    backfill: BackfillRule | None = None
    """What lets pods behind it start nevertheless; None: nothing."""

    @property
    def pod(self) -> PodInfo:
        """Return the pod."""
        return self.answer.inputs.pod


class Answers:
    """Answers about one pod after the other; what decisions about many pods have in common is kept between them."""

    def __init__(self, *, seed: int = 0, cycle: Cycle | None = None, remembers: bool = False) -> None:
        """Start without anything kept.

        Args:
            seed: breaks ties.
            cycle: one with columns that are kept already, in place of a new one with this seed.
            remembers: whether rejections are kept while nothing changes in the cluster: for callers whose rules,
                metrics and clock stay the same. While the ledger is silent, none is kept: it does not tell of changes.
        """
        self._cycle = cycle or Cycle(seed=seed)
        self._rejected = RejectionMemo() if remembers else None

    def answer(
        self, inputs: DecisionInputs, *, preempts: bool = True, verdict: ExtenderVerdict | None = None
    ) -> Answer:
        """Return what would become of a pod if it were decided next; changes nothing.

        Args:
            inputs: of the decision.
            preempts: whether it is asked who would be evicted for it, if its rules evict.
            verdict: what extenders said, so that only nodes that they allowed are taken; None: there are none.
        """
        found = self._alone(inputs, preempts=preempts, verdict=verdict)
        if inputs.pending is None or isinstance(found, Held | GangWaits):
            return found
        ahead = self.ahead(inputs)
        if ahead is None or ahead.answer.host is not None:
            return found
        if ahead.backfill is not None:
            return self._beside(inputs, found, ahead, ahead.backfill)
        reason = f"it waits until {ahead.pod.key} has a node, the first pod of `{ahead.order.text}`"
        return Held(inputs=inputs, requirements=found.requirements, reason=reason, alone=found)

    def _beside(self, inputs: DecisionInputs, alone: Answer, ahead: Ahead, rule: BackfillRule) -> Answer:
        """Return the answer about a pod that may start if it does not delay the first one of its order.

        alone: the answer if no other pod were before it.
        """
        groups = {requirement.group for requirement in ahead.answer.requirements}
        if alone.host is None or not groups.isdisjoint(each.group for each in alone.requirements):
            return alone
        reservation = self.reservation(ahead.answer, rule)
        if isinstance(reservation, Unreserved):
            return alone
        filters = ahead.answer.inputs.profile.filters
        beside = inputs.profile.narrowed(BesideReservation(rule, reservation, filters))
        found = self._alone(inputs.under(msgspec.structs.replace(beside, by_template=False)), preempts=False)
        if found.host is not None:
            return found
        reason = (
            f"it would delay {reservation.holder}, the first pod of `{ahead.order.text}`, for which room is reserved"
            f" {when_and_where(reservation, inputs.now)}"
        )
        return Held(inputs=inputs, requirements=alone.requirements, reason=reason, alone=alone)

    def room_for_first(self, inputs: DecisionInputs, answer: Answer) -> StartReservation | Unreserved | None:
        """Return the room that `backfill` reserves for the first pod of its order; None: the pod is none that waits.

        answer: about the pod.
        """
        policy, frame = inputs.rules.policy, inputs.frame()
        if policy is None or policy.backfill is None or inputs.pending is None or answer.host is not None:
            return None
        is_outside = isinstance(answer, Held) or (isinstance(answer, GangWaits) and not answer.lacks_room)
        if is_outside or not policy.position(_queued(inputs), frame).strict or self.ahead(inputs) is not None:
            return None
        return self.reservation(answer, policy.backfill)

    def reservation(self, answer: Answer, rule: BackfillRule) -> StartReservation | Unreserved:
        """Return the room that is reserved for the first pod of an order, or why there is none. answer: about it."""
        inputs = answer.inputs
        groups = [requirement.group for requirement in answer.requirements]
        return reserve(
            inputs.cluster,
            expected_ends(rule, inputs.frame()),
            lambda: seats_of(inputs, answer.requirements, self._cycle),
            holder=holder_of(inputs.pod, groups),
            now=inputs.now,
            most_seconds=rule.most_seconds,
        )

    def _alone(self, inputs: DecisionInputs, *, preempts: bool, verdict: ExtenderVerdict | None = None) -> Answer:
        """Return the answer without regard to strict orders."""
        if (outside := held(inputs)) is not None:
            return outside
        frame = inputs.frame()
        try:
            requirements = inputs.gang_requirements()
        except ValueError as error:
            return GangWaits(inputs=inputs, text=str(error))
        inside, placed = inputs, frame.cluster.counters.group_size
        preempts = preempts and may_evict_alone(requirements, placed, frame.cluster.rules)
        if requirements:
            short = _short(inputs, requirements)
            if short is not None:
                return short
            if inputs.pending is not None and verdict is None:
                return self._with_gang(inputs, requirements, preempts=preempts)
            found = domains_by_room(_queued(inputs), inputs, self._cycle)
            if isinstance(found, Shortfall):
                return NoDomain(inputs=inputs, requirements=requirements, shortfall=found)
            inside = _inside(inputs, found)
        decision = self._decide(inside, preempts=preempts, verdict=verdict)
        if decision.host is None:
            return Unschedulable(inputs=inside, requirements=requirements, decision=decision)
        waits = _waits(requirements, placed)
        return Placed(inputs=inside, requirements=requirements, decision=decision, waits=waits)

    def _with_gang(
        self, inputs: DecisionInputs, requirements: tuple[GangRequirement, ...], *, preempts: bool
    ) -> Answer:
        """Return the answer about a pod whose gangs lack no pods: all that they need get nodes, or it gets none."""
        decision, domains = decide_with_gang(inputs, requirements, self._cycle, preempts=preempts)
        inside = _inside(inputs, domains)
        if decision.host is not None:
            return Placed(inputs=inside, requirements=requirements, decision=decision)
        if decision.preemption is None or not decision.preemption.victims:
            found = domains_by_room(_queued(inputs), inputs, self._cycle)
            if isinstance(found, Shortfall):
                return NoDomain(inputs=inputs, requirements=requirements, shortfall=found)
            inside = _inside(inputs, found)
            if self._decide(inside, preempts=False, verdict=None).host is not None:
                on_nodes = inputs.cluster.counters.group_size
                first = next((each for each in requirements if each.filled(on_nodes) < each.size), requirements[0])
                return GangWaits(
                    inputs=inside, requirements=requirements, text=decision.message, requirement=first, lacks_room=True
                )
        return Unschedulable(inputs=inside, requirements=requirements, decision=decision)

    def _decide(self, inputs: DecisionInputs, *, preempts: bool, verdict: ExtenderVerdict | None) -> Decision:
        ledger = inputs.cluster.ledger
        if self._rejected is None or verdict is not None or ledger.is_silent:
            return self._cycle.decide(inputs.frame(), inputs.profile, preempts=preempts, verdict=verdict)
        pod, profile, epoch = inputs.pod, inputs.profile, ledger.epoch
        known = self._rejected.get(pod, profile, epoch, preempts=preempts)
        if known is not None:
            return known
        decision = self._cycle.decide(inputs.frame(), profile, preempts=preempts)
        self._rejected.note(decision, profile, epoch, preempts=preempts)
        return decision

    def ahead(self, inputs: DecisionInputs) -> Ahead | None:
        """Return the first pod of the strict order that a pod waits in; None if it is the first, or waits in none."""
        policy = inputs.rules.policy
        order = policy.order_of(inputs.frame()) if policy is not None and policy.orders else None
        if policy is None or order is None or not order.strict or inputs.pending is None:
            return None
        queue, asked = ActiveQueue(count()), dict[str, DecisionInputs]()
        may_block: dict[str, bool] = {}
        for each in (inputs, *filter(None, map(inputs.of_other, inputs.rivals()))):
            frame, queued = each.frame(), _queued(each)
            if policy.order_of(frame) is order and held(each) is None:
                asked[each.pod.uid] = each
                position = policy.position(queued, frame)
                may_block[each.pod.uid] = position.strict
                queue.push(queued, position)
        while (first := queue.pop(Steady(inputs.now))) is not None:
            if asked[first.pod.uid] is inputs:
                return None
            if not may_block[first.pod.uid]:
                continue
            found = self._alone(asked[first.pod.uid], preempts=True)
            if isinstance(found, GangWaits) and not found.lacks_room:
                continue  # such a pod waits for its gang outside the queue
            if policy.backfill is None or found.host is None:
                return Ahead(found, order, policy.backfill)
        return None

    def seats(self, inputs: DecisionInputs) -> Sequence[Seat] | None:
        """Return places for a pod and for all others that its gangs need, as the cluster stands; None: they do not fit.

        inputs: of the pod; the pods that wait are known.
        """
        return seats_of(inputs, inputs.gang_requirements(), self._cycle)

    # --- for callers that choose among nodes themselves ----------------------------------------------

    def if_free(self, inputs: DecisionInputs) -> Decision:
        """Return what the filters and scores alone would decide, whatever else keeps the pod waiting."""
        return self._cycle.decide(inputs.frame(), inputs.profile)

    def passing(self, inputs: DecisionInputs) -> BoolArray:
        """Return `bool[nodes]`: which pass every filter, as `inputs` are. Read-only, until the cluster changes."""
        return self._cycle.passing(inputs.frame(), inputs.profile)

    def ranked(self, inputs: DecisionInputs) -> tuple[IntArray, FloatArray]:
        """Return the rows that pass every filter, ascending, and `float64[rows]`: their totals."""
        return self._cycle.ranked(inputs.frame(), inputs.profile)

    def totals(self, inputs: DecisionInputs, rows: IntArray) -> FloatArray:
        """Return `float64[rows]`: the totals of rows, as if just these were feasible."""
        return self._cycle.totals(inputs.frame(), inputs.profile, rows)

    def on(self, inputs: DecisionInputs, row: int) -> Placed:
        """Return the answer that a pod gets the node of a row."""
        devices = self._cycle.devices(inputs.frame(), inputs.profile, row)
        name = inputs.cluster.nodes.infos[row].name
        made = Decision(inputs.pod, name, devices=devices, device_order=inputs.profile.devices)
        return Placed(inputs=inputs, decision=made)


def gang_states(
    inputs: DecisionInputs, requirements: Sequence[GangRequirement], *, is_placed: bool = False
) -> tuple[GangState, ...]:
    """Return how far the gangs of a pod have come. is_placed: whether it has a node, from which it was taken off."""
    waiting = _waiting(inputs)

    def more(each: GangRequirement) -> GangState:
        own = int(is_placed)

        def placed(group_of: GroupOf, group: Group) -> int:
            return inputs.cluster.counters.group_size(group_of, group) + own * (group in each.groups)

        def pending(group_of: GroupOf, group: Group) -> int:
            return waiting(group_of, group) - own * (group in each.groups)

        is_short = bool(each.policy) and each.members(placed) > 0 and each.filled(placed) < each.size
        goes = f"{duration(each.within_seconds)} after others were lost" if is_short else ""
        return gang_state(each, placed=placed, pending=pending, rest_goes=goes)

    return tuple(map(more, requirements))


def answer(inputs: DecisionInputs) -> Answer:
    """Return what would become of a pod, with nothing kept from pod to pod; see `Answers.answer`."""
    return Answers(seed=inputs.seed).answer(inputs)


def held(inputs: DecisionInputs) -> Held | None:
    """Return why a pod waits outside the active queue, None if it does not: it has gates, or a `hold` applies."""
    if (gated := gates(_queued(inputs))) is not None:
        return Held(inputs=inputs, reason=gated)
    policy = inputs.rules.policy
    clause = policy.holding(inputs.frame()) if policy is not None else None
    return Held(inputs=inputs, reason=clause.reason, clause=clause) if clause is not None else None


def when_and_where(reservation: StartReservation, now: float) -> str:
    """Return from when on, and on which nodes, room is reserved, for people."""
    since = "now" if reservation.at <= now else f"from {rfc3339(reservation.at)}"
    return f"{since} on {_nodes(reservation)}"


def _nodes(reservation: StartReservation) -> str:
    names = list(reservation.needed)
    more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
    return ", ".join(names[:_MOST_NODES]) + more


def _inside(inputs: DecisionInputs, domains: tuple[Domain, ...]) -> DecisionInputs:
    """Return inputs on the nodes of domains alone."""
    return inputs.under(inputs.profile.narrowed(GangTopology(domains))) if domains else inputs


def _queued(inputs: DecisionInputs) -> QueuedPod:
    entered = Steady(inputs.queued or inputs.now)
    # when its queue could first guarantee it is not known: as long as it has waited
    return QueuedPod(inputs.pod, queued=entered, timestamp=entered, attempts=inputs.attempts, entitled_since=entered)


def _waiting(inputs: DecisionInputs) -> NumberOf:
    """Return what counts the pods of a group that wait, the pod itself among them; those that are held do not count."""
    known: dict[str, bool] = {inputs.pod.uid: True}

    def counts(pod: PodInfo) -> bool:
        if pod.uid not in known:
            other = inputs.of_other(pod)
            known[pod.uid] = other is not None and held(other) is None
        return known[pod.uid]

    def number(group_of: GroupOf, group: Group) -> int:
        others = inputs.pending.members(group_of, group) if inputs.pending is not None else ()
        mine = int(group_of(inputs.pod.template) == group)
        return mine + sum(counts(pod) for pod in others if pod.uid != inputs.pod.uid)

    return number


def _short(inputs: DecisionInputs, requirements: Sequence[GangRequirement]) -> GangWaits | None:
    """Return why a pod has to wait for its gangs whatever room there is, None if it need not."""
    on_nodes = inputs.cluster.counters.group_size
    for each in requirements:
        if each.roles and each.filled(on_nodes, joining=1) == each.filled(on_nodes) < each.size:
            mine = f"with {each.role.text} " if each.role is not None else ""
            waits = f"enough members {mine}have a node, so this one waits until the gang is complete"
            text = f'gang "{each.group}": {waits}'
            return GangWaits(inputs=inputs, requirements=tuple(requirements), text=text, requirement=each)
    if inputs.pending is None:
        return None
    waiting = _waiting(inputs)
    for each in requirements:
        if each.filled(lambda *of: on_nodes(*of) + waiting(*of)) < each.size:
            text = f"waiting for more pods of {gang_state(each, placed=on_nodes, pending=waiting).sentence()}"
            return GangWaits(inputs=inputs, requirements=tuple(requirements), text=text, requirement=each)
    return None


def _waits(requirements: Sequence[GangRequirement], on_nodes: NumberOf) -> str:
    """Return what a pod that gets a node waits for there; "" if its gangs are complete with it."""
    first = next((each for each in requirements if each.filled(on_nodes, joining=1) < each.size), None)
    if first is None:
        return ""
    number = first.members(on_nodes) + 1
    waits = f'gang "{first.group}": {number} of {first.size} members have a node'
    if first.tree is not None:
        done = first.tree.complete(lambda group_of, group: on_nodes(group_of, group) + (group == first.leaf))
        waits += f", {done} of {first.tree.number} groups complete"
    for role in first.roles:
        there = on_nodes(role.group_of, role.group) + (role is first.role)
        waits += f", {there} of {role.number} with {role.text}" if there < role.number else ""
    return waits
