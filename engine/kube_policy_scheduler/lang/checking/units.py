"""The common unit of two numbers, and what to write if there is none. Reports errors."""

from __future__ import annotations

import msgspec

from kube_policy_scheduler.diagnostics import Diagnostic, Edit, Fix, Span
from kube_policy_scheduler.lang import codes, typed
from kube_policy_scheduler.lang.types import BYTES, CORES, PLAIN, SECONDS, SHARE, Info, Kind, Literal, Unit, number
from kube_policy_scheduler.wording import one_line


def constant_number(value: typed.Typed) -> float | None:
    """Return the number of an expression that has only one, else None."""
    info = value.info
    if info.type.kind is Kind.NUMBER and info.low == info.high and not info.maybe:
        return info.low
    return None


def common_unit(left: typed.Typed, right: typed.Typed, doing: str, found: list[Diagnostic], span: Span) -> Unit | None:
    """Return the unit that two numbers meet in, or None after reporting that they do not."""
    x, y = left.info, right.info
    a, b = x.type.unit, y.type.unit
    if Literal.PERCENT in (x.literal, y.literal) and x.literal is not y.literal:
        literal, other = (left, right) if x.literal is Literal.PERCENT else (right, left)
        if not other.info.type.unit.share and not (other.info.literal and other.info.type.unit.plain):
            found.append(_percent(literal, other))
            return None
        return SHARE
    if a.same_dimension(b):
        return msgspec.structs.replace(a, share=(a.share or bool(x.literal)) and (b.share or bool(y.literal)))
    for literal, other, unit in ((left, right, b), (right, left, a)):
        if constant_number(literal) == 0 and literal.info.literal:
            return unit
        if literal.info.literal and literal.info.literal.fits(unit):
            return unit
        if literal.info.literal and not other.info.literal:
            found.append(_literal_unit(literal, unit))
            return None
    found.append(codes.UNIT.at(span, f"can't {doing.format(left=a, right=b)}", help=_unit_advice(a, b)))
    return None


def in_unit(value: typed.Typed, unit: Unit, found: list[Diagnostic]) -> bool:
    """Return whether a number can be used where a unit is required, and report it if it cannot."""
    wanted = typed.Constant(Info(number(unit)), value.span, 0.0)
    return common_unit(value, wanted, "use {left} instead of {right}", found, value.span) is not None


def _percent(literal: typed.Typed, other: typed.Typed) -> Diagnostic:
    if not other.info.type.unit.plain:
        message = f"{literal.span.text} is a share, but `{other.span.text}` is {other.info.type}"
        advice = "compare a share: divide it by the total, such as node.allocatable.cpu"
        return codes.UNIT.at(literal.span, message, help=advice)
    value = constant_number(literal) or 0.0
    if other.span == literal.span:
        message = f"{literal.span.text} is a share, but a plain number is expected"
        return codes.PERCENT.at(literal.span, message, help=f"write a number, such as `{max(1, round(value)):g}`")
    message = f"{literal.span.text} is {value:g}, but `{other.span.text}` is a plain number"
    advice = f"write {value * 100:g} if it ranges from 0 to 100, {value:g} if from 0 to 1"
    return codes.PERCENT.at(literal.span, message, help=advice)


def _literal_unit(literal: typed.Typed, unit: Unit) -> Diagnostic:
    text = literal.span.text
    if literal.info.literal is Literal.QUANTITY:
        message = f"`{one_line(text, 40)}` is cpu, bytes or a plain number, but {unit} is expected"
        advice = "read the text with `duration(…)`" if unit.same_dimension(SECONDS) else _unit_advice(PLAIN, unit)
        return codes.UNIT.at(literal.span, message, help=advice)
    digits = text.rstrip("mkMGTPE%")
    if unit.same_dimension(SECONDS):
        if literal.info.literal is Literal.MILLI:
            message = f"`{text}` is {digits} thousandths, but a duration is expected"
            fix = Fix(f"write {digits}min", (Edit(literal.span, f"{digits}min"),))
            return codes.MINUTES.at(literal.span, message, help=f"write `{digits}min`", fix=fix)
        advice = f"add a unit: `{text}s`, `{text}min`, `{text}h` or `{text}d`"
        return codes.UNIT.at(literal.span, f"`{text}` has no unit, but a duration is expected", help=advice)
    if unit.same_dimension(BYTES):
        message = f"`{text}` has no unit, but bytes are expected"
        return codes.UNIT.at(literal.span, message, help=f"add a unit: `{digits}Gi` or `{digits}Mi`")
    message = f"`{text}` cannot be used as {unit}"
    return codes.UNIT.at(literal.span, message, help=_unit_advice(literal.info.type.unit, unit))


_PLAINLY = {BYTES: "bytes", SECONDS: "duration", CORES: "cpu"}


def _unit_advice(a: Unit, b: Unit) -> str:
    if {a, b} == {CORES, BYTES}:
        return "did you mean .mem instead of .cpu, or .cpu instead of .mem? Gi is for bytes, plain numbers are for cpu"
    if not a.plain and not b.plain:
        return "first divide each by an amount with the same unit"
    unit = b if a.plain else a
    example = {BYTES: "1Gi", SECONDS: "1h", CORES: "1core"}.get(unit)
    if example is None:
        return "convert both to the same unit"
    return f"divide the {_PLAINLY[unit]} by `{example}` for a plain number, or multiply the plain number by `{example}`"
