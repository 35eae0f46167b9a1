"""The proxy of `front.py` for clients that speak HTTP/2, with the same faults: a cut takes all on the connection.

It ends TLS and HTTP/2 before the other one. What speaks HTTP/1.1, as reads and watches do, is passed through.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from pathlib import Path

import aiohttp
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import trustme
from yarl import URL

from tests.integration.api import Endpoint
from tests.integration.front import Front

_PASSED_ON = {"accept", "content-type", "authorization", "user-agent"}


@functools.cache
def _authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _authority().issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class Http2Front(Front):
    """A front that speaks HTTP/2, too."""

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        """folder: where the certificate of its authority is written."""
        ca_file = folder / "front-ca.pem"
        _authority().cert_pem.write_to_path(str(ca_file))
        super().__init__(endpoint, ca_file=ca_file)
        self.outer_port = 0
        self.streams = 0
        """Requests that came over HTTP/2."""
        self._outer: asyncio.Server | None = None
        self._connections: set[asyncio.Transport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inner: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.outer_port}"

    async def _listen(self) -> None:
        await super()._listen()
        if self._inner is None:
            self._inner = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        self._outer = await self._loop.create_server(
            lambda: _Arriving(self), "127.0.0.1", self.outer_port, ssl=_tls(), backlog=512, reuse_address=True
        )
        self.outer_port = self._outer.sockets[0].getsockname()[1]

    async def _go_down(self) -> None:
        outer, self._outer = self._outer, None
        if outer is not None:
            outer.close()
        await super()._go_down()

    def _abort_all(self) -> None:
        for transport in list(self._connections):
            transport.abort()
        super()._abort_all()

    async def _close(self) -> None:
        await super()._close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._inner is not None
        await self._inner.close()

    def start(self, work: asyncio.Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def came(self, transport: asyncio.Transport) -> None:
        self._connections.add(transport)

    def went(self, transport: asyncio.Transport) -> None:
        self._connections.discard(transport)

    async def ask(self, fields: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request to the other front. Raises aiohttp.ClientError where that cuts it."""
        self.streams += 1
        assert self._inner is not None
        headers = {name: value for name, value in fields.items() if name in _PASSED_ON}
        target = URL(f"http://127.0.0.1:{self.port}{fields[':path']}", encoded=True)
        async with self._inner.request(fields[":method"], target, data=body or None, headers=headers) as answer:
            kept = [(name.lower(), value) for name, value in answer.headers.items() if name != "Connection"]
            return answer.status, kept, await answer.read()


class _Arriving(asyncio.Protocol):
    """A connection of which it is not known yet what is spoken on it."""

    def __init__(self, front: Http2Front) -> None:
        self._front = front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        secured = transport.get_extra_info("ssl_object")
        kind = _Http2 if secured.selected_alpn_protocol() == "h2" else _Passed
        transport.set_protocol(kind(self._front, transport))


class _Passed(asyncio.Protocol):
    """HTTP/1.1: byte by byte to the other front."""

    def __init__(self, front: Http2Front, transport: asyncio.Transport) -> None:
        self._front, self._transport = front, transport
        self._waiting: list[bytes] = []
        self._inner: asyncio.Transport | None = None
        front.came(transport)
        front.start(asyncio.get_running_loop().create_task(self._connect()))

    async def _connect(self) -> None:
        outer = self._transport

        class Inner(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                outer.write(data)

            def connection_lost(self, exc: Exception | None) -> None:
                outer.abort() if exc is not None else outer.close()

        try:
            inner, _ = await asyncio.get_running_loop().create_connection(Inner, "127.0.0.1", self._front.port)
        except OSError:
            outer.abort()
            return
        self._inner = inner
        inner.writelines(self._waiting)
        if outer.is_closing():
            inner.abort()

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._waiting.append(data)
        else:
            self._inner.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.went(self._transport)
        if self._inner is not None:
            self._inner.abort()


class _Http2(asyncio.Protocol):
    """HTTP/2: each stream is a request to the other front."""

    def __init__(self, front: Http2Front, transport: asyncio.Transport) -> None:
        self._front, self._transport = front, transport
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._asked: dict[int, tuple[dict[str, str], bytearray]] = {}
        front.came(transport)
        self._state.initiate_connection()
        self._flush()

    def _flush(self) -> None:
        self._transport.write(self._state.data_to_send())

    def data_received(self, data: bytes) -> None:
        try:
            events = self._state.receive_data(data)
        except h2.exceptions.ProtocolError:
            self._transport.abort()
            return
        for event in events:
            match event:
                case h2.events.RequestReceived(stream_id=stream, headers=headers):
                    self._asked[stream] = {str(name): str(value) for name, value in headers}, bytearray()
                case h2.events.DataReceived(stream_id=stream, data=body, flow_controlled_length=length):
                    self._asked[stream][1].extend(body)
                    self._state.acknowledge_received_data(length, stream)
            if isinstance(event, h2.events.StreamEnded):
                stream = event.stream_id
                # to its end even if nobody waits for it any more: the front is to know what was carried out
                answer = self._answer(stream, *self._asked.pop(stream))
                self._front.start(asyncio.get_running_loop().create_task(answer))
        self._flush()

    async def _answer(self, stream: int, fields: dict[str, str], body: bytearray) -> None:
        try:
            status, headers, content = await self._front.ask(fields, bytes(body))
        except aiohttp.ClientError:
            self._transport.abort()
            return
        named = [each for each in headers if each[0] not in ("transfer-encoding", "keep-alive", "server", "date")]
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._state.send_headers(stream, [(":status", str(status)), *named])
            for at in range(0, len(content), 16_000):
                self._state.send_data(stream, content[at : at + 16_000])
            self._state.end_stream(stream)
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.went(self._transport)
