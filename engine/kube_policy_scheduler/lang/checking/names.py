"""Bare names: parameters, `let` and `metric`, and what to say of unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube_policy_scheduler.diagnostics import Span
from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions, syntax, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.members import read_member
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.checking.unknown import unknown_name

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Definition, Inference


def name_value(inference: Inference, expr: expressions.Name, scope: Scope) -> typed.Typed:
    """Return what a bare name stands for."""
    name = expr.name
    if name in scope.parameters:
        value = scope.parameters[name]
        if not inference.reaches(inference.levels(value)):
            return unknown(expr.span)
        return typed.Reference(value.info, expr.span, name, value)
    definition = inference.definitions.get(name)
    if definition is not None:
        if isinstance(definition.tree, syntax.Def):
            definition.used = True
            advice = f"call it: `{name}({', '.join(p.name for p in definition.tree.parameters)})`"
            inference.found.append(codes.WRONG_TYPE.at(expr.span, f"`{name}` is a function", help=advice))
            return unknown(expr.span)
        return _reference(inference, definition, expr.span, scope)
    if scope.bare_item and f"pod.{name}" in inference.environment.fields:
        return read_member(inference, expr, scope)
    inference.found.append(unknown_name(inference, expr, scope))
    return unknown(expr.span)


def _reference(inference: Inference, definition: Definition, span: Span, scope: Scope) -> typed.Typed:
    value = inference.value_of(definition, span)
    if operators.bad(value):
        return unknown(span)
    inference.reaches(definition.levels)
    reference = typed.Reference(value.info, span, definition.tree.name, value)
    return reference if inference.allowed(reference, scope) else unknown(span)
