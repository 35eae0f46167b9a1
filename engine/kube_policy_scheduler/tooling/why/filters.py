"""Who refuses which nodes: every filter asked alone, filters of policies also part by part. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kube_policy_scheduler.cluster.nodes import BoolArray, IntArray
from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.framework.evaluation import Evaluation
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.probe import probe
from kube_policy_scheduler.lang import checked, typed
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause, CompiledTest
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs

RESOURCES = "NodeResourcesFit"
_FITS = "fits"
"""The builtin that asks the same as NodeResourcesFit: where both refuse, that is one obstacle."""


@dataclass(frozen=True, slots=True, eq=False)
class Refuser:
    """One filter, or one operand of a policy filter's `and`."""

    name: str
    span: Span | None
    """Where the policy says so; None for Kubernetes' own rules."""
    refused: BoolArray
    """`bool[nodes]`: asked alone."""
    first: BoolArray
    """`bool[nodes]`: refused by this one, and by none that is asked before it."""
    reasons: tuple[tuple[str, BoolArray], ...]
    within: str = ""
    """The filter of which it is a part."""
    whole: bool = False
    """Whether it refuses the pod itself, whatever the node."""
    obstacle: str = ""
    """Refusers of one obstacle are one thing to the reader."""
    clause: CompiledClause | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Refusals:
    """What all filters say."""

    frame: Frame
    evaluation: Evaluation
    filters: tuple[Refuser, ...]
    """One per filter that has something to say."""
    units: tuple[Refuser, ...]
    """The same with filters taken apart where they are joined by `and`."""
    obstacles: dict[str, BoolArray]
    """`bool[nodes]` by obstacle."""
    count: IntArray
    """`int64[nodes]`: obstacles on each node."""

    def only(self, obstacle: str) -> int:
        """Return on how many nodes nothing else stands in the way."""
        return int((self.obstacles[obstacle] & (self.count == 1)).sum())

    def dominant(self) -> str | None:
        """Return the obstacle that stands most often between the pod and the nodes that are closest to fitting."""
        whole = next((unit for unit in self.units if unit.whole), None)
        if whole is not None:
            return whole.obstacle
        if not self.obstacles or not self.frame.cluster.nodes.size:
            return None
        closest = self.count == self.count.min()
        ranked = {name: (-int((mask & closest).sum()), -int(mask.sum())) for name, mask in self.obstacles.items()}
        return min(ranked, key=ranked.__getitem__)

    def nearest(self, limit: int) -> list[int]:
        """Return the rows with the fewest obstacles, those that lack the smallest share of a resource first."""
        shortage = _shortage(self.frame)
        names = self.frame.cluster.nodes.names
        order = sorted(range(len(names)), key=lambda row: (int(self.count[row]), float(shortage[row]), names[row]))
        return order[:limit]


def _shortage(frame: Frame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return `float64[nodes]`: what is short of the pod's requests, as shares of these, added up."""
    nodes = frame.cluster.nodes
    total = np.zeros(nodes.size)
    for resource, amount in frame.template.requests.items():
        if amount > 0:
            total += np.clip(amount - (nodes.allocatable(resource) - nodes.requested(resource)), 0, None) / amount
    return total


def refusals(inputs: DecisionInputs) -> Refusals:
    """Ask every filter alone, and all together by `evaluate`."""
    frame = inputs.frame()
    size = frame.cluster.nodes.size
    evaluation = inputs.evaluate()
    diagnosis = evaluation.diagnosis
    filters: list[Refuser] = []
    units: list[Refuser] = []
    rejected = evaluation.pre_filtered.rejection
    for plugin in inputs.profile.filters:
        asked = probe(frame, plugin)
        if not asked.applies:
            continue
        reasons = tuple((reason, where) for reason, where in asked.reasons() if where.any() or asked.rejection)
        refused = np.zeros(size, np.bool_)
        for _, where in reasons:
            refused |= where
        whole = asked.rejection is not None
        first = np.zeros(size, np.bool_)
        if rejected is not None:
            first[:] = rejected.plugin == plugin.name
        else:
            narrowed = plugin.name in evaluation.pre_filtered.narrowed_by[:1]
            mine = [index for index, name in enumerate(diagnosis.plugins) if name == plugin.name]
            alike = [other for other in inputs.profile.filters if other.name == plugin.name]
            if len(alike) > 1:  # clauses of one name stand in the order in which they are asked
                at = alike.index(plugin)
                mine = mine[at : at + 1]
            for index in (*mine, *(i for i, name in enumerate(diagnosis.plugins) if narrowed and not name)):
                first |= diagnosis.first == index
        clause = getattr(plugin, "clause", None)
        span = clause.span if clause is not None else None
        one = Refuser(plugin.name, span, refused, first, reasons, whole=whole, obstacle=plugin.name, clause=clause)
        filters.append(one)
        units.extend(_operands(one, frame))
        if not units or not units[-1].within or units[-1].clause is not clause:
            units.append(_unit(one))
    obstacles: dict[str, BoolArray] = {}
    for unit in units:
        if unit.refused.any():
            before = obstacles.get(unit.obstacle)
            obstacles[unit.obstacle] = unit.refused if before is None else before | unit.refused
    count: IntArray = np.zeros(size, np.int64)
    for mask in obstacles.values():
        count += mask
    return Refusals(frame, evaluation, tuple(filters), tuple(units), obstacles, count)


def _unit(one: Refuser) -> Refuser:
    obstacle = one.obstacle
    if one.clause is not None:
        tree = one.clause.checked
        obstacle = _obstacle(tree.value, f"{one.name} {one.span}") if isinstance(tree, checked.Test) else obstacle
    return Refuser(
        one.name, one.span, one.refused, one.first, one.reasons, whole=one.whole, obstacle=obstacle, clause=one.clause
    )


def _operands(one: Refuser, frame: Frame) -> Iterator[Refuser]:
    """Return the operands of a filter's `and`, each where the filter refuses and it does not hold."""
    if not isinstance(one.clause, CompiledTest) or not one.clause.nodes:
        return
    taken = np.zeros(frame.size, np.bool_)
    for operand in one.clause.operands:
        fails: BoolArray = one.refused & ~operand.holds(frame)
        name, span = operand.text, operand.tree.span
        first: BoolArray = one.first & fails & ~taken
        taken |= fails
        yield Refuser(
            name,
            span,
            fails,
            first,
            ((f"{name} does not hold", fails),),
            within=one.name,
            obstacle=_obstacle(operand.tree, f"{name} {span}"),
            clause=one.clause,
        )


def _obstacle(value: typed.Typed, name: str) -> str:
    return RESOURCES if isinstance(value, typed.Apply) and value.builtin.name == _FITS else name
