"""Waits for an event, and no longer than until a time, again and again, without a timer for each wait."""

from __future__ import annotations

import asyncio


class Alarm:
    """Sets an event when a time has come, or earlier.

    With `asyncio.timeout`, a loop that is woken a hundred times a second makes and cancels as many timers. The event
    loop keeps cancelled ones and compares them, in Python. Here a timer that is due no later than the next time is
    kept. So a loop may be woken before its time: it looks what is due, and waits again.
    """

    def __init__(self, event: asyncio.Event) -> None:
        """event: is set."""
        self._event = event
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, until: float | None) -> None:
        """Wait until the event is set. until: event loop's time at which it is at the latest; None: it may never be."""
        timer = self._timer
        if until is not None and (timer is None or timer.when() > until):
            if timer is not None:
                timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(until, self._ring)
        await self._event.wait()

    def _ring(self) -> None:
        self._timer = None
        self._event.set()
