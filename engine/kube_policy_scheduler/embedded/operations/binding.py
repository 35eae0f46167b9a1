"""The binding subresource: how a pod comes to a node. Pure but for the store it is given."""

from __future__ import annotations

from typing import Any

from kube_policy_scheduler.embedded import errors
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.operations import admission, causes
from kube_policy_scheduler.embedded.operations.api import Api
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.times import rfc3339

_STORAGE_ERROR = (
    "StorageError: invalid object, Code: 4, Key: /registry/pods/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
)


def bind(api: Api, target: Target, binding: Json, *, dry_run: bool = False) -> Json:
    """Set a pod's node as the API server does, and return the Status of the answer.

    Raises:
        ApiError: 400, 404, 409 or 422; 409 when the pod is bound, being deleted, or another pod of that name.
    """
    meta = binding.get("metadata") or {}
    name = target.name or meta.get("name", "")
    if not name:
        raise errors.bad_request("name must be provided")
    if meta.get("name", name) != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    problem = _problem(binding)
    if problem:
        raise errors.ApiError(500, "", problem)
    collection = api.store.collection("pods")
    entry = collection.get((target.namespace or "", name))
    if entry is None:
        raise errors.not_found(name, group="", plural="pods")
    storage = _STORAGE_ERROR.format(key=f"{target.namespace}/{name}")
    if meta.get("uid") and meta["uid"] != entry.uid:
        raise errors.conflict(
            name,
            f"{storage}Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {entry.uid}",
            group="",
            plural="pods",
        )
    version = meta.get("resourceVersion")
    if version and version != str(entry.resource_version):
        raise errors.conflict(
            name,
            f"{storage}Precondition failed: ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {entry.resource_version}",
            group="",
            plural="pods",
        )
    pod = entry.decode()
    node = binding["target"]["name"]
    spec = pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _conflict(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")
    _assign(pod, node, now=rfc3339(api.now()))
    for field in ("annotations", "labels"):
        if meta.get(field):
            pod["metadata"].setdefault(field, {}).update(meta[field])
    if target.name:  # the older collection `bindings` is not seen by the admission plugin that does this
        admission.copy_topology(api.store, pod, node)
    if not dry_run:
        collection.put(pod)
    return errors.success(code=201)


def _conflict(name: str, text: str) -> errors.ApiError:
    return errors.conflict(name, text, group="", plural="pods/binding")


def _problem(binding: Json) -> str:
    """Return what is wrong with a binding; the API server answers with a plain error, not with causes."""
    target: Any = binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        cause = causes.unsupported("target.kind", target["kind"], ("Node", "<empty>"))
    elif not target.get("name"):
        cause = causes.required("target.name")
    else:
        return ""
    return f"{cause.field}: {cause.message}"


def _assign(pod: Json, node: str, *, now: str) -> None:
    pod["spec"]["nodeName"] = node
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    others = [item for item in status.get("conditions") or () if item.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
