"""An event loop whose time is a number: where nothing is to be done now, it jumps to what is next.

Programs may run on a `Machine`, which can be stopped in the midst of anything, as SIGSTOP does, and go on later.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, Token, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

MOST_TURNS = 20_000
CLOCK_RESOLUTION = 1e-9
"""What is due before that much time has passed is due now."""
MOST_CANCELLED = 100
"""Timers that are kept, however many of them are cancelled."""

_machine: ContextVar[Machine | None] = ContextVar("machine", default=None)


class StandstillError(RuntimeError):
    """The program is busy with itself."""


class Machine:
    """Runs what is begun inside `with machine`, and all that follows from it, while it is not stopped."""

    def __init__(self) -> None:
        self.missed: list[_Handle] = []
        """What was due while it was stopped."""
        self.is_stopped = False
        self.turns = 0
        """How many callbacks have run: while it stays the same, so does everything on the machine."""

    def __enter__(self) -> None:
        self._before: Token[Machine | None] = _machine.set(self)

    def __exit__(self, *_: object) -> None:
        _machine.reset(self._before)

    def stop(self) -> None:
        """Run nothing from now on; time passes."""
        self.is_stopped = True

    def go_on(self) -> None:
        """Run what was due meanwhile, and go on."""
        self.is_stopped = False
        missed, self.missed = self.missed, []
        for handle in missed:
            handle.due_again()


class _Handle:
    """A callback that is due, on the machine of who scheduled it: asyncio's `Handle` with less to it, as runs make
    millions."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_loop", "_machine")

    def __init__(
        self, loop: VirtualLoop, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        if context is None:
            context = copy_context()
        self._loop, self._callback, self._args, self._context = loop, callback, args, context
        self._machine = context.get(_machine)
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def due_again(self) -> None:
        """Be due, after the machine has gone on."""
        if not self._cancelled:
            self._loop.add_ready(self)

    def _run(self) -> None:
        """Run, unless the machine is stopped: then it waits."""
        if (machine := self._machine) is not None:
            if machine.is_stopped:
                machine.missed.append(self)
                return
            machine.turns += 1
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler({"message": f"exception in {self._callback}", "exception": error})


class _Timer(_Handle):
    """One that is due at some time."""

    __slots__ = ("_when", "is_scheduled")

    def __init__(
        self,
        when: float,
        loop: VirtualLoop,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        super().__init__(loop, callback, args, context)
        self._when = when
        self.is_scheduled = True

    def __lt__(self, other: _Timer) -> bool:
        """Of those that are due at one time, none is before another."""
        return False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._loop.cancelled_timers += self.is_scheduled

    def due_again(self) -> None:
        if not self._cancelled:
            self._when = max(self._when, self._loop.time())
            self._loop.add_timer(self)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order in which they are due; the same program runs the same way each time.

    Nothing comes from outside: it never asks a selector.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._turns = 0
        self._timers: list[tuple[float, _Timer]] = []
        self.cancelled_timers = 0
        """How many of the timers that are kept are cancelled."""
        super().__init__(selectors.SelectSelector())

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Schedule a callback on the caller's machine."""
        handle = _Handle(self, callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Schedule a callback for later on the caller's machine."""
        timer = _Timer(when, self, callback, args, context)
        heappush(self._timers, (when, timer))
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Schedule a callback for so much later on the caller's machine."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def add_ready(self, handle: _Handle) -> None:
        """Have a callback run in the next turn."""
        self._ready.append(handle)  # type: ignore[attr-defined]

    def add_timer(self, timer: _Timer) -> None:
        """Have a timer run when it is due."""
        timer.is_scheduled = True
        heappush(self._timers, (timer.when(), timer))

    def _run_once(self) -> None:
        """Run what is due now; where nothing is, let time pass until something is."""
        ready: deque[Any] = self._ready  # type: ignore[attr-defined]
        while True:
            self._forget_cancelled()
            timers = self._timers
            waits = 0.0
            if not ready and not self._stopping:  # type: ignore[attr-defined]
                if not timers:
                    raise RuntimeError("deadlock: nothing will ever happen again")
                waits = max(0.0, timers[0][0] - self._now)
            end = self._now + CLOCK_RESOLUTION
            while timers and timers[0][0] < end:
                timer = heappop(timers)[1]
                timer.is_scheduled = False
                ready.append(timer)
            is_idle = not ready and not self._stopping  # type: ignore[attr-defined]
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            self._turns = 0 if waits else self._turns + 1
            if self._turns > MOST_TURNS:
                raise StandstillError(f"{MOST_TURNS} turns of the loop at {self._now:.2f} s, and no time has passed")
            self._now += waits
            if not is_idle:
                return

    def _forget_cancelled(self) -> None:
        """Drop the timers that are cancelled where they are next, and all of them where they are most."""
        timers = self._timers
        if len(timers) > MOST_CANCELLED and self.cancelled_timers * 2 > len(timers):
            for _, timer in timers:
                timer.is_scheduled = not timer.cancelled()
            self._timers = [each for each in timers if each[1].is_scheduled]
            heapify(self._timers)
            self.cancelled_timers = 0
            return
        while timers and timers[0][1].cancelled():
            self.cancelled_timers -= 1
            heappop(timers)[1].is_scheduled = False


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; machines must not be stopped then."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        while pending := asyncio.all_tasks(loop):  # some may begin meanwhile
            for task in pending:
                task.cancel()
            loop.run_until_complete(asyncio.wait(pending))
        loop.close()
