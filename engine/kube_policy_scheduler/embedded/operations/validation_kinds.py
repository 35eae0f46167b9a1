"""What the API server refuses in kinds other than pods, as far as people get it wrong. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.operations import causes, validation_affinity, validation_pod
from kube_policy_scheduler.embedded.operations.causes import required
from kube_policy_scheduler.embedded.storage import selectors

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HIGHEST_USER_PRIORITY = 1_000_000_000
_SYSTEM_PREFIX = "system-"


def _node(node: Json) -> list[Cause]:
    found: list[Cause] = []
    seen: set[tuple[object, object]] = set()
    for number, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        at = f"metadata.taints[{number}]"
        found += causes.qualified_name(f"{at}.key", taint.get("key") or "")
        found += causes.label_value(f"{at}.value", taint.get("value") or "")
        effect = taint.get("effect")
        if not effect:
            found.append(required(f"{at}.effect"))
        else:
            found += causes.one_of(f"{at}.effect", effect, _EFFECTS)
        pair = (taint.get("key"), effect)
        if pair in seen:
            text = f"taints must be unique by key and effect pair: {{Key:{pair[0]}, Effect:{pair[1]}}}"
            found.append(Cause(at, "FieldValueDuplicate", f"Duplicate value: {causes.quoted(taint)}: {text}"))
        seen.add(pair)
    return found


def _workload(obj: Json) -> list[Cause]:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    found: list[Cause] = []
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        found.append(causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    if obj["kind"] == "ReplicationController":
        selector = {"matchLabels": selector} if selector else None
    if selector is None:
        if obj["kind"] != "Job":
            found.append(required("spec.selector"))
    else:
        found += validation_affinity.label_selector(selector, "spec.selector")
        compiled = selectors.from_object(selector)
        if not found and compiled is not None:
            if not compiled:
                found.append(causes.invalid("spec.selector", selector, "empty selector is invalid for deployment"))
            elif not selectors.matches_labels(compiled, labels):
                text = "`selector` does not match template `labels`"
                found.append(causes.invalid("spec.template.metadata.labels", labels, text))
    return found + validation_pod.pod_spec(template.get("spec") or {}, "spec.template.spec")


def _fixed(*path: str) -> Callable[[Json, Json], list[Cause]]:
    def check(new: Json, old: Json) -> list[Cause]:
        before, after = old, new
        for key in path:
            before, after = (before or {}).get(key), (after or {}).get(key)  # type: ignore[assignment]
        return [] if before == after else [causes.invalid(".".join(path), after, "field is immutable")]

    return check


def _disruption_budget(budget: Json) -> list[Cause]:
    spec = budget.get("spec") or {}
    found = validation_affinity.label_selector(spec.get("selector"), "spec.selector")
    if "minAvailable" in spec and "maxUnavailable" in spec:
        found.append(causes.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    return found


def _priority_class(obj: Json) -> list[Cause]:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith(_SYSTEM_PREFIX):
        text = "priority class names with 'system-' prefix are reserved for system use only. error: " + (
            f"{name} is not a known system priority class"
        )
        return [causes.forbidden("metadata.name", text)]
    if value > _HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
        return [causes.forbidden("value", text)]
    return []


def _lease(lease: Json) -> list[Cause]:
    spec = lease.get("spec") or {}
    found: list[Cause] = []
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        found.append(causes.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        found.append(causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


def _config_data(obj: Json) -> list[Cause]:
    found: list[Cause] = []
    for field in ("data", "binaryData"):
        for key in obj.get(field) or {}:
            if not key or not all(char.isalnum() or char in "-_." for char in key):
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                found.append(causes.invalid(f"{field}[{key}]", key, text))
    return found


def _unchanged_if_immutable(new: Json, old: Json) -> list[Cause]:
    if not old.get("immutable"):
        return []
    found = []
    if not new.get("immutable"):
        found.append(causes.forbidden("immutable", "field is immutable when `immutable` is set"))
    if new.get("data") != old.get("data"):
        found.append(causes.forbidden("data", "field is immutable when `immutable` is set"))
    return found


def _service(obj: Json) -> list[Cause]:
    ports = (obj.get("spec") or {}).get("ports") or []
    missing = [number for number, port in enumerate(ports) if len(ports) > 1 and not port.get("name")]
    return [required(f"spec.ports[{number}].name") for number in missing]


OBJECT: Mapping[str, Callable[[Json], list[Cause]]] = {
    "ConfigMap": _config_data,
    "DaemonSet": _workload,
    "Deployment": _workload,
    "Job": _workload,
    "Lease": _lease,
    "Node": _node,
    "PodDisruptionBudget": _disruption_budget,
    "PriorityClass": _priority_class,
    "ReplicaSet": _workload,
    "ReplicationController": _workload,
    "Secret": _config_data,
    "Service": _service,
    "StatefulSet": _workload,
}
CHANGE: Mapping[str, Callable[[Json, Json], list[Cause]]] = {
    "ConfigMap": _unchanged_if_immutable,
    "DaemonSet": _fixed("spec", "selector"),
    "Deployment": _fixed("spec", "selector"),
    "PriorityClass": _fixed("value"),
    "ReplicaSet": _fixed("spec", "selector"),
    "RoleBinding": _fixed("roleRef"),
    "ClusterRoleBinding": _fixed("roleRef"),
    "Secret": _unchanged_if_immutable,
}
