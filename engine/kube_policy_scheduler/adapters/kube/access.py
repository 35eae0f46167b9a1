"""What the account of a kubeconfig may do, and what time it is at the API server. Asks only, changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client, Request
from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.adapters.kube.official_client import OfficialClient

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TIMEOUT_SECONDS = 10.0

Asked = tuple[str, str, str, str, str]
"""Group, resource with its subresource, verb, namespace ("": all of them), name ("": any)."""


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


async def reviews(asked: Iterable[Asked], client: Client) -> Mapping[Asked, bool | str]:
    """Ask for each whether it is allowed; a text says why that is not known."""

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
            answer = await client.request(
                "POST", _REVIEWS, body=body, resource="selfsubjectaccessreviews", timeout_seconds=_TIMEOUT_SECONDS
            )
            return msgspec.json.decode(answer, type=_Review).status.allowed
        except (KubeError, msgspec.MsgspecError) as error:
            return str(error)

    wanted = list(asked)
    answers = await asyncio.gather(*(ask(one) for one in wanted))
    return dict(zip(wanted, answers, strict=True))


async def clock_skew(client: OfficialClient) -> float | str:
    """Return by how many seconds the API server's clock is ahead of ours, to about a second; a text: why unknown."""
    try:
        for _ in range(2):  # the first one may have to connect
            before = time.time()
            answer = await client.reply(Request("GET", "/version", timeout_seconds=_TIMEOUT_SECONDS))
            after = time.time()
    except KubeError as error:
        return str(error)
    date = answer.headers.get("Date")
    if date is None:
        return "its answers contain no time"
    try:
        # whole seconds, cut off: half a second more is right on average
        return parsedate_to_datetime(date).timestamp() + 0.5 - (before + after) / 2
    except ValueError:
        return "its answers contain an invalid time"
