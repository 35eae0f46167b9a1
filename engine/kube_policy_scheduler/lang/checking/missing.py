"""Why a value can be missing, and what to write then."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.checking import intervals
from kube_policy_scheduler.lang.types import BYTES, Depends, Info, Kind, Shape

Known: TypeAlias = frozenset[tuple[str, Hashable]]
"""Facts about values from the conditions around them, by `typed.key`: ("present", key), ("nonzero", key)."""
_NOTHING: Known = frozenset()
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def missing_part(value: typed.Typed, *, when: typed.Typed | None = None) -> typed.Typed | None:
    """Return the part for which a value may be missing; None if the conditions around each part rule it out.

    `x is missing or x < 40` always has an answer: where `x` is missing, the first condition holds.

    Args:
        value: a number or a bool.
        when: only if this holds.
    """
    if when is not None:
        return missing_part(when) or _missing(value, _known(when, True))
    return _missing(value, _NOTHING)


def _missing(value: typed.Typed, known: Known) -> typed.Typed | None:
    if not value.info.maybe or ("present", typed.key(value)) in known:
        return None
    match value:
        case typed.Reference(value=inner):
            return value if _missing(inner, known) is not None else None
        case typed.Logic(operator=operator, operands=operands):
            return _missing_operand(operands, operator == "and", known)
        case typed.Conditional(condition=condition, then=then, otherwise=other):
            return (
                _missing(condition, known)
                or _missing(then, known | _known(condition, True))
                or _missing(other, known | _known(condition, False))
            )
        case typed.Otherwise(left=left, right=right):
            return _missing(right, known) if _missing(left, known) is not None else None
        case typed.Arithmetic(operator=operator, left=left, right=right):
            found = _missing(left, known) or _missing(right, known)
            by_zero = operator in "/%" and right.info.low <= 0 <= right.info.high
            if by_zero and ("nonzero", typed.key(right)) in known:
                return found
            too_large = max(-value.info.low, value.info.high) > intervals.LIMIT
            return found or (value if by_zero or too_large else None)
        case typed.Apply(builtin=builtin, arguments=arguments):
            for argument in arguments:
                if _missing(argument, known) is not None:
                    return value if argument.info.type.kind is Kind.TEXT else _missing(argument, known)
            return value if builtin.gives.maybe and value.info.maybe else None
        case typed.Not() | typed.Negative() | typed.Compare() | typed.Same() | typed.Contained() | typed.ListOf():
            return next((found for part in typed.parts(value) if (found := _missing(part, known)) is not None), None)
        case _:
            return value


def _missing_operand(operands: Sequence[typed.Typed], both: bool, known: Known) -> typed.Typed | None:
    """Return the part for which `a and b` (both) or `a or b` may be missing.

    The whole is missing only if one operand is, and no other decides it. So the first that is missing comes after
    others that are true (of `and`; false of `or`), as are those that are never missing, at any place.
    """
    for operand in operands:
        if not operand.info.maybe:
            known = known | _known(operand, both)
    for operand in operands:
        found = _missing(operand, known)
        if found is not None:
            return found
        known = known | _known(operand, both)
    return None


def _known(condition: typed.Typed, truth: bool) -> Known:
    """Return the facts if a condition is true, or if it is false; not if it is missing."""
    match condition:
        case typed.Reference(value=inner):
            return _known(inner, truth)
        case typed.Not(operand=operand):
            return _known(operand, not truth)
        case typed.Logic(operator=operator, operands=operands) if (operator == "and") is truth:
            return _NOTHING.union(*(_known(operand, truth) for operand in operands))
        case typed.Missing(operand=operand, negated=negated) if truth is negated:
            return _present(operand)
        case typed.Compare(operator=operator, left=left, right=right):
            sign = operator if truth else _OPPOSITE[operator]
            known = _present(left) | _present(right)
            return known | _nonzero(left, sign, right) | _nonzero(right, _MIRRORED[sign], left)
        case _:
            return _NOTHING


def _present(value: typed.Typed) -> Known:
    """Return that a value is present, and so are the operands that it requires."""
    known: Known = frozenset({("present", typed.key(value))})
    inner = typed.inner(value)
    if isinstance(inner, typed.Arithmetic | typed.Negative):
        known = known.union(*(_present(part) for part in typed.parts(inner)))
    return known


def _nonzero(value: typed.Typed, sign: str, other: typed.Typed) -> Known:
    """Return that a value is not 0, if its comparison with another implies so."""
    low, high = other.info.low, other.info.high
    says = {
        ">": low >= 0, ">=": low > 0, "<": high <= 0, "<=": high < 0,
        "!=": low == high == 0, "==": low > 0 or high < 0,
    }  # fmt: skip
    return frozenset({("nonzero", typed.key(value))}) if says[sign] else _NOTHING


def why(cause: typed.Typed) -> tuple[str, ...]:
    """Return why such a value can be missing, as notes."""
    match cause:
        case typed.Reference(value=value):
            return why(missing_part(value) or value)
        case typed.Arithmetic(operator="/" | "%"):
            return ("the result of a division by zero is missing, not zero",)
        case typed.Apply(builtin=builtin, info=info) if builtin.depends & Depends.SIGNAL:
            if info.shape is not Shape.NODE:
                return ("a metric is missing without a fresh sample, for example while Prometheus is down",)
            return ("a metric is missing for nodes without a fresh sample, and for all nodes while Prometheus is down",)
        case typed.MemberAggregate():
            return ("the value is missing if nothing reads the nodes and pods of the cluster",)
        case typed.Read(info=Info(shape=Shape.NODE), key=str(key)):
            return (f"nodes without {key} have no value",)
        case _:
            return ()


def remedy(cause: typed.Typed) -> str:
    """Return the value with a place for a default: `promql("…") ?? …`."""
    shown = " ".join(cause.span.text.split())
    aggregates = typed.Aggregate | typed.NodeAggregate | typed.MemberAggregate | typed.ListAggregate
    bare = isinstance(cause, typed.Read | typed.Apply | typed.Reference | typed.Element | aggregates)
    number = "0Gi" if cause.info.type.unit.same_dimension(BYTES) else "…"
    default = {Kind.NUMBER: number, Kind.VERSION: 'version("0")'}.get(cause.info.type.kind, "true")
    return f"{shown if bare else f'({shown})'} ?? {default}"


def misplaced_default(value: typed.Typed) -> str:
    """Return how to write `a - b ?? c`, where `a` is what can be missing: `(a - b) ?? c`; "" if nothing is so."""
    return next((written for part in typed.below(value) if (written := default_of_all(part))), "")


def default_of_all(value: typed.Typed) -> str:
    """Return an operation whose right side has a default that is never used with the default for all of it; or ""."""
    if not isinstance(value, typed.Arithmetic | typed.Compare | typed.Same) or not value.left.info.maybe:
        return ""
    right = value.right
    if not isinstance(right, typed.Otherwise) or right.left.info.maybe or right.span.start != right.left.span.start:
        return ""
    source = value.span.source.text
    whole = " ".join(source[value.left.span.start : right.left.span.end].split())
    return f"({whole}) ?? {' '.join(right.right.span.text.split())}"
