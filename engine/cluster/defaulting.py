"""What the API server makes of an object before any scheduler sees it. Pure functions on plain dictionaries.

Raw YAML is not what a scheduler reads: requests come from limits, priorities from classes, affinity terms
are completed. Whoever loads objects without an API server (fixtures, the embedded cluster) calls these.
Each returns a new object and leaves its argument alone. Defaults follow
`pkg/apis/core/v1/defaults.go` and the default admission plugins of Kubernetes 1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from engine.cluster.quantity import QuantityError, scaled

Json: TypeAlias = dict[str, Any]

DEFAULT_SCHEDULER_NAME = "default-scheduler"
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS = 300
"""How long a pod stays on a node that is not ready, where it does not say so itself."""
_MAX_POD_LEVEL = ("cpu", "memory")
"""Resources that may be overcommitted, hence have requests apart from limits at pod level."""

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
    """The API server would refuse the object; the text is its own."""


def default_object(
    obj: Mapping[str, Any],
    *,
    priority_classes: Mapping[str, Mapping[str, Any]] = BUILTIN_PRIORITY_CLASSES,
    default_namespace: str = "default",
) -> Json:
    """Return any object as the API server would store it, as far as scheduling can tell.

    `priority_classes` are PriorityClass objects by name.

    Raises:
        AdmissionError: the API server would refuse it.
    """
    match obj.get("kind"):
        case "Pod":
            return default_pod(obj, priority_classes=priority_classes, default_namespace=default_namespace)
        case "Node":
            return default_node(obj)
        case "Namespace":
            return default_namespace_object(obj)
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController":
            return default_workload(obj)
        case _:
            return copy.deepcopy(dict(obj))


def default_namespace_object(namespace: Mapping[str, Any]) -> Json:
    """Return a namespace with its name as a label, finalizer and phase."""
    done: Json = copy.deepcopy(dict(namespace))
    meta = _child(done, "metadata")
    _child(meta, "labels")["kubernetes.io/metadata.name"] = meta.get("name", "")
    spec = _child(done, "spec")
    spec.setdefault("finalizers", ["kubernetes"])
    _child(done, "status").setdefault("phase", "Active")
    return done


def default_node(node: Mapping[str, Any]) -> Json:
    """Return a node with allocatable taken from capacity where it is absent."""
    done: Json = copy.deepcopy(dict(node))
    _child(done, "spec")
    status = _child(done, "status")
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])
    for resources in (status.get("capacity"), status.get("allocatable")):
        _round_quantities(resources)
    return done


def default_workload(workload: Mapping[str, Any]) -> Json:
    """Return a workload whose pod template has the static defaults of a pod."""
    done: Json = copy.deepcopy(dict(workload))
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
    done: Json = copy.deepcopy(dict(pod))
    meta = _child(done, "metadata")
    meta.setdefault("namespace", default_namespace)
    spec = _child(done, "spec")
    default_pod_spec(spec)
    _resolve_priority(spec, priority_classes)
    _apply_runtime_class(spec, runtime_classes or {})
    _add_default_tolerations(spec)
    labels = meta.get("labels") or {}
    _merge_affinity_label_keys(spec, labels)
    _merge_spread_label_keys(spec, labels)
    status = _child(done, "status")
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))
    if spec.get("schedulingGates") and not spec.get("nodeName"):
        _set_gated(status)
    return done


def default_pod_spec(spec: Json) -> None:
    """Fill a pod spec, in place, with the defaults that depend on nothing but itself."""
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", DEFAULT_SCHEDULER_NAME),
        ("enableServiceLinks", True),
    ):
        if not spec.get(name) and spec.get(name) is not False and spec.get(name) != 0:
            spec[name] = value
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for container in _containers(spec):
        _default_container(container, host_network=bool(spec.get("hostNetwork")))
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("maxSkew", 1)
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    _default_pod_level_resources(spec)
    _round_quantities(spec.get("overhead"))


def _default_container(container: Json, *, host_network: bool) -> None:
    container.setdefault("resources", {})
    resources = container["resources"]
    if resources is None:
        resources = container["resources"] = {}
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        if requests is None:
            requests = resources["requests"] = {}
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    _round_quantities(resources.get("limits"))
    _round_quantities(resources.get("requests"))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if host_network and not port.get("hostPort"):
            port["hostPort"] = port["containerPort"]
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy"):
        image = str(container.get("image") or "")
        tag = image.rpartition("/")[2].partition(":")[2]
        latest = "@" not in image and tag in ("", "latest")
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"


def _containers(spec: Mapping[str, Any]) -> Iterable[Json]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _default_pod_level_resources(spec: Json) -> None:
    resources = spec.get("resources")
    if not isinstance(resources, dict):
        return
    limits = resources.get("limits") or {}
    aggregated = aggregate_requests(spec)
    if limits:
        for name, amount in aggregated.items():
            if name.startswith("hugepages-"):
                limits.setdefault(name, amount)
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            if name in requests or not (name in _MAX_POD_LEVEL or name.startswith("hugepages-")):
                continue
            requests[name] = aggregated.get(name, amount) if name in _MAX_POD_LEVEL else amount
    _round_quantities(resources.get("limits"))
    _round_quantities(resources.get("requests"))


def aggregate_requests(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return what the containers of a pod together request: sum of containers, or the largest init step.

    Restartable init containers (sidecars) count with the containers and with the init steps after them.
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, own)
        for name, amount in step.items():
            largest[name] = max(largest.get(name, 0), amount)
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    _add(total, sidecars)
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    return {name: format_millis(amount) for name, amount in total.items()}


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return {name: scaled(amount, 3) for name, amount in requests.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def format_millis(thousandths: int) -> str:
    """Return a quantity of thousandths as text: `1500` is `1500m`, `2000` is `2`."""
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


def _round_quantities(resources: Json | None) -> None:
    """Round quantities finer than a thousandth up, in place; what is no quantity is left for validation."""
    if not isinstance(resources, dict):
        return
    for name, amount in resources.items():
        if (isinstance(amount, str) and amount.endswith(("n", "u"))) or "." in str(amount):
            try:
                exact = scaled(amount, 9)
            except QuantityError:
                continue
            if exact % 1_000_000:
                resources[name] = format_millis(scaled(amount, 3))


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
    chosen = classes.get(spec.get("runtimeClassName") or "")
    if chosen is None:
        return
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
        for term in (*required, *(item["podAffinityTerm"] for item in preferred)):
            _merge_label_keys(term, "matchLabelKeys", "In", labels)
            _merge_label_keys(term, "mismatchLabelKeys", "NotIn", labels)


def _merge_spread_label_keys(spec: Json, labels: Mapping[str, str]) -> None:
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_label_keys(constraint, "matchLabelKeys", "In", labels)


def _merge_label_keys(term: Json, field: str, operator: str, labels: Mapping[str, str]) -> None:
    """Complete a term's selector, in place; without a selector it selects nothing and stays so."""
    if term.get("labelSelector") is None:
        return
    expressions = term["labelSelector"].get("matchExpressions") or []
    for key in term.get(field) or ():
        wanted = {"key": key, "operator": operator, "values": [labels[key]]} if key in labels else None
        if wanted and wanted not in expressions:
            expressions = [*expressions, wanted]
    if expressions:
        term["labelSelector"]["matchExpressions"] = expressions


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return a pod's quality of service: Guaranteed, Burstable or BestEffort."""
    if spec.get("resources"):
        return _qos([spec["resources"]])
    return _qos([container.get("resources") or {} for container in _containers(spec)])


def _qos(resources: list[Mapping[str, Any]]) -> str:
    positive: Callable[[Mapping[str, Any], str], bool] = lambda amounts, name: _millis(amounts.get(name)) > 0  # noqa: E731
    any_set, guaranteed = False, True
    for item in resources:
        requests, limits = item.get("requests") or {}, item.get("limits") or {}
        for name in _MAX_POD_LEVEL:
            any_set |= positive(requests, name) or positive(limits, name)
            same = _millis(requests.get(name)) == _millis(limits.get(name))
            guaranteed &= positive(limits, name) and same
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _millis(amount: Any) -> int:
    if amount is None:
        return 0
    try:
        return scaled(amount, 3)
    except QuantityError:
        return 0


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
