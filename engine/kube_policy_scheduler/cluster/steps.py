"""Long work in steps: it yields wherever it may stop, and its caller decides how far it runs at a time.

Work that has nothing to undo continues in the next turn of the event loop (`UnderWay`). Work that depends on the
current state of the cluster is stopped at the end of its turn; it keeps its findings and starts again from them
(`in_turn`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from enum import Enum
from typing import Any, TypeVar

from kube_policy_scheduler.cluster.kept_views import KeptView

T = TypeVar("T")


class Unfinished(Enum):
    """Stands for the result of work that continues in another turn of the event loop."""

    UNFINISHED = "unfinished"


UNFINISHED = Unfinished.UNFINISHED

_MOST_UNDER_WAY = 16


class UnderWay:
    """Work that has begun, by key."""

    def __init__(self) -> None:
        self._steps: KeptView[Hashable, Iterator[Any]] = KeptView(most=_MOST_UNDER_WAY)

    def go_on(self, key: Hashable, begin: Callable[[], Iterator[Any]]) -> bool:
        """Take the next step of the work under a key, or begin it; return whether it is finished.

        If too much work is under way, some that was not continued for a long time is dropped, and begins again.
        """
        steps = self._steps.get(key)
        if steps is None:
            steps = begin()
            self._steps.set(key, steps)
        for _ in steps:
            return False
        self._steps.pop(key)
        return True


def every(number: int, steps: Iterator[Any]) -> Iterator[None]:
    """Combine this many steps into one."""
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
    """Run long work to its end, or until its steps have reported this much work: then stop it; it keeps its findings.

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
