"""How a case says what a field is: by the short key of the same name, or where the API object has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.lang.environment import Field
from kube_policy_scheduler.lang.types import Kind
from kube_policy_scheduler.quantities.quantity import amount
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.short_forms import NODE_KEYS, POD_KEYS, SHORT_RESOURCES, Json

_IN_OBJECT: Mapping[str, tuple[str, ...]] = {
    "node.kernel": ("status", "nodeInfo", "kernelVersion"),
    "node.kubelet": ("status", "nodeInfo", "kubeletVersion"),
    "node.container_runtime": ("status", "nodeInfo", "containerRuntimeVersion"),
    "node.provider": ("spec", "providerID"),
    "pod.service_account": ("spec", "serviceAccountName"),
    "pod.runtime_class": ("spec", "runtimeClassName"),
    "pod.host_network": ("spec", "hostNetwork"),
}
"""By field: where the object has it."""
_BY_RULE = frozenset({"pod.created", "pod.running", "pod.limit", "pod.qos"})
"""Fields that `write_fact` writes in a way of their own."""
_NAME = "name"
"""The short key that tells objects apart: it is the same in all cases."""


def can_be_written(field: Field) -> bool:
    """Return whether a case can say what a field such as `pod.ready` is.

    A field that has the name of a short key is written by it: nothing needs to be added here for such a field.
    """
    subject, _, what = field.path.partition(".")
    if field.path in _IN_OBJECT or field.path in _BY_RULE:
        return True
    return (
        field.gives.kind is not Kind.LIST and what != _NAME and what in (NODE_KEYS if subject == "node" else POD_KEYS)
    )


def write_fact(form: Json, subject: str, what: tuple[str, ...], value: Any, *, now: float) -> None:
    """Say in the short form of a node or a pod what a field is.

    Args:
        form: the short form, changed.
        subject: `node` or `pod`.
        what: the field without the subject, then its key if it has one.
        value: of the field; of times, how many seconds ago.
        now: of the case, Unix seconds.

    Raises:
        ValueError: a limit is lower than the request.
    """
    name, *keys = what
    match f"{subject}.{name}":
        case "pod.running":
            form["running_since"] = rfc3339(now - value)
        case "pod.created":
            form["created"] = rfc3339(now - value)
        case "pod.limit":
            _write_limit(form, keys[0], value)
        case "pod.qos":
            _write_class(form, value)
        case path:
            text = f"{value}://{form['name']}" if path == "node.provider" else value
            *above, last = (*_IN_OBJECT.get(path, (name,)), *keys)
            inner = form
            for key in above:
                inner = inner.setdefault(key, {})
            inner[last] = text


def _write_limit(form: Json, resource: str, value: Any) -> None:
    requested = form.get(SHORT_RESOURCES.get(resource, resource), "0")
    if amount(resource, str(value)) < amount(resource, str(requested)):
        raise ValueError(f"the limit {value} of {resource} is lower than the request {requested}")
    _limits(form)[resource] = value


def _write_class(form: Json, value: str) -> None:
    """Give a pod a quality of service class by its requests and limits."""
    if value == "BestEffort":
        form.pop("cpu", None)
        form.pop("mem", None)
    elif value == "Guaranteed":
        _limits(form).update(cpu=form.setdefault("cpu", "100m"), memory=form.setdefault("mem", "128Mi"))


def _limits(form: Json) -> Json:
    containers = form.setdefault("spec", {}).setdefault("containers", [{"name": "main", "image": "image"}])
    limits: Json = containers[0].setdefault("resources", {}).setdefault("limits", {})
    return limits
