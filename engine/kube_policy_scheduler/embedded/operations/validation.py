"""What the API server refuses. Pure: objects in, causes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.operations import causes, validation_kinds, validation_pod
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.rest import decoding

_CONDITIONAL = frozenset({"Lease", "PodDisruptionBudget", "CSINode", "CSIDriver", "VolumeAttachment"})
_ANY_NAME = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_LABEL_NAME = frozenset({"Namespace", "Service"})
_OBJECT: Mapping[str, Callable[[Json], list[Cause]]] = {
    "Pod": validation_pod.pod,
    **validation_kinds.OBJECT,
}
_CHANGE: Mapping[str, Callable[[Json, Json], list[Cause]]] = {
    "Pod": validation_pod.changed_pod,
    **validation_kinds.CHANGE,
}
_ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotations of an object together."""


def new_object(resource: Resource, obj: Json) -> list[Cause]:
    """Return what is wrong with a new object."""
    return _metadata(resource, obj["metadata"]) + _content(resource, obj)


def changed_object(resource: Resource, new: Json, old: Json, subresource: str) -> list[Cause]:
    """Return what is wrong with an object's next state."""
    found = _metadata(resource, new["metadata"])
    if subresource == "status":
        return found
    change = _CHANGE.get(resource.kind)
    if change is not None and not subresource:
        found += change(new, old)
    return found or _content(resource, new)


def _content(resource: Resource, obj: Json) -> list[Cause]:
    check = _OBJECT.get(resource.kind)
    found = check(obj) if check is not None else []
    named = {cause.field for cause in found}
    return found + [causes.required(path) for path in decoding.missing(obj) if path not in named]


def must_name_version(resource: Resource) -> bool:
    """Whether an update of this kind is refused unless it names the resourceVersion it is based on."""
    return resource.kind in _CONDITIONAL


def _metadata(resource: Resource, meta: dict[str, Any]) -> list[Cause]:
    name = meta.get("name") or ""
    found: list[Cause] = []
    if not name:
        found.append(causes.required("metadata.name", "name or generateName is required"))
    elif resource.kind in _ANY_NAME:
        if name in (".", "..") or "/" in name or "%" in name:
            found.append(
                causes.invalid("metadata.name", name, "may not contain '/'" if "/" in name else "may not be it")
            )
    elif resource.kind in _LABEL_NAME:
        dotted = causes.invalid("metadata.name", name, "must not contain dots")
        found += [dotted] if "." in name else causes.dns_label("metadata.name", name)
    else:
        found += causes.dns_subdomain("metadata.name", name)
    found += causes.labels("metadata.labels", meta.get("labels") or {})
    annotations = meta.get("annotations") or {}
    for key in annotations:
        found += causes.qualified_name("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        found.append(Cause("metadata.annotations", "FieldValueTooLong", text))
    for at, name in enumerate(meta.get("finalizers") or ()):
        found += causes.qualified_name(f"metadata.finalizers[{at}]", name)
    return found
