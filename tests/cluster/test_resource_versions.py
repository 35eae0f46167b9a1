"""Resource versions are compared as numbers where they are any; nothing that a server sends makes that fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.resource_versions import version_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("17", 17), ("0", 0), ("18446744073709551615", 2**64 - 1), ("", 0), ("v1", 0), ("-1", 0), ("1.5", 0)],
)
def test_a_version_is_its_number(text: str, number: int) -> None:
    assert version_number(text) == number


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 5000, "1_000", " 1"])
def test_what_only_looks_like_a_number_is_not_one(text: str) -> None:
    assert version_number(text) == 0


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    assert version_number(text) >= 0
