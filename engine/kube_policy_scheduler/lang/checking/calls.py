"""Calls: builtins, `def` expanded, `metric` named. How arguments meet parameters: `binding`."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions, syntax, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.binding import Binding
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import ANYWHERE, Scope
from kube_policy_scheduler.lang.checking.unknown import unknown_function

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Definition, Inference


def call(inference: Inference, expr: expressions.Call, scope: Scope) -> typed.Typed:
    """Return the value of a call."""
    definition = inference.definitions.get(expr.function)
    if definition is not None:
        return _expanded(inference, definition, expr, scope)
    builtin = inference.environment.builtins.get(expr.function)
    if builtin is None:
        inference.found.append(unknown_function(inference, expr))
        return unknown(expr.span)
    return Binding(inference, builtin, expr, scope).apply()


def matches(inference: Inference, left: typed.Typed, expr: expressions.Binary, scope: Scope) -> typed.Typed:
    """Return `text matches "pattern"`, which is the builtin `matches`."""
    call_ = expressions.Call("matches", (expr.left, expr.right), (), expr.operator_span, expr.span)
    return unknown(expr.span) if operators.bad(left) else call(inference, call_, scope)


def metric(inference: Inference, tree: syntax.Metric) -> typed.Typed:
    """Return the value of a `metric`: its query with what the statement says of it, then its default."""
    query = tree.query
    if not (isinstance(query, expressions.Call) and query.function == "promql"):
        advice = 'write `metric NAME = promql("…")`; other values are named with `let`'
        inference.found.append(codes.WRONG_TYPE.at(query.span, "a metric is a query", help=advice))
        return unknown(tree.span)
    extra = [("every", tree.every), ("max_age", tree.stale_after)]
    named = [*query.named, *(expressions.Named(name, value, value.span) for name, value in extra if value is not None)]
    if tree.by is not None:
        named.append(expressions.Named("by", expressions.Text(tree.by, tree.span), tree.span))
    value = inference.infer(replace(query, named=tuple(named)), ANYWHERE)
    if tree.default is None:
        return value
    default = inference.infer(tree.default, ANYWHERE)
    return operators.otherwise(value, default, inference.found, span=tree.span, at=tree.default.span)


def _expanded(inference: Inference, definition: Definition, expr: expressions.Call, scope: Scope) -> typed.Typed:
    """Return the body of a `def` with the arguments of one call."""
    tree = definition.tree
    definition.used = True
    if not isinstance(tree, syntax.Def):
        message = f"`{expr.function}` is a value, not a function"
        inference.found.append(codes.WRONG_TYPE.at(expr.name_span, message, help="remove the parentheses"))
        return unknown(expr.span)
    names = [parameter.name for parameter in tree.parameters]
    given = dict(zip(names, expr.arguments, strict=False))
    for argument in expr.named:
        if argument.name in names and argument.name not in given:
            given[argument.name] = argument.value
    if len(given) != len(names) or len(expr.arguments) + len(expr.named) != len(names):
        message = f"`{expr.function}` takes {len(names)} arguments, not {len(expr.arguments) + len(expr.named)}"
        advice = f"write `{expr.function}({', '.join(names)})`"
        inference.found.append(codes.ARGUMENTS.at(expr.span, message, help=advice))
        return unknown(expr.span)
    values = {name: inference.infer(argument, scope) for name, argument in given.items()}
    if operators.bad(*values.values()) or not inference.enter(expr.function, expr.name_span):
        return unknown(expr.span)
    try:
        inner = replace(scope, parameters=MappingProxyType(values))
        value = inference.infer(tree.value, inner)
    finally:
        inference.active.pop()
    if operators.bad(value):
        return unknown(expr.span)
    return typed.Reference(value.info, expr.span, expr.function, value)
