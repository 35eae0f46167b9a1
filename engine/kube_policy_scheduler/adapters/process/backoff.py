"""Growing pauses between attempts. Knows no clock: it only says how long to wait."""

from __future__ import annotations

from random import Random


class Backoff:
    """initial_seconds × 2^n up to limit_seconds, each drawn from the upper half of its value."""

    def __init__(self, *, initial_seconds: float = 0.8, limit_seconds: float = 30.0, random: Random) -> None:
        self._initial_seconds = initial_seconds
        self._limit_seconds = limit_seconds
        self._random = random
        self._base_seconds = initial_seconds

    def next_seconds(self, *, at_least: float | None = None) -> float:
        """Return the next pause; at_least is a wish of the server (Retry-After)."""
        base = self._base_seconds
        self._base_seconds = min(2 * base, self._limit_seconds)
        return max(base * self._random.uniform(0.5, 1.0), at_least or 0.0)

    def reset(self) -> None:
        """Start again after a success."""
        self._base_seconds = self._initial_seconds
