"""Nodes and pods in the short forms of test files: the way back from `tooling.tester.short_forms`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.tooling.snapshot.fields import Json
from kube_policy_scheduler.tooling.tester.short_forms import HOSTNAME, REGION, ZONE

_AMOUNTS = {"cpu": "cpu", "memory": "mem", "ephemeral-storage": "ephemeral_storage"}
_SHORT_OWNER = "apps/v1"
"""The API of the owner that the short form means."""
_PLAIN_CONTAINER = frozenset({"name", "image", "resources"})
_EVERY_POD = tuple(
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
    for state in ("not-ready", "unreachable")
)
"""What every pod tolerates for a while: the API server sees to it, and so do tests."""


def node_form(node: Mapping[str, Any]) -> Json:
    """Return a node of a fixture in its short form."""
    node = copy.deepcopy(dict(node))
    metadata, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
    name = metadata.pop("name")
    labels = metadata.pop("labels", None) or {}
    form: Json = {"name": name}
    for key, short in ((ZONE, "zone"), (REGION, "region")):
        if key in labels:
            form[short] = labels.pop(key)
    if labels.get(HOSTNAME) == name:
        del labels[HOSTNAME]
    else:
        labels.setdefault(HOSTNAME, None)  # the short form would add it
    offered = status.pop("allocatable", None) or status.get("capacity") or {}
    status.pop("capacity", None)
    status.pop("addresses", None)
    for resource, short in _AMOUNTS.items():
        if resource in offered:
            form[short] = offered.pop(resource)
    form["pods"] = offered.pop("pods", "0")
    _put(form, "resources", offered)
    _put(form, "labels", labels)
    _put(form, "annotations", metadata.pop("annotations", None))
    _put(form, "taints", [_taint(taint) for taint in spec.pop("taints", None) or ()])
    conditions = status.pop("conditions", None) or []
    if not any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        form["ready"] = False
    _put(status, "conditions", [one for one in conditions if one.get("type") != "Ready"])
    _put(form, "unschedulable", spec.pop("unschedulable", None))
    _put(form, "created", metadata.pop("creationTimestamp", None))
    metadata.pop("uid", None)
    return _with_rest(form, metadata, spec, status)


def pod_form(pod: Mapping[str, Any], *, scheduler: str) -> Json:
    """Return a pod of a fixture in its short form; `scheduler` is that of pods that name none."""
    pod = copy.deepcopy(dict(pod))
    metadata, spec, status = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
    form: Json = {"name": metadata.pop("name")}
    namespace = metadata.pop("namespace", "default")
    if namespace != "default":
        form["namespace"] = namespace
    _put(form, "node", spec.pop("nodeName", None))
    _put(form, "labels", metadata.pop("labels", None))
    _put(form, "annotations", metadata.pop("annotations", None))
    _put(form, "owner", _owner(metadata))
    named = spec.pop("schedulerName", scheduler)
    if named != scheduler:
        form["scheduler"] = named
    if spec.get("priority") is not None:
        form["priority"] = spec.pop("priority")
    _container(form, spec)
    _put(form, "node_selector", spec.pop("nodeSelector", None))
    tolerations = [one for one in spec.pop("tolerations", None) or () if one not in _EVERY_POD]
    _put(form, "tolerations", [_toleration(one) for one in tolerations])
    _put(form, "created", metadata.pop("creationTimestamp", None))
    for key in ("phase", "qosClass"):
        status.pop(key, None)
    return _with_rest(form, metadata, spec, status)


def _with_rest(form: Json, metadata: Json, spec: Json, status: Json) -> Json:
    for name, part in (("metadata", metadata), ("spec", spec), ("status", status)):
        _put(form, name, part)
    return form


def _put(form: Json, key: str, value: Any) -> None:
    if value:
        form[key] = value
    else:
        form.pop(key, None)


def _owner(metadata: Json) -> str | None:
    owners = metadata.pop("ownerReferences", None) or []
    chosen = next((one for one in owners if one.get("controller")), None)
    if chosen is not None and chosen.get("apiVersion") != _SHORT_OWNER:
        metadata["ownerReferences"] = [chosen]
        return None
    return f"{chosen['kind']}/{chosen['name']}" if chosen is not None else None


def _container(form: Json, spec: Json) -> None:
    """Say what a pod with one plain container requests in short keys."""
    containers = spec.get("containers") or []
    if len(containers) != 1 or {key for key, value in containers[0].items() if value} - _PLAIN_CONTAINER:
        return
    resources = containers[0].get("resources") or {}
    requests, limits = dict(resources.get("requests") or {}), resources.get("limits") or {}
    if any(requests.get(name) != amount and name not in requests for name, amount in limits.items()):
        return
    del spec["containers"]
    _put(form, "image", containers[0].get("image"))
    for resource, short in _AMOUNTS.items():
        if resource in requests:
            form[short] = requests.pop(resource)
    _put(form, "resources", requests)


def _taint(taint: Mapping[str, Any]) -> Any:
    if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        return dict(taint)
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _toleration(one: Mapping[str, Any]) -> Any:
    operator, effect = one.get("operator") or "Equal", one.get("effect")
    if not one.get("key") or not effect or operator not in ("Exists", "Equal"):
        return dict(one)
    if operator == "Equal":
        return f"{one['key']}={one['value']}:{effect}" if one.get("value") else dict(one)
    return f"{one['key']}:{effect}"
