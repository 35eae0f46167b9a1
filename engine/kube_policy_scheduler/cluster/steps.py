"""Long work in steps, between which the event loop runs: who asks for its result goes on with it, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_MOST_UNDER_WAY = 16


class UnderWay:
    """Work that has begun, by key."""

    def __init__(self) -> None:
        self._steps: dict[Hashable, Iterator[Any]] = {}

    def go_on(self, key: Hashable, begin: Callable[[], Iterator[Any]]) -> bool:
        """Take the next step of what began under a key, or begin it; return whether it is over.

        Of very much that is under way, what began first begins again.
        """
        steps = self._steps.get(key)
        if steps is None:
            while len(self._steps) >= _MOST_UNDER_WAY:
                del self._steps[next(iter(self._steps))]
            steps = self._steps[key] = begin()
        for _ in steps:
            return False
        del self._steps[key]
        return True


def every(number: int, steps: Iterator[Any]) -> Iterator[None]:
    """Make one step of so many."""
    for done, _ in enumerate(steps, 1):
        if done % number == 0:
            yield


def now(steps: Generator[object, None, T]) -> T:
    """Run long work to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
