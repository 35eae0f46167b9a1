"""Tasks that work on pods in flight: bindings, evictions, hand-overs. They run beside scheduling cycles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

MOST_TASKS = 512
"""Beyond it scheduling waits, so that a slow API server is not buried."""


class _Task(msgspec.Struct, frozen=True):
    uid: str
    since: float
    """Event loop's time."""


class InFlight:
    """The tasks, the oldest first."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        """wake: called when a task has ended."""
        self._wake = wake
        self._tasks: dict[asyncio.Task[None], _Task] = {}
        self._awaiting_others = 0

    def __len__(self) -> int:
        """Return how many tasks there are."""
        return len(self._tasks)

    @property
    def is_saturated(self) -> bool:
        """Whether there are so many tasks that scheduling must wait."""
        return len(self._tasks) - self._awaiting_others >= MOST_TASKS

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest task by the event loop's clock; 0.0 where there is none."""
        since = next((task.since for task in self._tasks.values()), None)
        return asyncio.get_running_loop().time() - since if since is not None else 0.0

    def has(self, uid: str) -> bool:
        """Return whether a task works on a pod."""
        return any(task.uid == uid for task in self._tasks.values())

    def start(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a pod."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        self._tasks[task] = _Task(uid, loop.time())
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("unexpected error after a binding", exc_info=error)
        self._wake()

    @contextmanager
    def awaiting_others(self) -> Iterator[None]:
        """Not count a task that waits for volume controllers or drivers: a slow one must not hold up other pods."""
        self._awaiting_others += 1
        try:
            yield
        finally:
            self._awaiting_others -= 1

    async def drained(self) -> None:
        """Wait until there is no task."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()
