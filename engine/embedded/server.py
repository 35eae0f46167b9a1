"""HTTP: bytes from a socket to a call, and its answer back. Knows no rule of the API."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import orjson
from aiohttp import web

from engine.embedded import dispatch, errors, non_resources, requests
from engine.embedded.api import Api
from engine.embedded.dispatch import Answer, Call
from engine.embedded.identity import ADMIN, User
from engine.embedded.selection import Selection
from engine.embedded.watches import Watch, WatchOptions

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 3 * 1024 * 1024
"""As the API server's own limit for a request."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server listens and paces its streams."""

    host: str = "127.0.0.1"
    port: int = 0
    bookmark_seconds: float = 60.0
    """Time between two bookmarks of a watch that asked for them."""
    shutdown_seconds: float = 1.0
    """How long open requests may take to end when the server closes."""


class Server:
    """Serves one `Api` on one port."""

    def __init__(self, api: Api, settings: ServerSettings, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._api = api
        self._settings = settings
        self._ssl_context = ssl_context
        self._runner: web.ServerRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where the server listens."""
        scheme = "https" if self._ssl_context else "http"
        return f"{scheme}://{self._settings.host}:{self.port}"

    async def start(self) -> None:
        """Begin to listen; `port` then holds the port."""
        server = web.Server(self._handle, access_log=None, max_line_size=65536, max_field_size=65536)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=self._settings.shutdown_seconds)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._settings.host,
            self._settings.port,
            ssl_context=self._ssl_context,
            backlog=1024,
        )
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._serve(request)
        except errors.ApiError as error:
            return _response(Answer(error.code, orjson.dumps(error.status())), headers=error.headers)
        except (ConnectionResetError, ConnectionAbortedError):
            raise
        except Exception as error:
            _LOG.exception("request failed: %s %s", request.method, request.path)
            wrapped = errors.internal(str(error))
            return _response(Answer(500, orjson.dumps(wrapped.status())))

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        path = unquote(request.rel_url.raw_path)
        query: Mapping[str, str] = request.rel_url.query if request.rel_url.raw_query_string else {}
        target = requests.parse(request.method, path, query)
        user = self._authenticate(request)
        if isinstance(target, requests.NonResource):
            return _response(
                non_resources.serve(target.path, _accept(request), address=f"{self._settings.host}:{self.port}")
            )
        if target.verb == "watch":
            return await self._watch(request, Call(target, query, b"", "", _accept(request), user))
        content = await request.read() if request.body_exists else b""
        if len(content) > _MAX_BODY_BYTES:
            raise errors.ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
        headers = request.headers
        call = Call(target, query, content, headers.get("Content-Type", ""), headers.get("Accept", ""), user)
        return _response(dispatch.serve(self._api, call))

    def _authenticate(self, request: web.BaseRequest) -> User:
        return ADMIN

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        target = call.target
        watch = Watch(
            self._api.store,
            Selection.of(target, call.query),
            resource=target.resource,
            view=dispatch.view_of(call, now=self._api.now),
            options=WatchOptions.of(call.query, current=self._api.store.revision),
            bookmark_seconds=self._settings.bookmark_seconds,
        )
        response = web.StreamResponse(headers={"Content-Type": dispatch.JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        async with contextlib.aclosing(watch.chunks()) as chunks:
            async for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
        return response


def _accept(request: web.BaseRequest) -> str:
    return ",".join(request.headers.getall("Accept", ()))


def _response(answer: Answer, *, headers: Mapping[str, str] | None = None) -> web.Response:
    response = web.Response(
        status=answer.code, body=answer.body, headers={"Content-Type": answer.content_type, **(headers or {})}
    )
    for warning in answer.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response
