"""The lowest and the highest value on all feasible nodes, kept for a later look at few of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kube_policy_scheduler.cluster.nodes import FloatArray

Span = tuple[float, float]
"""Lowest and highest."""
AT_LOWEST, AT_HIGHEST = 1, 2


def span_of(values: FloatArray) -> Span | None:
    """Return the lowest and the highest value; None if all are missing."""
    known = values[~np.isnan(values)]
    return (float(known.min()), float(known.max())) if len(known) else None


class Extremes:
    """What a score compares nodes by. A first look at all feasible nodes finds it, a look at few of them is given it.

    It holds for scores that compare one value of the nodes; `calls` says of how many it was asked.
    """

    def __init__(self, known: Extremes | None = None) -> None:
        """Find the extremes, or give those of the last look at all feasible nodes."""
        self._known = known
        self.span: Span | None = None
        self.calls = 0
        self.rejected = False
        """Whether a score compares nodes in a way that does not follow from extremes."""
        self.exceeded = False
        """Whether a value lies outside of the given ones, so that these are not valid any more."""
        self.flags: NDArray[np.uint8] | None = None
        """`uint8[rows]`: 1 where the value is the lowest, 2 where it is the highest, 3 where it is both."""

    def find(self, values: FloatArray) -> Span | None:
        """Return the extremes of all feasible nodes, of which these are the values, or some of them."""
        self.calls += 1
        if self._known is None:
            self.span = span_of(values)
        else:
            self.span = self._known.span
            low, high = self.span if self.span is not None else (np.inf, -np.inf)
            self.exceeded |= bool(((values < low) | (values > high)).any())
        if self.span is not None:
            low, high = self.span
            self.flags = (values == low) * np.uint8(AT_LOWEST) | (values == high) * np.uint8(AT_HIGHEST)
        return self.span

    def reject(self) -> None:
        """Say that a score follows from more than extremes."""
        self.rejected = True

    @property
    def is_usable(self) -> bool:
        """Return whether the scores follow from these extremes alone."""
        return not self.rejected and self.calls <= 1

    def as_before(self) -> bool:
        """Return whether scores made with the given extremes are those that a look at all feasible nodes gives."""
        return self._known is not None and self.is_usable and not self.exceeded and self.calls == self._known.calls
