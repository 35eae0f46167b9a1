"""Bare names: parameters, `let` and `metric`, and what to say of unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.diagnostics import Diagnostic, Span, closest
from engine.lang import codes_meaning as codes
from engine.lang import operators, syntax, typed
from engine.lang.members import read_member
from engine.lang.operators import unknown
from engine.lang.scope import Scope

if TYPE_CHECKING:
    from engine.lang.infer import Definition, Inference


def name_value(inference: Inference, expr: syntax.Name, scope: Scope) -> typed.Typed:
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
    inference.found.append(_unknown_name(inference, expr, scope))
    return unknown(expr.span)


def _unknown_name(inference: Inference, expr: syntax.Name, scope: Scope) -> Diagnostic:
    name = expr.name
    if name in ("node", "pod") or name in scope.items:
        root = "pod" if name in scope.items else name
        message = f"`{name}` by itself is no value"
        advice = f"name a field of it, such as `{name}.{'label.app' if root == 'pod' else 'ready'}`"
        return codes.UNKNOWN_NAME.at(expr.span, message, help=advice)
    if name in inference.environment.builtins:
        advice = f"call it: `{inference.environment.builtins[name].signature}`"
        return codes.UNKNOWN_NAME.at(expr.span, f"`{name}` is a function", help=advice)
    fields = [path for path in inference.environment.fields if path.split(".")[-1] == name]
    known = [*inference.definitions, *scope.parameters, *scope.items]
    meant = closest(name, known)
    if meant:
        advice = f"did you mean `{meant}`?"
    elif fields:
        advice = f"did you mean `{fields[0]}`?"
    elif scope.parameters or known:
        advice = f"the names here are {', '.join(sorted(known))}; texts stand in quotes"
    else:
        advice = f'texts stand in quotes: "{name}"; names are made with `let {name} = …`'
    return codes.UNKNOWN_NAME.at(expr.span, f"unknown name `{name}`", help=advice)


def _reference(inference: Inference, definition: Definition, span: Span, scope: Scope) -> typed.Typed:
    value = inference.value_of(definition, span)
    if operators.bad(value):
        return unknown(span)
    inference.reaches(definition.levels)
    reference = typed.Reference(value.info, span, definition.tree.name, value)
    return reference if inference.allowed(reference, scope) else unknown(span)
