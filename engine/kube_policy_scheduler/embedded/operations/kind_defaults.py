"""Defaults of kinds other than pods, and what a status holds before anybody has written it. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime

from kube_policy_scheduler.embedded import schema
from kube_policy_scheduler.embedded.errors import Json
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
        case "Service":
            obj["status"] = {"loadBalancer": {}}
        case "DaemonSet":
            annotations = obj["metadata"].setdefault("annotations", {})
            annotations["deprecated.daemonset.template.generation"] = "1"
        case "Event":
            obj.setdefault("firstTimestamp", None)
        case _:
            pass


def empty_status(obj: Json) -> Json:
    """Return the status of a new object: zero for the numbers that are always written."""
    name = schema.type_name(obj["apiVersion"], obj["kind"])
    fields = schema.load().types[name] if name else {}
    if "status" not in fields or obj["kind"] in ("Pod", "Namespace"):
        return {}
    wanted = schema.load().types[fields["status"].name]
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
