"""Quantities come back in the one spelling the API server has for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.embedded.decoding import canonical
from kube_policy_scheduler.quantities.quantity import QuantityError, scaled


@pytest.mark.parametrize(
    ("given_as", "written"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("100000", "100k"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1024Mi", "1Gi"),
        ("3072Mi", "3Gi"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1", "-1"),
        ("1.", "1"),
        (".5", "500m"),
        ("+2", "2"),
        ("100n", "100n"),
        ("0.0000000001", "1n"),
    ],
)
def test_canonical_forms(given_as: str, written: str) -> None:
    assert canonical(given_as) == written


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1gi", "--1", "1.2.3", "Gi", "1e", "0x10"])
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        canonical(text)


@given(
    st.integers(0, 10**6),
    st.integers(0, 999),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "u"]),
)
def test_the_canonical_form_is_the_same_amount_and_its_own_canonical_form(whole: int, part: int, suffix: str) -> None:
    text = f"{whole}.{part:03}{suffix}"
    written = canonical(text)
    assert scaled(written, 9) == scaled(text, 9)
    assert canonical(written) == written
