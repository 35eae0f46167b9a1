"""The short forms of clusters and workloads, as the objects of Karmada that say the same."""

from __future__ import annotations

from collections.abc import Iterable

from kube_policy_scheduler.cluster.prices import PRICE_KEY
from kube_policy_scheduler.fleet.karmada.triggers import APPLIED, OWNED_BY, SCHEDULED
from kube_policy_scheduler.fleet.karmada.writes import placement_text
from kube_policy_scheduler.quantities.quantity import QuantityError, nanos
from kube_policy_scheduler.times import rfc3339
from kube_policy_scheduler.tooling.fleet_forms import API_VERSIONS, WITHOUT_PODS
from kube_policy_scheduler.tooling.short_forms import Json, ShortFormError, taint

_AMOUNTS = (("cpu", "cpu"), ("mem", "memory"), ("ephemeral_storage", "ephemeral-storage"), ("pods", "pods"))
"""Short keys, and the resources that they stand for."""
_MANY_PODS = "1000000"
"""Of a cluster that says nothing of its pods."""
_DIVIDED = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }
}
"""What the PropagationPolicy of a workload says if nobody says anything: by the room of the clusters."""
_LONG_AGO = "1970-01-01T00:00:00Z"


def cluster_object(form: Json, *, now: float, apis: Iterable[tuple[str, str]]) -> Json:
    """Return a Cluster that has just become ready.

    Args:
        form: the short form.
        now: Unix seconds.
        apis: (group and version, kind) of what it serves, if the form does not say.

    Raises:
        ShortFormError: an amount or a taint cannot be read.
    """
    said = cluster_changes(form)
    status = said.setdefault("status", {})
    status.setdefault("apiEnablements", _served(apis))
    status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(now)}]
    summary = status.setdefault("resourceSummary", {})
    summary["allocatable"] = {"pods": _MANY_PODS} | summary.get("allocatable", {})
    summary.setdefault("allocated", {})
    said["spec"] = {"syncMode": "Push"} | said.get("spec", {})
    return said


def cluster_changes(form: Json) -> Json:
    """Return what a short form says of a Cluster, to be laid over it.

    Raises:
        ShortFormError: an amount or a taint cannot be read.
    """
    meta: Json = {"name": form["name"]}
    annotations = dict(form.get("annotations", {}))
    if "price" in form:
        annotations[PRICE_KEY] = str(form["price"])
    for key, value in (("labels", form.get("labels")), ("annotations", annotations)):
        if value:
            meta[key] = value
    spec = {name: form[key] for key, name in _SPEC if key in form}
    if "zone" in form:
        spec["zones"] = [form["zone"]]
    if "taints" in form:
        spec["taints"] = [taint(each) if isinstance(each, str) else each for each in form["taints"]]
    status: Json = {}
    if "version" in form:
        status["kubernetesVersion"] = form["version"]
    if "nodes" in form:
        status["nodeSummary"] = {"totalNum": form["nodes"], "readyNum": form["nodes"]}
    if "apis" in form:
        status["apiEnablements"] = _served((version, kind) for version, _, kind in map(_split, form["apis"]))
    used = form.get("used", {})
    summary = {
        "allocatable": amounts(form),
        "allocated": amounts(used if isinstance(used, dict) else {"cpu": used}, within="used"),
    }
    if kept := {key: value for key, value in summary.items() if value}:
        status["resourceSummary"] = kept
    return {"metadata": meta} | {key: value for key, value in (("spec", spec), ("status", status)) if value}


_SPEC = (("region", "region"), ("provider", "provider"), ("zones", "zones"), ("sync_mode", "syncMode"))


def _split(text: str) -> tuple[str, str, str]:
    return text.rpartition("/")


def _served(apis: Iterable[tuple[str, str]]) -> list[Json]:
    found: dict[str, list[Json]] = {}
    for version, kind in sorted(apis):
        found.setdefault(version, []).append({"kind": kind, "name": kind.lower()})
    return [{"groupVersion": version, "resources": kinds} for version, kinds in found.items()]


def amounts(form: Json, *, within: str = "") -> dict[str, str]:
    """Return quantities by resource.

    Raises:
        ShortFormError: an amount is not a quantity.
    """
    written = {resource: (key, form[key]) for key, resource in _AMOUNTS if key in form}
    written |= {name: ("resources", amount) for name, amount in form.get("resources", {}).items()}
    for key, amount in written.values():
        try:
            nanos(str(amount))
        except QuantityError as error:
            raise ShortFormError(within or key, str(error)) from error
    return {resource: str(amount) for resource, (_, amount) in written.items()}


def binding_object(form: Json, *, name: str, now: float, scheduler: str) -> Json:
    """Return the ResourceBinding of a workload; where it has replicas, it was placed there long ago.

    Args:
        form: the short form.
        name: of the workload, if the form does not name it.
        now: when it is created, Unix seconds.
        scheduler: who decides it.

    Raises:
        ShortFormError: an amount cannot be read.
    """
    kind, called = form.get("kind", "Deployment"), form.get("name", name)
    namespace, placement = form.get("namespace", "default"), form.get("placement", _DIVIDED)
    template = {
        "apiVersion": form.get("api_version", API_VERSIONS.get(kind, "v1")),
        "kind": kind,
        "namespace": namespace,
        "name": called,
        "uid": form.get("uid", f"{namespace}/{called}"),
    }
    spec: Json = {"resource": template, "placement": placement, "schedulerName": scheduler}
    spec["replicas"] = form.get("replicas", 0 if kind in WITHOUT_PODS else 1)
    requests = amounts(form)
    if requests or kind not in WITHOUT_PODS:
        spec["replicaRequirements"] = {"resourceRequest": requests}
        if "priority_class" in form:
            spec["replicaRequirements"]["priorityClassName"] = form["priority_class"]
    if "priority" in form:
        spec["schedulePriority"] = {"priority": form["priority"]}
    meta: Json = {
        "name": f"{called}-{kind.lower()}",
        "namespace": namespace,
        "uid": f"{namespace}/{called}/{kind}",
        "generation": 1,
        "creationTimestamp": rfc3339(now),
        "labels": {OWNED_BY[0]: called},
    }
    binding = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": meta, "spec": spec}
    if form.get("has"):
        spec["clusters"] = [{"name": at, "replicas": count} for at, count in sorted(form["has"].items())]
        meta["annotations"] = {APPLIED: placement_text(placement)}
        binding["status"] = {
            "schedulerObservedGeneration": 1,
            "lastScheduledTime": _LONG_AGO,
            "conditions": [{"type": SCHEDULED, "status": "True", "reason": "Success", "message": ""}],
        }
    return binding
