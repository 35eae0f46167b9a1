"""`count(p in node.pods where …)` and its like: aggregates over existing pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube_policy_scheduler.lang import codes_meaning as codes
from kube_policy_scheduler.lang import expressions, typed
from kube_policy_scheduler.lang.checking import operators
from kube_policy_scheduler.lang.checking.operators import unknown
from kube_policy_scheduler.lang.checking.scope import Scope
from kube_policy_scheduler.lang.environment import CLUSTER
from kube_policy_scheduler.lang.reading.literals import label_problem
from kube_policy_scheduler.lang.types import NUMBER, TRUTH, Depends, Info, Kind, Literal, Shape

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.checking.infer import Inference

_NOWHERE = object()


def aggregate(inference: Inference, expr: expressions.Aggregate, scope: Scope) -> typed.Typed:
    """Return the value of an aggregate."""
    found, span = inference.found, expr.span
    if scope.items:
        message = "an aggregate can't stand inside another"
        found.append(codes.NOT_HERE.at(span, message, help="name the inner one with `let` before"))
        return unknown(span)
    topology = _topology(inference, expr.collection)
    if topology is _NOWHERE:
        return unknown(span)
    assert topology is None or isinstance(topology, str)
    if topology != CLUSTER and not scope.nodes:
        message = f"`{expr.collection.span.text}` differs from node to node, but `{scope.statement}` knows only pods"
        found.append(codes.NO_NODE.at(span, message, help="use `cluster.pods`, or move it to a `filter`"))
        return unknown(span)
    inner = scope.over(expr.variable, statement=f"{expr.function}(…)")
    value = inference.infer(expr.value, inner) if expr.value is not None else None
    where = operators.truth(inference.infer(expr.where, inner), found) if expr.where is not None else None
    if any(part is not None and operators.bad(part) for part in (value, where)):
        return unknown(span)
    value = _checked(inference, expr, value)
    if value is not None and operators.bad(value):
        return unknown(span)
    info = _info(expr.function, topology, value, where)
    return typed.Fold(info, span, expr.function, topology, value, where)


def _topology(inference: Inference, collection: expressions.Expr) -> object:
    """Return the label key of the domains whose pods are meant, None for the node, or `_NOWHERE` after reporting."""
    topologies = inference.environment.topologies
    if isinstance(collection, expressions.Member) and collection.name == "pods":
        match collection.base:
            case expressions.Name(name="cluster"):
                return CLUSTER
            case expressions.Name(name=name) if name in topologies:
                return topologies[name]
            case expressions.Call(function="domain", arguments=(expressions.Text(value=key, span=at),), named=()):
                problem = label_problem(key, of="key")
                if not problem:
                    return key
                inference.found.append(codes.BAD_ARGUMENT.at(at, f"`{key}` can't be a label key", help=problem))
                return _NOWHERE
    names = ", ".join(f"`{name}.pods`" for name in (*topologies, "cluster"))
    advice = f'go over {names} or `domain("LABEL").pods`'
    inference.found.append(codes.WRONG_TYPE.at(collection.span, "expected pods to go over", help=advice))
    return _NOWHERE


def _checked(inference: Inference, expr: expressions.Aggregate, value: typed.Typed | None) -> typed.Typed | None:
    """Return the value that is aggregated, reporting one of the wrong kind or one too many."""
    found = inference.found
    match expr.function:
        case "count":
            if value is not None:
                advice = f"write `count({expr.variable} in {expr.collection.span.text} where …)`"
                found.append(codes.ARGUMENTS.at(value.span, "`count` counts pods, not values", help=advice))
                return unknown(value.span)
        case "any" | "all":
            if value is not None:
                return operators.truth(value, found)
            if expr.function == "all":
                advice = f"write `all(CONDITION for {expr.variable} in {expr.collection.span.text})`"
                found.append(codes.ARGUMENTS.at(expr.span, "`all` needs a condition", help=advice))
                return unknown(expr.span)
        case _:
            if value is None:
                advice = f"write `{expr.function}({expr.variable}.request.cpu for {expr.variable} in …)`"
                found.append(codes.ARGUMENTS.at(expr.span, f"`{expr.function}` of what?", help=advice))
                return unknown(expr.span)
            if value.info.type.kind is not Kind.NUMBER:
                found.append(operators.wrong_type(value, "a number"))
                return unknown(value.span)
    return value


def _info(function: str, topology: str | None, *values: typed.Typed | None) -> Info:
    given = [value for value in values if value is not None]
    _, _, depends = operators.joined(*given)
    depends |= Depends.ROW if topology is None else Depends.CLUSTER | Depends.NODE
    shape = Shape.DECISION if topology == CLUSTER else Shape.NODE
    match function:
        case "count":
            return Info(NUMBER, shape, False, depends, 0, 1e9)
        case "any" | "all":
            return Info(TRUTH, shape, False, depends)
        case _:
            info = given[0].info
            low, high = (info.low, info.high) if function != "sum" else (min(0.0, info.low * 1e9), info.high * 1e9)
            literal = Literal.PLAIN if info.literal else None
            return Info(info.type, shape, function != "sum", depends, low, high, literal)
