"""When the next request may be sent: a pause the server asked for (429), and an optional client-side rate."""

from __future__ import annotations

import asyncio


class Throttle:
    """Free of cost while nobody asked for a pause and no rate is set."""

    def __init__(self, *, requests_per_second: float | None = None, burst: int = 1) -> None:
        self._interval_seconds = 1.0 / requests_per_second if requests_per_second else 0.0
        self._slack_seconds = self._interval_seconds * max(burst - 1, 0)
        self._next_at = 0.0  # theoretical time of the next request when the rate is exactly met
        self._paused_until = 0.0

    def pause(self, seconds: float) -> None:
        """Hold all requests for seconds from now; never shortens a longer pause."""
        self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + seconds)

    @property
    def is_idle(self) -> bool:
        """Whether `wait` would return at once without accounting."""
        return self._paused_until == 0.0 and self._interval_seconds == 0.0

    async def wait(self) -> None:
        """Return when one request may be sent."""
        loop = asyncio.get_running_loop()
        while (remaining := self._paused_until - loop.time()) > 0.0:  # noqa: ASYNC110 (it may have grown meanwhile)
            await asyncio.sleep(remaining)
        self._paused_until = 0.0
        if self._interval_seconds == 0.0:
            return
        now = loop.time()
        send_at = max(now, self._next_at - self._slack_seconds)
        self._next_at = max(now, self._next_at) + self._interval_seconds
        if send_at > now:
            await asyncio.sleep(send_at - now)


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, at most a minute; dates and nonsense give None."""
    if header is None or not header.strip().isdigit():
        return None
    return min(float(header), 60.0)
