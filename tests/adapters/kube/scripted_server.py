"""An HTTP server whose responses a test writes byte by byte, also invalid ones."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec

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


Script = Callable[[Request, Peer], Awaitable[None] | None]


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

    def __init__(self, script: Script | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.connections = 0
        self.peers: list[Peer] = []
        self._tls = tls
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
