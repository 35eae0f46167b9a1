"""`policyctl why`: one pod's decision explained by the scheduler's own core. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.tallies import GroupOf
from kube_policy_scheduler.framework.decide.cycle import Cycle, Decision
from kube_policy_scheduler.framework.decide.gang_domains import DomainRoom, Shortfall, narrowed
from kube_policy_scheduler.framework.decide.new_nodes import NewNodes, judge
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.groups.state import GangState, gang_state
from kube_policy_scheduler.framework.permit import GangRequirement, Group, NumberOf
from kube_policy_scheduler.framework.plugins.dynamic_resources import DynamicResources
from kube_policy_scheduler.framework.queue.active_queue import ActiveQueue
from kube_policy_scheduler.framework.queue.queued_pod import QueuedPod, gates
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.rebalancing.room import RoomPlan
from kube_policy_scheduler.tooling.why.changes import Change, changes
from kube_policy_scheduler.tooling.why.devices import cause as devices_cause
from kube_policy_scheduler.tooling.why.devices import claim_state, taken, unmet_on_nodes
from kube_policy_scheduler.tooling.why.filters import (
    RESOURCES,
    FilterVerdict,
    LimitState,
    NearMiss,
    Refusals,
    limits,
    near_misses,
    plain,
    refusals,
)
from kube_policy_scheduler.tooling.why.queues import QueueStanding, reclaim_message, standings
from kube_policy_scheduler.tooling.why.scores import Ranking, ranking


@dataclass(frozen=True, slots=True)
class Cause:
    """The one reason that matters most."""

    name: str
    place: str
    """`FILE:LINE:COLUMN`, "" for a rule of Kubernetes."""
    words: str
    refused: int
    only: int
    """Nodes that no other filter rejects."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table: a filter, or a part of one."""

    name: str
    place: str
    within: str
    alone: int
    """Nodes that it refuses, evaluated alone."""
    first: int
    """Nodes that it is the first to refuse."""
    only: int
    """Nodes that nothing else refuses."""
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
    new_nodes: NewNodes | None = None
    """Whether new nodes would help it; None if some node fits, or if it is held."""
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


def explain(
    inputs: DecisionInputs,
    *,
    bound: str | None = None,
    top: int = 5,
    pending: Sequence[PodInfo] = (),
    rivals: Sequence[PodInfo] = (),
) -> Explanation:
    """Decide a pod and say why.

    Args:
        inputs: the pod as it waits, the cluster without it, and the rules.
        bound: the node that it is on, where it is on one.
        top: how many nodes to show.
        pending: the pods that wait, for those of its gang.
        rivals: those of them that the same policy governs, for a strict order.
    """
    inputs, no_domain = in_domain(inputs)
    asked = refusals(inputs)
    decision = inputs.decide()
    held, fits = inputs.hold_reason(), len(asked.evaluation.feasible)
    nodes = inputs.cluster.nodes
    lines = tuple(_lines(asked))
    fails = held is not None or not fits
    preemption = decision.preemption
    bound_row = nodes.rows.get(bound, -1) if bound is not None else -1
    refused_now = bound_row >= 0 and bool(asked.count[bound_row])
    gangs, short = _gangs(inputs, asked.frame, pending=pending, is_placed=bound is not None)
    rank: Ranking | None = None
    if not fails and decision.host is not None:
        rank = ranking(inputs, asked.evaluation, host=decision.host, current=bound, limit=top)
    return Explanation(
        pod=asked.frame.pod.key,
        policy=inputs.profile.name,
        nodes=nodes.size,
        fits=0 if held is not None else fits,
        host=None if held is not None else decision.host,
        bound=bound,
        message=f"held: {held}" if held is not None else decision.message,
        cause=_cause(inputs, asked, decision, held) if fails else None,
        lines=lines,
        near=near_misses(asked, asked.nearest(top)) if fails and held is None and not _whole(asked) else (),
        changes=changes(inputs, asked) if fails else (),
        ranking=rank,
        bound_lacks=near_misses(asked, [bound_row])[0] if refused_now else None,
        victims=tuple(pod.key for pod in preemption.victims) if preemption is not None else (),
        preemption_node=preemption.nominated_node if preemption is not None else None,
        limits=tuple(limits(asked.frame, inputs.profile)),
        queues=tuple(standings(asked.frame, inputs.profile)),
        reclaim=reclaim_message(decision) if fails and held is None else "",
        reclaims=preemption is not None and preemption.reclaims,
        gangs=gangs,
        devices=tuple(taken(asked.frame, decision)) if not fails else (),
        short=(short or (no_domain.message if no_domain is not None else "")) if bound is None else "",
        domains=no_domain.best if no_domain is not None and bound is None and not short else (),
        ahead=_ahead(inputs, rivals, pending=pending) if bound is None and held is None else None,
        new_nodes=_new_nodes(inputs, decision, gangs) if fails and held is None and bound is None else None,
    )


def _new_nodes(inputs: DecisionInputs, decision: Decision, gangs: Sequence[GangState]) -> NewNodes:
    together = max((gang.size - gang.placed for gang in gangs), default=1)
    return judge(inputs.frame(), inputs.profile, decision.diagnosis, together=max(1, together))


def _ahead(inputs: DecisionInputs, rivals: Sequence[PodInfo], *, pending: Sequence[PodInfo]) -> Ahead | None:
    """Return the pod that one waits for in a strict order, None if it waits for none."""
    policy = inputs.rules.policy
    order = policy.order_of(inputs.frame()) if policy is not None else None
    if policy is None or order is None or not order.strict:
        return None
    others = [_of_rival(inputs, pod) for pod in rivals if pod.uid != inputs.pod.uid]
    queue = ActiveQueue(count())
    asked: dict[str, DecisionInputs] = {}
    for each in (inputs, *others):
        frame, entered = each.frame(), Steady(each.queued or each.now)
        queued = QueuedPod(each.pod, queued=entered, timestamp=entered)
        if policy.order_of(frame) is order and gates(queued) is None and each.hold_reason() is None:
            asked[each.pod.uid] = each
            queue.push(queued, policy.turn(queued, frame))
    while (queued_first := queue.pop(Steady(inputs.now))) is not None:
        first = asked[queued_first.pod.uid]
        if first is inputs:
            return None
        if _gangs(first, first.frame(), pending=pending, is_placed=False)[1]:
            continue  # it waits for its gang outside the queue
        decision, refused = first.decide(), refusals(first)
        cause = None if len(refused.evaluation.feasible) else _cause(first, refused, decision, None)
        return Ahead(first.pod.key, order.text, str(order.span), cause)
    return None


def _of_rival(inputs: DecisionInputs, pod: PodInfo) -> DecisionInputs:
    return replace(inputs, pod=pod, queued=pod.created, attempts=0, manifest=None)


def in_domain(inputs: DecisionInputs) -> tuple[DecisionInputs, Shortfall | None]:
    """Return the inputs on the nodes where the pod's gangs are, and why no domain has room for them, if so."""
    try:
        requirements = inputs.gang_requirements()
    except ValueError:
        return inputs, None
    if not requirements:
        return inputs, None
    inside = narrowed(inputs.frame(), inputs.profile, requirements, Cycle(seed=inputs.seed))
    if isinstance(inside, Shortfall):
        return inputs, inside
    return replace(inputs, rules=replace(inputs.rules, profile=inside)), None


def _gangs(
    inputs: DecisionInputs, frame: Frame, *, pending: Sequence[PodInfo], is_placed: bool
) -> tuple[tuple[GangState, ...], str]:
    """Return the pod's groups, and why it must wait for them whatever room there is."""
    counters = inputs.cluster.counters
    others = [pod for pod in pending if pod.uid != frame.pod.uid]
    try:
        requirements = inputs.gang_requirements()
    except ValueError as error:
        return (), str(error)
    found = []
    for requirement in requirements:
        found.append(_gang_state(requirement, counters.group_size, others, is_placed=is_placed))
    missing = next((gang for gang in found if gang.missing), None)
    return tuple(found), f"waiting for more pods of {missing.sentence()}" if missing is not None else ""


def _gang_state(
    requirement: GangRequirement, on_nodes: NumberOf, others: Sequence[PodInfo], *, is_placed: bool
) -> GangState:
    """Return how far a gang has come, with the pod that is asked about and the other pending ones."""

    def pending(group_of: GroupOf, group: Group) -> int:
        members = sum(group_of(pod.template) == group for pod in others)
        return members + (not is_placed and group in requirement.groups)

    def placed(group_of: GroupOf, group: Group) -> int:
        return on_nodes(group_of, group) + (is_placed and group in requirement.groups)

    return gang_state(requirement, placed=placed, pending=pending)


def _whole(asked: Refusals) -> bool:
    return any(unit.whole for unit in asked.units)


def _lines(asked: Refusals) -> list[Line]:
    dominant = asked.dominant() if not len(asked.evaluation.feasible) else None
    lines: list[Line] = []
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
        only = sum(asked.only(key) for key in {unit.obstacle for unit in parts} if key in asked.obstacles)
        lines.append(_line(one, asked, obstacle, dominant, only=only if parts else None))
        lines.extend(_line(part, asked, part.obstacle, dominant) for part in parts)
    return lines


def _line(one: FilterVerdict, asked: Refusals, obstacle: str, dominant: str | None, *, only: int | None = None) -> Line:
    alone = int(one.refused.sum())
    if only is None:
        nothing_else = (asked.count == 1) & one.refused
        only = int(nothing_else.sum())
    return Line(
        name=one.name,
        place=str(one.span) if one.span is not None else "",
        within=one.within,
        alone=alone,
        first=int(one.first.sum()),
        only=only,
        reasons=tuple((reason, int(np.count_nonzero(where))) for reason, where in one.reasons),
        dominant=bool(alone) and obstacle == dominant,
    )


def _cause(inputs: DecisionInputs, asked: Refusals, decision: Decision, held: str | None) -> Cause:
    size = inputs.cluster.nodes.size
    if held is not None:
        assert inputs.rules.policy is not None
        frame: Frame = asked.frame
        clause = next(clause for clause in inputs.rules.policy.holds if clause.evaluate(frame))
        return Cause(clause.name, str(clause.span), f"`{clause.text}` holds it: {held}", size, size)
    if not size:
        return Cause("", "", decision.message, 0, 0)
    obstacle = asked.dominant()
    if obstacle is None:
        return Cause("", "", decision.message, size, 0)
    units = [unit for unit in asked.units if unit.obstacle == obstacle and unit.refused.any()]
    unit = next((unit for unit in units if unit.span is not None), units[0])
    refused, only = int(asked.obstacles[obstacle].sum()), asked.only(obstacle)
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
    return Cause(unit.name, place, words, refused, only)
