"""Objects straight into the store, for a cluster that is to begin with them. Skips admission, not defaults."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from kube_policy_scheduler.cluster import defaulting
from kube_policy_scheduler.embedded import views
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.times import rfc3339


def load(api: Api, objects: Iterable[Mapping[str, Any]]) -> int:
    """Store objects with their defaults, creating the namespaces they name; return how many were given.

    Uids that are missing are derived from kind, namespace and name, so that a fixture is the same every time.

    Raises:
        ValueError: an object is of a kind that is not served, or has no name.
    """
    given = list(_flattened(objects))
    classes = {
        entry.key[1]: entry.decode() for entry in api.store.collection("scheduling.k8s.io/priorityclasses").scan()
    }
    classes |= {obj["metadata"]["name"]: dict(obj) for obj in given if obj.get("kind") == "PriorityClass"}
    now = rfc3339(api.now())
    for obj in given:
        _store(api, obj, classes=classes, now=now)
    return len(given)


def _flattened(objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for obj in objects:
        if str(obj.get("kind", "")).endswith("List") and "items" in obj:
            inner = str(obj["kind"]).removesuffix("List")
            typed = {"apiVersion": obj.get("apiVersion", "v1"), "kind": inner} if inner else {}
            yield from _flattened({**typed, **item} for item in obj["items"])
        else:
            yield obj


def _store(api: Api, obj: Mapping[str, Any], *, classes: Mapping[str, Mapping[str, Any]], now: str) -> None:
    version, kind = str(obj.get("apiVersion", "v1")), str(obj.get("kind", ""))
    resource = api.catalog.by_kind.get((version, kind))
    if resource is None:
        raise ValueError(f"{version} {kind} is not a kind the embedded cluster serves")
    done: Json = defaulting.default_object(obj, priority_classes=classes)
    if resource.storage_key == "events" and resource.group:
        done = views.to_core(done)
    done["apiVersion"], done["kind"] = resource.stored_api_version, kind
    meta = done["metadata"] = copy.copy(done.get("metadata") or {})
    if not meta.get("name"):
        raise ValueError(f"a {kind} without metadata.name cannot be loaded")
    if resource.namespaced:
        meta.setdefault("namespace", "default")
        _ensure_namespace(api, meta["namespace"], now=now)
    else:
        meta.pop("namespace", None)
    if resource.counts_generation:
        meta.setdefault("generation", 1)
    meta.setdefault(
        "uid", str(uuid5(NAMESPACE_URL, f"{resource.storage_key}/{meta.get('namespace', '')}/{meta['name']}"))
    )
    meta.setdefault("creationTimestamp", now)
    collection = api.collection(resource)
    collection.put(done)


def _ensure_namespace(api: Api, name: str, *, now: str) -> None:
    if api.store.collection("namespaces").get(("", name)) is None:
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        _store(api, obj, classes={}, now=now)
