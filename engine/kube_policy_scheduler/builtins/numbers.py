"""Functions of numbers. Missing in, missing out; a result that is no number is missing."""

import math

import numpy as np

from kube_policy_scheduler.lang.compiling.over_time import (
    largest,
    least,
    limited,
    magnitude,
    rounded_down,
    rounded_up,
)
from kube_policy_scheduler.lang.signature import MaybeNumber, Number, Numbers, Same, Text, Words, builtin


def _columns(*values: Numbers) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


@builtin(
    over_time=limited, bounds=lambda x, low, high: (min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1]))
)
def clamp(x: Same, low: Same, high: Same) -> Same:
    """Return x limited to the range from low to high; if low is above high, return high."""
    if _columns(x, low, high):
        return np.minimum(np.maximum(x, low), high)
    return math.nan if x != x or low != low or high != high else min(max(x, low), high)


@builtin(
    over_time=magnitude, bounds=lambda x: (0.0 if x[0] <= 0 <= x[1] else min(abs(x[0]), abs(x[1])), max(-x[0], x[1]))
)
def abs_(x: Same) -> Same:
    """Return the absolute value of x."""
    return np.abs(x) if isinstance(x, np.ndarray) else abs(x)


@builtin(
    over_time=least,
    bounds=lambda *all_: (min(x[0] for x in all_), min(x[1] for x in all_)),
    words=Words(opposite="max"),
)
def min_(first: Same, *others: Same) -> Same:
    """Return the smallest value; missing if one value is missing."""
    result = first
    for other in others:
        result = np.minimum(result, other) if _columns(result, other) else _lesser(result, other)
    return result


@builtin(
    over_time=largest,
    bounds=lambda *all_: (max(x[0] for x in all_), max(x[1] for x in all_)),
    words=Words(opposite="min"),
)
def max_(first: Same, *others: Same) -> Same:
    """Return the largest value; missing if one value is missing."""
    result = first
    for other in others:
        result = np.maximum(result, other) if _columns(result, other) else -_lesser(-result, -other)
    return result


def _lesser(a: Numbers, b: Numbers) -> Numbers:
    return math.nan if a != a or b != b else min(a, b)


@builtin(bounds=lambda x: (min(x[0], math.floor(x[0])), max(x[1], math.ceil(x[1]))))
def round_(x: Number) -> Number:
    """Return x rounded to a whole number; halves are rounded away from zero."""
    if isinstance(x, np.ndarray):
        return np.copysign(np.floor(np.abs(x) + 0.5), x)
    return x if x != x else math.copysign(math.floor(abs(x) + 0.5), x)


@builtin(over_time=rounded_down, bounds=lambda x: (math.floor(x[0]), math.floor(x[1])))
def floor(x: Number) -> Number:
    """Return the largest whole number that is at most x."""
    if isinstance(x, np.ndarray):
        return np.floor(x)
    return x if x != x else float(math.floor(x))


@builtin(over_time=rounded_up, bounds=lambda x: (math.ceil(x[0]), math.ceil(x[1])))
def ceil(x: Number) -> Number:
    """Return the smallest whole number that is at least x."""
    if isinstance(x, np.ndarray):
        return np.ceil(x)
    return x if x != x else float(math.ceil(x))


_LARGEST_EXPONENT = 350.0


@builtin(bounds=lambda x: (_exp(x[0]), _exp(x[1])))
def exp(x: Number) -> Number:
    """Return e to the power of x; x is limited to the range from -350 to 350."""
    if isinstance(x, np.ndarray):
        return np.exp(np.clip(x, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    return _exp(x)


def _exp(x: float) -> float:
    return x if x != x else math.exp(min(max(x, -_LARGEST_EXPONENT), _LARGEST_EXPONENT))


@builtin(bounds=(-710, 710))
def log(x: Number) -> MaybeNumber:
    """Return the natural logarithm; missing if x is 0 or less."""
    if isinstance(x, np.ndarray):
        return np.log(x, out=np.full(len(x), np.nan), where=x > 0)
    return math.log(x) if x > 0 else math.nan


@builtin(bounds=(0, 1e155))
def sqrt(x: Number) -> MaybeNumber:
    """Return the square root; missing if x is below 0."""
    if isinstance(x, np.ndarray):
        return np.sqrt(x, out=np.full(len(x), np.nan), where=x >= 0)
    return math.sqrt(x) if x >= 0 else math.nan


@builtin(bounds=(-1e30, 1e30), words=Words(foreign=("float", "int", "tonumber", "double", "parse")))
def number(text: Text) -> MaybeNumber:
    """Return a text as a number, such as the label `generation=7`; missing if it is not a number."""
    stripped: str = text.strip()
    if not stripped or len(stripped) > 40 or not stripped.isascii() or "_" in stripped:
        return math.nan
    try:
        value = float(stripped)
    except ValueError:
        return math.nan
    return value if -1e30 <= value <= 1e30 else math.nan
