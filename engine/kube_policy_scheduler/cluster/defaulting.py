"""The defaults and changes that the API server applies to an object. Pure functions on plain dictionaries.

A scheduler does not read raw YAML: requests come from limits, priorities from classes, affinity terms
are completed. Callers that load objects without an API server (fixtures, the embedded cluster) calls these.
Each returns a new object and does not change its argument. Defaults follow
`pkg/apis/core/v1/defaults.go` and the default admission plugins of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.pod_defaults import (
    DEFAULT_SCHEDULER_NAME,
    aggregate_requests,
    default_pod_spec,
    qos_class,
    round_quantities,
)

__all__ = [
    "BUILTIN_PRIORITY_CLASSES",
    "DEFAULT_SCHEDULER_NAME",
    "AdmissionError",
    "aggregate_requests",
    "default_changed_pod",
    "default_namespace_object",
    "default_node",
    "default_object",
    "default_pod",
    "default_pod_spec",
    "default_workload",
    "qos_class",
]

Json: TypeAlias = dict[str, Any]

GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS = 300
"""How long a pod stays on a node that is not ready, if the pod has no toleration of its own."""

BUILTIN_PRIORITY_CLASSES: Mapping[str, Json] = MappingProxyType(
    {
        name: {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": "Used for system critical pods that must " + where,
        }
        for name, value, where in (
            (
                "system-cluster-critical",
                2_000_000_000,
                "run in the cluster, but can be moved to another node if necessary.",
            ),
            ("system-node-critical", 2_000_001_000, "not be moved from their current node."),
        )
    }
)


class AdmissionError(ValueError):
    """The API server would reject the object; the text is its own."""


def default_object(
    obj: Mapping[str, Any],
    *,
    priority_classes: Mapping[str, Mapping[str, Any]] = BUILTIN_PRIORITY_CLASSES,
    runtime_classes: Mapping[str, Mapping[str, Any]] | None = None,
    default_namespace: str = "default",
) -> Json:
    """Return any object as the API server would store it, as far as scheduling can tell.

    `priority_classes` and `runtime_classes` are PriorityClass and RuntimeClass objects by name; without the latter
    no pod is rejected for naming one.

    Raises:
        AdmissionError: the API server would reject it.
    """
    match obj.get("kind"):
        case "Pod":
            return default_pod(
                obj,
                priority_classes=priority_classes,
                runtime_classes=runtime_classes,
                default_namespace=default_namespace,
            )
        case "Node":
            return default_node(obj)
        case "Namespace":
            return default_namespace_object(obj)
        case "ResourceClaim" | "ResourceClaimTemplate":
            return default_claim(obj, default_namespace=default_namespace)
        case "ResourceSlice":
            return default_slice(obj)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController":
            return default_workload(obj)
        case _:
            return _copied(obj)


def default_namespace_object(namespace: Mapping[str, Any]) -> Json:
    """Return a namespace with its name as a label, finalizer and phase."""
    done: Json = _copied(namespace)
    meta = _child(done, "metadata")
    _child(meta, "labels")["kubernetes.io/metadata.name"] = meta.get("name", "")
    spec = _child(done, "spec")
    spec.setdefault("finalizers", ["kubernetes"])
    _child(done, "status").setdefault("phase", "Active")
    return done


def default_claim(claim: Mapping[str, Any], *, default_namespace: str = "default") -> Json:
    """Return a ResourceClaim, or a template of one, with the numbers of devices of its requests."""
    done: Json = _copied(claim)
    meta = _child(done, "metadata")
    meta.setdefault("namespace", default_namespace)
    meta.setdefault("uid", f"{meta['namespace']}/{meta.get('name', '')}")
    spec = _child(done, "spec")
    if done.get("kind") == "ResourceClaimTemplate":
        spec = _child(spec, "spec")
    for request in _child(spec, "devices").get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if one is not None and one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                one.setdefault("count", 1)
            for toleration in (one.get("tolerations") or ()) if one is not None else ():
                toleration.setdefault("operator", "Equal")
    return done


def default_slice(resource_slice: Mapping[str, Any]) -> Json:
    """Return a ResourceSlice; if it names no pool, it is all of the pool of its node."""
    done: Json = _copied(resource_slice)
    spec = _child(done, "spec")
    pool = _child(spec, "pool")
    pool.setdefault("name", spec.get("nodeName") or _child(done, "metadata").get("name", ""))
    pool.setdefault("generation", 1)
    pool.setdefault("resourceSliceCount", 1)
    return done


def default_node(node: Mapping[str, Any]) -> Json:
    """Return a node with allocatable taken from capacity if it is absent."""
    done: Json = _copied(node)
    _child(done, "spec")
    status = _child(done, "status")
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for resources in (status.get("capacity"), status.get("allocatable")):
        round_quantities(resources)
    return done


def default_workload(workload: Mapping[str, Any]) -> Json:
    """Return a workload whose pod template has the static defaults of a pod."""
    done: Json = _copied(workload)
    spec = _child(done, "spec")
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        default_pod_spec(template["spec"])
    return done


def default_pod(
    pod: Mapping[str, Any],
    *,
    priority_classes: Mapping[str, Mapping[str, Any]] = BUILTIN_PRIORITY_CLASSES,
    default_namespace: str = "default",
    runtime_classes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Json:
    """Return a pod as the API server would store it at its creation.

    `priority_classes` and `runtime_classes` are objects by name. A status the pod comes with is kept.

    Raises:
        AdmissionError: its priority class does not exist, or contradicts its priority.
    """
    done: Json = _copied(pod)
    meta = _child(done, "metadata")
    meta.setdefault("namespace", default_namespace)
    spec = _child(done, "spec")
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    _resolve_priority(spec, priority_classes)
    _add_default_tolerations(spec)
    if runtime_classes is not None:
        _apply_runtime_class(spec, runtime_classes)
    labels = meta.get("labels") or {}
    _merge_affinity_label_keys(spec, labels)
    _merge_spread_label_keys(spec, labels)
    status = _child(done, "status")
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))
    if spec.get("schedulingGates") and not spec.get("nodeName"):
        _set_gated(status)
    return done


def default_changed_pod(pod: Json) -> None:
    """Repeat, in place, the defaults that an update of a pod gets too."""
    spec = _child(pod, "spec")
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    _add_default_tolerations(spec)


def _resolve_priority(spec: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    name = spec.get("priorityClassName") or ""
    chosen: Mapping[str, Any] | None
    if name:
        chosen = classes.get(name) or BUILTIN_PRIORITY_CLASSES.get(name)
        if chosen is None:
            raise AdmissionError(f"no PriorityClass with name {name} was found")
    else:
        marked = [item for item in classes.values() if item.get("globalDefault")]
        chosen = min(marked, key=lambda item: int(item["value"]), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    priority = int(chosen["value"]) if chosen else 0
    given = spec.get("priority")
    if given is not None and given != priority:
        raise AdmissionError(
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
    spec["priority"] = priority
    policy = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    if spec.get("preemptionPolicy") not in (None, policy):
        raise AdmissionError(
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
    spec["preemptionPolicy"] = policy


def _apply_runtime_class(spec: Json, classes: Mapping[str, Mapping[str, Any]]) -> None:
    name = spec.get("runtimeClassName")
    if not name:
        return
    if name not in classes:
        raise AdmissionError(f'pod rejected: RuntimeClass "{name}" not found')
    chosen = classes[name]
    if (fixed := (chosen.get("overhead") or {}).get("podFixed")) and "overhead" not in spec:
        spec["overhead"] = dict(fixed)
    scheduling = chosen.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        present = spec.get("tolerations") or []
        spec["tolerations"] = present + [item for item in scheduling["tolerations"] if item not in present]


def _add_default_tolerations(spec: Json) -> None:
    tolerations = spec.get("tolerations") or []
    for key in (_NOT_READY, _UNREACHABLE):
        tolerated = any(
            item.get("key") in (key, "", None) and item.get("effect") in ("NoExecute", "", None) for item in tolerations
        )
        if not tolerated:
            tolerations = [
                *tolerations,
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                },
            ]
    spec["tolerations"] = tolerations


def _merge_affinity_label_keys(spec: Json, labels: Mapping[str, str]) -> None:
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(side) or {}
        required = rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(item.get("podAffinityTerm") or {} for item in preferred)):
            _merge_label_keys(term, "matchLabelKeys", "In", labels)
            _merge_label_keys(term, "mismatchLabelKeys", "NotIn", labels)


def _merge_spread_label_keys(spec: Json, labels: Mapping[str, str]) -> None:
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_label_keys(constraint, "matchLabelKeys", "In", labels)


def _merge_label_keys(term: Json, field: str, operator: str, labels: Mapping[str, str]) -> None:
    """Complete a term's selector, in place; without a selector it selects nothing."""
    if term.get("labelSelector") is None:
        return
    expressions = term["labelSelector"].get("matchExpressions") or []
    for key in term.get(field) or ():
        wanted = {"key": key, "operator": operator, "values": [labels[key]]} if key in labels else None
        if wanted and wanted not in expressions:
            expressions = [*expressions, wanted]
    if expressions:
        term["labelSelector"]["matchExpressions"] = expressions


def _set_gated(status: Json) -> None:
    conditions = status.get("conditions") or []
    if not any(item.get("type") == "PodScheduled" for item in conditions):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": GATED_MESSAGE,
            "lastProbeTime": None,
            "lastTransitionTime": None,
        }
        status["conditions"] = [*conditions, gated]


def _child(parent: Json, key: str) -> Json:
    child = parent.get(key)
    if not isinstance(child, dict):
        child = parent[key] = {}
    result: Json = child
    return result


def _copied(obj: Mapping[str, Any]) -> Json:
    done: Json = msgspec.to_builtins(dict(obj))  # as copy.deepcopy for plain values, at a twentieth of the time
    return done
