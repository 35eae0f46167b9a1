"""Bodies of requests that are in memory at the same time, bounded one by one and all together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

MAX_BODY_BYTES = 8 << 20
"""A ConfigMap has up to 1 MiB; a review holds the old and the new one, as JSON with its escapes."""
MAX_BYTES = 32 << 20
"""Of all bodies that are being read, wait for a check, or are checked."""
_TOO_LARGE = f"a review has at most {MAX_BODY_BYTES >> 20} MiB"
_TOO_MANY = "too many large reviews at the same time; try again"


class TooLarge(Exception):
    """One body is larger than a review can be."""


class TooMany(Exception):
    """All bodies together are too large, and this one was the largest that could go."""


class Body:
    """One of them; made by `Bodies`."""

    def __init__(self, bodies: Bodies, timeout: asyncio.Timeout) -> None:
        """timeout: of its request."""
        self.content = bytearray()
        self.is_dropped = False
        self.is_taken = False
        self._bodies = bodies
        self._timeout = timeout

    @property
    def deadline(self) -> float:
        """When the request has to be answered, by the event loop's clock."""
        when = self._timeout.when()
        assert when is not None
        return when

    async def read(self, request: web.Request) -> None:
        """Read it to its end.

        Raises:
            TooLarge: it does not end where it should.
            TooMany: all together are too large.
        """
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise TooLarge(_TOO_LARGE)
        async for piece in request.content.iter_any():
            self.content += piece
            if len(self.content) > MAX_BODY_BYTES:
                raise TooLarge(_TOO_LARGE)
            self._bodies.make_room()
            self._check()

    def taken(self) -> bytes:
        """Return the bytes; from now on they cannot be dropped.

        Raises:
            TooMany: they were dropped before.
        """
        self._check()
        self.is_taken = True
        return bytes(self.content)

    def drop(self) -> None:
        """Give the memory back; the request ends with `TooMany`."""
        self.is_dropped = True
        self.content = bytearray()
        if not self._timeout.expired():
            self._timeout.reschedule(0.0)

    def _check(self) -> None:
        if self.is_dropped:
            raise TooMany(_TOO_MANY)


class Bodies:
    """All of them. Where they get too many bytes, the largest that is not yet being checked goes.

    So who sends much cannot keep those away who send little, and API servers send little.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """max_bytes: of all together."""
        self._max_bytes = max_bytes
        self._held: dict[Body, None] = {}

    @contextlib.asynccontextmanager
    async def one(self, seconds: float) -> AsyncIterator[Body]:
        """Count another body while its request lasts.

        seconds: until the request has to be answered.

        Raises:
            TimeoutError: that time is over.
            TooMany: the body was dropped to make room.
        """
        body = None
        try:
            async with asyncio.timeout(seconds) as timeout:
                body = Body(self, timeout)
                self._held[body] = None
                try:
                    yield body
                finally:
                    del self._held[body]
        except TimeoutError:
            if body is not None and body.is_dropped:
                raise TooMany(_TOO_MANY) from None
            raise

    def make_room(self) -> None:
        """Drop the largest bodies while all together are too large."""
        while sum(len(body.content) for body in self._held) > self._max_bytes:
            max((body for body in self._held if not body.is_taken), key=lambda body: len(body.content)).drop()
