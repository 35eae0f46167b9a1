"""Writes the status of one object, and retries if other clients write to it. Works for every kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.client import STRATEGIC_MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, MalformedAnswer, NotFound
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.adapters.kube.transport import Transport

CONFLICT_RETRIES = 3

View = TypeVar("View")


async def patch_status(
    transport: Transport,
    resource: Resource[Any],
    known: View,
    *,
    name: str,
    namespace: str,
    patch: Callable[[View], dict[str, Any] | None],
    read: Callable[[bytes], View | None],
    fence: Fence,
    content_type: str = STRATEGIC_MERGE_PATCH,
) -> View | None:
    """Send a patch that carries the version it was made for; where the object has changed, read it again first.

    Args:
        transport: to the API server.
        resource: the object's kind.
        known: the object as it was seen last.
        name: of the object.
        namespace: of the object.
        patch: what is to be changed, None where the object says so already.
        read: what an answer says, None where the object is not to be written to any more; raises DecodeError.
        fence: asked right before each patch goes out.
        content_type: of the patch; custom resources take no strategic merge patch.

    Returns:
        The object as it is now, None where it cannot be had as wanted any more.

    Raises:
        Conflict: each try ended with one: others write to the object all the time, or a webhook answers so.
        KubeError: a request failed, or the fence is closed.
    """
    path = partial(resource.path, name, namespace=namespace)
    now: View | None = known
    conflict: Conflict | None = None
    for _ in range(CONFLICT_RETRIES):
        if now is None or (body := patch(now)) is None:
            return now
        try:
            answer = await transport.request(
                "PATCH",
                path(subresource="status"),
                body=msgspec.json.encode(body),
                content_type=content_type,
                resource=f"{resource.label}/status",
                fence=fence,
            )
            return _read(answer, read, resource)
        except NotFound:
            return None
        except Conflict as error:
            conflict = error
        try:
            now = _read(await transport.request("GET", path(), resource=resource.label), read, resource)
        except NotFound:
            return None
    if now is not None and conflict is not None:
        raise conflict
    return None


def _read(answer: bytes, read: Callable[[bytes], View | None], resource: Resource[Any]) -> View | None:
    try:
        return read(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedAnswer(f"an answer about {resource} cannot be read: {error}") from error
