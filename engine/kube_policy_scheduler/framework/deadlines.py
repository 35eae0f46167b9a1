"""Until when things pause: deadlines on the steady clock, which nobody sets.

A pause that is kept as a time of the wall clock lasts as much longer as the clock is set back. Here a time of the wall
clock is an error of types: only `Steady` is taken.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from kube_policy_scheduler.times import Steady

KeyT = TypeVar("KeyT", bound=Hashable)

_SLACK = 256
"""Deadlines that are over which may be kept in addition to an equal number of others."""


class Deadlines(Generic[KeyT]):
    """The things that pause, by key; those whose pause is over are forgotten."""

    def __init__(self) -> None:
        self._until: dict[KeyT, float] = {}
        self._clean_at = _SLACK

    def __len__(self) -> int:
        return len(self._until)

    def pause(self, key: KeyT, now: Steady, *, seconds: float) -> None:
        """Let something pause from now on for this long, whether it pauses already or not."""
        if len(self._until) >= self._clean_at:
            self._until = {other: until for other, until in self._until.items() if until > now}
            self._clean_at = 2 * len(self._until) + _SLACK
        self._until[key] = now + seconds

    def pauses(self, key: KeyT, now: Steady) -> bool:
        """Return whether something pauses."""
        until = self._until.get(key)
        if until is None:
            return False
        if until > now:
            return True
        del self._until[key]
        return False

    def end(self, key: KeyT) -> None:
        """End a pause, if there is one."""
        self._until.pop(key, None)

    def clear(self) -> None:
        """End all pauses."""
        self._until.clear()
