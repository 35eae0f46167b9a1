"""Keep-alive connections to one API server, dialled as needed. Knows how to reach it, not what is asked of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from kube_policy_scheduler.adapters.kube.connection import Connection
from kube_policy_scheduler.adapters.kube.errors import Unreachable
from kube_policy_scheduler.adapters.kube.http2 import Http2Connection
from kube_policy_scheduler.adapters.kube.identity import Credentials
from kube_policy_scheduler.adapters.kube.proxy import bypasses_proxy, open_tunnel, parse_proxy

logger = logging.getLogger(__name__)

Dialled = TypeVar("Dialled", Connection, Http2Connection)

IDLE_SECONDS = 60.0  # below the API server's own 90 s, so that we are seldom the one who finds it closed
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES = 30, 10, 3
DIALS = 4
"""At a time. A handshake costs the server several times a binding: a burst that dialled one for each request would slow
down just those requests."""


class Pool:
    """At most max_connections lent out at a time; streams get connections of their own beside them."""

    def __init__(self, *, max_connections: int, connect_timeout_seconds: float) -> None:
        self.connect_timeout_seconds = connect_timeout_seconds
        self._most = max_connections
        self._pooled = 0  # idle, lent out or being dialled; streams are not
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[asyncio.Future[Connection], Credentials]] = deque()
        self._dialling: set[asyncio.Task[Connection]] = set()
        self._open: set[Connection | Http2Connection] = set()
        self._down_since: float | None = None
        self._down_attempts = 0
        self._is_back = asyncio.Event()
        self._is_closed = False

    async def acquire(self, credentials: Credentials) -> Connection:
        """Lend a connection: an idle one, else what comes first, one given back or a new one; then `release` it.

        Raises Unreachable.
        """
        if (kept := self._kept()) is not None:
            return kept
        waiter: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiter, credentials))
        self._dial_for_waiting()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._offer(waiter.result())
            raise

    def dial_ahead(self, credentials: Credentials) -> None:
        """Have a connection at hand for the next request, which otherwise waits for the handshakes."""
        if not self._pooled and not self._is_closed:
            self._dial_pooled(credentials)

    def release(self, connection: Connection) -> None:
        """Take a connection back, for another exchange if its last one ended well."""
        if connection.reusable and not connection.retired:
            self._offer(connection)
        else:
            self._drop(connection)
            self._dial_for_waiting()

    def _kept(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()  # the most recently used: the others may grow old and be closed
            if connection.is_open and now - connection.idle_since < IDLE_SECONDS:
                return connection
            self._drop(connection)
        return None

    def _offer(self, connection: Connection) -> None:
        """Lend a connection to the task that has waited longest, or keep it."""
        while self._waiting:
            waiter, _ = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        connection.close()
        self._pooled -= 1

    def _dial_for_waiting(self) -> None:
        while len(self._dialling) < min(DIALS, len(self._waiting)) and self._pooled < self._most:
            _, credentials = self._waiting[0]
            self._dial_pooled(credentials)

    def _dial_pooled(self, credentials: Credentials) -> None:
        dial = asyncio.get_running_loop().create_task(self.dial(credentials, make=Connection, tls=credentials.tls))
        self._pooled += 1
        self._dialling.add(dial)
        dial.add_done_callback(self._dialled)

    def _dialled(self, dial: asyncio.Task[Connection]) -> None:
        self._dialling.discard(dial)
        error = Unreachable("the client was closed") if dial.cancelled() else dial.exception()
        if error is None:
            self._offer(dial.result())
            self._dial_for_waiting()
            return
        self._pooled -= 1
        waiting, self._waiting = self._waiting, deque()
        for waiter, _ in waiting:  # none of them would fare better
            if not waiter.done():
                again = Unreachable(str(error)) if isinstance(error, Unreachable) else error
                again.__cause__ = error.__cause__
                waiter.set_exception(again)

    async def dial(
        self, credentials: Credentials, *, make: Callable[[], Dialled], tls: ssl.SSLContext | None
    ) -> Dialled:
        """Open a connection outside the limit; its owner closes it.

        make: the protocol that gets it. tls: says what is offered to the server; None where it speaks no TLS.
        Raises Unreachable.
        """
        if self._is_closed:
            raise Unreachable("the client was closed")
        server = credentials.server
        try:
            async with asyncio.timeout(self.connect_timeout_seconds):
                connection = await _dial(credentials, make, tls)
        except (OSError, Unreachable) as error:  # TimeoutError and SSLError are OSErrors
            raise self._went_down(f"cannot reach {server}: {self._reason(error, credentials)}", server) from error
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        if self._down_since is not None:
            self._came_back(server)
        return connection

    def retire_all(self) -> None:
        """Replace all connections: exchanges in progress finish, streams end and are reopened."""
        for connection in list(self._open):
            if connection in self._idle or connection.is_streaming:
                connection.close()
            else:
                connection.retire()
        self._pooled -= len(self._idle)
        self._idle.clear()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def is_reachable(self) -> bool:
        """Whether the last attempt to connect, if any, came through."""
        return self._down_since is None

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than until a server that could not be reached is reached again, by anybody."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_back.wait()

    async def close(self) -> None:
        """Drop everything; exchanges in progress fail with ConnectionLost."""
        self._is_closed = True
        for dial in self._dialling:
            dial.cancel()
        if self._dialling:
            await asyncio.wait(self._dialling)
        ends = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.close()
        if ends:
            await asyncio.wait(ends)

    def _reason(self, error: Exception, credentials: Credentials) -> str:
        match error:
            case ssl.SSLCertVerificationError():
                return (
                    f"its certificate is not trusted ({error.verify_message});"
                    f" check certificate authority and server name in {credentials.source}"
                )
            case ssl.SSLError():
                return f"TLS failed: {error.reason or error}"
            case TimeoutError():
                return f"no connection within {self.connect_timeout_seconds:g} s"
            case socket.gaierror():
                return f"cannot resolve its name: {(error.strerror or str(error)).lower()}"
            case OSError(errno=int(number)) if number > 0:
                return os.strerror(number).lower()  # asyncio puts a sentence of its own around it
            case _:
                return str(error)

    def _went_down(self, text: str, server: str) -> Unreachable:
        """Build the error, and log the first of a row: every reflector would otherwise say the same."""
        self._down_attempts += 1
        if self._down_since is None:
            self._down_since = asyncio.get_running_loop().time()
            logger.warning("%s; retrying with backoff", text, extra={"server": server})
        return Unreachable(text)

    def _came_back(self, server: str) -> None:
        assert self._down_since is not None
        seconds = round(asyncio.get_running_loop().time() - self._down_since, 1)
        logger.info(
            "%s is reachable again after %s s",
            server,
            seconds,
            extra={"server": server, "attempts": self._down_attempts, "seconds": seconds},
        )
        self._down_since, self._down_attempts = None, 0
        self._is_back.set()
        self._is_back = asyncio.Event()


async def _dial(credentials: Credentials, make: Callable[[], Dialled], tls: ssl.SSLContext | None) -> Dialled:
    loop = asyncio.get_running_loop()
    parts = urlsplit(credentials.server)
    host = parts.hostname or ""
    port = parts.port or (443 if tls is not None else 80)
    server_name = (credentials.tls_server_name or host) if tls is not None else None
    connection = make()
    transport: asyncio.BaseTransport | None
    if credentials.proxy is None or bypasses_proxy(host, credentials.no_proxy):
        transport, _ = await loop.create_connection(
            lambda: connection, host, port, ssl=tls, server_hostname=server_name
        )
    else:
        tunnel = await open_tunnel(parse_proxy(credentials.proxy), host=host, port=port)
        if tls is None:
            tunnel.set_protocol(connection)
            transport = tunnel
        else:
            transport = await loop.start_tls(tunnel, connection, tls, server_hostname=server_name)
        if transport is None:
            raise ConnectionResetError("the tunnel was closed during the TLS handshake")
        connection.connection_made(transport)
    _keep_alive(transport)
    return connection


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    """Let the kernel find out that the peer's machine is gone."""
    connected = transport.get_extra_info("socket")
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
