"""Long answers made on the event loop in slices, so that decisions hardly wait for people who look."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

SLICE_SECONDS = 0.001
"""For this long at a time, plus what the last step takes."""
SHARE = 0.1
"""Of the time, for all answers together."""

TURN_SECONDS = 0.002
"""For this long at a time what decisions wait for, plus what the last step takes."""

Made = TypeVar("Made")


async def in_turns(steps: Iterable[None]) -> None:
    """Take steps to their end; between two of them anything may happen, every few milliseconds."""
    ends = time.perf_counter() + TURN_SECONDS
    for _ in steps:
        if time.perf_counter() >= ends:
            await asyncio.sleep(0)
            ends = time.perf_counter() + TURN_SECONDS


class SpareTime:
    """Makes one answer at a time, in a share of the time."""

    def __init__(
        self, *, slice_seconds: float = SLICE_SECONDS, stopwatch: Callable[[], float] = time.thread_time
    ) -> None:
        self._slice_seconds = slice_seconds
        self._stopwatch = stopwatch
        self._turn = asyncio.Lock()

    async def run(self, steps: Generator[None, None, Made]) -> Made:
        """Run steps to their end and return what they return; between two of them anything may happen.

        Errors of the steps are raised. Other callers wait until the result is there.
        """
        async with self._turn:
            try:
                while True:
                    began = self._stopwatch()
                    taken = 0.0
                    while not taken or taken < self._slice_seconds:
                        next(steps)
                        taken = self._stopwatch() - began
                    await asyncio.sleep(taken * (1 / SHARE - 1))
            except StopIteration as end:
                made: Made = end.value
                return made
            finally:
                steps.close()
