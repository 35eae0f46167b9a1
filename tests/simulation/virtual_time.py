"""An event loop whose time is a number: where nothing is to be done now, it jumps to what is next.

Programs may run on a `Machine`, which can be stopped in the midst of anything, as SIGSTOP does, and go on later.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, Token
from typing import Any, TypeVar

T = TypeVar("T")

MOST_TURNS = 20_000

_machine: ContextVar[Machine | None] = ContextVar("machine", default=None)


class StandstillError(RuntimeError):
    """The program is busy with itself."""


class Machine:
    """Runs what is begun inside `with machine`, and all that follows from it, while it is not stopped."""

    def __init__(self) -> None:
        self._missed: list[Callable[[], None]] = []
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
        missed, self._missed = self._missed, []
        for run in missed:
            run()

    def gate(
        self, schedule: Callable[..., asyncio.Handle], callback: Callable[..., object], args: tuple[Any, ...]
    ) -> Any:
        """Schedule a callback that waits while the machine is stopped; return its handle."""

        def run() -> None:
            if self.is_stopped:
                self._missed.append(again)
            else:
                self.turns += 1
                callback(*args)

        def again() -> None:
            if not handle.cancelled():
                schedule(run)

        handle = schedule(run)
        return handle


class _Selector(selectors.SelectSelector):
    """Lets no time pass while it waits."""

    waited: float | None = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.waited = timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order in which they are due; the same program runs the same way each time."""

    def __init__(self) -> None:
        self._virtual_selector = _Selector()
        self._now = 0.0
        self._turns = 0
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Schedule a callback on the caller's machine."""
        schedule = super().call_soon
        machine = _machine.get() if context is None else context.get(_machine)
        if machine is None:
            return schedule(callback, *args, context=context)
        return machine.gate(lambda run: schedule(run, context=context), callback, args)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        """Schedule a callback for later on the caller's machine."""
        schedule = super().call_at
        machine = _machine.get() if context is None else context.get(_machine)
        if machine is None:
            return schedule(when, callback, *args, context=context)
        return machine.gate(lambda run: schedule(max(when, self._now), run, context=context), callback, args)

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        waited = self._virtual_selector.waited
        if waited is None and not self._ready and not self._scheduled:  # type: ignore[attr-defined]
            raise RuntimeError("deadlock: nothing will ever happen again")
        self._turns = 0 if waited else self._turns + 1
        if self._turns > MOST_TURNS:
            raise StandstillError(f"{MOST_TURNS} turns of the loop at {self._now:.2f} s, and no time has passed")
        if waited:
            self._now += waited


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
