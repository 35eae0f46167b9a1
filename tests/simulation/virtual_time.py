"""An event loop whose time is a number: where nothing is to be done now, it jumps to what is next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


MOST_TURNS = 20_000


class StandstillError(RuntimeError):
    """The program is busy with itself."""


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
    """Run a coroutine to its end in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending))
        loop.close()
