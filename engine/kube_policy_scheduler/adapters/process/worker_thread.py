"""Blocking calls off the event loop, in daemon threads. Knows nothing of what it runs."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run work in a daemon thread of its own: an executor would wait at exit for one that hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_settle, args=(loop, future, work), name=name, daemon=True).start()
    return future


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Do work, and have the loop settle the future."""
    try:
        give: Callable[[], None] = partial(future.set_result, work())
    except Exception as error:
        give = partial(future.set_exception, error)

    def settle() -> None:
        if not future.done():
            give()

    with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
        loop.call_soon_threadsafe(settle)


class WorkerThread:
    """Runs one call at a time. Can be left behind while a call hangs, and never delays the process's exit."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run the function after those asked for before; the future belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put(lambda: _settle(loop, future, function))
        return future

    def stop(self, *, finally_call: Callable[[], object] = lambda: None) -> None:
        """End the thread after what it still has to do; `finally_call` runs in it, last. Returns at once."""
        self._calls.put(finally_call)
        self._calls.put(None)

    def join(self) -> None:
        """Wait until the thread has ended, after `stop`."""
        self._thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
