"""A Karmada control plane of a test: its resources, and what its controller manager does, done by the test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube_policy_scheduler.fleet.karmada.triggers import APPLIED
from tests.fleet.karmada.bindings import raw_binding, raw_cluster
from tests.integration.api import Api, ApiRefusal
from tests.integration.conditions import eventually
from tests.integration.karmada_programs import definitions
from tests.integration.objects import Json

NAMESPACE = "shop"
KINDS = (
    ("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", "Cluster"),
    ("work.karmada.io", "v1alpha2", "resourcebindings", "ResourceBinding", "Namespaced"),
    ("work.karmada.io", "v1alpha2", "clusterresourcebindings", "ClusterResourceBinding", "Cluster"),
)
FINALIZER = "karmada.io/cluster-controller"
_ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition_of(group: str, version: str, plural: str, kind: str, scope: str) -> Json:
    """Return Karmada's own definition where it is at hand, else a stand-in."""
    own = (each for each in definitions(group) if each["spec"]["names"]["plural"] == plural)
    return next(own, None) or definition(group, version, plural, kind, scope)


def definition(group: str, version: str, plural: str, kind: str, scope: str) -> Json:
    """Return a stand-in for one of Karmada's definitions: it has a status of its own, and any fields."""
    schema = _ANY | {"properties": {"spec": _ANY, "status": _ANY}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    served = {
        "name": version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, stand-in of a test"},
        },
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


def serve(api: Api, group: str, version: str, wanted: Json) -> None:
    """Make sure that a definition is served, and that there are none of its objects."""
    names = wanted["spec"]["names"]
    plural, path = names["plural"], f"/apis/{group}/{version}/{names['plural']}"
    if not _is_served(api, path):
        api.create("customresourcedefinitions", wanted)
        eventually(lambda: _is_served(api, path))
    for each in api.request("GET", path)["items"]:
        namespace = each["metadata"].get("namespace")
        folder = f"/namespaces/{namespace}" if namespace else ""
        item = f"/apis/{group}/{version}{folder}/{plural}/{each['metadata']['name']}"
        if each["metadata"].get("finalizers"):
            change = {"metadata": {"finalizers": None}}
            api.request("PATCH", item, change, content_type="application/merge-patch+json")
        if not each["metadata"].get("deletionTimestamp"):
            api.request("DELETE", item)


def _is_served(api: Api, path: str) -> bool:
    try:
        api.request("GET", path)
    except ApiRefusal as refusal:
        if refusal.code != 404:
            raise
        return False
    return True


class Karmada:
    """The control plane as the test and its users see it."""

    def __init__(self, api: Api) -> None:
        """Make sure that the resources are served and empty."""
        self.api = api
        for group, version, plural, kind, scope in KINDS:
            serve(api, group, version, definition_of(group, version, plural, kind, scope))
        for name in (NAMESPACE, "karmada-system"):
            if not any(each["metadata"]["name"] == name for each in api.list("namespaces")):
                api.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for plural in ("leases", "events", "deployments"):
                api.delete_all(plural, namespace=name)

    # --- what users and the controller manager do ------------------------------------------------------

    def add_cluster(self, name: str, **given: Any) -> None:
        """Join a cluster."""
        wanted = raw_cluster(name, **given)
        status = wanted.pop("status")
        del wanted["metadata"]["generation"]
        wanted["metadata"]["finalizers"] = [FINALIZER]
        self.api.create("clusters", wanted)
        self.api.patch("clusters", name, {"status": status}, subresource="status")

    def set_cluster(self, name: str, change: Mapping[str, Any]) -> None:
        """Change labels or the specification of a cluster."""
        self.api.patch("clusters", name, change)

    def unjoin(self, name: str) -> None:
        """Take a cluster away, as Karmada does: it is seen to be deleted, and ends once nothing runs there."""
        self.api.delete("clusters", name)

    def set_cpu(self, name: str, cpu: int) -> None:
        """Have a cluster say that it has so many free cores."""
        summary = {"allocatable": {"cpu": str(cpu), "pods": "110"}}
        self.api.patch("clusters", name, {"status": {"resourceSummary": summary}}, subresource="status")

    def add_binding(self, name: str = "web", **given: Any) -> str:
        """Create the binding of a Deployment, as the detector does; return its name."""
        wanted = raw_binding(name, **given)
        status = wanted.pop("status")
        for key in ("uid", "resourceVersion", "generation"):
            del wanted["metadata"][key]
        wanted["metadata"]["namespace"] = NAMESPACE
        self.api.create("resourcebindings", wanted)
        made: str = wanted["metadata"]["name"]
        if status:
            self.api.patch("resourcebindings", made, {"status": status}, namespace=NAMESPACE, subresource="status")
        return made

    def add_cluster_binding(self, name: str, **given: Any) -> None:
        """Create the binding of a template without a namespace."""
        wanted = raw_binding(name, **given)
        meta = {"name": name, "labels": wanted["metadata"]["labels"]}
        self.api.create("clusterresourcebindings", wanted | {"kind": "ClusterResourceBinding", "metadata": meta})

    def wait_cluster_placed(self, name: str, targets: Mapping[str, int]) -> Json:
        """Wait until the binding of a template without a namespace is placed like this, and says so; return it."""

        def is_placed() -> bool:
            found = self.api.get("clusterresourcebindings", name)
            now = {each["name"]: each.get("replicas", 0) for each in found["spec"].get("clusters") or ()}
            conditions = found.get("status", {}).get("conditions", ())
            said = [each["status"] for each in conditions if each["type"] == "Scheduled"]
            seen = found.get("status", {}).get("schedulerObservedGeneration")
            return now == targets and said == ["True"] and bool(seen == found["metadata"]["generation"])

        eventually(is_placed, else_=lambda: self.api.get("clusterresourcebindings", name))
        return self.api.get("clusterresourcebindings", name)

    def change(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change the specification of a binding."""
        self.api.patch("resourcebindings", name, {"spec": spec}, namespace=NAMESPACE)

    def evict(self, name: str, cluster: str) -> None:
        """Begin a graceful eviction, as the taint manager does: the target goes, and a task comes."""
        spec = self.binding(name)["spec"]
        left = [each for each in spec.get("clusters", ()) if each["name"] != cluster]
        task = {"fromCluster": cluster, "reason": "TaintUntolerated", "producer": "TaintManager"}
        self.change(name, {"clusters": left, "gracefulEvictionTasks": [*spec.get("gracefulEvictionTasks", ()), task]})

    # --- what is there ----------------------------------------------------------------------------------

    def binding(self, name: str) -> Json:
        return self.api.get("resourcebindings", name, namespace=NAMESPACE)

    def targets(self, name: str) -> dict[str, int]:
        return {each["name"]: each.get("replicas", 0) for each in self.binding(name)["spec"].get("clusters") or ()}

    def scheduled(self, name: str) -> Json:
        conditions = self.binding(name).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == "Scheduled"), {})

    def wait_placed(self, name: str, targets: Mapping[str, int]) -> Json:
        """Wait until a binding is placed like this, and its status says so; return it."""

        def is_placed() -> bool:
            assert self.targets(name) == targets
            found = self.binding(name)
            seen = found.get("status", {}).get("schedulerObservedGeneration")
            return bool(seen == found["metadata"]["generation"] and self.scheduled(name).get("status") == "True")

        eventually(is_placed, else_=lambda: self.binding(name))
        found = self.binding(name)
        assert APPLIED in found["metadata"]["annotations"]
        return found

    def wait_reason(self, name: str, reason: str) -> Json:
        """Wait until the condition has a reason; return it."""
        eventually(lambda: self.scheduled(name).get("reason") == reason, else_=lambda: self.binding(name))
        return self.scheduled(name)
