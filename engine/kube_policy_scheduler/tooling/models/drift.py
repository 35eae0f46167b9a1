"""How far the inputs of a model are from those of its training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kube_policy_scheduler.lang.model_card import InputCard

FLOOR = 0.001
"""Least share of a bin: a bin that was empty in the training is not infinitely far from one that is not."""
HALF_LIFE_SECONDS = 86_400.0
"""After which a value counts half."""
MIN_SECONDS = 86_400.0
"""For so long values are counted before they are compared: many inputs follow the time of day."""
MIN_VALUES = 200.0


def stability_index(expected: Sequence[float], found: Sequence[float]) -> float:
    """Return the population stability index (PSI) of two distributions over the same bins.

    PSI = sum((found - expected) · ln(found / expected)), each share at least `FLOOR`: 0 for equal ones; by custom, up
    to 0.1 is no change and above 0.25 a large one (N. Siddiqi, Credit Risk Scorecards, 2006).

    Args:
        expected: shares, with the sum 1.
        found: counts, not all 0.
    """
    total = sum(found)
    pairs = ((max(one, FLOOR), max(other / total, FLOOR)) for one, other in zip(expected, found, strict=True))
    return sum((new - old) * math.log(new / old) for old, new in pairs)


class InputDrift:
    """Counts the values of one input by bin, the older the less."""

    __slots__ = ("_began", "_card", "_counts", "_last")

    def __init__(self, card: InputCard) -> None:
        self._card = card
        self._counts = [0.0] * (len(card.shares) + 2)
        self._began: float | None = None
        self._last = 0.0

    def add(self, value: float, now: float) -> None:
        """Count a value; now: Unix seconds."""
        if self._began is None:
            self._began = self._last = now
        elif now > self._last:
            kept = 0.5 ** ((now - self._last) / HALF_LIFE_SECONDS)
            self._counts = [count * kept for count in self._counts]
            self._last = now
        self._counts[self._card.bin_of(value)] += 1.0

    def index(self) -> float | None:
        """Return the population stability index; None: too few values, or not for a day yet."""
        if self._began is None or self._last - self._began < MIN_SECONDS or sum(self._counts) < MIN_VALUES:
            return None
        return stability_index((0.0, *self._card.shares, 0.0), self._counts)
