"""What the account of a kubeconfig may do, and what time it is at the API server. Asks only, changes nothing."""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec

from kube_policy_scheduler.adapters.kube.credentials import find_credentials
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.identity import Credentials
from kube_policy_scheduler.adapters.kube.transport import Transport

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TIMEOUT_SECONDS = 10.0
_AT_ONCE = 8

Asked = tuple[str, str, str, str, str]
"""Group, resource with its subresource, verb, namespace ("": all of them), name ("": any)."""


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


async def reviews(asked: Iterable[Asked], *, kubeconfig: str | None, context: str | None) -> Mapping[Asked, bool | str]:
    """Ask for each whether it is allowed; a text says why that is not known.

    Raises:
        CredentialsError: no usable kubeconfig.
    """
    transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context), max_connections=_AT_ONCE)

    async def ask(one: Asked) -> bool | str:
        group, resource, verb, namespace, name = one
        plural, _, subresource = resource.partition("/")
        attributes = {
            "group": group, "resource": plural, "subresource": subresource, "verb": verb,
            "namespace": namespace, "name": name,
        }  # fmt: skip
        body = msgspec.json.encode(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
        )
        try:
            answer = await transport.request(
                "POST", _REVIEWS, body=body, resource="selfsubjectaccessreviews", timeout_seconds=_TIMEOUT_SECONDS
            )
            return msgspec.json.decode(answer, type=_Review).status.allowed
        except (KubeError, msgspec.MsgspecError) as error:
            return str(error)

    wanted = list(asked)
    try:
        answers = await asyncio.gather(*(ask(one) for one in wanted))
        return dict(zip(wanted, answers, strict=True))
    finally:
        await transport.close()


async def clock_skew(*, kubeconfig: str | None, context: str | None) -> float | str:
    """Return by how many seconds the API server's clock is ahead of ours, to about a second; a text: why unknown."""
    try:
        credentials = await find_credentials(kubeconfig=kubeconfig, context=context).get()
        return await asyncio.to_thread(_skew, credentials)
    except KubeError as error:
        return str(error)


def _skew(credentials: Credentials) -> float | str:
    if credentials.proxy is not None:
        return "it is behind a proxy, whose clock may differ"
    parts = urlsplit(credentials.server)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if credentials.tls is not None:
        connection = http.client.HTTPSConnection(host, port, context=credentials.tls, timeout=_TIMEOUT_SECONDS)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        before = time.time()
        connection.request("GET", parts.path.rstrip("/") + "/version", headers=dict(credentials.headers))
        date = connection.getresponse().headers.get("Date")
        after = time.time()
    except (OSError, http.client.HTTPException) as error:
        return f"failed to read its time: {type(error).__name__}"
    finally:
        connection.close()
    if date is None:
        return "its answers contain no time"
    try:
        # whole seconds, cut off: half a second more is right on average
        return parsedate_to_datetime(date).timestamp() + 0.5 - (before + after) / 2
    except ValueError:
        return "its answers contain an invalid time"
