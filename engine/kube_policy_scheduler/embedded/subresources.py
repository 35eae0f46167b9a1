"""Binding, eviction, scale, log, token: subresources that are not simply a part of the object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson

from kube_policy_scheduler.embedded import admission, causes, cells, disruption, errors, patch
from kube_policy_scheduler.embedded.access import Guard, service_account
from kube_policy_scheduler.embedded.api import Api
from kube_policy_scheduler.embedded.errors import Json
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.store import Entry
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


_PROCESSING_RETRY_SECONDS = 10
_TOKEN_SECONDS = 3600


def scale_of(obj: Json) -> Json:
    """Return the Scale of a workload."""
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = cells.at(obj, "spec", "selector")
    if selector is not None and obj["kind"] == "ReplicationController":
        selector = {"matchLabels": selector}
    status: Json = {"replicas": cells.at(obj, "status", "replicas", default=0)}
    if selector is not None:
        status["selector"] = cells.label_selector(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": cells.at(obj, "spec", "replicas", default=0)},
        "status": status,
    }


def read_scale(api: Api, target: Target) -> Json:
    """Answer a GET of a scale.

    Raises:
        ApiError: 404.
    """
    return scale_of(api.get(target).decode())


def change_scale(api: Api, target: Target, change: Callable[[Json], Json], *, dry_run: bool) -> Json:
    """Set a workload's replicas; `change` makes the requested Scale of the current one.

    Raises:
        ApiError: 404, 409 or 422.
    """
    obj = api.get(target).decode()
    wanted = change(scale_of(obj))
    replicas = cells.at(wanted, "spec", "replicas", default=0)
    obj["spec"]["replicas"] = replicas
    version = cells.at(wanted, "metadata", "resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    whole = Target("update", target.resource, target.namespace, target.name, "")
    return scale_of(orjson.loads(api.update(whole, obj, dry_run=dry_run)))


def patched(content: bytes, content_type: str) -> Callable[[Json], Json]:
    """Return a change of a Scale by a patch."""
    return lambda scale: patch.apply(
        scale, content, content_type=content_type, api_version="autoscaling/v1", kind="Scale"
    )


def evict(api: Api, target: Target, eviction: Json, *, dry_run: bool = False) -> Json:
    """Delete a pod if its disruption budget allows it.

    Raises:
        ApiError: 404, 429 when the budget does not allow it, 500 when there is more than one.
    """
    entry = api.get(target)
    pod = entry.decode()
    pending = (pod.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed")
    if not pending and "deletionTimestamp" not in pod["metadata"]:
        _spend_budget(api, entry, dry_run=dry_run)
    options: dict[str, Any] = eviction.get("deleteOptions") or {}
    api.delete(Target("delete", target.resource, target.namespace, target.name, ""), options, dry_run=dry_run)
    return errors.success(code=201)


def _spend_budget(api: Api, pod: Entry, *, dry_run: bool) -> None:
    collection = api.store.collection("policy/poddisruptionbudgets")
    labels = dict(pod.labels)
    budgets = [item for item in map(Entry.decode, collection.scan(pod.key[0])) if disruption.selects(item, labels)]
    if not budgets:
        return
    if len(budgets) > 1:
        raise errors.ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    budget = budgets[0]
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _refused(text, retry_after_seconds=_PROCESSING_RETRY_SECONDS)
    if status.get("disruptionsAllowed", 0) <= 0:
        text = (
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
        raise _refused(text, retry_after_seconds=0)
    status["disruptionsAllowed"] -= 1
    if not dry_run:
        collection.put(budget)


def _refused(text: str, *, retry_after_seconds: int) -> errors.ApiError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    if retry_after_seconds:
        return errors.too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            retry_after_seconds=retry_after_seconds,
            details=details,
        )
    return errors.ApiError(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details=details
    )


def log(api: Api, target: Target) -> bytes:
    """Return what a simulated container has written: nothing worth reading.

    Raises:
        ApiError: 400 for a pod that does not run, 404.
    """
    pod = api.get(target).decode()
    if (pod.get("status") or {}).get("phase") == "Pending":
        name = cells.at(pod, "spec", "containers", 0, "name", default="")
        raise errors.bad_request(f'container "{name}" in pod "{target.name}" is waiting to start: ContainerCreating')
    return f"simulated pod {target.namespace}/{target.name}\n".encode()


def issue_token(api: Api, target: Target, request: Json, guard: Guard) -> Json:
    """Answer a TokenRequest for a service account with a token that this server knows.

    Raises:
        ApiError: 404.
    """
    api.get(target)
    token = guard.tokens.issue(service_account(target.namespace or "", target.name))
    seconds = cells.at(request, "spec", "expirationSeconds", default=_TOKEN_SECONDS)
    expires = rfc3339(api.now() + timedelta(seconds=seconds))
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": target.name, "namespace": target.namespace},
        "spec": request.get("spec") or {},
        "status": {"token": token, "expirationTimestamp": expires},
    }


def finalize_namespace(api: Api, target: Target, obj: Json) -> bytes:
    """Set the finalizers of a namespace.

    Raises:
        ApiError: 404 or 409.
    """
    current = api.get(target).decode()
    current["spec"]["finalizers"] = cells.at(obj, "spec", "finalizers", default=[])
    if not current["spec"]["finalizers"]:
        del current["spec"]["finalizers"]
    whole = Target("update", target.resource, None, target.name, "finalize")
    return api.update(whole, current)
