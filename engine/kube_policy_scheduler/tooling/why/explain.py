"""`policyctl why`: one pod's decision explained by the scheduler's own core. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray
from kube_policy_scheduler.framework.backfill.reservation import StartReservation, Unreserved
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.gang_domains import DomainRoom
from kube_policy_scheduler.framework.decide.new_nodes import NewNodes, judge
from kube_policy_scheduler.framework.groups.state import GangState
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.kubernetes_rules import DEFAULT_RULES
from kube_policy_scheduler.policy.answer import Ahead as Behind
from kube_policy_scheduler.policy.answer import (
    Answer,
    Answers,
    GangWaits,
    Held,
    NoDomain,
    Placed,
    Unschedulable,
    gang_states,
    when_and_where,
)
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.rebalancing.room import RoomPlan
from kube_policy_scheduler.tooling.why.changes import Change, changes
from kube_policy_scheduler.tooling.why.devices import cause as devices_cause
from kube_policy_scheduler.tooling.why.devices import claim_state, taken, unmet_on_nodes
from kube_policy_scheduler.tooling.why.filters import (
    RESOURCES,
    FilterVerdict,
    LimitState,
    NearMiss,
    Rejections,
    limits,
    near_misses,
    plain,
    rejections,
)
from kube_policy_scheduler.tooling.why.queues import (
    QueueStanding,
    rank_sentence,
    reclaim_message,
    short_resources,
    standings,
)
from kube_policy_scheduler.tooling.why.scores import Ranking, ranking


@dataclass(frozen=True, slots=True)
class Cause:
    """The one reason that matters most."""

    name: str
    place: str
    """`FILE:LINE:COLUMN`, "" for a rule of Kubernetes."""
    words: str
    rejected: int
    only: int
    """Nodes that no other filter rejects."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: a filter, or a part of one."""

    name: str
    place: str
    within: str
    alone: int
    """Nodes that it rejects, evaluated alone."""
    first: int
    """Nodes that it is the first to reject."""
    only: int
    """Nodes that nothing else rejects."""
    reasons: tuple[tuple[str, int], ...]
    dominant: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """The first pod of a strict order, for which the pods behind it wait."""

    pod: str
    order: str
    """The `order by`."""
    place: str
    cause: Cause | None
    """Why it has no node; None if it fits now."""
    delays: str = ""
    """With `backfill`: how the pod would delay it; "": it waits because it comes after it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that `why` has to say about one pod."""

    pod: str
    policy: str
    nodes: int
    fits: int
    host: str | None
    """Where it would go now."""
    bound: str | None
    """Where it is."""
    message: str
    """kube-scheduler's own sentence, where it fits nowhere."""
    cause: Cause | None
    lines: tuple[Line, ...]
    near: tuple[NearMiss, ...] = ()
    changes: tuple[Change, ...] = ()
    ranking: Ranking | None = None
    bound_lacks: NearMiss | None = None
    """What the node that it is on lacks by now."""
    victims: tuple[str, ...] = ()
    """Pods that preemption would evict."""
    preemption_node: str | None = None
    limits: tuple[LimitState, ...] = ()
    """Those that concern it."""
    queues: tuple[QueueStanding, ...] = ()
    """How its queue stands in each resource that it requests."""
    rank: str = ""
    """Whether it is guaranteed or borrowed in its queues, and by which resource; "" if it belongs to no queue."""
    lacks: tuple[str, ...] = ()
    """The resources of which there is too little for it, if it belongs to a queue: only these say who may go."""
    reclaim: str = ""
    """Why no borrower gives way to it, "" if one does or need not."""
    reclaims: bool = False
    """Whether the victims borrow what is guaranteed to its queue."""
    gangs: tuple[GangState, ...] = ()
    """The groups that it starts together with, itself included."""
    devices: tuple[str, ...] = ()
    """Which devices it gets, and why these."""
    short: str = ""
    """Why it must wait for its groups whatever room there is; "" where it need not."""
    domains: tuple[DomainRoom, ...] = ()
    """If no domain has room for its gang: those with the most room."""
    ahead: Ahead | None = None
    """The pod that it waits for in a strict order."""
    reservation: str = ""
    """If it is the first pod of an order with `backfill`: which room is reserved for it, or why none is."""
    new_nodes: NewNodes | None = None
    """Whether new nodes would help it; None if some node fits, or if it is held."""
    kubernetes: str = str(DEFAULT_RULES)
    """By the rules of which Kubernetes this is."""
    room: RoomPlan | None = None
    """Moves of other pods that make room for it, if that was asked; without moves: the search took too long."""

    @property
    def lacks_room(self) -> bool:
        """Return whether it waits for a node, and may start as soon as one has room."""
        return self.cause is not None and self.bound is None and not self.short and self.new_nodes is not None

    @property
    def is_blocked(self) -> bool:
        """Return whether it waits for a pod that fits nowhere."""
        return self.ahead is not None and self.ahead.cause is not None


def explain(inputs: DecisionInputs, *, bound: str | None = None, top: int = 5) -> Explanation:
    """Decide a pod and say why.

    Args:
        inputs: the pod as it waits, the cluster without it, the rules, and the pods that wait.
        bound: the node that it is on, where it is on one.
        top: how many nodes to show.
    """
    answers = Answers(seed=inputs.seed)
    found, ahead = answers.answer(inputs), answers.ahead(inputs) if bound is None else None
    alone = found.alone if isinstance(found, Held) and found.alone is not None else found
    held = alone if isinstance(alone, Held) else None
    decision = alone.decision if isinstance(alone, Placed | Unschedulable) else answers.if_free(alone.inputs)
    inside = msgspec.structs.replace(alone.inputs, pending=None)
    asked = rejections(inside)
    fits, nodes = len(asked.evaluation.feasible), inputs.cluster.nodes
    fails = held is not None or not fits
    preemption = decision.preemption
    bound_row = nodes.rows.get(bound, -1) if bound is not None else -1
    rejected_now = bound_row >= 0 and bool(asked.count[bound_row])
    gangs = gang_states(inputs, alone.requirements, is_placed=bound is not None)
    rank: Ranking | None = None
    if not fails and decision.host is not None:
        rank = ranking(inside, asked.evaluation, host=decision.host, current=bound, limit=top)
    is_free = held is None and bound is None
    return Explanation(
        pod=asked.frame.pod.key,
        policy=inputs.profile.name,
        nodes=nodes.size,
        fits=0 if held is not None else fits,
        host=None if held is not None else decision.host,
        bound=bound,
        message=held.text if held is not None else decision.message,
        cause=_cause(inside, asked, decision, held) if fails else None,
        lines=tuple(_lines(asked)),
        near=near_misses(asked, asked.nearest(top)) if fails and held is None and not _whole(asked) else (),
        changes=changes(inside, asked) if fails else (),
        ranking=rank,
        bound_lacks=near_misses(asked, [bound_row])[0] if rejected_now else None,
        victims=tuple(pod.key for pod in preemption.victims) if preemption is not None else (),
        preemption_node=preemption.nominated_node if preemption is not None else None,
        limits=tuple(limits(asked.frame, inputs.profile)),
        queues=tuple(standings(asked.frame, inputs.profile)),
        rank=rank_sentence(asked.frame, inputs.profile, bound=bound),
        lacks=short_resources(asked.frame, inputs.profile, decision) if fails and held is None else (),
        reclaim=reclaim_message(decision) if fails and held is None else "",
        reclaims=preemption is not None and preemption.reclaims,
        gangs=gangs,
        devices=tuple(taken(asked.frame, decision)) if not fails else (),
        short=alone.text if isinstance(alone, GangWaits | NoDomain) and bound is None else "",
        domains=alone.best if isinstance(alone, NoDomain) and bound is None else (),
        ahead=_ahead(ahead, found) if ahead is not None and is_free else None,
        reservation=_reservation(answers.room_for_first(inputs, found), inputs.now) if fails and is_free else "",
        new_nodes=_new_nodes(inside, decision, gangs) if fails and is_free else None,
        kubernetes=str(inputs.cluster.rules),
    )


def _new_nodes(inputs: DecisionInputs, decision: Decision, gangs: Sequence[GangState]) -> NewNodes:
    together = max((gang.size - gang.placed for gang in gangs), default=1)
    return judge(inputs.frame(), inputs.profile, decision.diagnosis, together=max(1, together))


def _reservation(found: StartReservation | Unreserved | None, now: float) -> str:
    """Return which room is reserved for the first pod of an order, in a sentence without an end; "": it is not one."""
    if found is None:
        return ""
    if isinstance(found, Unreserved):
        return f"No room is reserved for it: {found.value}. Pods behind it may start before it"
    return f"Room is reserved for it {when_and_where(found, now)}: pods behind it start only if they do not delay it"


def _ahead(first: Behind, answer: Answer) -> Ahead | None:
    """Return the pod that one waits for in a strict order, and why it has no node; None: it may pass that one.

    answer: about the pod that waits.
    """
    delays = ""
    if first.backfill is not None:
        if not isinstance(answer, Held) or answer.alone is None:
            return None
        delays = answer.reason
    found, cause = first.answer, None
    if not isinstance(found, Placed):
        decision = found.decision if isinstance(found, Unschedulable) else Decision(first.pod, None, message=found.text)
        cause = _cause(found.inputs, rejections(found.inputs), decision, None)
    return Ahead(first.pod.key, first.order.text, str(first.order.span), cause, delays)


def _whole(asked: Rejections) -> bool:
    return any(unit.whole for unit in asked.units)


def _lines(asked: Rejections) -> list[Line]:
    dominant = asked.dominant() if not len(asked.evaluation.feasible) else None
    lines: list[Line] = []
    rejectors = sum((one.rejected.astype(np.int64) for one in asked.filters), np.zeros(asked.frame.size, np.int64))
    for one in asked.filters:
        parts = [unit for unit in asked.units if unit.within and unit.clause is one.clause]
        obstacle = next(
            (
                unit.obstacle
                for unit in asked.units
                if unit.name == one.name and unit.clause is one.clause and not unit.within
            ),
            "",
        )
        by_it_alone = one.rejected & (rejectors == 1)
        lines.append(_line(one, obstacle, dominant, only=by_it_alone))
        failing = sum((part.rejected.astype(np.int64) for part in parts), np.zeros(asked.frame.size, np.int64))
        lines += [
            _line(part, part.obstacle, dominant, only=by_it_alone & part.rejected & (failing == 1)) for part in parts
        ]
    return lines


def _line(one: FilterVerdict, obstacle: str, dominant: str | None, *, only: BoolArray) -> Line:
    """only: `bool[nodes]`, those that nothing else rejects."""
    alone = int(one.rejected.sum())
    return Line(
        name=one.name,
        place=str(one.span) if one.span is not None else "",
        within=one.within,
        alone=alone,
        first=int(one.first.sum()),
        only=int(only.sum()),
        reasons=tuple((reason, int(np.count_nonzero(where))) for reason, where in one.reasons),
        dominant=bool(alone) and obstacle == dominant,
    )


def _cause(inputs: DecisionInputs, asked: Rejections, decision: Decision, held: Held | None) -> Cause:
    size = inputs.cluster.nodes.size
    if held is not None:
        if held.clause is None:
            return Cause("", "", f"it is held: {held.reason}", size, size)
        clause = held.clause
        return Cause(clause.name, str(clause.span), f"`{clause.text}` holds it: {held.reason}", size, size)
    if not size:
        return Cause("", "", decision.message, 0, 0)
    obstacle = asked.dominant()
    if obstacle is None:
        return Cause("", "", decision.message, size, 0)
    units = [unit for unit in asked.units if unit.obstacle == obstacle and unit.rejected.any()]
    unit = next((unit for unit in units if unit.span is not None), units[0])
    rejected, only = int(asked.obstacles[obstacle].sum()), asked.only(obstacle)
    place = str(unit.span) if unit.span is not None else ""
    if unit.whole:
        return Cause(unit.name, place, f"it is rejected as a whole: {plain(unit.reasons[0][0])}", size, size)
    spoken = next((each for each in units if each.name == RESOURCES), unit)
    ranked = sorted(((-int(where.sum()), plain(reason)) for reason, where in spoken.reasons if where.any()))
    if spoken.clause is not None:
        words = f"`{spoken.name if spoken.within else spoken.clause.text}` does not hold"
        own = [text for _, text in ranked if spoken.name not in text]
        words += f" ({own[0]})" if own else ""
    else:
        words = " and ".join(dict.fromkeys(text for _, text in ranked))
    state = claim_state(asked.frame) if unit.name == DynamicResources.name else None
    if state is not None:
        words = devices_cause(unmet_on_nodes(asked.frame, state)) or words
    return Cause(unit.name, place, words, rejected, only)
