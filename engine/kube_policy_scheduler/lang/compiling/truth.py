"""`and`, `or`, `not` and `is missing`, over columns."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import MISSING, TRUE, is_nan
from kube_policy_scheduler.lang.environment import Texts
from kube_policy_scheduler.lang.types import Kind, Shape

if TYPE_CHECKING:
    from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate


def logic(compiler: Compiler, value: typed.Logic) -> Evaluate:
    """Return the callable of a chain of `and` or of `or`."""
    both = value.operator == "and"
    if not value.info.maybe:
        return _plain_logic([compiler.compile(o) for o in value.operands], both, value.info.shape)
    operands = [compiler.kleene(o) for o in value.operands]
    if value.info.shape is Shape.NODE:
        combine: Callable[[Any, Any], Any] = np.minimum if both else np.maximum
    else:
        combine = min if both else max

    def chain(frame: Any) -> Any:
        result = operands[0](frame)
        for operand in operands[1:]:
            result = combine(result, operand(frame))
        return result

    if value.info.shape is not Shape.NODE:
        return chain
    return lambda frame: np.asarray(chain(frame), np.uint8)


def presence(compiler: Compiler, value: typed.Missing) -> Evaluate:
    """Return the callable of `x is missing`, or `x is not missing`."""
    x, info, there = compiler.compile(value.operand), value.operand.info, value.negated
    match info.type.kind:
        case Kind.TEXT if info.maybe:

            def absent(frame: Any) -> Any:
                text = x(frame)
                if isinstance(text, Texts):
                    return text.codes >= 0 if there else text.codes < 0
                return (text is not None) is there

            return absent
        case Kind.NUMBER if info.maybe:
            nothing: Evaluate = lambda frame: is_nan(x(frame))  # noqa: E731
            return negation(nothing, maybe=False) if there else nothing
        case Kind.TRUTH if info.maybe:
            compare = operator.ne if there else operator.eq
            return lambda frame: compare(x(frame), MISSING)
        case _ if info.shape is Shape.NODE:
            return lambda frame: np.full(frame.size, there, np.bool_)
        case _:
            return lambda frame: there


def negation(evaluate: Evaluate, *, maybe: bool) -> Evaluate:
    """Return the callable of `not x`."""
    if maybe:
        return lambda frame: TRUE - evaluate(frame)

    def negated(frame: Any) -> Any:
        value = evaluate(frame)
        return ~value if isinstance(value, np.ndarray) else not value

    return negated


def _plain_logic(operands: list[Evaluate], both: bool, shape: Shape) -> Evaluate:
    if shape is not Shape.NODE:
        if both:
            return lambda frame: all(operand(frame) for operand in operands)
        return lambda frame: any(operand(frame) for operand in operands)
    combine: Callable[[Any, Any], Any] = operator.and_ if both else operator.or_
    if len(operands) == 2:
        first, second = operands
        return lambda frame: combine(first(frame), second(frame))

    def logic(frame: Any) -> Any:
        result = operands[0](frame)
        for operand in operands[1:]:
            result = combine(result, operand(frame))
        return result

    return logic
