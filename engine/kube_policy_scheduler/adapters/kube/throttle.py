"""When the next request may be sent: not during a pause that the server asked for by 429, nor above a rate."""

from __future__ import annotations

import asyncio

import msgspec

LONGEST_SECONDS = 60.0


class RequestRate(msgspec.Struct, frozen=True):
    """A limit on requests, as `clientConnection` of kube-scheduler has one."""

    qps: float
    """Requests per second in the long run."""
    burst: int
    """Requests that may be sent at once after a quiet time."""


class Throttle:
    """Pauses by kind of request, as an API server may take bindings and no more events; and a rate for all kinds."""

    def __init__(self, rate: RequestRate | None = None) -> None:
        self._paused_until: dict[str, float] = {}
        """Event loop's time by kind; without those that are over and were asked for since."""
        self._rate = rate
        self._due = 0.0
        """Event loop's time at which the next request would be sent without any burst."""

    def pause(self, kind: str, seconds: float) -> None:
        """Hold requests of a kind for seconds from now; never shortens a longer pause."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until[kind] = max(self._paused_until.get(kind, 0.0), until)

    def holds(self, kind: str) -> bool:
        """Return whether a request of a kind might have to wait."""
        return self._rate is not None or kind in self._paused_until

    async def wait(self, kind: str) -> None:
        """Return when a request of a kind may be sent; at once where none of them is held."""
        loop = asyncio.get_running_loop()
        if self._rate is not None and (seconds := self._reserve(self._rate, loop.time())) > 0.0:
            await asyncio.sleep(seconds)
        while (until := self._paused_until.get(kind)) is not None:  # it may have grown meanwhile
            if (remaining := until - loop.time()) > 0.0:
                await asyncio.sleep(remaining)
            else:
                del self._paused_until[kind]

    def _reserve(self, rate: RequestRate, now: float) -> float:
        """Take the next place in the row, and return the seconds until its request may be sent."""
        self._due = max(self._due, now - (rate.burst - 1) / rate.qps)
        seconds = self._due - now
        self._due += 1.0 / rate.qps
        return seconds


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, at most a minute; dates and nonsense give None."""
    text = header.strip() if header is not None else ""
    if not (text.isascii() and text.isdecimal()):  # `²` is a digit, and no number
        return None
    return min(float(text), LONGEST_SECONDS)
