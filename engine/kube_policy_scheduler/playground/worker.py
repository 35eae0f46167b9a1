"""One thread for work that may never end: it is stopped where it is, and the next piece of work begins.

Python can stop a thread between two of its instructions. A single call into C goes to its end first.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class TooLong(Exception):
    """Work took longer than it may."""


class Busy(Exception):
    """Too many pieces of work wait."""


class _Stopped(BaseException):
    """Raised in the thread; not an `Exception`, so that the work does not handle it."""


class Job:
    """One piece of work."""

    def __init__(self) -> None:
        self.reason: Exception | None = None
        """What the caller gets if the work is stopped."""


class Worker:
    """Does one piece of work at a time, in the order in which it comes."""

    def __init__(self, name: str, *, most_waiting: int, recover: Callable[[], object] = lambda: None) -> None:
        """Set up.

        Args:
            name: of the thread.
            most_waiting: pieces of work, with the one that is being done; more are refused.
            recover: called in the thread after work was stopped, wherever that was.
        """
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most_waiting = most_waiting
        self._recover = recover
        self.waiting = 0
        """Pieces of work, with the one that is being done."""
        self._lock = threading.Lock()
        self._thread = 0
        self._doing: Job | None = None

    async def do(self, work: Callable[[], _T], *, seconds: float, job: Job | None = None) -> _T:
        """Return what the work returns.

        Args:
            work: runs in the thread.
            seconds: after which it is stopped; the time that it waits does not count.
            job: its name, to stop it earlier.

        Raises:
            Busy: too much work waits.
            TooLong: the work was stopped.
        """
        if self.waiting >= self._most_waiting:
            raise Busy
        self.waiting += 1
        loop, job = asyncio.get_running_loop(), job or Job()
        try:
            return await loop.run_in_executor(self._pool, self._done, work, job, seconds, loop)
        finally:
            self.waiting -= 1

    def stop(self, job: Job, reason: Exception) -> None:
        """Stop a piece of work if it is being done; its caller gets the reason."""
        with self._lock:
            if self._doing is job and job.reason is None:
                job.reason = reason
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Stopped))

    def end(self) -> None:
        """Take no more work, and stop that which is being done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        doing = self._doing
        if doing is not None:
            self.stop(doing, TooLong("the playground ends"))

    def _done(self, work: Callable[[], _T], job: Job, seconds: float, loop: asyncio.AbstractEventLoop) -> _T:
        reason = TooLong(f"gave up after {seconds:g} s: on this cluster, this takes too long; simplify your last edit")
        loop.call_soon_threadsafe(loop.call_later, seconds, self.stop, job, reason)
        try:
            try:
                with self._lock:
                    self._thread, self._doing = threading.get_ident(), job
                return work()
            finally:
                self._finish()
        except BaseException:
            self._finish()
            if job.reason is None:
                raise
            self._recover()
            raise job.reason from None

    def _finish(self) -> None:
        """End the job: whatever was to stop it is void, also if it comes right now."""
        while True:
            try:
                with self._lock:
                    self._doing = None
                # What came until here is raised in this loop. To take it back would leave Python's switch for it on,
                # and with that slow down the whole process, and end no loop that is traced.
                for _ in range(8):
                    pass
                return
            except _Stopped:
                continue
