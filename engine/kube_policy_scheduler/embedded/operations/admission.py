"""What happens to an object between the request and the store: defaults, resets, admission. No validation."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kube_policy_scheduler.cluster import defaulting
from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.operations import kind_defaults
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.storage.store import Store
from kube_policy_scheduler.times import rfc3339

_GENERATED_LENGTH = 5
_GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes, as `k8s.io/apimachinery/pkg/util/rand`."""


_TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Node labels that a pod receives when it comes to a node (PodTopologyLabels admission, on since 1.35)."""
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def stamp_new(obj: Json, resource: Resource, *, namespace: str | None, now: datetime, uid: str) -> None:
    """Give a new object, in place, what the server owns: uid, times, generated name, generation."""
    meta = obj["metadata"]
    if not meta.get("name") and meta.get("generateName"):
        suffix = "".join(secrets.choice(_GENERATED_ALPHABET) for _ in range(_GENERATED_LENGTH))
        meta["name"] = str(meta["generateName"])[:58] + suffix
    for owned in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "managedFields"):
        meta.pop(owned, None)
    for empty in [key for key in ("labels", "annotations", "ownerReferences", "finalizers") if not meta.get(key, 1)]:
        del meta[empty]
    if namespace:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    meta["uid"] = uid
    meta["creationTimestamp"] = rfc3339(now)
    meta.pop("generation", None)
    if resource.counts_generation:
        meta["generation"] = 1


def prepare_new(obj: Json, resource: Resource, store: Store, *, now: datetime) -> Json:
    """Return a new object after defaulting and admission.

    Raises:
        ApiError: admission refuses it.
    """
    if resource.has_status and not resource.status_on_create:
        obj.pop("status", None)
    try:
        done = defaulting.default_object(
            obj,
            priority_classes=_by_name(store, "scheduling.k8s.io/priorityclasses", resource),
            runtime_classes=_by_name(store, "node.k8s.io/runtimeclasses", resource),
        )
    except defaulting.AdmissionError as error:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
        raise errors.forbidden(str(error), name=name, group=resource.group, plural=resource.plural) from error
    kind_defaults.fill(done, now=now)
    if resource.has_status and not resource.status_on_create:
        done["status"] = {**kind_defaults.empty_status(done), **(done.get("status") or {})}
    if resource.kind == "Pod" and done["spec"].get("nodeName"):
        copy_topology(store, done, done["spec"]["nodeName"])
    elif resource.kind == "PersistentVolumeClaim":
        _default_storage_class(store, done)
    gated = (done.get("status") or {}).get("conditions") or () if resource.kind == "Pod" else ()
    for condition in gated:
        if condition.get("lastTransitionTime", "") is None:
            condition["lastTransitionTime"] = rfc3339(now)
    return done


def _by_name(store: Store, storage_key: str, resource: Resource) -> Mapping[str, Mapping[str, Any]]:
    """Return the classes pods refer to; no other kind needs them."""
    if resource.kind != "Pod":
        return {}
    return {entry.key[1]: entry.decode() for entry in store.collection(storage_key).scan()}


def copy_topology(store: Store, pod: Json, node: str) -> None:
    """Give a pod the region and zone of its node as labels, in place."""
    entry = store.collection("nodes").get(("", node))
    if entry is None:
        return
    for label in _TOPOLOGY_LABELS:
        if label in entry.labels:
            pod["metadata"].setdefault("labels", {})[label] = entry.labels[label]


def _default_storage_class(store: Store, claim: Json) -> None:
    if "storageClassName" in claim["spec"]:
        return
    for entry in store.collection("storage.k8s.io/storageclasses").scan():
        annotations = entry.decode()["metadata"].get("annotations") or {}
        if annotations.get(_DEFAULT_CLASS) == "true":
            claim["spec"]["storageClassName"] = entry.key[1]
            return


_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def merge_update(new: Json, old: Json, resource: Resource, *, subresource: str) -> Json:
    """Return what an update makes of the stored object: which parts of `new` count depends on the subresource."""
    meta = dict(new["metadata"])
    meta.pop("managedFields", None)
    meta.pop("selfLink", None)
    for key in ("labels", "annotations", "ownerReferences", "finalizers"):
        if key in meta and not meta[key]:
            del meta[key]
    for owned in _SERVER_OWNED:
        meta.pop(owned, None)
        if owned in old["metadata"]:
            meta[owned] = old["metadata"][owned]
    done = {**new, "metadata": meta}
    if subresource == "finalize":
        return done | {"status": old.get("status") or {}}
    if subresource in ("resize", "ephemeralcontainers"):
        done = {**old, "metadata": meta, "spec": _changed_part(new["spec"], old["spec"], subresource)}
    elif subresource == "status":
        if "ownerReferences" in old["metadata"]:
            meta["ownerReferences"] = old["metadata"]["ownerReferences"]
        else:
            meta.pop("ownerReferences", None)
        done = {**old, "metadata": meta, "status": kind_defaults.completed_status(new, old)}
    elif resource.has_status:
        done.pop("status", None)
        if "status" in old:
            done["status"] = old["status"]
    if subresource != "status":
        done = _redefault(done, resource)
        if resource.counts_generation and done.get("spec") != old.get("spec"):
            done["metadata"]["generation"] = int(done["metadata"].get("generation", 0)) + 1
    return done


def _changed_part(new: Json, old: Json, subresource: str) -> Json:
    """Return a pod's spec with what the subresource may change of it."""
    if subresource == "ephemeralcontainers":
        return {**old, "ephemeralContainers": new.get("ephemeralContainers") or []}
    done = dict(old)
    for field in ("containers", "initContainers"):
        wanted = {item.get("name"): item for item in new.get(field) or ()}
        if field in old:
            done[field] = [
                {**item, "resources": wanted.get(item["name"], item).get("resources") or {}} for item in old[field]
            ]
    if "resources" in new:
        done["resources"] = new["resources"]
    return done


def _redefault(obj: Json, resource: Resource) -> Json:
    """Repeat the static defaults, so that leaving a defaulted field out of a PUT is no change."""
    match resource.kind:
        case "Pod":
            defaulting.default_changed_pod(obj)
        case "Node":
            return defaulting.default_node(obj)
        case "Namespace":
            return defaulting.default_namespace_object(obj)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController":
            return defaulting.default_workload(obj)
        case _:
            kind_defaults.fill(obj, now=None)
    return obj
