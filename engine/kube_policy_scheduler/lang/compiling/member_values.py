"""What an aggregate over the nodes or pods of a member cluster asks of it: one value, from nothing but that cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kube_policy_scheduler.lang.compiling.columns import FALSE, MISSING, TRUE


class MemberValue(msgspec.Struct, frozen=True, eq=False):
    """One such value, compared by identity: the same text may mean something else in another policy."""

    text: str
    """As it is written, on one line."""
    evaluate: Callable[[Any], Any]
    """From a frame of the member to the value."""
    is_truth: bool
    is_coded: bool
    """Whether `evaluate` returns truth as it is coded in `columns`."""

    @property
    def missing(self) -> float:
        """Return what stands for no value."""
        return MISSING if self.is_truth else math.nan

    def of(self, frame: Any) -> float:
        """Return the value in a member: a number, NaN where it is missing, or truth as it is coded in `columns`."""
        found = self.evaluate(frame)
        if not self.is_truth:
            return float(found)
        return int(found) if self.is_coded else TRUE if found else FALSE

    def column(self, frame: Any) -> Any:
        """Return the values of all rows of a frame of clusters."""
        found = [self.missing if each is None else each.value(self, frame.now) for each in frame.members()]
        return np.array(found, np.uint8 if self.is_truth else np.float64)


def member_values(inputs: tuple[Any, ...]) -> tuple[MemberValue, ...]:
    """Return what the inputs of a policy, or of a clause, ask of members."""
    return tuple(each for each in inputs if isinstance(each, MemberValue))
