"""A policy's `backfill`: how long pods run, so that those that delay nobody may start before others."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from kube_policy_scheduler.framework.frame import Frame

LATE = 0.1
"""A pod that runs longer than it was expected to is expected to run for this part of its time more."""


class BackfillRule(msgspec.Struct, frozen=True, eq=False):
    """A `backfill`."""

    text: str
    """As written, for messages."""
    lasts: Callable[[Frame], float]
    """How many seconds the pod of a frame runs; NaN where that is not known."""
    most_seconds: float
    """Nothing is reserved for a pod that has to wait longer."""

    def end_of(self, frame: Frame) -> float:
        """Return when the pod of a frame is expected to end, Unix seconds: one that starts now, or that runs.

        Infinity where that is not known.
        """
        if frame.pod.terminating:
            return frame.now
        lasts, now = float(self.lasts(frame)), frame.now
        if math.isnan(lasts) or lasts < 0:
            return math.inf
        end = (now if frame.pod.started is None else frame.pod.started) + lasts
        return end if end > now else now + LATE * lasts
