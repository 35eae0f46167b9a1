"""Interval arithmetic: between which numbers a result lies, from the bounds of its operands."""

from __future__ import annotations

from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Lowest and highest possible value; missing values aside."""

LIMIT = 1e300
"""A result that may exceed it must be checked for overflow; every input of an evaluation is far below."""
ANYTHING: Interval = (-1e308, 1e308)


def _closed(values: tuple[float, ...]) -> Interval:
    return max(-1e308, min(values)), min(1e308, max(values))


def negative(x: Interval) -> Interval:
    """Return the bounds of -x."""
    return -x[1], -x[0]


def arithmetic(operator: str, x: Interval, y: Interval) -> Interval:
    """Return the bounds of x operator y."""
    match operator:
        case "+":
            return _closed((x[0] + y[0], x[1] + y[1]))
        case "-":
            return _closed((x[0] - y[1], x[1] - y[0]))
        case "*":
            return _closed((_times(x[0], y[0]), _times(x[0], y[1]), _times(x[1], y[0]), _times(x[1], y[1])))
        case "/":
            if y[0] <= 0 <= y[1]:
                return _half_open(x, y)
            return _closed((x[0] / y[0], x[0] / y[1], x[1] / y[0], x[1] / y[1]))
        case _:  # the remainder has the sign of the divisor
            low = min(0.0, y[0])
            high = max(0.0, y[1])
            if x[0] >= 0 and y[0] >= 0:
                high = min(high, x[1])
            return low, high


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _half_open(x: Interval, y: Interval) -> Interval:
    """Return the bounds of a quotient whose divisor may come near zero (zero itself is missing)."""
    if x[0] >= 0 and y[0] >= 0:
        return 0.0, 1e308
    return ANYTHING


def hull(x: Interval, y: Interval) -> Interval:
    """Return the bounds of a value that is one of the two."""
    return min(x[0], y[0]), max(x[1], y[1])


def compare(operator: str, x: Interval, y: Interval) -> bool | None:
    """Return the truth of a comparison if it is the same for all values, else None."""
    match operator:
        case "<":
            return True if x[1] < y[0] else False if x[0] >= y[1] else None
        case "<=":
            return True if x[1] <= y[0] else False if x[0] > y[1] else None
        case ">":
            return compare("<", y, x)
        case ">=":
            return compare("<=", y, x)
        case "==":
            if x[1] < y[0] or y[1] < x[0]:
                return False
            return True if x[0] == x[1] == y[0] == y[1] else None
        case _:
            equal = compare("==", x, y)
            return None if equal is None else not equal
