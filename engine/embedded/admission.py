"""What happens to an object between the request and the store: defaults, resets, admission. No validation."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from engine.cluster import defaulting
from engine.embedded import errors
from engine.embedded.clock import timestamp
from engine.embedded.errors import Json
from engine.embedded.resources import Resource
from engine.embedded.store import Store

_GENERATED_LENGTH = 5
_GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes, as `k8s.io/apimachinery/pkg/util/rand`."""


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
    meta["creationTimestamp"] = timestamp(now)
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
        done = defaulting.default_object(obj, priority_classes=_priority_classes(store, resource))
    except defaulting.AdmissionError as error:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
        raise errors.forbidden(str(error), name=name, group=resource.group, plural=resource.plural) from error
    fill = _NEW.get(resource.kind)
    if fill is not None:
        fill(done)
    for condition in (done.get("status") or {}).get("conditions") or ():
        if condition.get("lastTransitionTime", "") is None:
            condition["lastTransitionTime"] = timestamp(now)
    return done


def _priority_classes(store: Store, resource: Resource) -> Mapping[str, Mapping[str, Any]]:
    if resource.kind != "Pod":
        return {}
    collection = store.collection("scheduling.k8s.io/priorityclasses")
    return {entry.key[1]: entry.decode() for entry in collection.scan()}


def _fill_claim(obj: Json) -> None:
    obj["status"] = {"phase": "Pending"}
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _fill_volume(obj: Json) -> None:
    obj["status"] = {"phase": "Pending"}
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _fill_storage_class(obj: Json) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _fill_priority_class(obj: Json) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
NOT_READY_TAINT: Mapping[str, str] = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""A new node keeps pods away until something has seen that it is ready (TaintNodesByCondition admission)."""


def _fill_node(obj: Json) -> None:
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = dict.fromkeys(_NODE_INFO, "") | (status.get("nodeInfo") or {})
    spec = obj.setdefault("spec", {})
    if NOT_READY_TAINT not in spec.get("taints", []):
        spec["taints"] = [*spec.get("taints", []), dict(NOT_READY_TAINT)]


def _fill_secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")


def _fill_service(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] != "ExternalName":
        spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("internalTrafficPolicy", "Cluster")
    obj["status"] = {"loadBalancer": {}}


def _fill_replicas(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    if obj["kind"] == "Deployment":
        if not spec.get("strategy"):
            limits = {"maxUnavailable": "25%", "maxSurge": "25%"}
            spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": limits}
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
    obj["status"] = {"replicas": 0} if obj["kind"] in ("ReplicaSet", "ReplicationController") else {}


def _fill_job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("parallelism", 1)
    spec.setdefault("completions", 1)
    if not spec.get("selector"):
        labels = {"batch.kubernetes.io/controller-uid": obj["metadata"]["uid"]}
        spec["selector"] = {"matchLabels": labels}
        meta = spec.setdefault("template", {}).setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), **labels}


_NEW: Mapping[str, Callable[[Json], None]] = {
    "Deployment": _fill_replicas,
    "Job": _fill_job,
    "Node": _fill_node,
    "PersistentVolume": _fill_volume,
    "PersistentVolumeClaim": _fill_claim,
    "PriorityClass": _fill_priority_class,
    "ReplicaSet": _fill_replicas,
    "ReplicationController": _fill_replicas,
    "Secret": _fill_secret,
    "Service": _fill_service,
    "StatefulSet": _fill_replicas,
    "StorageClass": _fill_storage_class,
}

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
    if subresource == "status":
        if "ownerReferences" in old["metadata"]:
            meta["ownerReferences"] = old["metadata"]["ownerReferences"]
        else:
            meta.pop("ownerReferences", None)
        done = {**old, "metadata": meta, "status": new.get("status") or {}}
    elif resource.has_status:
        done.pop("status", None)
        if "status" in old:
            done["status"] = old["status"]
    if subresource != "status":
        done = _redefault(done, resource)
        if resource.counts_generation and done.get("spec") != old.get("spec"):
            meta["generation"] = int(meta.get("generation", 0)) + 1
    return done


def _redefault(obj: Json, resource: Resource) -> Json:
    """Repeat the static defaults, so that leaving a defaulted field out of a PUT is no change."""
    match resource.kind:
        case "Pod":
            defaulting.default_pod_spec(obj["spec"])
        case "Node":
            return defaulting.default_node(obj)
        case "Namespace":
            return defaulting.default_namespace_object(obj)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController":
            return defaulting.default_workload(obj)
        case _:
            pass
    return obj
