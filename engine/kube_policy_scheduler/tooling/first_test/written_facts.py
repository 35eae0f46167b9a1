"""How a case says what a field is: as a short key of the same name, or where the API object has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.short_forms import NODE_KEYS, POD_KEYS, Json

_IN_OBJECT: Mapping[str, tuple[str, ...]] = {
    "node.kernel": ("status", "nodeInfo", "kernelVersion"),
    "node.kubelet": ("status", "nodeInfo", "kubeletVersion"),
    "node.container_runtime": ("status", "nodeInfo", "containerRuntimeVersion"),
    "node.provider": ("spec", "providerID"),
    "pod.service_account": ("spec", "serviceAccountName"),
    "pod.runtime_class": ("spec", "runtimeClassName"),
    "pod.host_network": ("spec", "hostNetwork"),
}
"""By field: where objects have it. A field whose short key has its name is not listed."""
_BY_RULE = {"pod.running": "running_since", "pod.limit": "", "pod.qos": ""}
"""Fields that are written in a way of their own, with their short key."""
_LIMITS_OF_QOS = "Guaranteed"


def can_be_written(path: str) -> bool:
    """Return whether a case can say what a field such as `pod.ready` is."""
    who, _, what = path.partition(".")
    keys = NODE_KEYS if who == "node" else POD_KEYS
    return path in _IN_OBJECT or path in _BY_RULE or (what in keys and what not in _NAMES)


_NAMES = ("name",)
"""What tells objects apart is the same in all cases."""


def write_fact(form: Json, who: str, what: tuple[str, ...], value: Any, *, now: float) -> None:
    """Say in the short form of a node or a pod what a field is.

    Args:
        form: the short form, changed.
        who: `node` or `pod`.
        what: the field without that, and its key if it has one.
        value: of the field.
        now: of the case, Unix seconds.
    """
    path = f"{who}.{what[0]}"
    if path == "pod.running":
        form["running_since"] = rfc3339(now - value)
    elif path == "pod.created":
        form["created"] = rfc3339(now - value)
    elif path == "pod.limit":
        _limits(form)[what[1]] = value
    elif path == "pod.qos":
        _write_class(form, value)
    elif path in _IN_OBJECT:
        *above, last = (*_IN_OBJECT[path], *what[1:])
        inner = form
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = f"{value}://{form.get('name', 'node')}" if path == "node.provider" else value
    else:
        form[what[0]] = value


def _write_class(form: Json, value: str) -> None:
    """Give a pod a quality of service class by its requests and limits."""
    if value == "BestEffort":
        form.pop("cpu", None)
        form.pop("mem", None)
    elif value == _LIMITS_OF_QOS:
        _limits(form).update(cpu=form.setdefault("cpu", "100m"), memory=form.setdefault("mem", "128Mi"))


def _limits(form: Json) -> Json:
    containers = form.setdefault("spec", {}).setdefault("containers", [{"name": "main", "image": "image"}])
    limits: Json = containers[0].setdefault("resources", {}).setdefault("limits", {})
    return limits
