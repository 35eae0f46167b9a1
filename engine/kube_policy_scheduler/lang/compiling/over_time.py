"""Numbers that change as time passes, as straight lines: the order of a queue of waiting pods.

A value such as `min(pod.waiting / 10min, 5)` is a line up to a moment, then another one. Pods whose lines have the same
slope keep their order, so a queue need not be sorted again; the line itself gives its end. What is not a line
(`sqrt(pod.waiting)`, `hour()`, a metric) is treated as constant, and evaluated again after a few seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from kube_policy_scheduler.lang import typed
from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE, divide
from kube_policy_scheduler.lang.compiling.expressions import Compiler, Evaluate
from kube_policy_scheduler.lang.types import Depends, Kind

LOOK_AGAIN_SECONDS = 5.0
"""How late a change may be seen that is not a line's end. As often as held pods are looked at."""
_SOON = 0.001
"""A line holds at least this long, in seconds, even if its rounded end is earlier."""
CHANGING = Depends.CLOCK | Depends.SIGNAL
"""What changes while a pod waits."""


class Line(NamedTuple):
    """A number, a text or a truth over time; all that is not a number has no slope."""

    base: Any
    """Its value at the time 0; NaN is missing. Of truths: 0 false, 1 missing, 2 true."""
    slope: float = 0.0
    """Per second."""
    until: float = math.inf
    """It holds before this moment, Unix seconds."""

    def at(self, now: float) -> Any:
        """Return the value at a moment, Unix seconds."""
        return self.base + self.slope * now if self.slope else self.base


Moving: TypeAlias = Callable[[Any], Line]
"""From a frame to a line."""


def moving(compiler: Compiler, value: typed.Typed) -> Moving:
    """Return the callable of a value over time."""
    if not value.info.depends & CHANGING:
        made = compiler.kleene(value) if value.info.type.kind is Kind.TRUTH else compiler.compile(value)
        return lambda frame: Line(made(frame))
    found = _moving(compiler, value)
    return found if found is not None else _constant(compiler, value)


def _constant(compiler: Compiler, value: typed.Typed) -> Moving:
    made: Evaluate = compiler.kleene(value) if value.info.type.kind is Kind.TRUTH else compiler.compile(value)
    return lambda frame: Line(made(frame), 0.0, frame.now + LOOK_AGAIN_SECONDS)


def _moving(compiler: Compiler, value: typed.Typed) -> Moving | None:
    match value:
        case typed.Reference(value=inner):
            return moving(compiler, inner)
        case typed.Read(field=field, key=None):
            return field.over_time
        case typed.Apply(builtin=builtin, arguments=arguments) if builtin.over_time is not None:
            over_time = builtin.over_time
            lines = [moving(compiler, argument) for argument in arguments]
            return lambda frame: over_time(frame.now, *(line(frame) for line in lines))
        case typed.Negative(operand=operand):
            line = moving(compiler, operand)
            return lambda frame: scaled(line(frame), -1.0)
        case typed.Arithmetic(operator="+" | "-" | "*" | "/" as operator, left=left, right=right):
            combine = _ARITHMETIC[operator]
            a, b = moving(compiler, left), moving(compiler, right)
            return lambda frame: combine(frame.now, a(frame), b(frame))
        case typed.Compare(operator=operator, left=left, right=right):
            a, b = moving(compiler, left), moving(compiler, right)
            return lambda frame: _compared(operator, frame.now, a(frame), b(frame))
        case typed.Not(operand=operand):
            line = moving(compiler, operand)
            return lambda frame: (found := line(frame))._replace(base=TRUE - found.base)
        case typed.Logic(operator=operator, operands=operands):
            parts = [moving(compiler, operand) for operand in operands]
            choose = min if operator == "and" else max
            return lambda frame: _all_of(choose, [part(frame) for part in parts])
        case typed.Conditional(condition=condition, then=then, otherwise=otherwise):
            absent: Any = math.nan if value.info.type.kind is Kind.NUMBER else None
            absent = MISSING if value.info.type.kind is Kind.TRUTH else absent
            asks, x, y = (moving(compiler, part) for part in (condition, then, otherwise))
            return lambda frame: _chosen(asks(frame), x, y, frame, absent)
        case typed.Otherwise(left=left, right=right) if value.info.type.kind is Kind.NUMBER:
            a, b = moving(compiler, left), moving(compiler, right)
            return lambda frame: _or_else(a(frame), b, frame)
        case _:
            return None


# --- operations ------------------------------------------------------------------------------------------


def scaled(line: Line, factor: float) -> Line:
    """Return a line times a constant."""
    return Line(line.base * factor, line.slope * factor, line.until)


def least(now: float, *lines: Line) -> Line:
    """Return the smallest of lines, until another one is."""
    found = lines[0]
    for line in lines[1:]:
        found = _lesser(now, found, line)
    return found


def largest(now: float, *lines: Line) -> Line:
    """Return the largest of lines, until another one is."""
    return scaled(least(now, *(scaled(line, -1.0) for line in lines)), -1.0)


def limited(now: float, line: Line, low: Line, high: Line) -> Line:
    """Return a line within bounds; the upper one wins."""
    return least(now, largest(now, line, low), high)


def magnitude(now: float, line: Line) -> Line:
    """Return a line without its sign."""
    return largest(now, line, scaled(line, -1.0))


def rounded_down(now: float, line: Line) -> Line:
    """Return the largest whole number that is at most the line's, until the next one is."""
    value = line.at(now)
    if not line.slope or value != value:
        return line if value != value else Line(float(math.floor(value)), 0.0, line.until)
    whole = float(math.floor(value))
    seconds = (whole + 1.0 - value) / line.slope if line.slope > 0 else (value - whole) / -line.slope
    return Line(whole, 0.0, min(line.until, now + max(seconds, _SOON)))


def rounded_up(now: float, line: Line) -> Line:
    """Return the smallest whole number that is at least the line's."""
    return scaled(rounded_down(now, scaled(line, -1.0)), -1.0)


def _lesser(now: float, a: Line, b: Line) -> Line:
    until = min(a.until, b.until)
    x, y = a.at(now), b.at(now)
    if x != x or y != y:
        return Line(math.nan, 0.0, until)
    if x > y or (x == y and a.slope > b.slope):
        a, b, x, y = b, a, y, x
    return Line(a.base, a.slope, min(until, _crossing(now, a, b)))


def _crossing(now: float, a: Line, b: Line) -> float:
    """Return when two lines meet; infinity if they do not."""
    closing = a.slope - b.slope
    apart = b.at(now) - a.at(now)
    return now + max(apart / closing, _SOON) if closing and apart / closing > 0 else math.inf


def _sum(now: float, a: Line, b: Line) -> Line:
    return Line(a.base + b.base, a.slope + b.slope, min(a.until, b.until))


def _difference(now: float, a: Line, b: Line) -> Line:
    return Line(a.base - b.base, a.slope - b.slope, min(a.until, b.until))


def _product(now: float, a: Line, b: Line) -> Line:
    until = min(a.until, b.until)
    if a.slope and b.slope:
        return Line(a.at(now) * b.at(now), 0.0, min(until, now + LOOK_AGAIN_SECONDS))
    return Line(a.base * b.base, a.slope * b.base + b.slope * a.base, until)


def _quotient(now: float, a: Line, b: Line) -> Line:
    until = min(a.until, b.until)
    if b.slope:
        return Line(divide(a.at(now), b.at(now)), 0.0, min(until, now + LOOK_AGAIN_SECONDS))
    if b.base == 0 or b.base != b.base:
        return Line(math.nan, 0.0, until)
    return Line(a.base / b.base, a.slope / b.base, until)


_ARITHMETIC: dict[str, Callable[[float, Line, Line], Line]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
}
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def _compared(operator: str, now: float, a: Line, b: Line) -> Line:
    until, x, y = min(a.until, b.until), a.at(now), b.at(now)
    if x != x or y != y:
        return Line(MISSING, 0.0, until)
    until = min(until, _crossing(now, a, b), now + _SOON if x == y and a.slope != b.slope else math.inf)
    return Line(TRUE if _HOLDS[operator](x, y) else FALSE, 0.0, until)


def _all_of(choose: Callable[..., int], lines: list[Line]) -> Line:
    return Line(choose(line.base for line in lines), 0.0, min(line.until for line in lines))


def _chosen(condition: Line, then: Moving, otherwise: Moving, frame: Any, absent: Any) -> Line:
    if condition.base == MISSING:
        return Line(absent, 0.0, condition.until)
    found = then(frame) if condition.base == TRUE else otherwise(frame)
    return Line(found.base, found.slope, min(found.until, condition.until))


def _or_else(left: Line, right: Moving, frame: Any) -> Line:
    if left.base == left.base:
        return left
    found = right(frame)
    return Line(found.base, found.slope, min(found.until, left.until))
