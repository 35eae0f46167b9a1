"""Fields of objects that decide where pods go, and that this version does not know: a newer Kubernetes has them.

What such a field asks for is not done, and nothing else would say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube_policy_scheduler.documents.api_schema import FieldType, load
from kube_policy_scheduler.tooling.doctor.findings import Finding, Status
from kube_policy_scheduler.wording import plural

DECIDING: Mapping[str, tuple[str, frozenset[str]]] = {
    "Node": ("v1", frozenset({"metadata", "status"})),
    "Pod": ("v1", frozenset({"metadata", "status"})),
    "PersistentVolume": ("v1", frozenset({"metadata", "status"})),
    "PersistentVolumeClaim": ("v1", frozenset({"metadata", "status"})),
    "PodDisruptionBudget": ("policy/v1", frozenset({"metadata", "status"})),
    "StorageClass": ("storage.k8s.io/v1", frozenset({"metadata"})),
    "CSINode": ("storage.k8s.io/v1", frozenset({"metadata"})),
    "CSIDriver": ("storage.k8s.io/v1", frozenset({"metadata"})),
    "CSIStorageCapacity": ("storage.k8s.io/v1", frozenset({"metadata"})),
    "VolumeAttachment": ("storage.k8s.io/v1", frozenset({"metadata", "status"})),
    "DeviceClass": ("resource.k8s.io/v1", frozenset({"metadata"})),
    "ResourceSlice": ("resource.k8s.io/v1", frozenset({"metadata"})),
    "ResourceClaim": ("resource.k8s.io/v1", frozenset({"metadata", "status"})),
    "DeviceTaintRule": ("resource.k8s.io/v1", frozenset({"metadata", "status"})),
}
"""Kinds, with their version, and the parts in which nothing asks for something."""
_NEWER = frozenset(
    {
        "bindMountOptions",
        "compatibilityGroups",
        "derivedAttributes",
        "nodeAllocatableResources",
        "partitionTypeAttribute",
        "podPreemptionPolicy",
        "skipNodeOperations",
    }
)
"""Fields of Kubernetes 1.37 and 1.38 that are known beside those of the schema: they are followed, or hold pods."""
_MOST_PATHS = 1000
"""Different paths that are counted separately."""
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """What was found in objects as the API server has them."""

    objects: int
    """That were looked at."""
    counts: Mapping[tuple[str, str], int]
    """How many objects have a field, by kind and path."""
    is_sample: bool = False
    """Whether there are more objects of some kind."""


def find_unknown(objects: Iterable[Mapping[str, Any]], *, is_sample: bool = False) -> UnknownFields:
    """Look for unknown fields in objects as decoded from JSON; other kinds are passed over."""
    counts: Counter[tuple[str, str]] = Counter()
    number = 0
    for each in objects:
        kind = str(each.get("kind", ""))
        version, left_out = DECIDING.get(kind, ("", frozenset[str]()))
        name = load().kinds.get((version, kind))
        if name is None or each.get("apiVersion") != version:
            continue
        number += 1
        paths = {path for key, item in _fields(each, name, "") if key not in left_out for path in item}
        for path in sorted(paths):
            if (kind, path) in counts or len(counts) < _MOST_PATHS:
                counts[kind, path] += 1
    return UnknownFields(number, counts, is_sample)


def _fields(value: Mapping[str, Any], type_name: str, at: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each field of an object with the unknown paths at or below it."""
    known = load().types[type_name]
    for key, item in value.items():
        path = f"{at}.{key}" if at else str(key)
        field = known.get(key)
        if field is None:
            yield key, set() if key in _NEWER else {path}
        else:
            yield key, set(_below(item, field, path))


def _below(value: Any, field: FieldType, at: str) -> Iterator[str]:
    match field.containers[:1], value:
        case "l", list():
            for item in value:
                yield from _below(item, field.element(), f"{at}[]")
        case "m", dict():
            for item in value.values():
                yield from _below(item, field.element(), f"{at}.*")
        case "", dict() if not field.is_scalar and field.name in load().types:
            for _, paths in _fields(value, field.name, at):
                yield from paths


def unknown_field_findings(found: UnknownFields | None) -> Iterator[Finding]:
    """Say which fields are not known, the most frequent first."""
    if found is None or not found.objects:
        return
    of = "of those that were looked at, " if found.is_sample else ""
    if not found.counts:
        text = f"all known, in {plural(found.objects, 'object')}"
        yield Finding("kubernetes", "fields", Status.OK, text)
    for (kind, path), number in Counter(dict(found.counts)).most_common(_MOST_SHOWN):
        has = "has" if number == 1 else "have"
        text = f"{of}{plural(number, 'object')} {has} it, and this version does not know it"
        advice = "decisions are made as if it were not there: see whether a newer version knows it"
        yield Finding("kubernetes", f"{kind} {path}", Status.WARNING, text, advice=advice)
    if (more := len(found.counts) - _MOST_SHOWN) > 0:
        yield Finding("kubernetes", "other fields", Status.WARNING, f"{more} more are not known")
