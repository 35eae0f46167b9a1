"""Labels and annotations of the templates of a control plane, and nothing else of them: they may hold secrets."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.client import Client
from kube_policy_scheduler.adapters.kube.errors import ApiError, KubeError
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.fleet.karmada.objects import ObjectReference

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""What the API server is to send of an object."""
MOST_KINDS = 1000
"""Kinds of which the plural is remembered."""


class _Object(msgspec.Struct):
    metadata: ObjectMeta


class _ApiResource(msgspec.Struct):
    name: str
    kind: str


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource]


_decode_object = decoder_of(_Object)
_decode_resources = decoder_of(_ApiResources)


class TemplateMetadata:
    """Asks the API server of the control plane."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plurals: dict[tuple[str, str], str] = {}

    async def read(self, template: ObjectReference) -> ObjectMeta | None:
        """Return the metadata of a template; None if its kind is not served.

        Raises:
            KubeError: it may not be read, does not exist, or the answer is none.
        """
        try:
            plural = await self._plural(template.api_version, template.kind)
            if not plural:
                return None
            inside = f"/namespaces/{quote(template.namespace, safe='')}" if template.namespace else ""
            path = f"{_root(template.api_version)}{inside}/{plural}/{quote(template.name, safe='')}"
            answer = await self._client.request("GET", path, resource=plural, accept=METADATA)
            return _decode_object(answer).metadata
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KubeError(f"the answer cannot be read: {error}") from error

    async def _plural(self, api_version: str, kind: str) -> str:
        """Return the plural of a kind, "" if it is not served. Raises KubeError."""
        known = self._plurals.get((api_version, kind))
        if known is not None:
            return known
        try:
            answer = await self._client.request("GET", _root(api_version), resource="discovery")
        except ApiError as error:
            if error.status != 404:
                raise
            return ""
        served = {each.kind: each.name for each in _decode_resources(answer).resources if "/" not in each.name}
        if kind in served and len(self._plurals) < MOST_KINDS:
            self._plurals[api_version, kind] = served[kind]
        return served.get(kind, "")


def _root(api_version: str) -> str:
    version = quote(api_version, safe="/")
    return f"/apis/{version}" if "/" in api_version else f"/api/{version}"
