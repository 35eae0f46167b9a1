"""The one HTTP layer: requests and streams to one API server. Knows no resource kind and no scheduling.

Every failure leaves as a KubeError. Nothing is retried here except what is certainly harmless: a GET on a
kept-alive connection that turned out to be closed, and once, after 401, with renewed credentials.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from urllib.parse import urlsplit

from kube_policy_scheduler.adapters.compute.inflating import GZIP
from kube_policy_scheduler.adapters.kube.client import REQUEST_TIMEOUT_SECONDS, Client, Request
from kube_policy_scheduler.adapters.kube.connection import Answer, Connection, Stream
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    ConnectionLost,
    CredentialsError,
    KubeError,
    TooManyRequests,
    UnknownOutcome,
    error_from_answer,
)
from kube_policy_scheduler.adapters.kube.http2 import Head
from kube_policy_scheduler.adapters.kube.identity import ConnectionKey, Credentials
from kube_policy_scheduler.adapters.kube.pool import Pool
from kube_policy_scheduler.adapters.kube.streams import NotSpoken, Streams
from kube_policy_scheduler.adapters.kube.throttle import RequestRate, Throttle, retry_after_seconds

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 5.0
DEFAULT_RETRY_AFTER_SECONDS = 1.0

Observe = Callable[[str, str, str, float], None]
"""Called for every request with its HTTP verb (or WATCH), resource, code ("201" or the error's name), seconds."""


class Transport(Client):
    """Sends requests; max_connections limits those in flight, streams not counted."""

    def __init__(
        self,
        credentials: CredentialSource,
        *,
        user_agent: str = "kube-policy-scheduler",
        max_connections: int = 64,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        observe: Observe | None = None,
        heeds_429: bool = True,
        rate: RequestRate | None = None,
        multiplexes: bool = True,
    ) -> None:
        """Send nothing yet.

        Args:
            credentials: where the server is, and who we are.
            user_agent: names the program.
            max_connections: requests in flight.
            connect_timeout_seconds: for the handshakes of a connection.
            observe: is called for every request.
            heeds_429: whether requests wait for as long as a server with too much to do asks for.
            rate: limit on requests; None for none.
            multiplexes: whether small writes share one HTTP/2 connection where the server speaks it.
        """
        self._credentials = credentials
        self._user_agent = user_agent
        self._connect_timeout_seconds = connect_timeout_seconds
        self._pool = Pool(max_connections=max_connections, connect_timeout_seconds=connect_timeout_seconds)
        self._streams = Streams(self._pool, most_streams=max_connections)
        self._multiplexes = multiplexes
        self._throttle = Throttle(rate)
        self._heeds_429 = heeds_429
        self._observe = observe
        self._adopted: Credentials | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one in which they were adopted: to ask for the running one is a call of the kernel."""
        self._key: ConnectionKey | None = None
        self._prefix = ""  # path of the server's URL, before every path
        self._head = ""  # header lines that are the same for every request
        self._is_accepted = True  # whether the server last knew us
        self._asides: list[Transport] = []

    async def send(self, request: Request) -> bytes:
        """Send one request and return the body of a 2xx answer; see `Client.send`."""
        loop = asyncio.get_running_loop()
        kind = f"{request.verb} {request.resource}"
        began, code = loop.time(), "cancelled"
        try:
            await self._throttle.wait(kind)
            answer, used = await self._exchange(request)
            if _is_unknown_here(answer) and await self._is_renewed(used):
                answer, _ = await self._exchange(request)
            code = str(answer.status)
        except KubeError as error:
            code = type(error).__name__
            raise
        finally:
            if self._observe is not None:
                self._observe(request.verb, request.resource, code, loop.time() - began)
        if 200 <= answer.status < 300:
            self._is_accepted = True
            return answer.body
        raise self._refusal(answer, kind=kind)

    def dial_ahead(self) -> None:
        """Open the connection that the next write takes, if there is none; that it fails shows with the write.

        A handshake takes some milliseconds, mostly of waiting: there is time for one while lists come.
        """
        credentials = self._credentials.fresh(asyncio.get_running_loop().time())
        if credentials is None:
            return
        if credentials is not self._adopted:
            self._adopt(credentials)
        if self._multiplexes and credentials.tls_http2 is not None:
            self._streams.dial_ahead()
        else:
            self._pool.dial_ahead(credentials)

    @property
    def may_begin(self) -> bool:
        """Whether `begin` can send anything now: there is a connection on which requests need no task."""
        return self._streams.are_up

    @property
    def is_busy(self) -> bool:
        """Whether many small writes wait for their answers: the next ones come within a moment."""
        return self._streams.are_busy

    def begin(self, request: Request, done: Callable[[bytes | KubeError], None]) -> bool:
        """Send one request without a task, where nothing stands in its way; return whether.

        done: told the body of a 2xx answer, or what `send` would raise, in a later turn of the event loop. What can be
            mended by another try, as by renewed credentials, is not tried again.
        """
        loop = self._loop
        if loop is None or not self._streams.are_up or not self._streams.takes(request):
            return False
        kind, now = f"{request.verb} {request.resource}", loop.time()
        credentials = self._credentials.fresh(now)
        if credentials is None or credentials is not self._adopted or self._throttle.holds(kind):
            return False

        def settle(outcome: Answer | KubeError) -> None:
            if isinstance(outcome, Answer):
                code, is_well = str(outcome.status), 200 <= outcome.status < 300
                told: bytes | KubeError = outcome.body if is_well else self._refusal(outcome, kind=kind)
            else:
                code, is_well, told = type(outcome).__name__, False, outcome
            if is_well:
                self._is_accepted = True
            try:
                if self._observe is not None:
                    self._observe(request.verb, request.resource, code, loop.time() - now)
            finally:
                done(told)

        self._streams.submit(request, settle)
        return True

    async def open_stream(
        self,
        path: str,
        *,
        resource: str = "",
        idle_seconds: float,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Stream:
        """GET path on a connection of its own and return the body of a 200 as a stream; close it after use.

        timeout_seconds: until the answer begins. idle_seconds: longest silence in it. Raises KubeError.
        """
        loop = asyncio.get_running_loop()
        kind = f"WATCH {resource}"
        began, code = loop.time(), "cancelled"
        try:
            await self._throttle.wait(kind)
            opened, used = await self._open_stream(path, idle_seconds, timeout_seconds)
            if isinstance(opened, Answer) and _is_unknown_here(opened) and await self._is_renewed(used):
                opened, _ = await self._open_stream(path, idle_seconds, timeout_seconds)
            code = str(opened.status) if isinstance(opened, Answer) else "200"
        except KubeError as error:
            code = type(error).__name__
            raise
        finally:
            if self._observe is not None:
                self._observe("WATCH", resource, code, loop.time() - began)
        if isinstance(opened, Stream):
            return opened
        raise self._refusal(opened, kind=kind)

    def dedicated(self, *, max_connections: int = 1) -> Transport:
        """Return a transport to the same server with connections of its own, held by no 429 and no rate.

        For what must not wait behind anything, such as the renewal of a lease. Closed together with this one.
        """
        beside = Transport(
            self._credentials,
            user_agent=self._user_agent,
            max_connections=max_connections,
            connect_timeout_seconds=self._connect_timeout_seconds,
            observe=self._observe,
            heeds_429=False,
            multiplexes=False,
        )
        self._asides.append(beside)
        return beside

    async def close(self) -> None:
        """Drop all connections; requests in flight fail with ConnectionLost."""
        for beside in self._asides:
            await beside.close()
        await self._streams.close()
        await self._pool.close()

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than until a server that was unreachable is reachable again."""
        await self._pool.pause(seconds)

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._pool.connections

    @property
    def is_reachable(self) -> bool:
        """Whether the last attempt to connect to the server, if any, came through."""
        return self._pool.is_reachable

    @property
    def server(self) -> str:
        """The API server's address, as far as known."""
        current = self._credentials.current
        return current.server if current is not None else "the API server"

    async def _exchange(self, request: Request) -> tuple[Answer, Credentials]:
        reads = request.verb == "GET"
        while True:
            credentials = await self._ready_credentials()
            if self._multiplexes and self._streams.takes(request):
                try:
                    return await self._streams.exchange(request), credentials
                except NotSpoken:
                    pass
                except UnknownOutcome as error:
                    raise type(error)(f"{request.place}: {error}") from error
            connection = await self._pool.acquire(credentials)
            was_used = connection.exchanges > 0
            try:
                request.check_fence()
                sent = self._request_bytes(request, gzip=reads and credentials.compression)
                return await connection.exchange(sent, timeout_seconds=request.timeout_seconds), credentials
            except UnknownOutcome as error:
                is_stale = isinstance(error, ConnectionLost) and was_used and not connection.answer_began
                if reads and is_stale:
                    continue  # each turn uses up one kept connection, so this ends
                raise type(error)(f"{request.place}: {error}") from error
            finally:
                self._pool.release(connection)

    async def _open_stream(
        self, path: str, idle_seconds: float, timeout_seconds: float
    ) -> tuple[Answer | Stream, Credentials]:
        credentials = await self._ready_credentials()
        connection = await self._pool.dial(credentials, make=Connection, tls=credentials.tls)
        sent = self._request_bytes(Request("GET", path))
        opened = await connection.open_stream(sent, timeout_seconds=timeout_seconds, idle_seconds=idle_seconds)
        if isinstance(opened, Answer):
            connection.close()
        return opened, credentials

    async def _ready_credentials(self) -> Credentials:
        fresh = self._credentials.fresh(asyncio.get_running_loop().time())
        credentials = fresh if fresh is not None else await self._credentials.get()
        if credentials is not self._adopted:
            self._adopt(credentials)
        return credentials

    def _adopt(self, credentials: Credentials) -> None:
        parts = urlsplit(credentials.server)
        self._prefix = parts.path.rstrip("/")
        headers = [
            ("Host", parts.netloc.rpartition("@")[2]),
            ("User-Agent", self._user_agent),
            *credentials.headers,
        ]
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._adopted, self._loop = credentials, asyncio.get_running_loop()
        fields = tuple((name.lower(), value) for name, value in headers[1:])
        self._streams.use(credentials, Head(headers[0][1], self._prefix, fields))
        if self._key is not None and self._key != credentials.connection_key:
            logger.info("server, certificates or proxy changed; replacing connections")
            self._pool.retire_all()
        self._key = credentials.connection_key

    async def _is_renewed(self, refused: Credentials) -> bool:
        """Whether to retry after a 401: there are other credentials than those that were rejected."""
        found = self._credentials.current
        if found is refused:
            try:
                found = await self._credentials.look(force=True)
            except CredentialsError:
                return False
        return found is not None and not found.is_same_identity(refused)

    def _request_bytes(self, request: Request, *, gzip: bool = False) -> bytes:
        accept = f"{request.accept}\r\nAccept-Encoding: {GZIP}" if gzip else request.accept
        head = f"{request.verb} {self._prefix}{request.path} HTTP/1.1\r\n{self._head}Accept: {accept}\r\n"
        if request.verb == "GET":
            return f"{head}\r\n".encode("ascii")
        length = len(request.body)
        head = f"{head}Content-Type: {request.content_type}\r\nContent-Length: {length}\r\n\r\n"
        return head.encode("ascii") + request.body

    def _refusal(self, answer: Answer, *, kind: str) -> ApiError:
        retry_after = retry_after_seconds(answer.retry_after)
        error = error_from_answer(answer.status, answer.body, retry_after_seconds=retry_after)
        if isinstance(error, TooManyRequests) and error.is_for_all and self._heeds_429:
            seconds = DEFAULT_RETRY_AFTER_SECONDS if retry_after is None else retry_after
            self._throttle.pause(kind, seconds * random.uniform(1.0, 1.2))
        if _is_unknown_here(answer) and self._is_accepted:
            self._is_accepted = False
            source = self._adopted.source if self._adopted is not None else ""
            logger.error("%s rejected the credentials (%s)", self.server, source, extra={"server": self.server})
        return error


def _is_unknown_here(answer: Answer) -> bool:
    """Whether the server does not know us; an admission webhook may say 401 of one object, too."""
    return answer.status == 401 and not error_from_answer(answer.status, answer.body).is_denial
