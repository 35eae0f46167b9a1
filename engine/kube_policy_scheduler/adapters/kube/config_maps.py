"""One ConfigMap: read, and written only if it has not changed since (optimistic concurrency)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH, Client
from kube_policy_scheduler.adapters.kube.errors import MalformedAnswer
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.cluster.objects import ObjectMeta


class ConfigMapData(msgspec.Struct, frozen=True):
    """What a ConfigMap holds, and which version of it that is."""

    texts: Mapping[str, str]
    binaries: Mapping[str, bytes]
    """Entries that are not UTF-8."""
    resource_version: str


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: ObjectMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


_decode = decoder_of(_ConfigMap)


async def get_config_map(client: Client, namespace: str, name: str) -> ConfigMapData:
    """Return what a ConfigMap holds.

    Raises:
        KubeError: it is not there, or may not be read.
    """
    answer = await client.request("GET", _path(namespace, name), resource="configmaps")
    try:
        found = _decode(answer)
        binaries = {key: base64.b64decode(text, validate=True) for key, text in (found.binary_data or {}).items()}
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise MalformedAnswer(f"ConfigMap {namespace}/{name} cannot be read: {error}") from error
    return ConfigMapData(found.data or {}, binaries, found.metadata.resource_version)


async def read_config_map(namespace: str, name: str, *, kubeconfig: str | None, context: str | None) -> ConfigMapData:
    """As `get_config_map`, with a kubeconfig's rights. Raises CredentialsError too: no usable kubeconfig."""
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        return await get_config_map(client, namespace, name)


async def change_config_map(
    namespace: str,
    name: str,
    *,
    texts: Mapping[str, str | None],
    binaries: Mapping[str, bytes | None],
    resource_version: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Set entries, and remove those that are None, all in one step.

    Raises:
        Conflict: it is no longer the version that was read.
        KubeError: it may not be changed, or is refused.
        CredentialsError: no usable kubeconfig.
    """
    from kube_policy_scheduler.adapters.kube.official_client import OfficialClient  # for commands

    body = {"metadata": {"resourceVersion": resource_version}, "data": texts, "binaryData": binaries}
    async with OfficialClient.of(kubeconfig=kubeconfig, context=context) as client:
        await client.request(
            "PATCH",
            _path(namespace, name),
            body=msgspec.json.encode(body),  # bytes become base64
            content_type=MERGE_PATCH,
            resource="configmaps",
        )


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
