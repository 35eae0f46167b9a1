"""An HTTP server whose responses a test writes byte by byte, also invalid ones."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import httptools
import msgspec
import trustme

from kube_policy_scheduler.adapters.kube.credentials import CredentialSource
from kube_policy_scheduler.adapters.kube.identity import Credentials


@dataclass
class Request:
    verb: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Peer:
    """One connection, seen from the server."""

    def __init__(self, transport: asyncio.Transport, number: int) -> None:
        self.transport = transport
        self.number = number

    def raw(self, data: bytes) -> None:
        self.transport.write(data)

    def answer(self, status: int, body: Any = None, **headers: str) -> None:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body if body is not None else {})
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join([*lines, "", ""]).encode() + content)

    def refuse(self, status: int, reason: str = "", message: str = "no", **headers: str) -> None:
        self.answer(status, {"kind": "Status", "message": message, "reason": reason, "code": status}, **headers)

    def begin_stream(self) -> None:
        self.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def event(self, kind: str, obj: Any) -> None:
        self.chunk(msgspec.json.encode({"type": kind, "object": obj}) + b"\n")

    async def drained(self) -> None:
        """Wait until all that was written has left this process."""
        while self.transport.get_write_buffer_size() > 0:  # noqa: ASYNC110 (asyncio tells nobody)
            await asyncio.sleep(0.001)

    def end_stream(self) -> None:
        self.raw(b"0\r\n\r\n")

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()


class StreamPeer(Peer):
    """One request of an HTTP/2 connection, seen from the server."""

    def __init__(self, connection: Http2Connection, stream: int) -> None:
        super().__init__(connection.transport, connection.number)
        self.connection, self.stream = connection, stream

    def answer(self, status: int, body: Any = None, **headers: str) -> None:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body if body is not None else {})
        fields = [(":status", str(status)), ("content-length", str(len(content)))]
        fields += [(name.replace("_", "-").lower(), value) for name, value in headers.items()]
        # closed meanwhile: as over HTTP/1.1, what is written to nobody is lost
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self.connection.state.send_headers(self.stream, fields)
            for at in range(0, len(content), 16_000):
                self.connection.state.send_data(self.stream, content[at : at + 16_000])
            self.connection.state.end_stream(self.stream)
            self.connection.flush()

    def reset(self, code: int) -> None:
        """End the stream without an answer."""
        self.connection.state.reset_stream(self.stream, code)
        self.connection.flush()

    def go_away(self, last_stream: int) -> None:
        """Take no more requests on the connection."""
        self.connection.state.close_connection(last_stream_id=last_stream)
        self.connection.flush()


Script = Callable[[Request, Peer], Awaitable[None] | None]


class Http2Connection(asyncio.Protocol):
    """A connection on which HTTP/2 is spoken."""

    def __init__(self, server: ScriptedServer, transport: asyncio.Transport, number: int) -> None:
        self.transport, self.number, self._server = transport, number, server
        self.state = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8", validate_inbound_headers=True)
        )
        self.state.local_settings = h2.settings.Settings(client=False, initial_values=server.settings)
        self._requests: dict[int, Request] = {}
        self.state.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.state.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.state.receive_data(data):
            match event:
                case h2.events.RequestReceived(stream_id=stream, headers=headers):
                    fields = {str(name): str(value) for name, value in headers}
                    self._requests[stream] = Request(fields[":method"], fields[":path"], fields)
                case h2.events.DataReceived(stream_id=stream, data=body, flow_controlled_length=length):
                    self._requests[stream].body += body
                    self.state.acknowledge_received_data(length, stream)
            if isinstance(event, h2.events.StreamReset):
                self._server.resets += 1
            if isinstance(event, h2.events.StreamEnded):
                request = self._requests.pop(event.stream_id)
                self._server.serve(request, StreamPeer(self, event.stream_id))
        self.flush()


@functools.cache
def _authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def _server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _authority().issue_cert("127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@functools.cache
def _client_tls(*protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    _authority().configure_trust(context)
    context.set_alpn_protocols([*protocols])
    return context


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._request = Request()
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._server.connections += 1
        self._peer = Peer(transport, self._server.connections)
        self._server.peers.append(self._peer)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            transport.set_protocol(Http2Connection(self._server, transport, self._server.connections))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._request = Request(verb=self._parser.get_method().decode(), target=url.decode())

    def on_header(self, name: bytes, value: bytes) -> None:
        known = self._request.headers.get(name.decode().lower())
        self._request.headers[name.decode().lower()] = value.decode() if known is None else f"{known}, {value.decode()}"

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        self._server.serve(self._request, self._peer)


class ScriptedServer:
    """Calls the script for every request; the script answers through the peer, now, later or never."""

    speaks_http2 = False
    """Whether servers do where nothing else is said: some tests run over both protocols."""

    def __init__(
        self, script: Script | None = None, *, tls: ssl.SSLContext | None = None, settings: dict[int, int] | None = None
    ) -> None:
        """settings: of HTTP/2, which is spoken then."""
        self.script = script
        self.settings = settings or {}
        self._http2 = tls is None and (self.speaks_http2 or settings is not None)
        self.resets = 0
        """Requests that the client has given up, over HTTP/2."""
        self.requests: list[Request] = []
        self.connections = 0
        self.peers: list[Peer] = []
        self._tls = _server_tls() if self._http2 else tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop_listening(self) -> None:
        """Refuse connections, and drop those there are."""
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.abort()
        await asyncio.sleep(0)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop_listening()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # lets TLS transports be torn down before the loop closes

    def serve(self, request: Request, peer: Peer) -> None:
        self.requests.append(request)
        assert self.script is not None
        pending = self.script(request, peer)
        if pending is not None:
            task = asyncio.ensure_future(_awaited(pending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def credentials(self, **changes: Any) -> CredentialSource:
        if self._http2:
            offered = {"tls": _client_tls("http/1.1"), "tls_http2": _client_tls("h2", "http/1.1")}
            server = changes.pop("server", f"https://127.0.0.1:{self.port}")
            return CredentialSource(lambda: credentials(server, **{**offered, **changes}))
        return CredentialSource(lambda: credentials(f"http://127.0.0.1:{self.port}", **changes))

    def sent(self, verb: str) -> list[Request]:
        return [request for request in self.requests if request.verb == verb]


async def _awaited(pending: Awaitable[None]) -> None:
    await pending


def credentials(server: str, **changes: Any) -> Credentials:
    values: dict[str, Any] = {
        "source": "a test",
        "server": server,
        "headers": (("Authorization", "Bearer secret-token"),),
        "tls": None,
        "tls_server_name": None,
        "proxy": None,
        "no_proxy": None,
        "connection_key": (server,),
        "files": (),
    }
    return Credentials(**{**values, **changes})


async def until(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    """Wait for condition; fail if it does not come true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (conditions of any kind)
            await asyncio.sleep(0.002)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a minimal pod as the API would send it."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}, "status": {}}


def pod_list(*pods: dict[str, Any], version: str = "10", continue_: str = "") -> dict[str, Any]:
    return {"kind": "PodList", "metadata": {"resourceVersion": version, "continue": continue_}, "items": list(pods)}
