"""What is done for pods in flight beside scheduling cycles: bindings, evictions, hand-overs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

MOST_TASKS = 512
"""Beyond it scheduling waits, so that a slow API server is not buried."""


class PodWork(msgspec.Struct, frozen=True, eq=False):
    """What is done for a pod."""

    uid: str
    since: float
    """Event loop's time."""


class InFlight:
    """All that is done beside scheduling cycles, the oldest first."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        """wake: called when something has ended."""
        self._wake = wake
        self._works: dict[PodWork, asyncio.Task[None] | None] = {}
        """With the task that does it, where one does."""
        self._awaiting_others = 0
        self._next_end: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running one, once something was begun: to ask which one runs is a call of the kernel."""

    def __len__(self) -> int:
        """Return for how many pods something is done."""
        return len(self._works)

    @property
    def is_saturated(self) -> bool:
        """Whether there is so much that scheduling must wait."""
        return len(self._works) - self._awaiting_others >= MOST_TASKS

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest by the event loop's clock; 0.0 where there is none."""
        since = next((work.since for work in self._works), None)
        return asyncio.get_running_loop().time() - since if since is not None else 0.0

    def has(self, uid: str) -> bool:
        """Return whether something is done for a pod."""
        return any(work.uid == uid for work in self._works)

    def begin(self, uid: str) -> PodWork:
        """Note that something is done for a pod, without a task, until `end`."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        work = PodWork(uid, loop.time())
        self._works[work] = None
        return work

    def end(self, work: PodWork) -> None:
        """Note that something has ended."""
        del self._works[work]
        if self._next_end is not None and not self._next_end.done():
            self._next_end.set_result(None)
        self._wake()

    def start(self, uid: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something for a pod in a task."""
        self.go_on(self.begin(uid), coroutine)

    def go_on(self, work: PodWork, coroutine: Coroutine[Any, Any, None]) -> None:
        """Go on with something in a task, until that ends."""
        task = self._works[work] = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(partial(self._ended, work))

    def _ended(self, work: PodWork, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("unexpected error after a binding", exc_info=error)
        self.end(work)

    @contextmanager
    def awaiting_others(self) -> Iterator[None]:
        """Not count what waits for volume controllers or drivers: a slow one must not hold up other pods."""
        self._awaiting_others += 1
        try:
            yield
        finally:
            self._awaiting_others -= 1

    async def drained(self) -> None:
        """Wait until nothing is done any more."""
        while self._works:
            self._next_end = asyncio.get_running_loop().create_future()
            await self._next_end

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in list(self._works.values()):
            if task is not None:
                task.cancel()
