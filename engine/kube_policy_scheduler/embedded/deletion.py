"""How objects are deleted: at once, after a grace period, or when their finalizers are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Preconditions, Target
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.store import Entry, Store
from kube_policy_scheduler.times import parse_rfc3339, rfc3339

_RETURN_DELETED = frozenset(
    {
        "CSIDriver",
        "CSINode",
        "DeviceClass",
        "DeviceTaintRule",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "Service",
        "ServiceAccount",
        "StorageClass",
        "VolumeAttachment",
    }
)
"""Kinds whose deletion answers with the object and not with a Status."""
_DEFAULT_GRACE_SECONDS = 30


class Deletion:
    """Deletes objects of one store."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    def delete(self, target: Target, entry: Entry, options: Mapping[str, Any], *, dry_run: bool) -> bytes:
        """Delete an object, or begin to; return the object or a Status as JSON.

        Raises:
            ApiError: 409 when it is not the object the options are about.
        """
        resource = target.resource
        _check_preconditions(target, entry, Preconditions.of(options))
        obj = entry.decode()
        if not dry_run and (options.get("propagationPolicy") == "Orphan" or options.get("orphanDependents")):
            self._orphan_dependents(entry)
        grace = _grace_seconds(resource, obj, options)
        if grace or _is_kept(resource, obj):
            return self._begin(resource, entry, obj, grace_seconds=grace, dry_run=dry_run)
        if resource.kind == "Pod":
            entry = self._mark_last_step(entry, obj, dry_run=dry_run)
        last = entry if dry_run else self._store.collection(resource.storage_key).remove(entry.key)
        if resource.kind in _RETURN_DELETED:
            return last.body
        details = {"name": target.name, "kind": resource.plural, "uid": entry.uid}
        if resource.group:
            details["group"] = resource.group
        return orjson.dumps(errors.success(details=details))

    def finish(self, resource: Resource, entry: Entry, obj: Json) -> None:
        """Remove an object whose deletion only waited for its finalizers."""
        meta = obj["metadata"]
        waits = _is_kept(resource, obj) or meta.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in meta and not waits:
            self._store.collection(resource.storage_key).remove(entry.key)

    def _begin(self, resource: Resource, entry: Entry, obj: Json, *, grace_seconds: int, dry_run: bool) -> bytes:
        meta = obj["metadata"]
        before = meta.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in meta and (before is None or before <= grace_seconds):
            return entry.body
        started = self._now()
        if before is not None:
            started = parse_rfc3339(meta["deletionTimestamp"]) - timedelta(seconds=before)
        meta["deletionTimestamp"] = rfc3339(started + timedelta(seconds=grace_seconds))
        meta["deletionGracePeriodSeconds"] = grace_seconds
        if "generation" in meta and before is None:
            meta["generation"] += 1
        if resource.kind == "Namespace":
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return orjson.dumps(obj) if dry_run else self._store.collection(resource.storage_key).put(obj).body

    def _mark_last_step(self, entry: Entry, pod: Json, *, dry_run: bool) -> Entry:
        """Set a pod's grace period to nothing, which watchers see before it is gone."""
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = rfc3339(self._now())
            meta["generation"] = meta.get("generation", 0) + 1
        meta["deletionGracePeriodSeconds"] = 0
        return entry if dry_run else self._store.collection("pods").put(pod)

    def _orphan_dependents(self, owner: Entry) -> None:
        """Take the references to an owner off the objects it owns, so that they stay when it is deleted."""
        mark = owner.uid.encode()
        for collection in self._store.collections().values():
            for entry in [item for item in collection.scan() if mark in item.body and item.key != owner.key]:
                obj = entry.decode()
                references = obj["metadata"].get("ownerReferences") or []
                left = [item for item in references if item.get("uid") != owner.uid]
                if left != references:
                    obj["metadata"]["ownerReferences"] = left
                    if not left:
                        del obj["metadata"]["ownerReferences"]
                    collection.put(obj)


def _is_kept(resource: Resource, obj: Json) -> bool:
    finalizers = obj["metadata"].get("finalizers")
    return bool(finalizers or (resource.kind == "Namespace" and obj["spec"].get("finalizers")))


def _grace_seconds(resource: Resource, obj: Json, options: Mapping[str, Any]) -> int:
    if resource.kind != "Pod":
        return 0
    spec, phase = obj["spec"], (obj.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    given = options.get("gracePeriodSeconds")
    grace = int(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS) if given is None else given)
    return grace if grace >= 0 else 1


def _check_preconditions(target: Target, entry: Entry, wanted: Preconditions) -> None:
    resource = target.resource
    if wanted.uid is not None and wanted.uid != entry.uid:
        text = (
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({entry.uid}). "
            "The object might have been deleted and then recreated"
        )
    elif wanted.resource_version is not None and wanted.resource_version != str(entry.resource_version):
        text = (
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match the "
            f"ResourceVersion in record ({entry.resource_version}). The object might have been modified"
        )
    else:
        return
    raise errors.conflict(target.name, text, group=resource.group, plural=resource.kind)
