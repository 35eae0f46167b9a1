"""Authorization of HTTP routes: takes a token or a certificate, allows or rejects.

Knows neither routes nor how tokens are judged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import assert_never

from aiohttp import web
from aiohttp.typedefs import Handler

from kube_policy_scheduler.adapters.kube.reviews import Access, AccessDecision
from kube_policy_scheduler.adapters.tls.client_certificates import Clients

Review = Callable[[str, str, str], Awaitable[AccessDecision]]
"""From a token, a verb and a path to whether that may be; never raises."""

_CHALLENGES = (
    'Bearer realm="policy-scheduler"',
    'Basic realm="a Kubernetes token as the password, for example from kubectl create token", charset="UTF-8"',
)


def guarded(handler: Handler, review: Review) -> Handler:
    """Return a handler that asks first who sends the request, and whether they may."""

    async def answer(request: web.Request) -> web.StreamResponse:
        verb = "get" if request.method == "HEAD" else request.method.lower()
        verdict = await review(token_of(request.headers.get("Authorization", "")), verb, request.path)
        match verdict.access:
            case Access.ALLOWED:
                return await handler(request)
            case Access.UNKNOWN:
                response = web.Response(status=401, text=f"{verdict.why}\n")
                for challenge in _CHALLENGES:
                    response.headers.add("WWW-Authenticate", challenge)
                return response
            case Access.FORBIDDEN:
                return web.Response(status=403, text=f"{verdict.why}\n")
            case Access.UNDECIDED:
                return web.Response(status=503, text=f"{verdict.why}\n")
            case _:
                assert_never(verdict.access)

    return answer


def certified(handler: Handler, clients: Clients, *, otherwise: Handler | None) -> Handler:
    """Return a handler for clients with a certificate; those without go to `otherwise`, if there is one."""

    async def answer(request: web.Request) -> web.StreamResponse:
        certificate = request.get_extra_info("peercert")
        why = clients.admit(certificate)
        if not why:
            return await handler(request)
        if otherwise is not None:
            return await otherwise(request)
        return web.Response(status=403 if certificate else 401, text=f"{why}\n")

    return answer


def token_of(header: str) -> str:
    """Return the token of an `Authorization` header, "" where there is none.

    As the password of HTTP Basic it is taken too, because browsers ask for one; the name does not matter.
    """
    scheme, _, given = header.strip().partition(" ")
    given = given.strip()
    if scheme.lower() == "bearer":
        return given
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return ""
    return ""
