"""The clock of the scheduler: it counts evenly, and knows what the wall clock shows, which people and NTP may set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

TOLERANCE_SECONDS = 1.0
"""Less is how NTP corrects a clock without setting it, and disturbs nothing."""
WORTH_SAYING_SECONDS = 10.0


class SettableClock:
    """Steady seconds, and how far the wall clock is ahead of them because it was set; also after a machine slept.

    Whatever is to last some seconds is kept in steady seconds: nothing that happens to the wall clock touches it. The
    time of the wall clock is for people, for what policies ask, and to compare with times that the API server wrote; it
    is made of the steady time at the moment at which it is needed, and is not kept.

    A listener makes again what was made of the wall time, such as the order of pods by `hour()`. Nothing is to be
    moved: it learns how far the wall clock is ahead from now on, not by how much it was set. Listeners are added with
    `on_set`, not at construction: they need the clock for their own construction.
    """

    def __init__(self, *, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._origin = wall() - steady()
        self._ahead = 0.0
        self._listeners: list[Callable[[float], None]] = []

    def on_set(self, listener: Callable[[float], None]) -> None:
        """Call a listener from now on when the wall clock was set, with the seconds that it is ahead since."""
        self._listeners.append(listener)

    def __call__(self) -> Steady:
        """Return steady seconds: Unix seconds at the start of the process, and from then on what has passed."""
        now: Steady = self._steady() + self._origin  # type: ignore[assignment]  # to call `Steady` is a call for each pod
        moved = self._wall() - now - self._ahead
        if not -TOLERANCE_SECONDS <= moved <= TOLERANCE_SECONDS:
            self._ahead += moved
            if abs(moved) > WORTH_SAYING_SECONDS:
                way = "forward" if moved > 0 else "back"
                logger.warning("the clock was set %s by %.0f s: backoff and timeouts use elapsed time", way, abs(moved))
            for listener in self._listeners:
                listener(self._ahead)
        return now

    def ahead(self) -> float:
        """Return by how many seconds the wall clock is ahead of the steady one; it changes only when it is set."""
        return self._ahead

    def wall(self) -> float:
        """Return Unix seconds as the wall clock shows them, within the tolerance."""
        return self() + self._ahead
