"""Quantities: the documented grammar, exact values, rounding away from zero, a cap at int64."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.quantities.quantity import MAX_INT64, QuantityError, amount, nanos, scaled, units

SUFFIXES = {
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{suffix: Fraction(10) ** power for suffix, power in (("n", -9), ("u", -6), ("m", -3), ("", 0))},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
}
DIGITS = st.text("0123456789", max_size=12)


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Return text made by the documented grammar, and the number that it means."""
    sign = draw(st.sampled_from(["", "+", "-"]))
    whole, part = draw(DIGITS), draw(DIGITS)
    point = draw(st.sampled_from(["", "."])) if not part else "."
    if not whole and not part:
        whole = "0"
    exponent = draw(st.one_of(st.none(), st.integers(-20, 20)))
    if exponent is not None:
        suffix = draw(st.sampled_from("eE")) + draw(st.sampled_from(["", "+"]) if exponent >= 0 else st.just(""))
        suffix += str(exponent)
        unit = Fraction(10) ** exponent
    else:
        suffix = draw(st.sampled_from(sorted(SUFFIXES)))
        unit = SUFFIXES[suffix]
    number = Fraction(int(whole + part or "0"), 10 ** len(part)) * unit
    return f"{sign}{whole}{point}{part}{suffix}", -number if sign == "-" else number


def away_from_zero(number: Fraction) -> int:
    return math.ceil(number) if number >= 0 else math.floor(number)


@given(quantities(), st.sampled_from([0, 3, 9]))
def test_the_value_is_that_of_the_grammar(quantity: tuple[str, Fraction], scale: int) -> None:
    text, number = quantity
    kept = Fraction(away_from_zero(number * 10**9), 10**9)  # billionths is all that Kubernetes keeps
    kept = max(min(kept, Fraction(MAX_INT64)), Fraction(-MAX_INT64))
    wanted = max(min(away_from_zero(kept * 10**scale), MAX_INT64), -MAX_INT64)

    assert scaled(text, scale) == wanted


@given(st.integers(-(10**15), 10**15))
def test_a_number_means_itself(number: int) -> None:
    assert units(number) == units(str(number)) == number
    assert scaled(f"{number}m", 3) == number


@pytest.mark.parametrize(
    ("text", "scale", "wanted"),
    [
        ("0.5Gi", 0, 536870912),
        ("12e-1", 3, 1200),
        ("1.5E", 0, 1_500_000_000_000_000_000),
        ("1E2", 0, 100),
        ("1n", 3, 1),
        ("100m", 0, 1),
        ("-100m", 0, -1),
        (".5", 3, 500),
        ("5.", 3, 5000),
        ("+1", 0, 1),
        ("9Ei", 0, MAX_INT64),
        ("1e400", 0, MAX_INT64),
        ("1e-400", 0, 1),
        ("0e999", 0, 0),
        (0.1, 3, 100),
        (2, 3, 2000),
    ],
)
def test_spellings(text: str | int | float, scale: int, wanted: int) -> None:
    assert scaled(text, scale) == wanted


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "abc", "1Kb", "1KI", "1ki", "1mi", ".", "+", "1e", "1e1.5", "--1", "1_000", "0x10", "1Gi2", "٣"],
)
def test_other_texts_are_rejected_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        nanos(text)


def test_cpu_columns_hold_millicores_all_others_whole_units() -> None:
    assert amount("cpu", "1.5") == 1500
    assert amount("memory", "1500m") == 2
    assert amount("example.com/foo", "3") == 3
