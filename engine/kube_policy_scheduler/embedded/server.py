"""HTTP: bytes from a socket to a call, and its answer back. Knows no rule of the API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

import orjson
from aiohttp import web

from kube_policy_scheduler.client_mistakes import ServerLogger
from kube_policy_scheduler.embedded import dispatch, errors, non_resources, requests
from kube_policy_scheduler.embedded.access import Guard, User
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.dispatch import Answer, Call
from kube_policy_scheduler.embedded.requests import NonResource, Target
from kube_policy_scheduler.embedded.selection import Selection
from kube_policy_scheduler.embedded.watches import Watch, WatchOptions
from kube_policy_scheduler.loopback import is_meant

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 3 * 1024 * 1024
"""As the API server's own limit for a request."""
Intercept: TypeAlias = Callable[[Target], None]
"""Called with each request before it is executed; an `ApiError` that it raises is the response."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server listens and paces its streams."""

    host: str = "127.0.0.1"
    port: int = 0
    bookmark_seconds: float = 60.0
    """Time between two bookmarks of a watch that requested them."""
    shutdown_seconds: float = 0.1
    """How long open requests may take to end when the server closes."""


class _Ended(Exception):
    """The connection is closed; there is nothing left to answer."""


class Server:
    """Serves one `Api` on one port."""

    def __init__(
        self,
        api: Api,
        settings: ServerSettings,
        *,
        guard: Guard,
        intercept: Intercept | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._api = api
        self._settings = settings
        self._guard = guard
        self._intercept = intercept
        self._ssl_context = ssl_context
        self._runner: web.ServerRunner | None = None
        self._watches: set[asyncio.Task[object]] = set()
        self.port = settings.port

    @property
    def url(self) -> str:
        """Where the server listens."""
        scheme = "https" if self._ssl_context else "http"
        return f"{scheme}://{self._settings.host}:{self.port}"

    async def start(self) -> None:
        """Begin to listen; `port` then holds the port."""
        server = web.Server(
            self._handle, access_log=None, max_line_size=65536, max_field_size=65536, logger=ServerLogger(_LOG)
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=self._settings.shutdown_seconds)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self.port, ssl_context=self._ssl_context, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        for task in tuple(self._watches):
            task.cancel()
        if self._runner is not None:
            assert self._runner.server is not None
            secured = [each.transport for each in self._runner.server.connections if each.transport is not None]
            await self._runner.cleanup()
            if self._ssl_context is not None:  # a close waits 30 s for the client's side of it
                for transport in secured:
                    with suppress(AttributeError):  # in Python 3.11.2, if the connection is gone meanwhile
                        transport.abort()
                await asyncio.sleep(0)
            self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if not is_meant(request.url.host or "", self._settings.host):
            return web.Response(status=421, text="this server serves only this machine: use the host name localhost\n")
        try:
            path = unquote(request.rel_url.raw_path)
            query: Mapping[str, str] = request.rel_url.query if request.rel_url.raw_query_string else {}
            target = requests.parse(request.method, path, query, self._api.catalog)
            if isinstance(target, Target):
                return await self._serve_resource(request, target, query)
            self._guard.check(self._identify(request), target)
            return _response(self._serve_non_resource(request, target))
        except errors.ApiError as error:
            return _failure(error)
        except _Ended:
            return web.Response()

    def _serve_non_resource(self, request: web.BaseRequest, target: NonResource) -> Answer:
        address = f"{self._settings.host}:{self.port}"
        return non_resources.serve(target.path, _accept(request), address=address, catalog=self._api.catalog)

    def _identify(self, request: web.BaseRequest) -> User:
        if not self._guard.authenticates and "Impersonate-User" not in request.headers:
            return self._guard.identify({}, None)
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        groups = request.headers.getall("Impersonate-Group", [])
        return self._guard.identify(request.headers, certificate, groups=groups)

    async def _serve_resource(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str]
    ) -> web.StreamResponse:
        try:
            user = self._identify(request)
            self._guard.check(user, target)
            if self._intercept is not None:
                self._intercept(target)
            return await self._answer(request, target, query, user)
        except (ConnectionError, _Ended, errors.ApiError):
            raise
        except Exception as error:
            _LOG.exception("request failed: %s %s", request.method, request.path)
            return _failure(errors.internal(f"{type(error).__name__}: {error}"))

    async def _answer(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str], user: User
    ) -> web.StreamResponse:
        if target.verb == "watch":
            return await self._watch(request, Call(target, query, b"", "", _accept(request), user))
        content = await request.read() if request.body_exists else b""
        if len(content) > _MAX_BODY_BYTES:
            raise errors.ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
        headers = request.headers
        call = Call(target, query, content, headers.get("Content-Type", ""), _accept(request), user)
        return _response(dispatch.serve(self._api, call, self._guard))

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
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            async with contextlib.aclosing(watch.chunks()) as chunks:
                async for chunk in chunks:
                    await response.write(chunk)
            await response.write_eof()
        except ConnectionResetError:
            raise _Ended from None  # the client is gone
        finally:
            self._watches.discard(task)
        return response


def _accept(request: web.BaseRequest) -> str:
    return ",".join(request.headers.getall("Accept", ()))


def _failure(error: errors.ApiError) -> web.Response:
    return _response(Answer(error.code, orjson.dumps(error.status())), headers=error.headers)


def _response(answer: Answer, *, headers: Mapping[str, str] | None = None) -> web.Response:
    response = web.Response(
        status=answer.code, body=answer.body, headers={"Content-Type": answer.content_type, **(headers or {})}
    )
    for warning in answer.warnings:
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response
