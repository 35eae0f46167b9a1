"""What one HTTP server gives to all its clients together: connections, time, bytes. Knows no routes.

Nothing that a client does or leaves undone may keep others out or slow the scheduler down. Connections count from the
moment they are accepted, before any TLS handshake; those without a request end soon, and where there are too many, the
one that has been idle longest makes room, so that a probe still comes through. What one address asks for beyond a rate
waits.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from kube_policy_scheduler.adapters.process.loops import Loops
from kube_policy_scheduler.client_mistakes import ServerLogger

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
FIRST_REQUEST_SECONDS = 10.0
"""For the first request to arrive in full: line and headers."""
IDLE_SECONDS = 90.0
"""Between requests: longer than Prometheus' usual interval of 15 to 60 s."""
REQUEST_SECONDS = 30.0
"""For an answer."""
HANDSHAKE_SECONDS = 5.0
REQUESTS_PER_SECOND = 50.0
"""Of one address, in the long run; a request takes half a millisecond of the loop."""
HANDSHAKES_PER_SECOND = 25.0
"""Of one address, of TLS."""
BURST_SECONDS = 10.0
"""An address may spend the requests of this much time at once."""
LONGEST_WAIT_SECONDS = FIRST_REQUEST_SECONDS
PROBES = frozenset({"livez", "readyz", "healthz"})
"""First parts of the paths that kubelets ask for. They have a rate of their own: who shares a kubelet's address and
asks for other things, or for things that are no requests, does not delay them."""
LONGEST_PROBE_WAIT_SECONDS = 0.5
LONGEST_HANDSHAKE_WAIT_SECONDS = 1.5
"""Kubelets give up after some seconds. Even so, all connections together get no more than this many answers."""
_MOST_ADDRESSES = 1024
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
    "logger": ServerLogger(log),
}
"""For aiohttp's runner."""


class RateLimit:
    """How long each address has to wait so that it stays below a rate (GCRA, a leaky bucket without a timer)."""

    def __init__(
        self,
        per_second: float,
        *,
        burst_seconds: float = BURST_SECONDS,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self._per_second = per_second
        self._burst_seconds = burst_seconds
        self._longest_wait_seconds = longest_wait_seconds
        self._paid_until: OrderedDict[str, float] = OrderedDict()
        """When all that an address has asked for would have been done at its rate."""

    def wait(self, address: str, now: float, *, cost: float = 1.0) -> float:
        """Note a request and return the seconds until it may be served.

        Args:
            address: of the client.
            now: seconds, never going back.
            cost: in requests.
        """
        paid_until = max(now, self._paid_until.pop(address, now)) + cost / self._per_second
        # those who share the address are not kept out for longer
        paid_until = min(paid_until, now + self._burst_seconds + self._longest_wait_seconds)
        self._paid_until[address] = paid_until
        if len(self._paid_until) > _MOST_ADDRESSES:
            self._paid_until.popitem(last=False)
        return max(0.0, paid_until - now - self._burst_seconds)


class _Handler(RequestHandler):
    """Speaks HTTP on one connection; what is no request waits for its turn, as a request does."""

    __slots__ = ("_limits",)

    def __init__(self, limits: ConnectionLimits, server: web.Server, **settings: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **settings)
        self._limits = limits

    def _make_error_handler(self, err_info: Any) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        answer = super()._make_error_handler(err_info)

        async def waited(request: web.BaseRequest) -> web.StreamResponse:
            await self._limits.before_refusal(self)
            return await answer(request)

        return waited


class _Connection(asyncio.Protocol):
    """A connection from the moment it is accepted; hands it over to aiohttp after the TLS handshake."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        """That of the socket, below TLS."""
        self.handler: RequestHandler | None = None
        self.accepted = 0.0
        """Event loop time."""
        self.served: float | None = None
        """Event loop time at the end of the last request."""
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve it, or end it at once where there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        loop = asyncio.get_running_loop()
        self.accepted = loop.time()
        # until the reader continues; Python 3.11.2 begins to read after this call, in spite of a pause before
        loop.call_soon(transport.pause_reading)
        if self._limits.admit(self):
            self._task = asyncio.create_task(self._hand_over(transport), name="connection")
            self._task.add_done_callback(self._handed_over)
        else:
            transport.abort()

    @property
    def ended(self) -> bool:
        return self.transport is None or self.transport.is_closing()

    @property
    def address(self) -> str:
        """Return who is at the other end."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def end(self) -> None:
        """End it, whatever is under way."""
        if self.handler is not None:
            self.handler.force_close()
        if self.transport is not None:
            self.transport.abort()

    async def _hand_over(self, raw: asyncio.Transport) -> None:
        context = self._limits.context
        handler = self._limits.handler()
        if context is None:
            transport = raw
            raw.set_protocol(handler)
            early = b""
        else:
            await self._limits.before_handshake(self.address)
            if raw.is_closing():
                return
            reader = _EarlyBytes()
            secured = await asyncio.get_running_loop().start_tls(
                raw, reader, context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
            if secured is None or secured.is_closing():
                return
            transport = secured
            transport.set_protocol(handler)
            early = bytes(reader.received)
        self._limits.opened(self, handler)
        handler.connection_made(transport)
        if early:
            handler.data_received(early)
        if context is None:
            raw.resume_reading()

    def _handed_over(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        self.end()
        if not isinstance(error, OSError):  # errors of TLS and of broken connections are not logged
            log.error("failed to serve a connection", exc_info=error)


class _EarlyBytes(asyncio.Protocol):
    """What comes between the end of the handshake and the moment at which we learn of it."""

    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data


class ConnectionLimits:
    """Watches over the connections of one server."""

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        first_request_seconds: float = FIRST_REQUEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        rate: RateLimit | None = None,
        on_malformed: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up.

        Args:
            max_connections: at a time.
            first_request_seconds: for the first request of a connection to arrive in full.
            idle_seconds: between requests.
            request_seconds: for an answer.
            rate: of requests without a body, probes aside; None: the usual one.
            on_malformed: called for each thing that is no request.
        """
        self._max_connections = max_connections
        self._first_request_seconds = first_request_seconds
        self._idle_seconds = idle_seconds
        self._request_seconds = request_seconds
        self._rate = rate or RateLimit(REQUESTS_PER_SECOND)
        self._probes = RateLimit(REQUESTS_PER_SECOND, longest_wait_seconds=LONGEST_PROBE_WAIT_SECONDS)
        self._handshakes = RateLimit(HANDSHAKES_PER_SECOND, longest_wait_seconds=LONGEST_HANDSHAKE_WAIT_SECONDS)
        self.on_malformed = on_malformed
        self._bodies_at: frozenset[str] = frozenset()
        self.context: ssl.SSLContext | None = None
        """Of TLS; None for plain HTTP."""
        self._server: web.Server | None = None
        self._connections: dict[_Connection, None] = {}
        """Those that are open, the one accepted first at the beginning."""
        self._by_handler: dict[object, _Connection] = {}

    @asynccontextmanager
    async def over(
        self, server: web.Server, context: ssl.SSLContext | None, *, bodies_at: Iterable[str], loops: Loops
    ) -> AsyncIterator[None]:
        """Watch over a server's connections while it lasts.

        Args:
            server: speaks HTTP on them.
            context: of TLS; None for plain HTTP.
            bodies_at: paths where a request may have a body; the handler counts the requests there.
            loops: of the process.
        """
        self._server, self.context, self._bodies_at = server, context, frozenset(bodies_at)
        watching = loops.start("http-connections", self._watch, restarts=True)
        try:
            yield
        finally:
            await loops.end(watching)
            for connection in self._connections:
                if connection.handler is None:
                    connection.end()

    async def end_all(self) -> None:
        """End every connection; after a close, TLS would wait 30 s for the client's side of it."""
        for connection in self._connections:
            connection.end()
        await asyncio.sleep(0)

    def protocol(self) -> asyncio.Protocol:
        """Return what a new connection speaks to; for `loop.create_server`, without TLS: that comes here."""
        return _Connection(self)

    def handler(self) -> RequestHandler:
        """Return what speaks HTTP on one connection."""
        assert self._server is not None
        return _Handler(self, self._server, **self._server._kwargs)  # as the server makes its own

    def admit(self, connection: _Connection) -> bool:
        """Count a new connection; return whether there is room for it."""
        if len(self._connections) >= self._max_connections:
            self._forget_ended()
        if len(self._connections) >= self._max_connections and not self._make_room():
            return False
        self._connections[connection] = None
        return True

    def opened(self, connection: _Connection, handler: RequestHandler) -> None:
        """Note who speaks HTTP on a connection."""
        connection.handler = handler
        self._by_handler[handler] = connection

    async def before_handshake(self, address: str) -> None:
        """Wait until an address may have another handshake."""
        if not self._bodies_at:  # kube-scheduler opens a connection for every other binding that it asks for
            await asyncio.sleep(self._handshakes.wait(address, asyncio.get_running_loop().time()))

    async def before_refusal(self, handler: RequestHandler) -> None:
        """Note something that is no request, and wait until it may be answered."""
        self.on_malformed()
        connection = self._by_handler.get(handler)
        address = connection.address if connection is not None else ""
        await asyncio.sleep(self._rate.wait(address, asyncio.get_running_loop().time()))

    @property
    def middleware(self) -> Any:
        """Return the middleware that knows which connections have a request."""

        @web.middleware
        async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
            has_body = request.path in self._bodies_at
            now = asyncio.get_running_loop().time
            connection = self._by_handler.get(request.protocol)
            if connection is None:  # it was ended while this request was read
                return web.Response(status=503)
            if not has_body:  # while it waits it is not busy: others may take its place
                is_probe = request.path.split("/", 2)[1] in PROBES and not request.body_exists
                rate = self._probes if is_probe else self._rate
                await asyncio.sleep(rate.wait(connection.address, now()))
            if request.body_exists and not has_body:
                response: web.StreamResponse = web.Response(status=413, text="requests must not have a body\n")
                response.force_close()
                return response
            connection.busy = True
            try:
                async with asyncio.timeout(self._request_seconds):
                    return await handler(request)
            except TimeoutError:
                return web.Response(status=503, text=f"no answer within {self._request_seconds:g} s\n")
            finally:
                connection.busy = False
                connection.served = now()

        return limited

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_EVERY_SECONDS, self._first_request_seconds / 2))
            self._forget_ended()
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                since, most = (
                    (connection.accepted, self._first_request_seconds)
                    if connection.served is None
                    else (connection.served, self._idle_seconds)
                )
                if not connection.busy and now - since > most:
                    connection.end()

    def _forget_ended(self) -> None:
        for connection in [each for each in self._connections if each.ended]:
            del self._connections[connection]
            self._by_handler.pop(connection.handler, None)

    def _make_room(self) -> bool:
        """End the connection that has been idle longest; return whether there was one."""
        idle = [connection for connection in self._connections if not connection.busy]
        if not idle:
            return False
        # those without any request go first
        oldest = min(idle, key=lambda each: (each.served is not None, each.served or each.accepted))
        oldest.end()
        del self._connections[oldest]
        self._by_handler.pop(oldest.handler, None)
        return True
