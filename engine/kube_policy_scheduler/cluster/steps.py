"""Long work in steps: it yields where it may stop, and whoever wants its result says how far it goes at a time.

What has nothing to undo goes on in the next turn of the event loop where it stopped (`UnderWay`). What rests on the
cluster as it is now is ended there; it keeps what it found, and begins again from that (`in_turn`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class Unfinished(Enum):
    """In place of the result of work that goes on in another turn of the event loop."""

    UNFINISHED = "unfinished"


UNFINISHED = Unfinished.UNFINISHED
ENDS_TURN = 2**62
"""The work that a step tells which must be the last one of its turn."""

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


def in_turn(steps: Generator[int, None, T], *, most: float) -> T | Unfinished:
    """Run long work to its end, or until its steps have told so much work: then it is ended, and keeps what it found.

    Nothing else runs between the steps of a turn.
    """
    told = 0
    try:
        while told < most:
            told += next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    steps.close()
    return UNFINISHED
