"""Policies with one clause relaxed: a threshold moved as far as it takes, or the clause left out. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kube_policy_scheduler.cluster.nodes import FloatArray
from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checked import Quota, Test
from kube_policy_scheduler.lang.compiling.columns import full
from kube_policy_scheduler.lang.compiling.compiled import CompiledClause
from kube_policy_scheduler.lang.types import Shape
from kube_policy_scheduler.policy.clauses import LimitClause
from kube_policy_scheduler.policy.decision_inputs import DecisionInputs
from kube_policy_scheduler.tooling.why.filters import Refusals
from kube_policy_scheduler.tooling.why.values import shown

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DIGITS = 3
"""A threshold is suggested with this many digits."""


@dataclass(frozen=True, slots=True)
class PolicyEdit:
    """The inputs under another text of the policy."""

    text: str
    inputs: DecisionInputs


def edits(inputs: DecisionInputs, asked: Refusals) -> Iterator[PolicyEdit]:
    """Return relaxations of each clause that refuses a node, thresholds before the whole clause."""
    policy = inputs.rules.policy
    if policy is None:
        return
    refusing = {id(unit.clause) for unit in asked.units if unit.clause is not None and unit.refused.any()}
    held = inputs.hold_reason()
    for clause, tree in zip(policy.compiled.clauses, policy.compiled.checked.clauses, strict=True):
        holds_back = held is not None and clause in policy.holds
        if id(clause) not in refusing and not holds_back:
            continue
        without = _replaced(inputs, clause.span, "")
        if without is None:
            continue
        fits = without.evaluate().feasible
        if not len(fits):
            continue
        if isinstance(tree, Test) and not holds_back:
            yield from _thresholds(inputs, clause, tree, fits)
        if isinstance(tree, Quota):
            yield from _bounds(inputs, tree)
        yield PolicyEdit(f"leave out `{clause.text}` ({clause.span})", without)


def _thresholds(inputs: DecisionInputs, clause: CompiledClause, tree: Test, fits: object) -> Iterator[PolicyEdit]:
    """Move each constant that a value per node is compared with to the nearest one that lets a node pass."""
    frame = inputs.frame()
    by_span = {part.span: part for part in clause.parts()}
    for each in typed.below(tree.value):
        if not isinstance(each, typed.Compare) or each.operator not in _MIRRORED:
            continue
        value, constant, operator = each.left, each.right, each.operator
        if isinstance(value, typed.Constant):
            value, constant, operator = each.right, each.left, _MIRRORED[each.operator]
        if not isinstance(constant, typed.Constant) or value.info.shape is not Shape.NODE:
            continue
        part = by_span.get(value.span)
        if part is None or _number(constant.span.text) != constant.value:
            continue
        values: FloatArray = full(part.evaluate(frame), frame.size)[fits]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        upper = operator in ("<", "<=")
        nearest = float(values.min() if upper else values.max())
        bound = _beyond(nearest, upper=upper, strict=operator in ("<", ">"))
        changed = _replaced(inputs, constant.span, f"{bound:.12g}")
        if changed is not None and bound != constant.value:
            text = f"`{' '.join(each.span.text.split())}` with {shown(bound)} instead of {constant.span.text}"
            yield PolicyEdit(f"{text} ({constant.span})", changed)


def _bounds(inputs: DecisionInputs, tree: Quota) -> Iterator[PolicyEdit]:
    """Raise a limit as far as the pod takes it."""
    bound = tree.bound
    plugin = next((p for p in inputs.profile.filters if isinstance(p, LimitClause) and p.name == tree.name), None)
    if plugin is None or _number(bound.span.text) is None:
        return
    used, more, _ = plugin.usage(inputs.frame())
    needed = _beyond(used + more, upper=True, strict=False)
    changed = _replaced(inputs, bound.span, f"{needed:.12g}")
    if changed is not None:
        text = f"`{tree.name}` with {shown(needed)} instead of {bound.span.text} ({bound.span})"
        yield PolicyEdit(text, changed)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _beyond(value: float, *, upper: bool, strict: bool) -> float:
    """Return the nearest number of few digits that is not below (or above) the value."""
    step = 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1) if value else 0.1
    step = min(step, 1.0) if abs(value) >= 1 else step
    # what is a whole number of steps but for rounding is taken for one
    steps = math.ceil(round(value / step, 6)) if upper else math.floor(round(value / step, 6))
    bound = round(steps * step, 9)
    if strict and bound == round(value, 9):
        bound = round(bound + (step if upper else -step), 9)
    return bound


def _replaced(inputs: DecisionInputs, span: Span, text: str) -> DecisionInputs | None:
    whole = span.source.text[: span.start] + text + span.source.text[span.end :]
    rules = inputs.rules.edited(span.source, whole)
    return None if rules is None else replace(inputs, rules=rules)
