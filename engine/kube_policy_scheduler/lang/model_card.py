"""What a trained model knows of its training: what its inputs were, what it predicts, and how well.

A card is JSON in the file of the model (ONNX: `metadata_props`), so that a model and its card change together.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import ArrayLike

CARD_KEY = "policy_scheduler.card"
"""Of the card among the metadata of a model."""
MAX_CARD_BYTES = 256 << 10
BINS = 10
"""Into which the values of an input are divided, each with as many values where that is possible."""
MOST_BINS = 32
MOST_SECONDS = 30 * 86400.0
"""From a decision to its outcome."""
_LONGEST_NAME, _LONGEST_QUERY = 200, 2_000
_SUM_TOLERANCE = 0.01


class CardError(ValueError):
    """A card cannot be used; the text says why."""


class InputCard(msgspec.Struct, frozen=True, rename="camel"):
    """What one input was in the rows that the model was trained on."""

    name: str
    """As the policy writes it."""
    low: float
    high: float
    edges: tuple[float, ...]
    """Between bins, ascending: a bin has the values up to its edge, the last one those up to `high`."""
    shares: tuple[float, ...]
    """Of the rows in each bin: one more than there are edges."""

    def bin_of(self, value: float) -> int:
        """Return where a value belongs: 0 below `low`, then the bins from 1 on, the last number above `high`."""
        if value < self.low:
            return 0
        if value > self.high:
            return len(self.shares) + 1
        return bisect_left(self.edges, value) + 1


class OutcomeCard(msgspec.Struct, frozen=True, rename="camel"):
    """What the model predicts: what a query says of the node some time after the decision."""

    query: str
    """PromQL, as a policy writes it."""
    after_seconds: float
    """After the decision."""
    mean_absolute_error: float
    """On days that the training did not see, in the unit of the query."""


class ModelCard(msgspec.Struct, frozen=True, rename="camel"):
    """The card of a model."""

    inputs: tuple[InputCard, ...]
    """In the order in which the model takes them."""
    rows: int = 0
    """That it was trained on."""
    outcome: OutcomeCard | None = None
    """None: it predicts something else than a metric of the node."""
    version: int = 1


def input_card(name: str, values: ArrayLike) -> InputCard:
    """Return the card of an input.

    Args:
        name: as the policy writes it.
        values: `float64[rows]` that the model is trained on, without missing ones; rounded to `float32`, as the model
            gets them.

    Raises:
        CardError: there are none, or one is not finite.
    """
    with np.errstate(over="ignore"):
        known = np.sort(np.asarray(values, np.float32).astype(np.float64))
    if not known.size or not np.isfinite(known).all():
        raise CardError(f"input {name}: expected finite values, got {'others' if known.size else 'none'}")
    quantiles = known[[known.size * number // BINS - 1 for number in range(1, BINS) if known.size * number >= BINS]]
    edges = tuple(dict.fromkeys(edge for edge in quantiles.tolist() if edge < known[-1]))
    ends = [0, *(np.searchsorted(known, edges, side="right").tolist()), known.size]
    shares = tuple((end - start) / known.size for start, end in pairwise(ends))
    return InputCard(name, float(known[0]), float(known[-1]), edges, shares)


def encode_card(card: ModelCard) -> str:
    """Return a card as it stands in the file of a model."""
    return msgspec.json.encode(card).decode()


def read_card(content: bytes) -> ModelCard:
    """Return the card of a model.

    Raises:
        CardError: it is too large, has another form, or contradicts itself.
    """
    if len(content) > MAX_CARD_BYTES:
        raise CardError(f"it has more than {MAX_CARD_BYTES >> 10} KiB")
    try:
        card = msgspec.json.decode(content, type=ModelCard)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CardError(str(error)[:200]) from error
    if card.version != 1:
        raise CardError(f"it has version {card.version}; expected 1")
    for each in card.inputs:
        if problem := _input_problem(each):
            raise CardError(f"input `{each.name[:_LONGEST_NAME]}`: {problem}")
    outcome = card.outcome
    if outcome is not None and not (
        0 < len(outcome.query) <= _LONGEST_QUERY
        and 0 < outcome.after_seconds <= MOST_SECONDS
        and 0 <= outcome.mean_absolute_error < math.inf
    ):
        raise CardError("outcome: expected a query, seconds up to 30 days, and an error that is not negative")
    return card


def _input_problem(card: InputCard) -> str:
    if not 0 < len(card.name) <= _LONGEST_NAME:
        return f"expected a name of 1 to {_LONGEST_NAME} characters"
    if len(card.shares) != len(card.edges) + 1 or len(card.shares) > MOST_BINS:
        return f"expected one share more than edges, and at most {MOST_BINS}"
    if not _ascends((card.low, *card.edges, card.high)):
        return "expected `low`, `edges` and `high` to ascend"
    if any(not 0 <= share <= 1 for share in card.shares) or abs(sum(card.shares) - 1) > _SUM_TOLERANCE:
        return "expected shares from 0 to 1, whose sum is 1"
    return ""


def _ascends(values: Sequence[float]) -> bool:
    """Return whether finite values ascend; the first and the last two may be equal, as of a constant input."""
    inner = values[1:-1]
    return (
        all(math.isfinite(value) for value in values)
        and all(one < other for one, other in pairwise(inner))
        and values[0] <= (inner[0] if inner else values[-1])
        and (inner[-1] if inner else values[0]) <= values[-1]
    )
