"""The wall clock in Unix seconds, which people and NTP may set; listeners learn when that happens."""

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

    A component that stores times of this clock (when a backoff ends, until when a group may wait) is called with the
    jump before anybody reads the new time, and moves its times by as much: what was to last a second lasts a second.

    Listeners are added with `on_set`, not at construction: they need the clock for their own construction.

    Why not two clocks, a monotonic one for the queue: a policy compares the age of a pod, how long it has waited and
    the age of a metric with one `now`, which must be that of the objects' timestamps.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead = wall() - steady()
        self._listeners: list[Callable[[float], None]] = []

    def on_set(self, listener: Callable[[float], None]) -> None:
        """Call a listener, from now on, with the seconds by which the clock was set; negative if it was set back."""
        self._listeners.append(listener)

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
            for listener in self._listeners:
                listener(moved)
        return now
