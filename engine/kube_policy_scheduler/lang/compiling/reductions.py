"""Many values to one: count, sum, least, greatest, mean, any and all of columns, for each of some groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.lang.environment import Texts

_MOST_PAIRS = 1 << 20
"""Group and value pairs that are counted in a table; more are sorted."""

Groups = NDArray[np.intp]


def reduced(function: str, values: Any, chosen: Any, groups: Groups | None, number: int) -> Any:
    """Return what a function makes of the values of each group, `[number]`.

    Values that are missing are left out. Of no values, the least, the greatest and the mean are missing.

    Args:
        function: count, distinct, sum, min, max, avg, any or all.
        values: `float64[values]` or texts; `bool[values]` for any and all; None for count.
        chosen: `bool[values]`, which of them take part; None: all.
        groups: `intp[values]`, the group of each; None: all are in one.
        number: of groups.
    """
    match function:
        case "count":
            return _count(chosen, groups, number, size=len(groups) if groups is not None else 0)
        case "any":
            return _count(_both(chosen, values), groups, number) > 0
        case "all":
            return _count(_both(chosen, ~values), groups, number) == 0
        case "distinct":
            return _distinct(values, chosen, groups, number)
    missing = np.isnan(values)
    if missing.any():
        chosen = _both(chosen, ~missing)
    match function:
        case "sum":
            return _sum(values, chosen, groups, number)
        case "avg":
            counted = _count(chosen, groups, number, size=len(values))
            total = _sum(values, chosen, groups, number)
            return np.where(counted > 0, total / np.maximum(counted, 1), np.nan)
        case _:
            return _extreme(values, chosen, groups, number, least=function == "min")


def nothing(function: str) -> float | bool:
    """Return what a function makes of no values."""
    match function:
        case "any":
            return False
        case "all":
            return True
        case "min" | "max" | "avg":
            return math.nan
        case _:
            return 0.0


def _both(chosen: Any, more: Any) -> Any:
    return more if chosen is None else chosen & more


def _count(chosen: Any, groups: Groups | None, number: int, *, size: int = 0) -> Any:
    if groups is None:
        return np.array([size if chosen is None else np.count_nonzero(chosen)], np.float64)
    if chosen is None:
        return np.bincount(groups, minlength=number).astype(np.float64)
    return np.bincount(groups, weights=chosen, minlength=number)


def _sum(values: Any, chosen: Any, groups: Groups | None, number: int) -> Any:
    taken = values if chosen is None else np.where(chosen, values, 0.0)
    totals = exact_totals(taken, groups, number)
    return np.array([rounded(total) for total in totals])


# --- sums that are exact -----------------------------------------------------------------------------

# A sum of 0.1 cores over ten nodes is 1, in any order, and however pods came and went meanwhile. So
# sums are kept as whole numbers of the smallest float, and rounded once.

_SMALLEST = 1074
"""The smallest float is 1 / 2**1074."""
_UNIT = 1 << _SMALLEST
_MOST = 1e308
_HALF = 27
"""Bits of the lower half of a mantissa of 53: thousands of halves add up exactly as floats."""


def exact(value: float) -> int:
    """Return a finite number as a multiple of the smallest float."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_UNIT // denominator)


def rounded(total: int) -> float:
    """Return the float that is nearest to a multiple of the smallest one; at most 1e308."""
    try:
        return max(-_MOST, min(_MOST, total / _UNIT))
    except OverflowError:
        return _MOST if total > 0 else -_MOST


def exact_totals(values: Any, groups: Groups | None, number: int) -> list[int]:
    """Return the sum of finite numbers in each group, in multiples of the smallest float."""
    if not len(values):
        return [0] * number
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, 53).astype(np.int64)
    known, kinds = np.unique(exponents, return_inverse=True)
    cells = kinds if groups is None else groups * len(known) + kinds
    size = number * len(known)
    high = np.bincount(cells, weights=mantissas >> _HALF, minlength=size)
    low = np.bincount(cells, weights=mantissas & ((1 << _HALF) - 1), minlength=size)
    totals = [0] * number
    for cell in np.flatnonzero((high != 0) | (low != 0)).tolist():
        group, kind = divmod(cell, len(known))
        whole = (int(high[cell]) << _HALF) + int(low[cell])
        shift = int(known[kind]) - 53 + _SMALLEST
        totals[group] += whole << shift if shift >= 0 else whole >> -shift
    return totals


def _extreme(values: Any, chosen: Any, groups: Groups | None, number: int, *, least: bool) -> Any:
    none, ufunc = (np.inf, np.minimum) if least else (-np.inf, np.maximum)
    taken = values if chosen is None else np.where(chosen, values, none)
    if groups is None:
        found: Any = np.array([ufunc.reduce(taken, initial=none)])
    else:
        found = np.full(number, none)
        ufunc.at(found, groups, taken)
    return np.where(np.isfinite(found), found, np.nan)


def _distinct(values: Any, chosen: Any, groups: Groups | None, number: int) -> Any:
    codes, kinds = _coded(values)
    there = codes >= 0 if chosen is None else chosen & (codes >= 0)
    codes = codes[there]
    if groups is None:
        return np.array([np.count_nonzero(np.bincount(codes, minlength=1))], np.float64)
    pairs = groups[there] * kinds + codes
    if number * kinds <= _MOST_PAIRS:
        table = np.bincount(pairs, minlength=number * kinds)[: number * kinds].reshape(number, kinds)
        return np.count_nonzero(table, axis=1).astype(np.float64)
    return np.bincount(np.unique(pairs) // kinds, minlength=number).astype(np.float64)


def _coded(values: Any) -> tuple[NDArray[np.int64], int]:
    """Return a number for each value, -1 where it is missing, and a number above all of them."""
    if isinstance(values, Texts):
        return values.codes.astype(np.int64), max(len(values.values), 1)
    known, codes = np.unique(values, return_inverse=True)
    codes = np.where(np.isnan(values), -1, codes)
    return codes, max(len(known), 1)
