"""Small writes over one HTTP/2 connection that is dialled as needed, and replaced when it is lost or retired."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from kube_policy_scheduler.adapters.kube.client import Request
from kube_policy_scheduler.adapters.kube.connection import Answer
from kube_policy_scheduler.adapters.kube.errors import CredentialsError, KubeError, Unreachable
from kube_policy_scheduler.adapters.kube.http2 import MOST_SENT_BYTES, Done, Exchange, Head, Http2Connection
from kube_policy_scheduler.adapters.kube.identity import Credentials
from kube_policy_scheduler.adapters.kube.pool import Pool

logger = logging.getLogger(__name__)

BUSY_STREAMS = 6
"""With so many requests under way, further answers come soon. A pod that is bound alone has one, and then its event."""


class NotSpoken(KubeError):
    """The server speaks no HTTP/2: send it over HTTP/1.1."""


class Streams:
    """Knows whether the server speaks HTTP/2, and keeps what waits for its connection in order."""

    def __init__(self, pool: Pool, *, most_streams: int) -> None:
        """pool: dials. most_streams: requests at a time."""
        self._pool = pool
        self._most_streams = most_streams
        self._waiting: deque[Exchange] = deque()
        self._connection: Http2Connection | None = None
        self._dial: asyncio.Task[Http2Connection] | None = None
        self._credentials: Credentials | None = None
        self._head = Head("", "", ())
        self._is_spoken = True

    def use(self, credentials: Credentials, head: Head) -> None:
        """Present ourselves like this from the next connection on; an earlier one only ends what it has begun."""
        before, self._credentials = self._credentials, credentials
        if before is not None and before.is_same_identity(credentials):
            return
        is_same_server = before is not None and before.connection_key == credentials.connection_key
        self._is_spoken = credentials.tls_http2 is not None and (self._is_spoken or not is_same_server)
        self._head = head
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.retire()

    def takes(self, request: Request) -> bool:
        """Return whether a request goes over HTTP/2: a small write, where the server speaks it."""
        return self._is_spoken and request.verb != "GET" and len(request.body) <= MOST_SENT_BYTES

    def dial_ahead(self) -> None:
        """Have a connection at hand for the next request, which otherwise waits for the handshakes."""
        if self._is_spoken and self._connection is None:
            self._dial_once()

    @property
    def are_up(self) -> bool:
        """Whether there is a connection on which a request is sent as soon as the server allows one more."""
        return self._connection is not None and self._connection.is_up

    @property
    def are_busy(self) -> bool:
        """Whether many requests wait for their answers."""
        return self._connection is not None and len(self._connection) >= BUSY_STREAMS

    async def exchange(self, request: Request) -> Answer:
        """Send a request, and return the whole answer.

        Raises:
            NotSpoken: the server speaks no HTTP/2; nothing was sent.
            KubeError: as `Client.send`.
        """
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(outcome: Answer | KubeError) -> None:
            if waiter.done():
                return
            if isinstance(outcome, Answer):
                waiter.set_result(outcome)
            else:
                waiter.set_exception(outcome)

        exchange = self.submit(request, settle)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._give_up(exchange)
            raise

    def submit(self, request: Request, done: Done) -> Exchange:
        """Send a request as soon as possible. done: told the answer, or why there is none; never in this call."""
        exchange = Exchange(request, done)
        self._waiting.append(exchange)
        if self._connection is not None and self._connection.takes_more:
            self._connection.flush_soon()
        else:
            self._dial_once()
        return exchange

    def _give_up(self, exchange: Exchange) -> None:
        """Nobody waits for an exchange any more."""
        if self._connection is not None:
            self._connection.cancel(exchange)
        else:
            exchange.drop()

    def _dial_once(self) -> None:
        if self._dial is None and self._credentials is not None:
            self._dial = asyncio.get_running_loop().create_task(self._dialled(self._credentials, self._head))
            self._dial.add_done_callback(self._use_dialled)

    async def _dialled(self, credentials: Credentials, head: Head) -> Http2Connection:
        def make() -> Http2Connection:
            return Http2Connection(head, self._waiting, most_streams=self._most_streams, on_change=self._on_change)

        connection = await self._pool.dial(credentials, make=make, tls=credentials.tls_http2)
        if not connection.speaks:
            connection.close()
            raise NotSpoken("the server speaks no HTTP/2")
        await connection.begin(timeout_seconds=self._pool.connect_timeout_seconds)
        return connection

    def _use_dialled(self, dial: asyncio.Task[Http2Connection]) -> None:
        self._dial = None
        error = Unreachable("the client was closed") if dial.cancelled() else dial.exception()
        if error is None:
            connection = dial.result()
            if connection.head is self._head:
                self._connection = connection
            else:  # we present ourselves otherwise by now
                connection.retire()
            self._on_change()
            return
        if isinstance(error, NotSpoken):
            self._is_spoken = False
            logger.info("the API server speaks no HTTP/2; each write needs a connection of its own")
        elif not isinstance(error, KubeError):
            logger.error("unexpected error while the API server was dialled", exc_info=error)
        waiting = list(self._waiting)  # none of them would fare better
        self._waiting.clear()
        for exchange in waiting:
            again = type(error) if isinstance(error, NotSpoken | Unreachable | CredentialsError) else Unreachable
            failed = again(str(error))
            failed.__cause__ = error.__cause__
            exchange.settle(failed)

    def _on_change(self) -> None:
        """Replace a connection that takes no more exchanges, once something waits."""
        if self._connection is not None and not self._connection.takes_more:
            self._connection = None
        if not self._waiting:
            return
        if self._connection is not None:
            self._connection.flush_soon()
        else:
            self._dial_once()

    async def close(self) -> None:
        """Dial no more; what waits fails with Unreachable. Connections are closed by the pool."""
        if self._dial is not None:
            self._dial.cancel()
            await asyncio.wait([self._dial])
