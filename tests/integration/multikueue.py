"""Kueue's manager cluster of a test: its resources, and what its manager does, done by the test."""

from __future__ import annotations

from typing import Any

from tests.fleet.multikueue.kueue import API_VERSION, raw_check, raw_cluster, raw_config, raw_profile, raw_workload
from tests.integration.cluster import Cluster, Real
from tests.integration.conditions import eventually
from tests.integration.karmada import definition, serve
from tests.integration.objects import Json

GROUP, VERSION = API_VERSION.split("/")
NAMESPACE = "team"
KINDS = (
    ("admissionchecks", "AdmissionCheck", "Cluster"),
    ("multikueueclusters", "MultiKueueCluster", "Cluster"),
    ("multikueueconfigs", "MultiKueueConfig", "Cluster"),
    ("workloads", "Workload", "Namespaced"),
)
_ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STATUS: Json = _ANY | {
    "properties": {
        "clusterName": {"type": "string"},
        "nominatedClusterNames": {
            "type": "array",
            "maxItems": 20,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 256},
        },
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": _ANY | {"required": ["type"], "properties": {"type": {"type": "string"}}},
        },
        "admissionChecks": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": _ANY | {"required": ["name"], "properties": {"name": {"type": "string"}}},
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.clusterName) || !has(self.nominatedClusterNames)",
            "message": "clusterName and nominatedClusterNames are mutually exclusive",
        }
    ],
}


def stand_in(plural: str, kind: str, scope: str) -> Json:
    """Return a stand-in for one of Kueue's definitions; a Workload has the rules that concern nominations."""
    made = definition(GROUP, VERSION, plural, kind, scope)
    if kind == "Workload":
        made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = _STATUS
    return made


class Kueue:
    """The manager cluster as the test and its users see it."""

    def __init__(self, cluster: Cluster) -> None:
        """Make sure that the resources are served and empty."""
        self.api = cluster.api
        self._owns_fields = isinstance(cluster, Real)
        for plural, kind, scope in KINDS:
            serve(self.api, GROUP, VERSION, stand_in(plural, kind, scope))
        profiles = definition("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile", "Namespaced")
        serve(self.api, "multicluster.x-k8s.io", "v1alpha1", profiles)
        for name in (NAMESPACE, "kueue-system"):
            if not any(each["metadata"]["name"] == name for each in self.api.list("namespaces")):
                self.api.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def add_clusters(self, *names: str) -> None:
        """Connect worker clusters, all of one configuration and its check."""
        for name in names:
            wanted = raw_cluster(name, tier=f"tier-{name}")
            self.api.create("multikueueclusters", wanted)
            self._say("multikueueclusters", name, wanted["status"])
        self.api.create("multikueueconfigs", raw_config(*names))
        self.api.create("admissionchecks", raw_check())

    def add_profile(self, name: str, **properties: str) -> None:
        """Say of a cluster what its manager says, and have its MultiKueueCluster name the profile."""
        profile = raw_profile(name, **properties)
        status = profile.pop("status")
        self.api.create("clusterprofiles", profile)
        self.api.patch("clusterprofiles", name, {"status": status}, namespace="kueue-system", subresource="status")
        source = {"clusterSource": {"kubeConfig": None, "clusterProfileRef": {"name": name}}}
        self.api.patch("multikueueclusters", name, {"spec": source})

    def lose(self, name: str) -> None:
        """Lose the connection to a worker cluster."""
        self._say("multikueueclusters", name, raw_cluster(name, active="False")["status"])

    def _say(self, plural: str, name: str, status: Json) -> None:
        self.api.patch(plural, name, {"status": status}, subresource="status")

    def add(self, name: str = "train", *, reserved_at: str | None = None) -> str:
        """Have a Workload whose quota is reserved, as the manager applies it; return its name."""
        wanted = raw_workload(name)
        made: str = wanted["metadata"]["name"]
        for key in ("uid", "resourceVersion"):
            del wanted["metadata"][key]
        status = wanted.pop("status")
        if reserved_at is not None:
            status["conditions"][0]["lastTransitionTime"] = reserved_at
        self.api.create("workloads", wanted)
        self.apply(made, status | {"admission": {"clusterQueue": "q"}})
        return made

    def apply(self, name: str, status: Json) -> None:
        """Apply a status as the manager does: what it owned and leaves out goes."""
        path = f"{self.api.path('workloads', name, namespace=NAMESPACE)}/status"
        if self._owns_fields:
            body = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": name}, "status": status}
            query = "?fieldManager=kueue-admission&force=true"
            self.api.request("PATCH", path + query, body, content_type="application/apply-patch+yaml")
        else:
            gone = dict.fromkeys(self.status(name).keys() - status.keys())
            change = {"status": gone | status}
            self.api.request("PATCH", path, change, content_type="application/merge-patch+json")

    def admit(self, name: str, cluster: str) -> None:
        """Have a worker admit a Workload: the manager names it, and takes the nominations away."""
        status = {key: value for key, value in self.status(name).items() if key != "nominatedClusterNames"}
        status["admissionChecks"] = [status["admissionChecks"][0] | {"state": "Ready"}]
        self.apply(name, status | {"clusterName": cluster})

    def status(self, name: str) -> Json:
        found: Json = self.api.get("workloads", name, namespace=NAMESPACE).get("status", {})
        return found

    def wait_nominated(self, name: str, *clusters: str) -> Json:
        """Wait until a Workload is nominated to these clusters, in this order; return its status."""
        eventually(
            lambda: self.status(name).get("nominatedClusterNames", []) == list(clusters),
            else_=lambda: self.status(name),
        )
        return self.status(name)

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and note of the events about a Workload."""
        found: list[dict[str, Any]] = self.api.list("events", namespace=NAMESPACE)
        return [(each["reason"], each["note"]) for each in found if each["regarding"]["name"] == name]
