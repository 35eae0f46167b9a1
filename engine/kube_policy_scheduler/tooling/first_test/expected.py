"""Cases that cover something, with what is expected of them: decisions, and the turns of a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from kube_policy_scheduler.framework.evaluate.probe import probe
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.gangs import GangRequirement
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.compiling.compiled import CompiledOrder
from kube_policy_scheduler.lang.formatting.show import clause_text
from kube_policy_scheduler.lang.types import Depends
from kube_policy_scheduler.policy.answer import GangWaits, Held, NoDomain, Placed, answer
from kube_policy_scheduler.policy.clauses import FilterClause, LimitClause, RequireClause
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs, Rules
from kube_policy_scheduler.policy.groupings import SpreadFilter
from kube_policy_scheduler.policy.policy import Policy
from kube_policy_scheduler.tooling.coverage.sites import ClauseSites, Outcome
from kube_policy_scheduler.tooling.first_test.case_form import CaseForm, case_form
from kube_policy_scheduler.tooling.first_test.search_space import ZONE, Assignment, Place, SearchSpace
from kube_policy_scheduler.tooling.short_forms import Json

Goal: TypeAlias = tuple[Any, Outcome | None]
"""A site's key and an outcome; or a clause's span and None: that it has a say."""


@dataclass(frozen=True, slots=True)
class CoveringCase:
    """A case, and which outcomes it is there for."""

    assignment: Assignment
    form: CaseForm
    clause: ClauseSites
    """The one that it is about."""
    goals: tuple[Goal, ...]
    notices: str = ""
    """What it is there for beside its goals, such as a change of the policy that no other case would notice."""
    is_of_queue: bool = False
    """Whether the case is about a queue, so that it says how many pods each queue has."""


@dataclass(frozen=True, slots=True)
class Written:
    """A case and what is expected of it."""

    case: CoveringCase
    expect: Json
    tie: bool
    """Whether several nodes have the highest total."""
    reads_clock: bool
    """Whether the policy reads the clock, so that the case has to say when it is."""


def written(case: CoveringCase, frame: Frame, policy: Policy) -> Written | None:
    """Return the case with its expectations; None where a gang without a size keeps it from being decided."""
    found = expectation(frame, policy)
    if found is None:
        return None
    expect, tie = found
    if case.is_of_queue:
        expect = {**expect, "queue": _pods_by_queue(frame, policy, is_placed="node" in expect or "node_in" in expect)}
    return Written(case, expect, tie, reads_clock=_reads_clock(policy))


def _pods_by_queue(frame: Frame, policy: Policy, *, is_placed: bool) -> dict[str, int]:
    """Return how many pods each queue that has some has after a decision, those below it included."""
    rules, found = policy.profile.queues, Counter[str]()
    if rules is not None:
        usage = frame.cluster.track_usage(rules.tree)
        for pod in (*frame.cluster.pods.values(), *((frame.pod,) if is_placed else ())):
            queue = usage.quota_of(pod.template)
            found.update(each.name for each in queue.path() if each.name) if queue is not None else None
    return dict(sorted(found.items()))


def _reads_clock(policy: Policy) -> bool:
    return any(clause.depends & Depends.CLOCK for clause in policy.clauses)


def expectation(frame: Frame, policy: Policy) -> tuple[Json, bool] | None:
    """Return what a decision is in the words of a test, and whether it is a tie; None where it cannot be made."""
    found = answer(DecisionInputs.at(frame, Rules(policy.profile, policy)))
    match found:
        case Held():
            return {"held": True}, False
        case GangWaits(requirement=None):
            return None
        case GangWaits() | NoDomain():
            return {"unschedulable": {"message": found.text}}, False
    decision, evaluation = found.decision, found.inputs.evaluate()
    names = frame.cluster.nodes.names
    totals = {names[row]: float(total) for row, total in zip(evaluation.feasible, evaluation.totals, strict=True)}
    expect: Json = {}
    best = max(totals.values(), default=0.0)
    tied = sorted(name for name, total in totals.items() if total == best)
    if decision.host is None:
        expect["unschedulable"] = _whole_rejection(frame, policy) or {"message": decision.message.split(". ")[0]}
        rules = policy.profile.queues
        if policy.profile.preemption is not None or (rules is not None and rules.reclaims):
            victims = decision.preemption.victims if decision.preemption is not None else ()
            expect["evicts"] = sorted(pod.name for pod in victims)
    elif len(tied) > 1:
        expect["node_in"] = tied
    else:
        expect["node"] = decision.host
    if isinstance(found, Placed) and found.text:
        expect["waits"] = found.text
    if found.domains:
        expect["domain"] = found.domains[0].value
    if totals:
        expect["feasible"] = sorted(totals)
    rejected = _rejected(frame, policy)
    if rejected:
        expect["filtered"] = rejected
    if len(totals) > 1 or (totals and policy.profile.scores):
        expect["scores"] = {name: _rounded(total) for name, total in sorted(totals.items())}
    return expect, len(tied) > 1


def _whole_rejection(frame: Frame, policy: Policy) -> Json | None:
    """Return the clause that rejects the pod whatever the node, None where there is none."""
    for plugin in policy.profile.filters:
        if isinstance(plugin, RequireClause | LimitClause) and probe(frame, plugin).rejection is not None:
            return {"clause": plugin.name}
    return None


def _rejected(frame: Frame, policy: Policy) -> Json:
    """Return by node the first clause of the policy that rejects it."""
    names = frame.cluster.nodes.names
    found: dict[str, Any] = {}
    for plugin in policy.profile.filters:
        if not isinstance(plugin, FilterClause | SpreadFilter):
            continue
        for rejection in plugin.rejections(frame, None):
            for row in np.flatnonzero(rejection.where):
                found.setdefault(names[int(row)], {"clause": plugin.name})
    return dict(sorted(found.items()))


def _rounded(total: float) -> float | str:
    """Return a total that reads back equal within what a test compares, else with a tolerance."""
    shown = float(f"{total:.10g}")
    return shown if abs(shown - total) <= 1e-10 * max(1.0, abs(total)) else f"{total:.4f} ± 0.001"


_MORE: Mapping[Place, Any] = {("pod", "queued"): 600, ("pod", "priority"): 1000}
"""What is tried beside the values of variables, which come from the policy's constants."""
_FIRST, _SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class Queue:
    """Two pods, the one whose turn comes first in front."""

    name: str
    frames: tuple[Frame, Frame]
    pods: tuple[Json, Json]
    queued_seconds: tuple[int, int]
    around: CaseForm | None = None
    """What the order depends on beside the pods; None: nothing."""

    def case(self) -> Json:
        """Return the case without what is around it, the pods in the order in which they do not get their turns."""
        waiting = [
            {"pod": {"name": name, **pod}, **({"queued": f"{seconds}s"} if seconds else {})}
            for name, pod, seconds in zip((_FIRST, _SECOND), self.pods, self.queued_seconds, strict=True)
        ]
        return {"name": self.name, "queue": waiting[::-1], "expect": {"turns": [_FIRST, _SECOND]}}


def queues(
    policy: Policy, space: SearchSpace, *, start: Assignment, frame_of: Callable[[Assignment], Frame | None]
) -> Iterator[Queue]:
    """Yield a queue for each key of `order by` that tells two pods apart.

    Args:
        policy: whose pods they are.
        space: what can be varied.
        start: an assignment whose pod the policy governs and does not hold.
        frame_of: from an assignment to the inputs of its decision; None where no cluster has it.
    """
    for order, key in [(each, key) for each in policy.orders for key in _keys(each)]:
        places = [place for place in space.read_by(key) if place in space.variables and place[0] == "pod"]
        assignments = [start, *({**start, place: value} for place in places for value in space.variables[place].values)]
        assignments += [{**start, place: _MORE[place]} for place in places if place in _MORE]
        seen: dict[tuple[object, ...], tuple[Assignment, Frame]] = {}
        for assignment in assignments:
            frame = frame_of(assignment)
            if frame is None or not policy.governs(frame) or policy.hold_reason(frame) is not None:
                continue
            if policy.order_of(frame) is order:
                seen.setdefault(order.evaluate(frame), (assignment, frame))
        if len(seen) > 1:
            ends = (seen[min(seen)], seen[max(seen)])
            forms = [case_form(assignment, topologies=space.topologies) for assignment, _ in ends]
            yield Queue(
                f"order by: {' '.join(key.span.text.split())}",
                (ends[0][1], ends[1][1]),
                (forms[0].pod, forms[1].pod),
                (forms[0].queued_seconds, forms[1].queued_seconds),
            )


@dataclass(frozen=True, slots=True)
class GangStart:
    """The pods with which a gang starts: those of each role, and any that it needs besides."""

    name: str
    form: CaseForm
    """Of the first pod, with the cluster."""
    pods: tuple[tuple[Json, int], ...]
    """Pods, and how many of each."""
    reads_clock: bool
    domain: str = ""
    """Where all of them are, "" if that is not said."""

    @property
    def expect(self) -> Json:
        """Return what is expected of each of them."""
        return {"domain": self.domain} if self.domain else {"schedulable": True}

    def sequence(self) -> list[Json]:
        """Return the steps; all pods but the last one wait."""
        steps = [{"pod": pod, **({"count": number} if number > 1 else {})} for pod, number in self.pods]
        last, number = self.pods[-1]
        steps[-1:] = [{"pod": last, **({"count": number - 1} if number > 2 else {})}] if number > 1 else []
        steps = [{**step, "expect": {"waits": True}} for step in steps]
        return [*steps, {"pod": last, "expect": {"waits": False}}]


_LARGEST_GANG = 12


def gang_starts(
    policy: Policy, space: SearchSpace, *, start: Assignment, frame_of: Callable[[Assignment], Frame | None]
) -> Iterator[GangStart]:
    """Yield the start of each gang of a policy, also in the only domain that has room; arguments as of `queues`."""
    for clause in policy.compiled.checked.clauses:
        if not isinstance(clause, checked.Gang):
            continue
        found = list(_sized(clause, policy, space.read_by(clause.size), start, space, frame_of))
        if not found:
            continue
        sized, _, _ = min(found, key=lambda each: (each[1].size < 2, each[2]))
        alone = _sized(clause, policy, tuple(_conditions(policy, space)), sized, space, frame_of)
        chosen, requirement, _ = min(alone, key=lambda each: (each[1].size < 2, each[2]))
        by_role: dict[str, Assignment] = {}
        places = [place for role in clause.roles for place in space.read_by(role.test)]
        for one, its, _ in _sized(clause, policy, places, chosen, space, frame_of):
            by_role.setdefault(its.role.text if its.role is not None else "", one)
        pods = [(by_role[role.text], role.number) for role in requirement.roles if role.text in by_role and role.number]
        left = requirement.size - sum(number for _, number in pods)
        if left > 0:
            pods.append((by_role.get("", chosen), left))
        forms = [(case_form(one, topologies=space.topologies), number) for one, number in pods]
        text = " ".join(clause.tree.span.text.split())
        pods_of = tuple((form.pod, number) for form, number in forms)
        whole = GangStart(f"{text}: starts with all of its pods", forms[0][0], pods_of, _reads_clock(policy))
        if None not in clause.levels:
            yield whole if not clause.levels else replace(whole, form=_labelled(whole.form, clause.levels))
        yield from _in_domains(clause, whole, text)


def _conditions(policy: Policy, space: SearchSpace) -> Iterator[Place]:
    """Yield the variables that decide which gangs a pod belongs to."""
    for clause in policy.compiled.checked.clauses:
        if isinstance(clause, checked.Gang) and clause.condition is not None:
            yield from space.read_by(clause.condition)


def _in_domains(clause: checked.Gang, whole: GangStart, text: str) -> Iterator[GangStart]:
    """Yield a gang that only one domain of the first topology has room for, and one that only the next one has."""
    size = sum(number for _, number in whole.pods)
    keys = [key for key in clause.levels if key is not None]
    if size < 2 or not keys:
        return
    pods = tuple(({**pod, "cpu": 1}, number) for pod, number in whole.pods)
    half = -(-size // 2)
    rooms = (size, size - 1, size - 1) if keys[0] == HOSTNAME else (half, half, half)
    named = replace(whole, pods=pods, name=f"{text}: only one domain of {keys[0]} has room")
    form = _labelled(whole.form, keys, cores=rooms)
    yield replace(named, form=form, domain=form.nodes[0]["name"] if keys[0] == HOSTNAME else _value(keys[0], 0))
    if len(keys) > 1 and keys[0] != HOSTNAME:
        form = _labelled(whole.form, keys, cores=(size - 1, 1, 0), first=(0, 1, 2))
        name = f"{text}: no domain of {keys[0]} has room"
        yield replace(named, name=name, form=form, domain=_value(keys[1], 0))


HOSTNAME = "kubernetes.io/hostname"


def _labelled(
    form: CaseForm, keys: Sequence[str | None], *, cores: Sequence[int] = (), first: Sequence[int] = (0, 0, 1)
) -> CaseForm:
    """Return a case in which nodes are in domains: of the first topology in several, of the others in one.

    Args:
        form: the case.
        keys: the labels.
        cores: of the nodes; empty: as they are.
        first: in which domain of the first topology each node is.
    """
    nodes = []
    for at, node in enumerate(form.nodes):
        labels = dict(node.get("labels", {}))
        zone = node.get("zone")
        for number, key in enumerate(keys):
            value = _value(key, first[at] if number == 0 else 0) if key is not None else ""
            if key == ZONE:
                zone = value
            elif key is not None and key != HOSTNAME:
                labels[key] = value
        room: Json = {"cpu": cores[at]} if cores else {}
        nodes.append({**node, **room, **({"zone": zone} if zone else {}), **({"labels": labels} if labels else {})})
    return replace(form, nodes=tuple(nodes))


def _value(key: str, number: int) -> str:
    return f"{key.rpartition('/')[2]}-{number + 1}"


def _sized(
    clause: checked.Gang,
    policy: Policy,
    places: Sequence[Place],
    start: Assignment,
    space: SearchSpace,
    frame_of: Callable[[Assignment], Frame | None],
) -> Iterator[tuple[Assignment, GangRequirement, int]]:
    """Yield assignments that differ in one of some variables, with what the clause asks, and how many clauses do."""
    text = clause_text(clause.tree)
    variables = (space.variables[place] for place in dict.fromkeys(places) if place in space.variables)
    for one in (start, *({**start, each.place: value} for each in variables for value in each.values)):
        frame = frame_of(one)
        if frame is None or not policy.governs(frame) or policy.hold_reason(frame) is not None:
            continue
        try:
            requirements = policy.gang_requirements(frame)
        except ValueError:
            continue
        for requirement in requirements:
            if requirement.text == text and requirement.size <= _LARGEST_GANG:
                yield one, requirement, len(requirements)


def _keys(order: CompiledOrder) -> tuple[typed.Typed, ...]:
    assert isinstance(order.checked, checked.Ordering)
    return tuple(key for key, _ in order.checked.keys)
