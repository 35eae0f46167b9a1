"""What one HTTP server gives to all its clients together: connections, time, bytes. Knows no routes.

Nothing that a client does or leaves undone may keep others out: connections without a request end soon, and where
there are too many, the one that has been idle longest makes room, so that a probe still comes through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
FIRST_REQUEST_SECONDS = 10.0
"""For the first request to arrive in full: line and headers."""
IDLE_SECONDS = 90.0
"""Between requests: longer than Prometheus' usual interval of 15 to 60 s."""
REQUEST_SECONDS = 30.0
"""For an answer."""
HANDSHAKE_SECONDS = 5.0
MAX_LINE_BYTES = 4096
MAX_HEADER_BYTES = 16384
"""Of one header: service account tokens have 1 to 2 KB, those of some providers more."""
MAX_HEADERS = 64
_LOOK_EVERY_SECONDS = 1.0

HANDLER_LIMITS: dict[str, Any] = {
    "max_line_size": MAX_LINE_BYTES,
    "max_field_size": MAX_HEADER_BYTES,
    "max_headers": MAX_HEADERS,
    "keepalive_timeout": IDLE_SECONDS,
    "lingering_time": 1.0,
}
"""For aiohttp's runner."""


class _TooMany(asyncio.Protocol):
    """Ends a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()


class ConnectionLimits:
    """Watches over the connections of one server."""

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        first_request_seconds: float = FIRST_REQUEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._max_connections = max_connections
        self._first_request_seconds = first_request_seconds
        self._idle_seconds = idle_seconds
        self._request_seconds = request_seconds
        self.bodies_at: frozenset[str] = frozenset()
        """Paths where a request may have a body."""
        self._server: web.Server | None = None
        self._seen: dict[RequestHandler, float] = {}
        """Event loop time at which a connection was first seen."""
        self._served: dict[RequestHandler, float] = {}
        """Event loop time of the end of a connection's last request."""
        self._busy: set[RequestHandler] = set()

    @asynccontextmanager
    async def over(self, server: web.Server) -> AsyncIterator[None]:
        """Watch over a server's connections while it lasts."""
        self._server = server
        task = asyncio.create_task(self._watch(), name="connection limits")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def protocol(self) -> asyncio.Protocol:
        """Return what a new connection speaks to; for `loop.create_server`."""
        assert self._server is not None
        if len(self._server.connections) >= self._max_connections and not self._make_room():
            return _TooMany()
        return self._server()

    @property
    def middleware(self) -> Any:
        """Return the middleware that knows which connections have a request."""

        @web.middleware
        async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.body_exists and request.path not in self.bodies_at:
                response: web.StreamResponse = web.Response(status=413, text="no request here has a body\n")
                response.force_close()
                return response
            connection = request.protocol
            self._busy.add(connection)
            try:
                async with asyncio.timeout(self._request_seconds):
                    return await handler(request)
            except TimeoutError:
                return web.Response(status=503, text=f"no answer within {self._request_seconds:g} s\n")
            finally:
                self._busy.discard(connection)
                self._served[connection] = asyncio.get_running_loop().time()

        return limited

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_EVERY_SECONDS, self._first_request_seconds / 2))
            self._end_overdue(asyncio.get_running_loop().time())

    def _end_overdue(self, now: float) -> None:
        assert self._server is not None
        connections = set(self._server.connections)
        for known in (self._seen, self._served):
            for gone in known.keys() - connections:
                del known[gone]
        for connection in connections - self._busy:
            seen = self._seen.setdefault(connection, now)
            served = self._served.get(connection)
            if now - (seen if served is None else served) > (
                self._first_request_seconds if served is None else self._idle_seconds
            ):
                _abort(connection)

    def _make_room(self) -> bool:
        """End the connection that has been idle longest; return whether there was one."""
        assert self._server is not None
        idle = [connection for connection in self._server.connections if connection not in self._busy]
        idle = [connection for connection in idle if connection.transport is not None]
        if not idle:
            return False
        # one never seen is the youngest; of the others, those without any request go first
        _abort(min(idle, key=lambda c: (c in self._served, self._served.get(c) or self._seen.get(c, float("inf")))))
        return True


def _abort(connection: RequestHandler) -> None:
    transport = connection.transport
    connection.force_close()
    if isinstance(transport, asyncio.Transport):
        transport.abort()
