"""The endless loops of a process, all in one place: none of them dies silently, and it can be asked how each is.

A loop that breaks ends the process with its reason (what it knows may be half changed: a new process starts afresh), or
begins again after a growing pause and is counted. Which of the two, the caller says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from random import Random
from typing import Any

from kube_policy_scheduler.adapters.process.backoff import Backoff

logger = logging.getLogger(__name__)

PAUSE_SECONDS = (1.0, 60.0)
"""First and longest pause before a loop begins again; one that has run for the longest begins a new row."""

Run = Callable[[], Coroutine[Any, Any, object]]


class Loop:
    """One of them. Made by `Loops.start`."""

    def __init__(self, name: str, run: Run, *, restarts: bool) -> None:
        self.name = name
        self.restarts = restarts
        """Whether it begins again when it breaks."""
        self.breaks = 0
        """How often it broke."""
        self.problem = ""
        """Why it does not run at present; "" where it does."""
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._turned = self._loop.time()

    @property
    def idle_seconds(self) -> float:
        """How long ago it last had a turn; one that waits for something to happen may have none for hours."""
        return self._loop.time() - self._turned

    async def run(self) -> object:
        """Run until it ends, and return what it returns; raises what it raises."""
        return await _Turns(self._run(), self._note_turn)

    def _note_turn(self) -> None:
        self._turned = self._loop.time()


class Loops:
    """Those of one process."""

    def __init__(self) -> None:
        self._tasks: dict[Loop, asyncio.Task[None]] = {}
        self._lost = asyncio.Event()
        self.reason = ""
        """Why the process must end; "" where it need not."""

    def __iter__(self) -> Generator[Loop, None, None]:
        """Yield the loops that were started and not ended."""
        yield from list(self._tasks)

    def start(self, name: str, run: Run, *, restarts: bool) -> Loop:
        """Start a loop.

        Args:
            name: what it is, for people and metrics: lower case, with hyphens.
            run: returns the coroutine, a new one each time. It ends by cancellation, or returns why it has ended.
            restarts: whether it begins again when it ends before it is cancelled; otherwise the process ends.
        """
        loop = Loop(name, run, restarts=restarts)
        self._tasks[loop] = asyncio.create_task(self._keep(loop), name=name)
        return loop

    async def lost(self) -> str:
        """Return why the process must end, once it must."""
        await self._lost.wait()
        return self.reason

    async def end(self, *loops: Loop) -> None:
        """Cancel loops, and wait until all have ended."""
        tasks = [task for loop in loops if (task := self._tasks.pop(loop, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, loop: Loop) -> None:
        first, longest = PAUSE_SECONDS
        backoff = Backoff(initial_seconds=first, limit_seconds=longest, random=Random())
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                why = await loop.run()
                loop.problem = str(why) if isinstance(why, str) else f"loop {loop.name} has ended"
            except Exception as error:
                loop.problem = f"unexpected error in loop {loop.name}: {error!r}"
                logger.exception("unexpected error in loop %s", loop.name)
            if not loop.restarts:
                self.reason = self.reason or loop.problem
                self._lost.set()
                return
            loop.breaks += 1
            if clock() - began >= longest:
                backoff.reset()
            pause_seconds = backoff.next_seconds()
            logger.warning("%s; restarting in %.1f s", loop.problem, pause_seconds)
            await asyncio.sleep(pause_seconds)
            loop.problem = ""


class _Turns(Awaitable[Any]):
    """Awaits a coroutine, and notes each time that it goes on."""

    def __init__(self, work: Coroutine[Any, Any, Any], note: Callable[[], None]) -> None:
        self._work = work
        self._note = note

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        try:
            while True:
                self._note()
                try:
                    waits_for = self._work.send(None) if error is None else self._work.throw(error)
                except StopIteration as end:
                    return end.value
                error = None
                try:
                    yield waits_for
                except BaseException as thrown:  # cancellation, most often
                    error = thrown
        finally:
            self._work.close()
