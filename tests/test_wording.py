"""Numbers, counts and lists in texts."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.wording import amount, listed, one_line, part_of, percent, plural, shortened, signed, some


@pytest.mark.parametrize(
    ("value", "shown", "difference"),
    [
        (0, "0", "0"),
        (-0.001, "0", "0"),
        (0.001, "0", "0"),
        (3, "3", "+3"),
        (-0.5, "-0.5", "-0.5"),
        (1234.5, "1,234.5", "+1,234.5"),
        (100, "100", "+100"),
    ],
)
def test_numbers(value: float, shown: str, difference: str) -> None:
    assert amount(value) == shown
    assert signed(value) == difference


def test_counts_and_shares() -> None:
    assert [plural(n, "pod") for n in (0, 1, 1204)] == ["0 pods", "1 pod", "1,204 pods"]
    assert plural(2, "policy", "policies") == "2 policies"
    assert percent(0.375) == "37.5 %"


def test_lists() -> None:
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed(["x", "y"], "or") == "x or y"
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(["a", "b", "c", "d"], limit=2) == "a, b and 2 more"


def test_long_texts_are_cut_to_their_limit() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert one_line("a  b\n c", 10) == "a b c"


def test_parts_of_a_count() -> None:
    assert [part_of(1, n, "pod") for n in (1, 4, 1204)] == ["1 of 1 pod", "1 of 4 pods", "1 of 1,204 pods"]
