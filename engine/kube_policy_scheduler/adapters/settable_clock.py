"""Unix seconds by a clock that people and NTP may set, with a word to those who keep times by it. Keeps none itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

TOLERANCE_SECONDS = 1.0
"""Less is how NTP corrects a clock without setting it, and disturbs nothing."""
WORTH_SAYING_SECONDS = 10.0


class SettableClock:
    """The wall clock, held against one that never jumps; also after a machine slept, one is behind the other.

    A caller that adds up times of it (when a back-off ends, until when a group may wait) is told by how much it was set
    before anybody sees the new time, and moves his times by as much: what was to last a second lasts a second.

    Why not two clocks, a monotonic one for the queue: a policy compares the age of a pod, how long it has waited and
    the age of a metric with one `now`, which must be that of the objects' timestamps.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead = wall() - steady()
        self._told: list[Callable[[float], None]] = []

    def on_set(self, tell: Callable[[float], None]) -> None:
        """Tell this one from now on by how many seconds the clock was set; less than nothing: back."""
        self._told.append(tell)

    def __call__(self) -> float:
        """Return unix seconds."""
        now = self._wall()
        ahead = now - self._steady()
        moved = ahead - self._ahead
        if abs(moved) > TOLERANCE_SECONDS:
            self._ahead = ahead
            if abs(moved) > WORTH_SAYING_SECONDS:
                way = "forward" if moved > 0 else "back"
                logger.warning("the clock was set %s by %.0f s: backoff and timeouts use elapsed time", way, abs(moved))
            for tell in self._told:
                tell(moved)
        return now
