"""What the API server refuses in pods, as far as people get it wrong and schedulers read it. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from kube_policy_scheduler.embedded.errors import Cause, Json
from kube_policy_scheduler.embedded.operations import causes, validation_affinity, validation_resources
from kube_policy_scheduler.embedded.operations.causes import one_of, required

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_UPDATE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(obj: Json) -> list[Cause]:
    """Return what is wrong with a pod."""
    return pod_spec(obj.get("spec") or {}, "spec")


def pod_spec(spec: Json, at: str) -> list[Cause]:
    """Return what is wrong with the spec of a pod, or of a pod template."""
    volumes = {item.get("name") for item in spec.get("volumes") or ()}
    found = _volumes(spec, at)
    if not spec.get("containers"):
        found.append(required(f"{at}.containers"))
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            found += _container(container, f"{at}.{field}[{number}]", names, volumes, spec)
    found += validation_resources.requirements(spec.get("resources") or {}, f"{at}.resources", pod_level=True)
    found += one_of(f"{at}.restartPolicy", spec.get("restartPolicy"), ("Always", "OnFailure", "Never"))
    found += one_of(
        f"{at}.dnsPolicy", spec.get("dnsPolicy"), ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    )
    found += causes.labels(f"{at}.nodeSelector", spec.get("nodeSelector") or {})
    if spec.get("nodeName"):
        found += causes.dns_subdomain(f"{at}.nodeName", spec["nodeName"])
    for number, item in enumerate(spec.get("tolerations") or ()):
        found += toleration(item, f"{at}.tolerations[{number}]")
    found += _gates(spec, at)
    found += validation_affinity.affinity(spec.get("affinity") or {}, f"{at}.affinity")
    found += validation_affinity.spread(spec.get("topologySpreadConstraints") or [], f"{at}.topologySpreadConstraints")
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
    return found + validation_resources.requirements(container.get("resources") or {}, f"{at}.resources")


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


def toleration(item: Json, at: str) -> list[Cause]:
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


def changed_pod(new: Json, old: Json) -> list[Cause]:
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
