"""Reads labels and annotations of templates, and nothing else of them: they may hold secrets."""

from __future__ import annotations

import logging
from urllib.parse import quote

import msgspec

from kube_policy_scheduler.adapters.kube.errors import ApiError, KubeError
from kube_policy_scheduler.adapters.kube.nesting import bounded
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import ObjectMeta
from kube_policy_scheduler.fleet.karmada.decision_maker import Template
from kube_policy_scheduler.fleet.karmada.objects import ObjectReference

logger = logging.getLogger(__name__)

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


_decode_object = bounded(msgspec.json.Decoder(_Object).decode)
_decode_resources = bounded(msgspec.json.Decoder(_ApiResources).decode)


class TemplateReader:
    """Asks the API server of the control plane."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._plurals: dict[tuple[str, str], str] = {}
        self._told: set[tuple[str, str]] = set()

    async def read(self, template: ObjectReference) -> Template:
        """Return labels and annotations; nothing if the template may not or cannot be read, which is logged once."""
        kind = template.api_version, template.kind
        try:
            plural = await self._plural(*kind)
            if not plural:
                return Template()
            inside = f"/namespaces/{quote(template.namespace, safe='')}" if template.namespace else ""
            path = f"{_root(template.api_version)}{inside}/{plural}/{quote(template.name, safe='')}"
            answer = await self._transport.request("GET", path, resource=plural, accept=METADATA)
            meta = _decode_object(answer).metadata
        except (KubeError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if kind not in self._told and len(self._told) < MOST_KINDS:
                self._told.add(kind)
                fields = {"kind": template.kind, "apiVersion": template.api_version, "why": str(error)}
                logger.warning("labels of templates cannot be read; to policies they are missing", extra=fields)
            return Template()
        return Template(meta.labels or {}, meta.annotations or {})

    async def _plural(self, api_version: str, kind: str) -> str:
        """Return the plural of a kind, "" if it is not served. Raises KubeError."""
        known = self._plurals.get((api_version, kind))
        if known is not None:
            return known
        try:
            answer = await self._transport.request("GET", _root(api_version), resource="discovery")
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
