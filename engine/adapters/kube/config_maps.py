"""One ConfigMap: read, and changed only if nobody else changed it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from engine.adapters.kube.credentials import find_credentials
from engine.adapters.kube.errors import MalformedAnswer
from engine.adapters.kube.transport import Transport

_MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class ConfigMapData:
    """The texts of a ConfigMap, and which version of it they are of."""

    texts: Mapping[str, str]
    resource_version: str


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


async def read_config_map(namespace: str, name: str, *, kubeconfig: str | None, context: str | None) -> ConfigMapData:
    """Return what a ConfigMap holds.

    Raises:
        KubeError: it is not there, or may not be read.
        CredentialsError: no usable kubeconfig.
    """
    answer = await _ask("GET", namespace, name, kubeconfig=kubeconfig, context=context)
    try:
        found = msgspec.json.decode(answer, type=_ConfigMap)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"ConfigMap {namespace}/{name} cannot be read: {error}") from error
    return ConfigMapData(found.data or {}, found.metadata.resource_version)


async def change_config_map(
    namespace: str,
    name: str,
    *,
    texts: Mapping[str, str | None],
    resource_version: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Set texts, and remove those that are None, all in one step.

    Raises:
        Conflict: it is no longer the version that was read.
        KubeError: it may not be changed, or is refused.
        CredentialsError: no usable kubeconfig.
    """
    body = msgspec.json.encode({"metadata": {"resourceVersion": resource_version}, "data": texts})
    await _ask("PATCH", namespace, name, body=body, kubeconfig=kubeconfig, context=context)


async def _ask(
    verb: str, namespace: str, name: str, *, kubeconfig: str | None, context: str | None, body: bytes = b""
) -> bytes:
    transport = Transport(find_credentials(kubeconfig=kubeconfig, context=context), max_connections=1)
    try:
        return await transport.request(
            verb,
            f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}",
            body=body,
            content_type=_MERGE_PATCH if body else "application/json",
            resource="configmaps",
        )
    finally:
        await transport.close()
