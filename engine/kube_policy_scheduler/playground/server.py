"""Serves the playground's page on this machine and carries its questions to a session.

Whoever knows the token may ask; it is in the fragment of the address, which no browser sends. Every answer that is not
a file of the page needs it. One thread answers: while it works, the newest evaluation waits and older ones are void.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

import msgspec
import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from kube_policy_scheduler.adapters.http_access import token_of
from kube_policy_scheduler.adapters.http_limits import HANDLER_LIMITS
from kube_policy_scheduler.documents.yaml_document import DocumentError
from kube_policy_scheduler.playground.session import Files, PodChoice, RequestError, Session, Superseded

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_REQUEST_BYTES = 2 * 2**20
MOST_WAITING = 16
"""Requests that wait for the thread; more are refused."""
EVALUATION_SECONDS = 20.0
"""After which an evaluation is given up at its next step."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "policyctl",
}
_PAGE: Mapping[str, tuple[str, str]] = {
    "/": ("playground/page/index.html", "text/html"),
    "/page.js": ("playground/page/page.js", "text/javascript"),
    "/page.css": ("playground/page/page.css", "text/css"),
    "/map.js": ("playground/page/map.js", "text/javascript"),
    "/words.js": ("playground/page/words.js", "text/javascript"),
    "/editor.js": ("playground/page/editor.js", "text/javascript"),
    "/look.css": ("pages/templates/look.css", "text/css"),
}
"""Files of the package by the path at which the page finds them."""
_T = TypeVar("_T")


class TooLong(Exception):
    """An evaluation took longer than it may."""


class PortTaken(Exception):
    """The server cannot listen at its port."""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    """Members that a request does not name are ignored: a page may be newer."""


class _Evaluate(_Request, frozen=True, rename="camel"):
    id: int
    files: Files
    pod: PodChoice
    against: Files | None = None
    clause: int | None = None
    names_version: int | None = None


class _Values(_Request, frozen=True, rename="camel"):
    id: int
    clause: int
    side: str = "main"


class _Place(_Request, frozen=True, rename="camel"):
    files: Files
    file: str
    offset: int


class _File(_Request, frozen=True, rename="camel"):
    files: Files
    file: str


class _Node(_Request, frozen=True, rename="camel"):
    files: Files
    pod: PodChoice
    node: str


class _Asked(_Request, frozen=True, rename="camel"):
    files: Files
    pod: PodChoice


class _Pod(_Request, frozen=True, rename="camel"):
    key: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What one kind of question takes and who answers it; in the thread."""

    takes: type
    answer: Callable[[Any], Any]


class Playground:
    """The server. Use it as a context: it listens from its beginning to its end."""

    def __init__(self, session: Session, *, port: int = 0, token: str | None = None) -> None:
        """Set up; nothing is opened yet. port: 0 takes a free one; token: None makes one."""
        self._session = session
        self._port = port
        self._token = token or secrets.token_urlsafe(24)
        self._newest = -1
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="playground")
        self._server: asyncio.Server | None = None
        self._stack = contextlib.AsyncExitStack()
        self._origin = ""

    @property
    def url(self) -> str:
        """Return the address to open, with the token."""
        return f"{self._origin}/#{self._token}"

    async def __aenter__(self) -> Playground:
        """Listen.

        Raises:
            PortTaken: the port is taken or not allowed.
        """
        app = web.Application(middlewares=[self._guard, _said], client_max_size=MOST_REQUEST_BYTES)
        app.on_response_prepare.append(_add_headers)
        for path, (name, kind) in _PAGE.items():
            app.router.add_get(path, _file(name, kind))
        for path, answered in self._questions().items():
            app.router.add_post(f"/api/{path}", self._answering(answered))
        app.router.add_post("/api/evaluate", self._evaluate)
        async with contextlib.AsyncExitStack() as stack:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, **HANDLER_LIMITS)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            stack.callback(self._thread.shutdown, wait=False, cancel_futures=True)
            site = web.TCPSite(runner, HOST, self._port, backlog=32)
            try:
                await site.start()
            except OSError as error:
                reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
                raise PortTaken(f"cannot listen at {HOST}:{self._port}: {reason}") from error
            self._origin = f"http://{HOST}:{runner.addresses[0][1]}"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; what is under way is void."""
        self._newest = 1 << 62
        await self._stack.aclose()

    # --- guards ------------------------------------------------------------------------------------------

    @property
    def _guard(self) -> Any:
        """Return the middleware that keeps everybody out but the page itself, at its own address."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            port = self._origin.rpartition(":")[2]
            hosts = {f"{HOST}:{port}", f"localhost:{port}"}
            if request.headers.get("Host", "") not in hosts:
                return _refused(421, f"this server answers only at {self._origin}")
            origin = request.headers.get("Origin")
            if origin is not None and origin not in {f"http://{host}" for host in hosts}:
                return _refused(403, "another web page must not ask this server")
            if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                return _refused(403, "another web page must not ask this server")
            if not request.path.startswith("/api/"):
                return await handler(request)
            given = token_of(request.headers.get("Authorization", ""))
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return _refused(401, "the token is missing or wrong: open the address that policyctl printed")
            if request.content_type != "application/json":
                return _refused(415, f"expected application/json, got {request.content_type}")
            return await handler(request)

        return guarded

    # --- questions ---------------------------------------------------------------------------------------

    def _questions(self) -> Mapping[str, Answered]:
        session = self._session
        return {
            "state": Answered(_Request, lambda _: session.state()),
            "values": Answered(_Values, lambda asked: {"values": session.values(asked.clause, side=asked.side)}),
            "complete": Answered(
                _Place, lambda asked: {"items": session.complete(asked.files, asked.file, asked.offset)}
            ),
            "hover": Answered(_Place, lambda asked: session.hover(asked.files, asked.file, asked.offset)),
            "format": Answered(_File, lambda asked: {"text": session.format(asked.files, asked.file)}),
            "node": Answered(_Node, lambda asked: session.node(asked.files, asked.pod, asked.node)),
            "pod": Answered(_Pod, lambda asked: {"yaml": session.pod_text(asked.key)}),
            "why": Answered(_Asked, lambda asked: session.why(asked.files, asked.pod)),
            "command": Answered(_Asked, lambda asked: {"command": session.command(asked.files, asked.pod)}),
        }

    def _answering(self, answered: Answered) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked: Any = _decoded(await request.read(), answered.takes)
            return _json(await self._in_thread(lambda: orjson.dumps(answered.answer(asked), option=_OPTIONS)))

        return answer

    async def _evaluate(self, request: web.Request) -> web.StreamResponse:
        asked = _decoded(await request.read(), _Evaluate)
        self._newest = max(self._newest, asked.id)
        began = time.perf_counter()
        end = began + EVALUATION_SECONDS

        def go_on() -> None:
            if self._newest > asked.id:
                raise Superseded
            if time.perf_counter() > end:
                raise TooLong(f"gave up after {EVALUATION_SECONDS:g} s")

        def work() -> bytes:
            go_on()
            found = self._session.evaluate(
                asked.files,
                asked.pod,
                against=asked.against,
                clause=asked.clause,
                known_names=asked.names_version,
                go_on=go_on,
            )
            milliseconds = round(1000 * (time.perf_counter() - began), 1)
            return orjson.dumps({"id": asked.id, "ms": milliseconds, **found}, option=_OPTIONS)

        return _json(await self._in_thread(work))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= MOST_WAITING:
            raise Busy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1


class Busy(Exception):
    """Too many requests wait."""


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def _decoded(body: bytes, takes: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body or b"{}", type=takes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the request cannot be read: {error}") from error


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refused(status: int, text: str) -> web.Response:
    return _json(orjson.dumps({"error": text}), status=status)


@web.middleware
async def _said(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with a sentence where a question cannot be answered."""
    try:
        return await handler(request)
    except Superseded:
        return _refused(409, "void: a newer request came")
    except (TooLong, Busy) as error:
        return _refused(503, str(error) or "too many requests wait")
    except RequestError as error:
        return _refused(400, str(error))
    except DocumentError as error:
        return _refused(400, "; ".join(each.message for each in error.diagnostics[:5]))
    except web.HTTPException as error:
        return _refused(error.status, error.reason.lower())
    except Exception as error:
        log.exception("failed to answer %s", request.path)
        return _refused(500, f"unexpected error in policyctl: {type(error).__name__}")


def _file(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        page = resources.files("kube_policy_scheduler") / name
        try:
            text = await asyncio.to_thread(page.read_bytes)
        except FileNotFoundError:
            return _refused(404, f"this installation has no {name}")
        return web.Response(body=text, content_type=kind, charset="utf-8")

    return answer


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers[name] = value
