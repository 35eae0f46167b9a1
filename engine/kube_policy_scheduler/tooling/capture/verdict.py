"""What a decision was, as far as a smaller world must repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kube_policy_scheduler.framework.evaluation import Evaluation
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.why.filters import Refusals, refusals

_MOST_EXPLAINED = 64
"""Nodes up to which the main reason is asked for: it takes every filter alone."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision."""

    host: str | None
    next: str | None
    """The best of the other nodes that fit."""
    margin: float | None
    """By how much the host's total exceeds that of `next`, rounded; None where nothing was compared."""
    refusers: frozenset[str]
    """The filters that are the first to refuse some node, or that refuse the pod."""
    cause: str | None = None
    """The filter that stands most in the way of a pod that fits nowhere; None where that was not asked."""
    governed: bool = True
    """Whether the policy governs the pod: a test asks that before it decides."""
    held: str | None = None
    """Why the pod waits outside the active queue."""
    evicted: tuple[str, ...] = ()
    """Pods that would be evicted, and from where."""
    empty: bool = False
    """Whether there was no node to decide about: that is a reason of its own."""
    statuses: frozenset[tuple[str, str, tuple[str, ...]]] | None = None
    """Node, filter and reasons of each refusal; None where that was not asked."""

    @property
    def tied(self) -> bool:
        """Return whether the host was drawn among equals."""
        return self.margin == 0

    def repeats(self, other: Verdict, *, margin: bool, nodes: bool = False) -> bool:
        """Return whether two decisions are the same.

        Args:
            other: the other decision.
            margin: also by how much it was the best node.
            nodes: also why each node is refused; both are of the same nodes.
        """
        mine, theirs = self, other
        if not nodes:
            mine, theirs = replace(mine, statuses=None), replace(theirs, statuses=None)
        if mine.cause is None or theirs.cause is None:
            mine, theirs = replace(mine, cause=None), replace(theirs, cause=None)
        if not margin and mine.margin is not None and theirs.margin is not None and mine.tied is theirs.tied:
            mine = replace(mine, margin=theirs.margin)
        return mine == theirs


def verdict(inputs: DecisionInputs) -> Verdict:
    """Decide, and return what a smaller world has to repeat."""
    policy = inputs.rules.policy
    if policy is not None and not policy.governs(inputs.frame()):
        return Verdict(None, None, None, frozenset(), governed=False)
    held = inputs.hold_reason()
    if held is not None:
        return Verdict(None, None, None, frozenset(), held=held)
    frame = inputs.frame()
    made = inputs.evaluate()
    decision = inputs.decide()
    refusers = first_refusers(made)
    size, names = frame.cluster.nodes.size, frame.cluster.nodes.names
    statuses = _statuses(made, names) if size <= _MOST_EXPLAINED else None
    if decision.host is None:
        evicted: tuple[str, ...] = ()
        if decision.preemption is not None and decision.preemption.victims:
            evicted = (
                str(decision.preemption.nominated_node),
                *sorted(pod.key for pod in decision.preemption.victims),
            )
        cause = _cause(refusals(inputs)) if size <= _MOST_EXPLAINED else None
        return Verdict(None, None, None, refusers, cause=cause, evicted=evicted, empty=not size, statuses=statuses)
    totals = sorted((-float(total), names[row]) for row, total in zip(made.feasible, made.totals, strict=True))
    best = next(total for total, name in totals if name == decision.host)
    following = next(((total, name) for total, name in totals if name != decision.host), None)
    if following is None:
        return Verdict(decision.host, None, None, refusers, statuses=statuses)
    margin = round(following[0] - best, _DIGITS) + 0.0
    return Verdict(decision.host, following[1], margin, refusers, statuses=statuses)


def first_refusers(made: Evaluation) -> frozenset[str]:
    """Return the filters that are the first to refuse some node, or that refuse the pod as a whole."""
    diagnosis = made.diagnosis
    if diagnosis.rejection is not None:
        return frozenset((diagnosis.rejection.plugin,))
    return frozenset(diagnosis.plugins[index] for index in np.unique(diagnosis.first) if index >= 0)


def _statuses(made: Evaluation, names: Sequence[str]) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    found = zip(names, made.diagnosis.statuses(), strict=True)
    return frozenset((name, status.plugin, tuple(status.reasons)) for name, status in found if status.plugin)


def _cause(asked: Refusals) -> str | None:
    """Return the name of the main reason: that of a policy's clause where one says it."""
    main = asked.dominant()
    units = [unit for unit in asked.units if unit.obstacle == main and unit.refused.any()]
    return next((unit.name for unit in units if unit.span is not None), units[0].name if units else None)
