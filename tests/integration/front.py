"""A proxy before the API server: it records the scheduler's requests, and injects the faults of a test.

It forwards to any API server, so the same faults happen to the embedded cluster and to a real control plane.
Requests without credentials of their own go on as the cluster's administrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from tests.integration.api import Endpoint

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?$"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class Exchange:
    """One request as authorization sees it, and what it was answered."""

    verb: str
    group: str
    resource: str
    """With its subresource: `pods/binding`."""
    namespace: str
    name: str
    query: dict[str, str]
    body: bytes
    at: float
    """Monotonic seconds."""
    peer: str
    """Common name of the client's certificate, "" without one."""
    authorization: str
    code: int = 0
    """HTTP status the API server gave; 0 while there is none, or where a fault came before it."""

    def is_about(self, verb: str, resource: str) -> bool:
        return (self.verb, self.resource) == (verb, resource)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answered here, never carried out."""

    code: int
    reason: str = ""
    message: str = "broken by the test"
    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is cut before the request is carried out."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Carried out, but the connection is cut before the answer."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Carried out and answered only after the event is set."""

    until: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Late:
    """Carried out and answered only after so many seconds, even if no client waits that long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Mute:
    """Carried out at once, and never answered; the connection stays open."""


@dataclass(frozen=True, slots=True)
class CutStream:
    """A watch that is cut in the middle of a line, after so many whole lines."""

    after_lines: int = 0


@dataclass(frozen=True, slots=True)
class ExpireStream:
    """A watch that receives 410 Gone inside the stream, as an API server does whose history was compacted."""


@dataclass(frozen=True, slots=True)
class InjectLines:
    """A watch into which strange lines come before everything else."""

    lines: tuple[bytes, ...]


Fault: TypeAlias = Reply | Drop | LoseAnswer | Hold | Late | Mute | CutStream | ExpireStream | InjectLines
Plan: TypeAlias = Callable[[Exchange], Fault | None]
"""Asked once for every request, in the front's thread."""

_GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}\n'
)


def no_faults(_: Exchange) -> Fault | None:
    return None


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop of all fronts. It outlives each of them, and so sees their connections to the end."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fronts", daemon=True).start()
    return loop


class Front:
    """A context manager; serves from a thread that all fronts share."""

    def __init__(self, endpoint: Endpoint, *, tls: ssl.SSLContext | None = None, ca_file: Path | None = None) -> None:
        """tls: serve HTTPS. ca_file: what its clients must trust, then."""
        self.plan: Plan = no_faults
        self.exchanges: list[Exchange] = []
        self._endpoint = endpoint
        self._tls = tls
        self.ca_file = ca_file
        self.port = 0
        self._loop = _loop()
        self._serving: set[asyncio.Task[object]] = set()
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._session: aiohttp.ClientSession | None = None

    def __enter__(self) -> Front:
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def kubeconfig(self, path: Path, *, user: dict[str, object] | None = None) -> Path:
        """Write a kubeconfig that leads here."""
        cluster = {"server": self.url} | ({"certificate-authority": str(self.ca_file)} if self.ca_file else {})
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "front", "cluster": cluster}],
            "users": [{"name": "user", "user": user or {}}],
            "contexts": [{"name": "front", "context": {"cluster": "front", "user": "user"}}],
            "current-context": "front",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def down(self) -> None:
        """Stop listening and cut every connection: the API server is away."""
        self._call(self._go_down())

    def stay_away(self, seconds: float) -> None:
        """Let time pass while the API server is away; there is nothing that could be waited for."""
        time.sleep(seconds)

    def up(self) -> None:
        """Listen again, at the same port."""
        self._call(self._listen())

    def cut_connections(self) -> None:
        """Cut every connection, and go on listening."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def asked(self, verb: str, resource: str, *, code: int | None = None) -> list[Exchange]:
        """Return the requests of one kind so far, all or those with this answer."""
        return [e for e in list(self.exchanges) if e.is_about(verb, resource) and code in (None, e.code)]

    # --- in the thread -------------------------------------------------------------------------------

    def _call(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _open(self) -> None:
        context: ssl.SSLContext | bool = True
        if self._endpoint.ca_file is not None:
            context = ssl.create_default_context(cafile=str(self._endpoint.ca_file))
            if self._endpoint.certificate_file is not None:
                context.load_cert_chain(self._endpoint.certificate_file, self._endpoint.key_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent", "Accept"),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**20,
        )
        # a certificate would outrank a token: who has a token of his own goes without
        self._plain = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cafile=str(self._endpoint.ca_file)) if self._endpoint.ca_file else True,
                limit=0,
            ),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent", "Accept"),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        await self._listen()

    async def _listen(self) -> None:
        assert self._server is not None
        self._listening = await self._loop.create_server(
            self._server, "127.0.0.1", self.port, ssl=self._tls, backlog=512, reuse_address=True
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    async def _go_down(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            for each in listening.sockets:
                self._loop.remove_reader(each)
            # what was accepted becomes a connection first: a closed server has none for it, and leaves the socket open
            await _turns()
            listening.close()
        self._abort_all()
        await _turns()

    def _abort_all(self) -> None:
        assert self._server is not None
        for connection in list(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def _close(self) -> None:
        await self._go_down()
        assert self._server is not None
        assert self._session is not None
        left = [*self._serving]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._session.close()
        await self._plain.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._serve_to_the_end(asyncio.current_task())
        exchange = await _read(request)
        self.exchanges.append(exchange)
        fault = self.plan(exchange)
        match fault:
            case Reply():
                return _refusal(fault)
            case Drop():
                return _cut(request)
            case Hold():
                await asyncio.to_thread(fault.until.wait, 30)
            case Late():
                late = self._loop.create_task(self._pass_on(request, exchange, fault))
                self._serve_to_the_end(late)
                return await asyncio.shield(late)  # a client that goes away ends only the waiting
        return await self._pass_on(request, exchange, fault)

    def _serve_to_the_end(self, task: asyncio.Task[object] | None) -> None:
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _pass_on(self, request: web.BaseRequest, exchange: Exchange, fault: Fault | None) -> web.StreamResponse:
        if isinstance(fault, Late):
            await asyncio.sleep(fault.seconds)
        try:
            async with self._forward(request, exchange) as answer:
                exchange.code = answer.status
                if exchange.verb == "watch" and answer.status == 200:
                    return await _stream(request, answer, fault)
                body = await answer.read()
        except aiohttp.ClientError:
            return _cut(request)
        match fault:
            case LoseAnswer():
                return _cut(request)
            case Mute():
                await asyncio.Event().wait()  # until the client goes away
        kept = ("Content-Type", "Retry-After", "Content-Encoding", "Warning")
        headers = {name: answer.headers[name] for name in kept if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    @contextlib.asynccontextmanager
    async def _forward(self, request: web.BaseRequest, exchange: Exchange) -> AsyncIterator[aiohttp.ClientResponse]:
        kept = ("Accept", "Content-Type", "Authorization", "User-Agent")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        session = self._plain if exchange.authorization else self._session
        assert session is not None
        target = URL(self._endpoint.url + request.raw_path, encoded=True)
        async with session.request(request.method, target, data=exchange.body or None, headers=headers) as answer:
            yield answer


async def _turns() -> None:
    """Give the loop some turns: transports come and go in them."""
    for _ in range(5):
        await asyncio.sleep(0)


async def _read(request: web.BaseRequest) -> Exchange:
    path, _, query_text = request.raw_path.partition("?")
    query = {name: values[0] for name, values in parse_qs(query_text).items()}
    match = _PATH.match(path)
    parts = match.groupdict(default="") if match else {}
    name, sub = parts.get("name", ""), parts.get("sub", "")
    verb = _VERBS.get(request.method) or ("watch" if query.get("watch") in ("1", "true") else "get" if name else "list")
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    return Exchange(
        verb=verb,
        group=parts.get("group", ""),
        resource=parts.get("plural", path) + (f"/{sub}" if sub else ""),
        namespace=parts.get("namespace", ""),
        name=name,
        query=query,
        body=await request.read() if request.body_exists else b"",
        at=time.monotonic(),
        peer=_common_name(certificate or {}),
        authorization=request.headers.get("Authorization", ""),
    )


def _common_name(certificate: dict[str, object]) -> str:
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    return next((value for part in subject for key, value in part if key == "commonName"), "")


async def _stream(request: web.BaseRequest, answer: aiohttp.ClientResponse, fault: Fault | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": answer.headers.get("Content-Type", "application/json")})
    response.enable_chunked_encoding()
    await response.prepare(request)
    if isinstance(fault, ExpireStream):
        await response.write(_GONE)
        await response.write_eof()
        return response
    if isinstance(fault, InjectLines):
        for line in fault.lines:
            await response.write(line + b"\n")
    whole = 0
    async for chunk in answer.content.iter_any():
        if isinstance(fault, CutStream):
            lines = chunk.splitlines(keepends=True)
            if whole + len(lines) > fault.after_lines:
                last = lines[fault.after_lines - whole]
                await response.write(b"".join(lines[: fault.after_lines - whole]) + last[: len(last) // 2])
                return _cut(request, response)
            whole += len(lines)
        await response.write(chunk)
    await response.write_eof()
    return response


def _cut(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Close the connection without a (further) answer; what was written already still arrives."""
    if request.transport is not None:
        if response is None:
            request.transport.abort()
        else:
            request.transport.close()
    return response or web.Response()


def _refusal(reply: Reply) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": reply.message,
        "reason": reply.reason,
        "code": reply.code,
    }
    headers = {"Retry-After": str(reply.retry_after_seconds)} if reply.retry_after_seconds is not None else {}
    return web.json_response(status, status=reply.code, headers=headers)
