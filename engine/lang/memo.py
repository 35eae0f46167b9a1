"""What was worked out before and need not be again. Knows nothing of policies."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Memo:
    """Results of pure functions by their arguments: those of one piece of work, and those of the one before it.

    What a piece of work does not ask for is not there for the next one, so nothing grows with time.
    """

    def __init__(self, before: Memo | None = None) -> None:
        """Make the memo of a piece of work.

        Args:
            before: that of the last one, whose results are taken over as they are asked for.
        """
        self._known: dict[Hashable, Any] = {}
        self._before = before._known if before is not None else {}

    def __call__(self, function: Callable[[*Ts], T], *given: *Ts) -> T:
        """Return `function(*given)`; the arguments must be hashable, and all that the result follows from."""
        key = (function, *given)
        if key not in self._known:
            self._known[key] = self._before[key] if key in self._before else function(*given)
        result: T = self._known[key]
        return result
