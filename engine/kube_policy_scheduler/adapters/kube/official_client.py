"""Requests of commands and of the demo, sent by the official client, `kubernetes`. Knows no resource kind.

It connects, verifies, goes through proxies, keeps connections, and tries again what a server with too much to do asks
to be tried again. What is ours around it are bounds: an answer is read up to a size, and a request ends after a time,
whatever the server does; no redirect is followed. Objects are decoded by our structs, not by its models.

The daemon does not use it for its own API server (see `transport.py`): it sends hundreds of bindings at a time from one
event loop. Commands import it when they first ask a cluster, which takes 0.3 s; a decision maker of a fleet, when it
first reads a member cluster.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import urlsplit

import msgspec

from kube_policy_scheduler.adapters.causes import causes
from kube_policy_scheduler.adapters.kube.client import Client, Request
from kube_policy_scheduler.adapters.kube.connection import MAX_BODY_BYTES
from kube_policy_scheduler.adapters.kube.credentials import CredentialSource, find_credentials
from kube_policy_scheduler.adapters.kube.errors import (
    AnswerTimeout,
    ConnectionLost,
    CredentialsError,
    KubeError,
    MalformedAnswer,
    Unreachable,
    error_from_answer,
)
from kube_policy_scheduler.adapters.kube.identity import ConnectionKey, Credentials
from kube_policy_scheduler.adapters.kube.official_import import ALONE
from kube_policy_scheduler.adapters.kube.proxy import bypasses_proxy, parse_proxy
from kube_policy_scheduler.adapters.kube.throttle import retry_after_seconds
from kube_policy_scheduler.adapters.process.worker_thread import in_thread
from kube_policy_scheduler.wording import one_line

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from urllib3.response import BaseHTTPResponse

CONNECT_TIMEOUT_SECONDS = 5.0
AT_ONCE = 8
TRIES = 3
"""Further tries of a read that the server asks to repeat (429 and 5xx with Retry-After)."""
PIECE_BYTES = 2**16


class Reply(msgspec.Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OfficialClient(Client):
    """Sends requests to one API server, several at once if asked so."""

    def __init__(self, credentials: CredentialSource, *, most_bytes: int | None = None) -> None:
        """Send nothing yet, and import nothing. most_bytes: of an answer; None: of any list."""
        self._credentials = credentials
        self._most_bytes = MAX_BODY_BYTES if most_bytes is None else most_bytes
        self._client: ApiClient | None = None
        self._key: ConnectionKey | None = None
        self._slots = asyncio.Semaphore(AT_ONCE)

    @classmethod
    def of(cls, *, kubeconfig: str | None, context: str | None) -> Self:
        """Return a client with a kubeconfig's rights; see `find_credentials`."""
        return cls(find_credentials(kubeconfig=kubeconfig, context=context))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    async def send(self, request: Request) -> bytes:
        """Send one request and return the body of a 2xx answer; see `Client.send`."""
        request.check_fence()
        reply = await self.reply(request)
        if 200 <= reply.status < 300:
            return reply.body
        retry_after = retry_after_seconds(reply.headers.get("Retry-After"))
        raise error_from_answer(reply.status, reply.body, retry_after_seconds=retry_after)

    async def reply(self, request: Request) -> Reply:
        """Send one request and return the answer, also a refusal. Raises KubeError where there is none."""
        credentials = await self._credentials.get()
        reply = await self._sent(request, credentials)
        if reply.status == 401 and not error_from_answer(reply.status, reply.body).is_denial:
            try:
                renewed = await self._credentials.look(force=True)
            except CredentialsError:
                return reply
            if not renewed.is_same_identity(credentials):
                reply = await self._sent(request, renewed)
        return reply

    async def _sent(self, request: Request, credentials: Credentials) -> Reply:
        if self._client is None or self._key != credentials.connection_key:
            self.close()
            self._client, self._key = _client_of(credentials), credentials.connection_key
        client = self._client

        def send() -> Reply:
            return _send(client, credentials, request, self._most_bytes)

        # urllib3 limits each read from the socket; a server may send a byte from time to time, for ever
        try:
            async with self._slots, asyncio.timeout(request.timeout_seconds):
                try:
                    return await in_thread(send, name="kube-request")
                except ConnectionLost:  # perhaps one that was kept
                    if request.verb != "GET":
                        raise
                return await in_thread(send, name="kube-request")
        except TimeoutError:
            raise AnswerTimeout(f"{request.place}: no answer within {request.timeout_seconds:g} s") from None


def _client_of(credentials: Credentials) -> ApiClient:
    with ALONE:
        from kubernetes.client import ApiClient, Configuration
    from urllib3 import HTTPHeaderDict, Retry, disable_warnings
    from urllib3.exceptions import InsecureRequestWarning

    disable_warnings(InsecureRequestWarning)  # the kubeconfig says so; kubectl says nothing either
    host = urlsplit(credentials.server).hostname or ""
    proxied = credentials.proxy is not None and not bypasses_proxy(host, credentials.no_proxy)
    proxy = parse_proxy(credentials.proxy) if credentials.proxy is not None and proxied else None
    told = HTTPHeaderDict(credentials.proxy_headers if proxy is not None else ())
    if proxy is not None and proxy.authorization:
        told["Proxy-Authorization"] = proxy.authorization  # which it does not take from a URL
    configuration = Configuration(
        host=credentials.server,
        verify_ssl=credentials.tls is None or credentials.tls.verify_mode is not ssl.CERT_NONE,
        tls_server_name=credentials.tls_server_name,
        proxy_headers=told or None,
        no_proxy="",  # decided above; otherwise that of the environment would count for any proxy
        retries=Retry(
            total=TRIES, connect=False, read=False, redirect=False, status=0, other=0,
            raise_on_status=False, respect_retry_after_header=False,
        ),
        connection_pool_maxsize=AT_ONCE,
    )  # fmt: skip
    configuration.client_go_retries = True
    configuration.proxy = None if proxy is None else proxy.url
    client = ApiClient(configuration)
    client.user_agent = "kube-policy-scheduler"
    if credentials.tls is not None:
        # with the certificates in it, which then need not be in files; and without what Python 3.13 demands of them
        client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = credentials.tls
    return client


def _send(client: ApiClient, credentials: Credentials, request: Request, most_bytes: int) -> Reply:
    """Send a request and read its answer; blocks."""
    with ALONE:
        from kubernetes.client import ApiException
    from urllib3 import HTTPHeaderDict
    from urllib3.exceptions import HTTPError

    headers = HTTPHeaderDict(credentials.headers)  # a group may be impersonated beside another
    headers["Accept"] = request.accept
    headers["User-Agent"] = client.user_agent
    if request.verb == "GET":
        headers["Accept-Encoding"] = "gzip" if credentials.compression else "identity"
    else:
        headers["Content-Type"] = request.content_type
    ends = time.monotonic() + request.timeout_seconds
    try:
        answer = client.call_api(
            request.verb,
            client.configuration.host + request.path,
            header_params=headers,
            body=msgspec.json.decode(request.body) if request.body else None,
            _request_timeout=(CONNECT_TIMEOUT_SECONDS, request.timeout_seconds),
        ).response
        try:
            return Reply(answer.status, answer.headers, b"".join(_pieces(answer, ends, most_bytes)))
        finally:
            answer.release_conn()
    except ApiException as error:
        if error.status:  # the last try, too
            return Reply(error.status, error.headers or {}, str(error.reason).encode())
        _raise(error, credentials, request)
    except (HTTPError, OSError) as error:
        _raise(error, credentials, request)


def _pieces(answer: BaseHTTPResponse, ends: float, most_bytes: int) -> Iterator[bytes]:
    """Yield what is read, up to a size and a time."""
    size = 0
    for piece in answer.stream(PIECE_BYTES, decode_content=True):
        size += len(piece)
        if size > most_bytes or time.monotonic() > ends:
            answer.close()
            if size > most_bytes:
                raise MalformedAnswer(f"answer longer than {most_bytes >> 20} MiB")
            raise AnswerTimeout("the answer does not end")
        yield piece


def _raise(error: Exception, credentials: Credentials, request: Request) -> NoReturn:
    """Raise what went wrong as one of our errors."""
    raise _ours(error, credentials, request) from error


def _ours(error: Any, credentials: Credentials, request: Request) -> KubeError:
    from urllib3 import exceptions as theirs

    place = request.place

    if isinstance(error, theirs.MaxRetryError) and error.reason is not None:
        error = error.reason
    match error:
        case theirs.ReadTimeoutError():
            return AnswerTimeout(f"{place}: no answer within {request.timeout_seconds:g} s")
        case theirs.DecodeError():
            return MalformedAnswer(f"{place}: the answer is not valid gzip")
        case theirs.ProtocolError():
            for cause in causes(error):
                if isinstance(cause, HTTPException) and not isinstance(cause, RemoteDisconnected | IncompleteRead):
                    return MalformedAnswer(f"{place}: the answer is not valid HTTP: {one_line(str(cause), 80)}")
            return ConnectionLost(f"{place}: connection lost before the answer was complete")
    return Unreachable(f"cannot reach {credentials.server}: {_reason(error, credentials)}")


def _reason(error: Exception, credentials: Credentials) -> str:
    """Say why there is no connection; texts of urllib3 begin with the name and address of one."""
    from urllib3.exceptions import ProxyError

    by_proxy = f"{parse_proxy(credentials.proxy)}: " if isinstance(error, ProxyError) and credentials.proxy else ""
    for cause in causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return (
                    f"its certificate is not trusted ({cause.verify_message});"
                    f" check certificate authority and server name in {credentials.source}"
                )
            case ssl.SSLError():
                return f"{by_proxy}TLS failed: {cause.reason or cause}"
            case socket.gaierror():
                return f"{by_proxy}cannot resolve its name: {(cause.strerror or str(cause)).lower()}"
            case TimeoutError():
                return f"{by_proxy}no connection within {CONNECT_TIMEOUT_SECONDS:g} s"
            case OSError(errno=int(number)) if number > 0:
                return by_proxy + os.strerror(number).lower()
            case OSError() if by_proxy and str(cause):
                return by_proxy + str(cause).lower()  # what it answered
    return by_proxy + type(error).__name__
