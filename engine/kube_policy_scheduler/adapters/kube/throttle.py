"""When the next request of a kind may be sent: a pause that the server asked for by 429."""

from __future__ import annotations

import asyncio

LONGEST_SECONDS = 60.0


class Throttle:
    """Pauses by kind of request: an API server may take bindings while it takes no more events."""

    def __init__(self) -> None:
        self._paused_until: dict[str, float] = {}
        """Event loop's time by kind; without those that are over and were asked for since."""

    def pause(self, kind: str, seconds: float) -> None:
        """Hold requests of a kind for seconds from now; never shortens a longer pause."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until[kind] = max(self._paused_until.get(kind, 0.0), until)

    async def wait(self, kind: str) -> None:
        """Return when a request of a kind may be sent; at once where none of them is held."""
        loop = asyncio.get_running_loop()
        while (until := self._paused_until.get(kind)) is not None:  # it may have grown meanwhile
            if (remaining := until - loop.time()) > 0.0:
                await asyncio.sleep(remaining)
            else:
                del self._paused_until[kind]


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, at most a minute; dates and nonsense give None."""
    text = header.strip() if header is not None else ""
    if not (text.isascii() and text.isdecimal()):  # `²` is a digit, and no number
        return None
    return min(float(text), LONGEST_SECONDS)
