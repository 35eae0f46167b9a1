"""What the API server refuses. Pure: objects in, causes out."""

from __future__ import annotations

import re
from typing import Any

from engine.embedded.errors import Cause, Json
from engine.embedded.resources import Resource

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_CONDITIONAL = frozenset({"Lease", "PodDisruptionBudget", "CSINode", "CSIDriver", "VolumeAttachment"})
_ANY_NAME = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})


def new_object(resource: Resource, obj: Json) -> list[Cause]:
    """Return what is wrong with a new object."""
    return _metadata(resource, obj["metadata"])


def changed_object(resource: Resource, new: Json, old: Json, subresource: str) -> list[Cause]:
    """Return what is wrong with an object's next state."""
    return []


def unconditional_update(resource: Resource) -> list[Cause]:
    """Return what is wrong with an update that names no resourceVersion."""
    if resource.kind in _CONDITIONAL:
        return [
            Cause("metadata.resourceVersion", "FieldValueInvalid", "Invalid value: 0: must be specified for an update")
        ]
    return []


def _metadata(resource: Resource, meta: dict[str, Any]) -> list[Cause]:
    name = meta.get("name") or ""
    if not name:
        return [Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
    if resource.kind in _ANY_NAME:
        return []
    if len(name) > 253:
        return [Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": must be no more than 253 bytes')]
    if not _SUBDOMAIN.fullmatch(name):
        return [Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_SUBDOMAIN_TEXT}')]
    return []


def node_name(field: str, name: str) -> list[Cause]:
    """Return what is wrong with the name of a node."""
    if _SUBDOMAIN.fullmatch(name):
        return []
    return [Cause(field, "FieldValueInvalid", f'Invalid value: "{name}": {_SUBDOMAIN_TEXT}')]
