"""What the API server refuses. Pure: objects in, causes out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kube_policy_scheduler.embedded import causes, decoding, device_validation, selectors
from kube_policy_scheduler.embedded.causes import one_of, required
from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.resources import Resource
from kube_policy_scheduler.quantities.quantity import QuantityError, scaled

_STANDARD = frozenset({"cpu", "memory", "ephemeral-storage"})
_NANO = 9


def _requirements(resources: Json, at: str, *, pod_level: bool = False) -> list[Cause]:
    """Return what is wrong with requests and limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found: list[Cause] = []
    for name, amount in limits.items():
        found += _amount(name, amount, f"{at}.limits[{name}]", pod_level=pod_level)
    for name, amount in requests.items():
        problems = _amount(name, amount, f"{at}.requests[{name}]", pod_level=pod_level)
        found += problems
        if problems or not (name in _STANDARD or "/" in name or name.startswith("hugepages-")):
            continue
        limit = limits.get(name)
        if limit is None:
            if not _overcommits(name):
                found.append(causes.required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
        elif not _overcommits(name) and _nanos(amount) != _nanos(limit):
            text = f"must be equal to {name} limit of {limit}"
            found.append(causes.invalid(f"{at}.requests", amount, text))
        elif _nanos(amount) > _nanos(limit):
            found.append(
                causes.invalid(f"{at}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
            )
    return found


def _overcommits(name: str) -> bool:
    return name in _STANDARD or name.startswith("kubernetes.io/") or "kubernetes.io/" in name.partition("/")[0] + "/"


def _nanos(amount: object) -> int:
    try:
        return scaled(str(amount), _NANO)
    except QuantityError:
        return 0


def _amount(name: str, amount: object, at: str, *, pod_level: bool) -> list[Cause]:
    found: list[Cause] = []
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        found.append(causes.invalid(at, name, "must be a standard resource type or fully qualified"))
        found.append(causes.invalid(at, name, "must be a standard resource for containers"))
        return found
    if "/" in name:
        found += causes.qualified_name(at, name)
    if _nanos(amount) < 0:
        found.append(causes.invalid(at, amount, "must be greater than or equal to 0"))
    if "/" in name and _nanos(amount) % 10**_NANO:
        found.append(causes.invalid(at, amount, "must be an integer"))
    return found


_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")


def affinity(value: Json, at: str) -> list[Cause]:
    """Return what is wrong with the affinity of a pod."""
    found: list[Cause] = []
    node = value.get("nodeAffinity") or {}
    if _REQUIRED in node:
        path = f"{at}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        terms = node[_REQUIRED].get("nodeSelectorTerms") or []
        if not terms:
            found.append(required(path, "must have at least one node selector term"))
        for number, term in enumerate(terms):
            found += node_term(term, f"{path}[{number}]")
    for number, item in enumerate(node.get(_PREFERRED) or ()):
        path = f"{at}.nodeAffinity.{_PREFERRED}[{number}]"
        found += _weight(item, path) + node_term(item.get("preference") or {}, f"{path}.preference")
    for side in ("podAffinity", "podAntiAffinity"):
        rules = value.get(side) or {}
        for number, term in enumerate(rules.get(_REQUIRED) or ()):
            found += _pod_term(term, f"{at}.{side}.{_REQUIRED}[{number}]")
        for number, item in enumerate(rules.get(_PREFERRED) or ()):
            path = f"{at}.{side}.{_PREFERRED}[{number}]"
            found += _weight(item, path) + _pod_term(item.get("podAffinityTerm") or {}, f"{path}.podAffinityTerm")
    return found


def _weight(item: Json, at: str) -> list[Cause]:
    weight = item.get("weight", 0)
    return [] if 1 <= weight <= 100 else [causes.invalid(f"{at}.weight", weight, "must be in the range 1-100")]


def node_term(term: Json, at: str) -> list[Cause]:
    """Return what is wrong with one term of a node selector."""
    found: list[Cause] = []
    for number, item in enumerate(term.get("matchExpressions") or ()):
        found += _requirement(item, f"{at}.matchExpressions[{number}]", compares=True)
    for number, item in enumerate(term.get("matchFields") or ()):
        path = f"{at}.matchFields[{number}]"
        if item.get("key") != "metadata.name":
            found.append(causes.invalid(f"{path}.key", item.get("key"), "not a valid field selector key"))
        if item.get("operator") not in ("In", "NotIn"):
            found.append(causes.invalid(f"{path}.operator", item.get("operator"), "not a valid selector operator"))
        elif len(item.get("values") or ()) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            found.append(required(f"{path}.values", text))
    return found


def _requirement(item: Json, at: str, *, compares: bool) -> list[Cause]:
    """Return what is wrong with one expression of a selector. compares: whether values may be compared as numbers."""
    values = item.get("values") or []
    found: list[Cause] = []
    match item.get("operator"):
        case "In" | "NotIn":
            if not values:
                found.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(causes.forbidden(f"{at}.values", text))
        case "Gt" | "Lt" if compares:
            if len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                found.append(required(f"{at}.values", text))
        case operator:
            found.append(causes.invalid(f"{at}.operator", operator or "", "not a valid selector operator"))
    return found + causes.qualified_name(f"{at}.key", item.get("key") or "")


def label_selector(selector: Json | None, at: str) -> list[Cause]:
    """Return what is wrong with a LabelSelector."""
    if selector is None:
        return []
    found = causes.labels(f"{at}.matchLabels", selector.get("matchLabels") or {})
    for number, item in enumerate(selector.get("matchExpressions") or ()):
        path, values = f"{at}.matchExpressions[{number}]", item.get("values") or []
        found += _requirement(item, path, compares=False)
        for at_value, value in enumerate(values):
            found += causes.label_value(f"{path}.values[{at_value}]", value)
    return found


def _topology_key(key: str | None, at: str) -> list[Cause]:
    if not key:
        return [required(f"{at}.topologyKey", "can not be empty")]
    return causes.qualified_name(f"{at}.topologyKey", key)


def _pod_term(term: Json, at: str) -> list[Cause]:
    found = label_selector(term.get("labelSelector"), f"{at}.labelSelector")
    found += label_selector(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        found += causes.dns_label(f"{at}.namespace", name)
    if not term.get("topologyKey"):
        found.append(required(f"{at}.topologyKey", "can not be empty"))
    return found + causes.qualified_name(f"{at}.topologyKey", term.get("topologyKey") or "")


def spread(constraints: Iterable[Json], at: str) -> list[Cause]:
    """Return what is wrong with topology spread constraints."""
    found: list[Cause] = []
    seen: list[tuple[object, object]] = []
    for number, item in enumerate(constraints):
        path = f"{at}[{number}]"
        skew = item.get("maxSkew", 0)
        if skew <= 0:
            found.append(causes.invalid(f"{path}.maxSkew", skew, "must be greater than zero"))
        found += _topology_key(item.get("topologyKey"), path)
        action = item.get("whenUnsatisfiable")
        if action not in _SPREAD_ACTIONS:
            found.append(causes.unsupported(f"{path}.whenUnsatisfiable", action or "", _SPREAD_ACTIONS))
        pair = (item.get("topologyKey"), action)
        if pair in seen:
            path = f"{at}[{seen.index(pair)}]"
            found.append(causes.duplicate(f"{path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.append(pair)
        path = f"{at}[{number}]"
        domains = item.get("minDomains")
        if domains is not None and domains <= 0:
            found.append(causes.invalid(f"{path}.minDomains", domains, "must be greater than 0"))
        if domains is not None and action != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
            found.append(causes.invalid(f"{path}.minDomains", domains, text))
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            found += causes.one_of(f"{path}.{field}", item.get(field), _POLICIES)
        found += label_selector(item.get("labelSelector"), f"{path}.labelSelector")
    return found


_PROTOCOLS = ("SCTP", "TCP", "UDP")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_UPDATE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _pod(obj: Json) -> list[Cause]:
    """Return what is wrong with a pod."""
    return _pod_spec(obj.get("spec") or {}, "spec")


def _pod_spec(spec: Json, at: str) -> list[Cause]:
    """Return what is wrong with the spec of a pod, or of a pod template."""
    volumes = {item.get("name") for item in spec.get("volumes") or ()}
    found = _volumes(spec, at)
    if not spec.get("containers"):
        found.append(required(f"{at}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            found += _container(container, f"{at}.{field}[{number}]", names, volumes, spec)
    found += _requirements(spec.get("resources") or {}, f"{at}.resources", pod_level=True)
    found += one_of(f"{at}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    found += one_of(
        f"{at}.dnsPolicy", spec.get("dnsPolicy"), ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    )
    found += causes.labels(f"{at}.nodeSelector", spec.get("nodeSelector") or {})
    if spec.get("nodeName"):
        found += causes.dns_subdomain(f"{at}.nodeName", spec["nodeName"])
    for number, item in enumerate(spec.get("tolerations") or ()):
        found += _toleration(item, f"{at}.tolerations[{number}]")
    found += _gates(spec, at)
    found += affinity(spec.get("affinity") or {}, f"{at}.affinity")
    found += spread(spec.get("topologySpreadConstraints") or [], f"{at}.topologySpreadConstraints")
    return found


def _volumes(spec: Json, at: str) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for number, volume in enumerate(spec.get("volumes") or ()):
        name, path = volume.get("name", ""), f"{at}.volumes[{number}]"
        if not name:
            found.append(required(f"{path}.name"))
        elif name in seen:
            found.append(causes.duplicate(f"{path}.name", name))
        else:
            found += causes.dns_label(f"{path}.name", name)
        seen.add(name)
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            found.append(required(f"{path}.persistentVolumeClaim.claimName"))
    return found


def _container(container: Json, at: str, names: set[str], volumes: set[Any], spec: Json) -> list[Cause]:
    found: list[Cause] = []
    name = container.get("name", "")
    if not name:
        found.append(required(f"{at}.name"))
    elif name in names:
        found.append(causes.duplicate(f"{at}.name", name))
    else:
        found += causes.dns_label(f"{at}.name", name)
    names.add(name)
    if not container.get("image"):
        found.append(required(f"{at}.image"))
    found += one_of(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    for number, port in enumerate(container.get("ports") or ()):
        found += _port(port, f"{at}.ports[{number}]", host_network=bool(spec.get("hostNetwork")))
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount.get("name"):
            found.append(required(f"{at}.volumeMounts[{number}].name"))
        elif mount["name"] not in volumes:
            found.append(causes.absent(f"{at}.volumeMounts[{number}].name", mount["name"]))
        if not mount.get("mountPath"):
            found.append(required(f"{at}.volumeMounts[{number}].mountPath"))
    for number, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            found.append(required(f"{at}.env[{number}].name"))
    return found + _requirements(container.get("resources") or {}, f"{at}.resources")


def _port(port: Json, at: str, *, host_network: bool) -> list[Cause]:
    found: list[Cause] = []
    number, host = port.get("containerPort", 0), port.get("hostPort", 0)
    if not number:
        found.append(required(f"{at}.containerPort"))
    elif not 0 < number < 65536:
        found.append(causes.invalid(f"{at}.containerPort", number, "must be between 1 and 65535, inclusive"))
    if host and not 0 < host < 65536:
        found.append(causes.invalid(f"{at}.hostPort", host, "must be between 1 and 65535, inclusive"))
    found += one_of(f"{at}.protocol", port.get("protocol"), _PROTOCOLS)
    if host_network and host != number:
        text = "must match `containerPort` when `hostNetwork` is true"
        found.append(causes.invalid(f"{at}.hostPort", host, text))
    return found


def _toleration(item: Json, at: str) -> list[Cause]:
    """Return what is wrong with a toleration."""
    found: list[Cause] = []
    key, operator = item.get("key"), item.get("operator") or "Equal"
    if key:
        found += causes.qualified_name(f"{at}.key", key)
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(causes.invalid(f"{at}.operator", operator, text))
    if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(causes.invalid(f"{at}.effect", item.get("effect", ""), text))
    match operator:
        case "Equal":
            found += causes.label_value(f"{at}.operator", item.get("value") or "")
        case "Exists":
            if item.get("value"):
                text = "value must be empty when `operator` is 'Exists'"
                found.append(causes.invalid(f"{at}.operator", item["value"], text))
        case _:
            found.append(causes.unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    return found + one_of(f"{at}.effect", item.get("effect"), _EFFECTS)


def _gates(spec: Json, at: str) -> list[Cause]:
    found: list[Cause] = []
    gates = spec.get("schedulingGates") or []
    if gates and spec.get("nodeName"):
        found.append(causes.forbidden(f"{at}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    seen: set[str] = set()
    for number, gate in enumerate(gates):
        name = gate.get("name", "")
        found += causes.qualified_name(f"{at}.schedulingGates[{number}]", name)
        if name in seen:
            found.append(causes.duplicate(f"{at}.schedulingGates[{number}]", name))
        seen.add(name)
    return found


def _changed_pod(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with a change of a pod: nearly all of its spec is fixed at its creation."""
    before, after = old["spec"], new["spec"]
    found: list[Cause] = []
    count = len(before.get("containers") or ())
    if len(after.get("containers") or ()) != count:
        return [causes.forbidden("spec.containers", "pod updates may not add or remove containers")]
    kept = {item.get("name") for item in before.get("schedulingGates") or ()}
    added = [item for item in after.get("schedulingGates") or () if item.get("name") not in kept]
    if added:
        names = ", ".join(str(item.get("name")) for item in added)
        found.append(
            causes.forbidden(
                "spec.schedulingGates", f"only deletion is allowed, but found new scheduling gates '{names}'"
            )
        )
    old_tolerations, tolerations = before.get("tolerations") or [], after.get("tolerations") or []
    if any(_without_seconds(item) not in map(_without_seconds, tolerations) for item in old_tolerations):
        found.append(
            causes.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    gated = bool(before.get("schedulingGates"))
    if not found and _fixed_part(before, gated=gated) != _fixed_part(after, gated=gated):
        changed = ", ".join(_differences(_fixed_part(before, gated=gated), _fixed_part(after, gated=gated)))
        found.append(causes.forbidden("spec", f"{_UPDATE_TEXT}\nchanged: {changed}\n"))
    return found


def _without_seconds(item: Mapping[str, Any]) -> Json:
    return {key: value for key, value in item.items() if key != "tolerationSeconds"}


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    fixed = copy.deepcopy(spec)
    for field in ("containers", "initContainers"):
        for container in fixed.get(field) or ():
            container.pop("image", None)
    changeable = ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"]
    if gated:
        changeable += ["nodeSelector", "affinity"]
    for field in changeable:
        fixed.pop(field, None)
    return fixed


def _differences(before: Json, after: Json) -> Iterator[str]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"spec.{key}"


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
        found += label_selector(selector, "spec.selector")
        compiled = selectors.from_object(selector)
        if not found and compiled is not None:
            if not compiled:
                found.append(causes.invalid("spec.selector", selector, "empty selector is invalid for deployment"))
            elif not selectors.matches_labels(compiled, labels):
                text = "`selector` does not match template `labels`"
                found.append(causes.invalid("spec.template.metadata.labels", labels, text))
    return found + _pod_spec(template.get("spec") or {}, "spec.template.spec")


def _fixed(*path: str) -> Callable[[Json, Json], list[Cause]]:
    def check(new: Json, old: Json) -> list[Cause]:
        before, after = old, new
        for key in path:
            before, after = (before or {}).get(key), (after or {}).get(key)  # type: ignore[assignment]
        return [] if before == after else [causes.invalid(".".join(path), after, "field is immutable")]

    return check


def _disruption_budget(budget: Json) -> list[Cause]:
    spec = budget.get("spec") or {}
    found = label_selector(spec.get("selector"), "spec.selector")
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


_OBJECT: Mapping[str, Callable[[Json], list[Cause]]] = {
    "ConfigMap": _config_data,
    "DaemonSet": _workload,
    "Deployment": _workload,
    "Job": _workload,
    "Lease": _lease,
    "Node": _node,
    "Pod": _pod,
    "PodDisruptionBudget": _disruption_budget,
    "PriorityClass": _priority_class,
    "ReplicaSet": _workload,
    "ReplicationController": _workload,
    "Secret": _config_data,
    "Service": _service,
    "StatefulSet": _workload,
    **device_validation.NEW,
}
_CHANGE: Mapping[str, Callable[[Json, Json], list[Cause]]] = {
    "ConfigMap": _unchanged_if_immutable,
    "DaemonSet": _fixed("spec", "selector"),
    "Deployment": _fixed("spec", "selector"),
    "Pod": _changed_pod,
    "PriorityClass": _fixed("value"),
    "ReplicaSet": _fixed("spec", "selector"),
    "RoleBinding": _fixed("roleRef"),
    "ClusterRoleBinding": _fixed("roleRef"),
    "Secret": _unchanged_if_immutable,
    **device_validation.CHANGED,
}


_CONDITIONAL = frozenset({"Lease", "PodDisruptionBudget", "CSINode", "CSIDriver", "VolumeAttachment"})
_ANY_NAME = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_LABEL_NAME = frozenset({"Namespace", "Service"})
_ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotations of an object together."""


def new_object(resource: Resource, obj: Json) -> list[Cause]:
    """Return what is wrong with a new object."""
    return _metadata(resource, obj["metadata"]) + _content(resource, obj)


def changed_object(resource: Resource, new: Json, old: Json, subresource: str) -> list[Cause]:
    """Return what is wrong with an object's next state."""
    found = _metadata(resource, new["metadata"])
    if subresource == "status":
        return found + (device_validation.claim_status(new, old) if resource.kind == "ResourceClaim" else [])
    change = _CHANGE.get(resource.kind)
    if change is not None and not subresource:
        found += change(new, old)
    return found or _content(resource, new)


def _content(resource: Resource, obj: Json) -> list[Cause]:
    check = _OBJECT.get(resource.kind)
    found = check(obj) if check is not None else []
    named = {cause.field for cause in found}
    return found + [causes.required(path) for path in decoding.missing(obj) if path not in named]


def must_name_version(resource: Resource) -> bool:
    """Whether an update of this kind is refused unless it names the resourceVersion it is based on."""
    return resource.kind in _CONDITIONAL


def _metadata(resource: Resource, meta: dict[str, Any]) -> list[Cause]:
    name = meta.get("name") or ""
    found: list[Cause] = []
    if not name:
        found.append(causes.required("metadata.name", "name or generateName is required"))
    elif resource.kind in _ANY_NAME:
        if name in (".", "..") or "/" in name or "%" in name:
            found.append(
                causes.invalid("metadata.name", name, "may not contain '/'" if "/" in name else "may not be it")
            )
    elif resource.kind in _LABEL_NAME:
        dotted = causes.invalid("metadata.name", name, "must not contain dots")
        found += [dotted] if "." in name else causes.dns_label("metadata.name", name)
    else:
        found += causes.dns_subdomain("metadata.name", name)
    found += causes.labels("metadata.labels", meta.get("labels") or {})
    annotations = meta.get("annotations") or {}
    for key in annotations:
        found += causes.qualified_name("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        found.append(Cause("metadata.annotations", "FieldValueTooLong", text))
    for at, name in enumerate(meta.get("finalizers") or ()):
        found += causes.qualified_name(f"metadata.finalizers[{at}]", name)
    return found
