"""Results that need not be computed again. Knows nothing of policies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Memo:
    """Results of pure functions by their arguments, for one piece of work that is similar to the one before it.

    What a piece of work does not use is not kept for the next one, so nothing grows with time.
    """

    def __init__(self, before: Mapping[Hashable, Any] = MappingProxyType({})) -> None:
        """Begin a piece of work.

        Args:
            before: what the last one used.
        """
        self.known: dict[Hashable, Any] = {}
        """What this one used so far."""
        self._before = before

    def __call__(self, function: Callable[[*Ts], T], *given: *Ts) -> T:
        """Return `function(*given)`; the arguments must be hashable, and all that the result follows from."""
        key = (function, *given)
        if key not in self.known:
            self.known[key] = self._before[key] if key in self._before else function(*given)
        result: T = self.known[key]
        return result

    def again(self, function: Callable[[*Ts, T | None], T], what: str, *given: *Ts) -> T:
        """Return `function(*given, last)`, where `last` is its last result for `what`: it saves work, and no more.

        The result must be the same whatever `last` is, and nothing may change with time that `last` refers to.
        """
        key = (function, *given)
        if key not in self.known:
            before = self._before
            self.known[key] = before[key] if key in before else function(*given, before.get((function, what)))
        result: T = self.known[key]
        self.known[function, what] = result
        return result
