"""What admission and defaulting add to new objects, and what they refuse."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from kube_policy_scheduler.cluster import defaulting
from kube_policy_scheduler.documents import api_schema
from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.embedded.store import Store
from kube_policy_scheduler.times import rfc3339

NOT_READY_TAINT: Mapping[str, str] = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""A new node keeps pods away until something has seen that it is ready (TaintNodesByCondition admission)."""
PROTECTION = {
    "PersistentVolume": "kubernetes.io/pv-protection",
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
}
"""Finalizers that keep volumes and claims while they are used."""
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
_ZERO_STATUS = {
    "PodDisruptionBudget": ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"),
    "StatefulSet": ("availableReplicas",),
}
"""Numbers of a status that are always written though the schema does not require them."""
_ZERO = {"int32": 0, "int64": 0, "string": "", "boolean": False}


def fill(obj: Json, *, now: datetime | None) -> None:
    """Give an object its kind's defaults, in place; `now` is None for one that is not new."""
    kind = obj["kind"]
    if kind in _STATIC:
        _STATIC[kind](obj)
    if now is None:
        return
    if kind in PROTECTION:
        obj["metadata"]["finalizers"] = [*obj["metadata"].get("finalizers", []), PROTECTION[kind]]
    match kind:
        case "Node":
            _new_node(obj)
        case "Job":
            _new_job(obj)
        case "PersistentVolume":
            obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": rfc3339(now)}
        case "PersistentVolumeClaim":
            obj["status"] = {"phase": "Pending"}
        case "ResourceClaimTemplate":
            obj["spec"].setdefault("metadata", {})
        case "Service":
            obj["status"] = {"loadBalancer": {}}
        case "DaemonSet":
            annotations = obj["metadata"].setdefault("annotations", {})
            annotations["deprecated.daemonset.template.generation"] = "1"
        case "DeviceTaintRule":
            _stamp_taints([(obj.get("spec") or {}).get("taint")], now)
        case "ResourceSlice":
            devices = (obj.get("spec") or {}).get("devices") or ()
            _stamp_taints((taint for device in devices for taint in device.get("taints") or ()), now)
        case "Event":
            obj.setdefault("firstTimestamp", None)
        case _:
            pass


def _stamp_taints(taints: Iterable[Any], now: datetime) -> None:
    """Say since when taints of devices are there, in place."""
    for taint in taints:
        if isinstance(taint, dict) and taint.get("timeAdded") is None:
            taint["timeAdded"] = rfc3339(now)


def empty_status(obj: Json) -> Json:
    """Return the status of a new object: zero for the numbers that are always written."""
    name = api_schema.type_name(obj["apiVersion"], obj["kind"])
    fields = api_schema.load().types[name] if name else {}
    if "status" not in fields or obj["kind"] in ("Pod", "Namespace"):
        return {}
    wanted = api_schema.load().types[fields["status"].name]
    zeros = {key: _ZERO[kind.name] for key, kind in wanted.items() if kind.required and kind.name in _ZERO}
    return zeros | dict.fromkeys(_ZERO_STATUS.get(obj["kind"], ()), 0)


def completed_status(new: Json, old: Json) -> Json:
    """Return the status a client writes, with what the server adds to it."""
    status: Json = dict(new.get("status") or {})
    if new["kind"] == "Pod":
        if status.get("podIP") and not status.get("podIPs"):
            status["podIPs"] = [{"ip": status["podIP"]}]
        if status.get("hostIP") and not status.get("hostIPs"):
            status["hostIPs"] = [{"ip": status["hostIP"]}]
        quality = (old.get("status") or {}).get("qosClass")
        if quality and "qosClass" not in status:
            status["qosClass"] = quality
    return status


def _new_node(obj: Json) -> None:
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = dict.fromkeys(_NODE_INFO, "") | (status.get("nodeInfo") or {})
    spec = obj.setdefault("spec", {})
    if NOT_READY_TAINT not in spec.get("taints", []):
        spec["taints"] = [*spec.get("taints", []), dict(NOT_READY_TAINT)]


def _new_job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        labels = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        meta = spec.setdefault("template", {}).setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), **labels}
        obj["metadata"]["labels"] = obj["metadata"].get("labels") or dict(meta["labels"])


def _claim(obj: Json) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _volume(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _storage_class(obj: Json) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    defaults = {
        "attachRequired": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "podInfoOnMount": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "storageCapacity": False,
        "volumeLifecycleModes": ["Persistent"],
    }
    for key, value in defaults.items():
        spec.setdefault(key, value)


def _priority_class(obj: Json) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")
    given = obj.pop("stringData", None) or {}
    if given:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in given.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _service(obj: Json) -> None:
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
        if spec.get("selector") or spec["clusterIP"] != "None":
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")


def _replicas(obj: Json) -> Json:
    spec: Json = obj.setdefault("spec", {})
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    return spec


def _deployment(obj: Json) -> None:
    spec = _replicas(obj)
    if not spec.get("strategy"):
        limits = {"maxUnavailable": "25%", "maxSurge": "25%"}
        spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": limits}
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _stateful_set(obj: Json) -> None:
    spec = _replicas(obj)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})
    if not spec.get("updateStrategy"):
        spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


def _daemon_set(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    if not spec.get("updateStrategy"):
        limits = {"maxUnavailable": 1, "maxSurge": 0}
        spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": limits}


def _job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    for key, value in (
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("completions", 1),
        ("manualSelector", False),
        ("parallelism", 1),
        ("podReplacementPolicy", "TerminatingOrFailed"),
        ("suspend", False),
    ):
        spec.setdefault(key, value)


_STATIC: Mapping[str, Callable[[Json], object]] = {
    "CSIDriver": _csi_driver,
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "PriorityClass": _priority_class,
    "ReplicaSet": _replicas,
    "ReplicationController": _replicas,
    "Secret": _secret,
    "Service": _service,
    "StatefulSet": _stateful_set,
    "StorageClass": _storage_class,
}


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
        done = obj
        if resource.kind != "ResourceSlice":  # for files that people write, a pool is made up; here it must be named
            done = defaulting.default_object(
                obj,
                priority_classes=_by_name(store, "scheduling.k8s.io/priorityclasses", resource),
                runtime_classes=_by_name(store, "node.k8s.io/runtimeclasses", resource),
            )
    except defaulting.AdmissionError as error:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName", "")
        raise errors.forbidden(str(error), name=name, group=resource.group, plural=resource.plural) from error
    fill(done, now=now)
    if resource.has_status and not resource.status_on_create:
        done["status"] = {**empty_status(done), **(done.get("status") or {})}
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
        done = {**old, "metadata": meta, "status": completed_status(new, old)}
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
    """Repeat the static defaults, so that leaving a defaulted field out of a PUT is not a change."""
    match resource.kind:
        case "Pod":
            defaulting.default_changed_pod(obj)
        case "Node":
            return defaulting.default_node(obj)
        case "ResourceClaim" | "ResourceClaimTemplate":
            return defaulting.default_claim(obj)
        case "Namespace":
            return defaulting.default_namespace_object(obj)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController":
            return defaulting.default_workload(obj)
        case _:
            fill(obj, now=None)
    return obj
