"""Reads which admission webhooks and policies a cluster has. Judges nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound

PLURALS = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
)
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_TIMEOUT_SECONDS = 10.0


class _List(msgspec.Struct):
    items: list[Any] | None = None


async def admission_configurations(client: Client) -> dict[str, list[Any]] | str:
    """Return the objects of each of `PLURALS`, none of what is not served; a text: why they are not known."""
    found: dict[str, list[Any]] = {}
    try:
        for plural in PLURALS:
            try:
                answer = await client.request(
                    "GET", f"{_GROUP}/{plural}", resource=plural, timeout_seconds=_TIMEOUT_SECONDS
                )
                found[plural] = msgspec.json.decode(answer, type=_List).items or []
            except NotFound:
                found[plural] = []
    except (KubeError, msgspec.MsgspecError) as error:
        return str(error)
    return found
