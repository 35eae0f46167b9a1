"""Cards of models: what training wrote is what is read, and a card that contradicts itself is an error."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.lang.model_card import (
    BINS,
    MAX_CARD_BYTES,
    CardError,
    InputCard,
    ModelCard,
    OutcomeCard,
    encode_card,
    input_card,
    read_card,
)

VALUES = st.lists(st.floats(-1e6, 1e6, width=32) | st.integers(0, 3).map(float), min_size=1, max_size=200)


@given(VALUES)
def test_the_shares_are_those_of_the_values_in_each_bin(values: list[float]) -> None:
    card = input_card("load", values)
    assert (card.low, card.high) == (min(values), max(values))
    counted = Counter(card.bin_of(value) for value in values)
    found = [counted[number] / len(values) for number in range(len(card.shares) + 2)]
    assert found == pytest.approx([0.0, *card.shares, 0.0])
    assert len(card.shares) <= BINS
    assert read_card(encode_card(ModelCard((card,))).encode()) == ModelCard((card,))


def test_many_values_have_bins_of_the_same_size() -> None:
    card = input_card("load", np.linspace(0.0, 1.0, 1000))
    assert card.shares == pytest.approx([0.1] * BINS)
    assert card.edges == pytest.approx(np.arange(1, BINS) / BINS, abs=0.001)


def test_what_is_outside_of_the_training_has_bins_of_its_own() -> None:
    card = InputCard("load", low=0.0, high=1.0, edges=(0.0, 0.5), shares=(0.2, 0.5, 0.3))
    assert [card.bin_of(value) for value in (-0.1, 0.0, 0.1, 0.5, 0.6, 1.0, 1.1)] == [0, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("values", [[], [1.0, np.nan], [np.inf], [1e300]])
def test_an_input_without_finite_values_has_no_card(values: list[float]) -> None:
    with pytest.raises(CardError, match="input load: expected finite values"):
        input_card("load", values)


GOOD: dict[str, Any] = {"name": "load", "low": 0, "high": 1, "edges": [0.5], "shares": [0.5, 0.5]}
OUTCOME = {"query": "node_load1", "afterSeconds": 600, "meanAbsoluteError": 0.1}


def test_a_card_names_inputs_and_outcome() -> None:
    content = json.dumps({"inputs": [GOOD], "rows": 7, "outcome": OUTCOME, "made by": "somebody"}).encode()
    card = read_card(content)
    assert (card.inputs[0].name, card.rows) == ("load", 7)
    assert card.outcome == OutcomeCard("node_load1", after_seconds=600.0, mean_absolute_error=0.1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"inputs": 1}, r"Expected `array`, got `int` - at `\$.inputs`"),
        ({"version": 2}, "it has version 2; expected 1"),
        ({"inputs": [GOOD | {"name": ""}]}, "expected a name of 1 to 200 characters"),
        ({"inputs": [GOOD | {"edges": []}]}, "input `load`: expected one share more than edges"),
        ({"inputs": [GOOD | {"edges": [0.1] * 40, "shares": [0.0] * 41}]}, "at most 32"),
        ({"inputs": [GOOD | {"low": 0.7}]}, "expected `low`, `edges` and `high` to ascend"),
        ({"inputs": [GOOD | {"high": 0.4}]}, "expected `low`, `edges` and `high` to ascend"),
        ({"inputs": [GOOD | {"shares": [0.9, 0.9]}]}, "expected shares from 0 to 1, whose sum is 1"),
        ({"inputs": [GOOD | {"shares": [1.5, -0.5]}]}, "expected shares from 0 to 1, whose sum is 1"),
        ({"outcome": OUTCOME | {"afterSeconds": 0}}, "outcome: expected a query, seconds up to 30 days"),
        ({"outcome": OUTCOME | {"meanAbsoluteError": -1}}, "an error that is not negative"),
        ({"outcome": OUTCOME | {"query": "x" * 3000}}, "outcome: expected a query"),
    ],
)
def test_a_card_that_contradicts_itself_is_an_error(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CardError, match=said):
        read_card(json.dumps({"inputs": [GOOD]} | changes).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'"' + b"x" * MAX_CARD_BYTES + b'"'])
def test_what_is_no_card_is_an_error(content: bytes) -> None:
    with pytest.raises(CardError):
        read_card(content)
