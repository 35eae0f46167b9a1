"""Results of operators by type: units, bounds, missing values. Reports errors, and continues with `Unknown`."""

from __future__ import annotations

import re

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Span
from kube_policy_scheduler.lang import codes, typed
from kube_policy_scheduler.lang.checking import intervals
from kube_policy_scheduler.lang.checking.units import common_unit
from kube_policy_scheduler.lang.reading.literals import number as read_number
from kube_policy_scheduler.lang.types import (
    CONDITION_WORDS,
    SHARE,
    TEXT,
    TRUTH,
    UNKNOWN_INFO,
    Depends,
    Info,
    Kind,
    Literal,
    Shape,
    Unit,
    number,
)
from kube_policy_scheduler.wording import one_line

_WORDS = {"+": "add {right} to {left}", "-": "subtract {right} from {left}", "%": "divide {left} by {right}"}


def unknown(span: Span) -> typed.Unknown:
    """Return the value of a reported error."""
    return typed.Unknown(UNKNOWN_INFO, span)


def joined(*values: typed.Typed) -> tuple[Shape, bool, Depends]:
    """Return shape, maybe and dependencies of a combination of values."""
    shape, maybe, depends = Shape.DECISION, False, Depends.NOTHING
    for value in values:
        info = value.info
        if info.shape is not Shape.DECISION and shape is not Shape.NODE:
            shape = info.shape
        maybe = maybe or info.maybe
        depends |= info.depends
    return shape, maybe, depends


def wrong_type(value: typed.Typed, wanted: str, *, advice: str = "") -> Diagnostic:
    """Return the diagnostic for a value of another kind than expected."""
    return codes.WRONG_TYPE.at(value.span, f"expected {wanted}, this is {value.info.type}", help=advice or _turn(value))


def _turn(value: typed.Typed) -> str:
    """Return how a value of this kind is commonly turned into the intended one."""
    match value.info.type.kind:
        case Kind.TEXT if isinstance(value, typed.Constant):
            return "remove the quotes if a number is meant"
        case Kind.TEXT:
            return "compare it with ==, or turn it into a number with number(…), or into a version with version(…)"
        case Kind.VERSION:
            return 'compare it with a version, such as `>= version("1.33")`'
        case Kind.NUMBER:
            return "compare it with a number, such as `> 0`"
        case Kind.TRUTH:
            return "choose numbers with `if … then 1 else 0`"
        case Kind.LIST:
            return "use `in` to test whether a value is in the list"
        case _:
            return ""


def has_unknown(*values: typed.Typed) -> bool:
    """Return whether one of the values is unknown, so that nothing more is reported."""
    return any(value.info.type.kind is Kind.UNKNOWN for value in values)


def arithmetic(
    operator: str, left: typed.Typed, right: typed.Typed, found: list[Diagnostic], *, span: Span, at: Span
) -> typed.Typed:
    """Return `left operator right`."""
    numbers = True
    for value in (left, right):
        if not has_unknown(value) and value.info.type.kind is not Kind.NUMBER:
            found.append(wrong_type(value, "a number"))
            numbers = False
    if has_unknown(left, right) or not numbers:
        return unknown(span)
    if operator in "*/":
        unit: Unit | None = left.info.type.unit.times(right.info.type.unit, sign=1 if operator == "*" else -1)
        unit = _scaled(unit or Unit(), left, right, operator)
    else:
        unit = common_unit(left, right, _WORDS[operator], found, at)
    if unit is None:
        return unknown(span)
    x, y = left.info, right.info
    low, high = intervals.arithmetic(operator, (x.low, x.high), (y.low, y.high))
    shape, maybe, depends = joined(left, right)
    divides = operator in "/%" and y.low <= 0 <= y.high
    overflows = max(-low, high) > intervals.LIMIT
    literal = _literal_of(operator, x, y) if unit.plain and not unit.share else None
    info = Info(number(unit), shape, maybe or divides or overflows, depends, low, high, literal)
    return typed.Arithmetic(info, span, operator, left, right)


def _literal_of(operator: str, left: Info, right: Info) -> Literal | None:
    """Return how the result of plain numbers takes the unit of the other operand."""
    quantities = [info.literal is Literal.QUANTITY for info in (left, right)]
    if operator == "*" and any(quantities):
        return None if all(quantities) else Literal.QUANTITY
    if operator in "/%" and any(quantities):
        return Literal.QUANTITY if quantities == [True, False] else None
    return merged_literal(left, right)


def merged_literal(left: Info, right: Info) -> Literal | None:
    """Return how one of two numbers, or a result of them, takes the unit of the other operand."""
    if not left.literal or not right.literal:
        return None
    return Literal.QUANTITY if Literal.QUANTITY in (left.literal, right.literal) else Literal.PLAIN


def _scaled(unit: Unit, left: typed.Typed, right: typed.Typed, operator: str) -> Unit:
    """Return the unit of a product or quotient with a literal: half of a share is a share."""
    if unit.plain and right.info.literal and left.info.type.unit.share:
        return SHARE if right.info.literal is Literal.PERCENT or operator == "/" else unit
    return unit


def negative(operand: typed.Typed, found: list[Diagnostic], *, span: Span) -> typed.Typed:
    """Return `-operand`."""
    if has_unknown(operand):
        return unknown(span)
    if operand.info.type.kind is not Kind.NUMBER:
        found.append(wrong_type(operand, "a number"))
        return unknown(span)
    low, high = intervals.negative((operand.info.low, operand.info.high))
    info = msgspec.structs.replace(operand.info, low=low, high=high)
    if isinstance(operand, typed.Constant):
        return typed.Constant(info, span, -operand.value)
    return typed.Negative(info, span, operand)


def comparison(
    operator: str, left: typed.Typed, right: typed.Typed, found: list[Diagnostic], *, span: Span, at: Span
) -> typed.Typed:
    """Return `left operator right` for one of `== != < <= > >=`."""
    if has_unknown(left, right):
        return unknown(span)
    if operator in ("==", "!="):
        left, right = _beside(left, right), _beside(right, left)
    a, b = left.info.type.kind, right.info.type.kind
    shape, maybe, depends = joined(left, right)
    if a is b is Kind.VERSION:
        return typed.Compare(Info(TRUTH, shape, maybe, depends), span, operator, left, right)
    if Kind.VERSION in (a, b):
        found.append(
            wrong_type(left if b is Kind.VERSION else right, "a version as on the other side", advice=_VERSION)
        )
        return unknown(span)
    if a is b is Kind.NUMBER:
        if common_unit(left, right, "compare {left} with {right}", found, at) is None:
            return unknown(span)
        return typed.Compare(Info(TRUTH, shape, maybe, depends), span, operator, left, right)
    if operator not in ("==", "!="):
        value, other = (left, right) if a is not Kind.NUMBER else (right, left)
        advice = _text_advice(value, other) if value.info.type.kind is Kind.TEXT else ""
        if not advice and isinstance(value, typed.Constant) and other.info.type.kind is Kind.NUMBER:
            advice = _of_number(other)
        problem = wrong_type(value, f"a number as operand of `{operator}`", advice=advice)
        found.append(_with_fix(problem, _written(operator, left, right), span))
        return unknown(span)
    if a is b is Kind.LIST:
        found.append(codes.WRONG_TYPE.at(span, "lists can't be compared", help=_compare_advice(left, right)))
        return unknown(span)
    if a is not b or a not in (Kind.TEXT, Kind.TRUTH):
        value, other = (right, left) if a in (Kind.TEXT, Kind.TRUTH, Kind.NUMBER) else (left, right)
        problem = wrong_type(value, f"{other.info.type} as on the other side", advice=_compare_advice(left, right))
        found.append(_with_fix(problem, _written(operator, left, right), span))
        return unknown(span)
    # an absent text equals nothing, so comparing texts always gives an answer
    info = Info(TRUTH, shape, maybe and a is Kind.TRUTH, depends)
    return typed.Same(info, span, operator == "!=", left, right)


def is_status(value: typed.Typed) -> bool:
    """Return whether a value is the status of a condition: one of three words, and whether it is `True` as truth."""
    return value.info.words == frozenset(CONDITION_WORDS)


def _beside(value: typed.Typed, other: typed.Typed) -> typed.Typed:
    """Return a value as it compares with another.

    `true` beside the status of a condition is that status, a status beside any other truth is a truth. All else stays
    as it is.
    """
    if value.info.type.kind is Kind.TRUTH and isinstance(value, typed.Constant) and is_status(other):
        word = str(value.value)
        return typed.Constant(Info(TEXT, words=frozenset((word,))), value.span, word)
    is_truth = other.info.type.kind is Kind.TRUTH and not isinstance(other, typed.Constant)
    return _as_truth(value) if is_truth and is_status(value) else value


def _as_truth(value: typed.Typed) -> typed.Typed:
    """Return whether the status of a condition is `True`."""
    true = typed.Constant(Info(TEXT, words=frozenset(("True",))), value.span, "True")
    return typed.Same(Info(TRUTH, value.info.shape, False, value.info.depends), value.span, False, value, true)


_CLOCK_TIME = r"(\d{1,2}):\d\d"
_DATE = r"\d{4}-\d\d-\d\d.*"
_VERSION_TEXT = r"v?\d+(\.\d+)+.*"


def _text_advice(value: typed.Typed, other: typed.Typed) -> str:
    """Return how to compare a text with another value by order; "" if nothing special is known."""
    constants = (value, other)
    text = next((v.value for v in constants if isinstance(v, typed.Constant) and isinstance(v.value, str)), "")
    shown, unit = " ".join(value.span.text.split()), other.info.type.unit
    if clock := re.fullmatch(_CLOCK_TIME, text):
        return f'write the hour as a number, `{int(clock[1])}`, or `between("{text}", "…")`'
    if other.info.type.kind is Kind.TEXT and re.fullmatch(_VERSION_TEXT, text):
        sides = (f"version({' '.join(v.span.text.split())})" for v in constants)
        return f"compare versions: `{' … '.join(sides)}`"
    if other.info.type.kind is not Kind.NUMBER:
        return ""
    if unit.seconds and not isinstance(value, typed.Constant):
        return f"read the text: `duration({shown})`, or `time({shown})`"
    if unit.seconds:
        is_date = re.fullmatch(_DATE, text) is not None
        return f'write `time("{text}")`' if is_date else "write a duration such as `5min`, without quotes"
    if not isinstance(value, typed.Constant) and (unit.bytes or not unit.plain):
        return f"read the text: `quantity({shown})`"
    if isinstance(value, typed.Read) and value.field.path in ("node.kernel", "node.kubelet", "node.container_runtime"):
        return f'compare versions: `version({shown})` and `version("{other.span.text}")`'
    return ""


def _with_fix(problem: Diagnostic, written: str, span: Span) -> Diagnostic:
    """Return a diagnostic with the fix that writes a text in the place of a span; as it is without a text."""
    if not written:
        return problem
    fix = Fix(f"write {one_line(written, 60)}", (Edit(span, written),))
    return msgspec.structs.replace(problem, help=f"write `{one_line(written, 60)}`", fix=fix)


def _written(operator: str, left: typed.Typed, right: typed.Typed) -> str:
    """Return what to write for a comparison of a truth or a number with a constant that means one; "" if none does."""
    value, constant = (left, right) if isinstance(right, typed.Constant) else (right, left)
    if not isinstance(constant, typed.Constant) or isinstance(value, typed.Constant):
        return ""
    text = constant.value if isinstance(constant.value, str) else constant.span.text
    shown, said = " ".join(value.span.text.split()), text.strip().lower()
    if value.info.type.kind is Kind.TRUTH and operator in ("==", "!=") and said in _TRUE | _FALSE:
        return shown if (said in _TRUE) == (operator == "==") else f"not {shown}"
    if value.info.type.kind is Kind.NUMBER and _is_number(text):
        return f"{shown} {operator} {text}" if value is left else f"{text} {operator} {shown}"
    return ""


def _is_number(text: str) -> bool:
    return re.fullmatch(_NUMBER_TEXT, text) is not None and not read_number(text)[2]


_TRUE, _FALSE = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})
_NUMBER_TEXT = r"\d+(?:\.\d+)?(?:[A-Za-z]+|%)?"
_VERSION = 'write `version("…")`; a version compares only with versions'
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _compare_advice(left: typed.Typed, right: typed.Typed) -> str:
    kinds = {left.info.type.kind, right.info.type.kind}
    if kinds == {Kind.TEXT, Kind.NUMBER}:
        literal = next((v for v in (left, right) if v.info.literal and isinstance(v, typed.Constant)), None)
        if literal is not None:
            return f'write "{literal.span.text}" in quotes, or number(…) around the text'
        text = next(
            (v.value for v in (left, right) if isinstance(v, typed.Constant) and isinstance(v.value, str)), None
        )
        day = _DAYS.index(text[:3].lower()) + 1 if text is not None and text[:3].lower() in _DAYS else None
        if day is not None:
            return f"write {day}: Monday is 1, Sunday 7"
        if text is not None and _is_number(text):
            return "write the number without quotes"
        if text is None:
            return "turn the text into a number with number(…)"
        return _of_number(left if left.info.type.kind is Kind.NUMBER else right)
    if kinds == {Kind.NUMBER, Kind.TRUTH} and any(isinstance(v, typed.Constant) for v in (left, right)):
        return "write `true` or `false`"
    if kinds == {Kind.TEXT, Kind.TRUTH}:
        text_side, truth = (left, right) if left.info.type.kind is Kind.TEXT else (right, left)
        if isinstance(text_side, typed.Constant):
            return "write it alone, without a comparison: it is true or false already"
        if isinstance(truth, typed.Constant):
            return f'labels are texts: write "{str(truth.value).lower()}" in quotes'
        return f'compare the text first: `({one_line(text_side.span.text, 40)} == "true")`'
    if Kind.LIST in kinds:
        return "use `in` to test whether a value is in the list"
    return ""


def _of_number(value: typed.Typed) -> str:
    """Return how to compare a number that a text was compared with."""
    inner = typed.inner(value)
    if isinstance(inner, typed.Read) and inner.field.path == "pod.priority":
        return "priorities are numbers, the `value` of the PriorityClass: write for example `pod.priority >= 1000`"
    shown = one_line(value.span.text, 40)
    return f"it is a number: compare it with one, such as `{shown} > 0`"


def contained(
    item: typed.Typed, list_: typed.Typed, found: list[Diagnostic], *, negated: bool, span: Span
) -> typed.Typed:
    """Return `item in list`."""
    if has_unknown(item, list_):
        return unknown(span)
    if list_.info.type.kind is not Kind.LIST:
        advice, shown = 'write a list such as ["a", "b"]', " ".join(list_.span.text.split())
        if list_.info.type.kind is Kind.TEXT and not isinstance(list_, typed.Constant) and len(shown) < 60:
            advice = f'split the text: `split({shown}, ",")`'
        found.append(wrong_type(list_, "a list after `in`", advice=advice))
        return unknown(span)
    if list_.info.type.item not in (item.info.type.kind, None):
        wanted = f"{list_.info.type.item.value} as in the list" if list_.info.type.item else ""
        advice = ""
        if item.info.type.kind is Kind.NUMBER and isinstance(list_, typed.Constant):
            advice = "write the items without quotes"
        elif item.info.type.kind is Kind.TRUTH:
            advice = f"it is true or false already: write `{one_line(item.span.text, 40)}` alone"
        found.append(wrong_type(item, wanted, advice=advice))
        return unknown(span)
    shape, maybe, depends = joined(item, list_)
    info = Info(TRUTH, shape, maybe and item.info.type.kind is not Kind.TEXT, depends)
    return typed.Contained(info, span, negated, item, list_)


def truth(value: typed.Typed, found: list[Diagnostic]) -> typed.Typed:
    """Return a value where true or false is required: a condition is whether it is True, another text its presence."""
    match value.info.type.kind:
        case Kind.TRUTH | Kind.UNKNOWN:
            return value
        case Kind.TEXT if is_status(value):
            return _as_truth(value)
        case Kind.TEXT if value.info.maybe:
            info = Info(TRUTH, value.info.shape, False, value.info.depends)
            return typed.Missing(info, value.span, True, value, implied=True)
    found.append(wrong_type(value, "true or false"))
    return unknown(value.span)


def missing(operand: typed.Typed, *, negated: bool, span: Span) -> typed.Typed:
    """Return `operand is missing`."""
    if has_unknown(operand):
        return unknown(span)
    info = Info(TRUTH, operand.info.shape, False, operand.info.depends)
    return typed.Missing(info, span, negated, operand)


def otherwise(left: typed.Typed, right: typed.Typed, found: list[Diagnostic], *, span: Span, at: Span) -> typed.Typed:
    """Return `left ?? right`."""
    if not left.info.maybe and not has_unknown(left, right):  # needless, or `??` is in the wrong place: lint reports it
        return typed.Otherwise(left.info, span, left, right)
    if is_status(left) and right.info.type.kind is Kind.TRUTH:
        # the status of a condition that the node does not have
        absent = missing(left, negated=False, span=left.span)
        return choose(absent, right, _as_truth(left), found, span=span)
    merged = merge(left, right, found, at=at, doing="use {right} as default of {left}")
    if merged is None:
        return unknown(span)
    return typed.Otherwise(
        msgspec.structs.replace(merged, maybe=left.info.maybe and right.info.maybe), span, left, right
    )


def choose(
    condition: typed.Typed, then: typed.Typed, other: typed.Typed, found: list[Diagnostic], *, span: Span
) -> typed.Typed:
    """Return `if condition then … else …`."""
    condition = truth(condition, found)
    if Kind.TRUTH in (then.info.type.kind, other.info.type.kind):
        then, other = (_as_truth(value) if is_status(value) else value for value in (then, other))
    merged = merge(then, other, found, at=other.span, doing="choose between {left} and {right}")
    if merged is None or has_unknown(condition):
        return unknown(span)
    shape, maybe, depends = joined(condition, then, other)
    return typed.Conditional(
        msgspec.structs.replace(merged, shape=shape, maybe=maybe, depends=depends), span, condition, then, other
    )


_FREE = (Literal.PLAIN, Literal.QUANTITY)


def merge(left: typed.Typed, right: typed.Typed, found: list[Diagnostic], *, at: Span, doing: str) -> Info | None:
    """Return what is known of a value that is one of two, or None after reporting that it cannot be."""
    if has_unknown(left, right):
        return None
    x, y = left.info, right.info
    type_ = x.type if x.type.item is not None else y.type
    if x.type.kind is not y.type.kind or y.type.item not in (type_.item, None):
        found.append(wrong_type(right, f"{x.type} as on the other side", advice=_compare_advice(left, right)))
        return None
    if x.type.kind is Kind.NUMBER:
        unit = common_unit(left, right, doing, found, at)
        if unit is None:
            return None
        type_ = number(unit)
    low, high = intervals.hull((x.low, x.high), (y.low, y.high))
    shape, maybe, depends = joined(left, right)
    literal = merged_literal(x, y) if x.literal in _FREE and y.literal in _FREE else None
    words = x.words | y.words if x.words is not None and y.words is not None else None
    return Info(type_, shape, maybe, depends, low, high, literal, words)
