"""The scorer of Open Cluster Management as a process, beside what the test does as the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_policy_scheduler.fleet.ocm.decisions import GROUP_INDEX_LABEL
from kube_policy_scheduler.times import unix_seconds
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fleet.ocm.hub import raw_member, raw_placement, raw_set, raw_set_binding
from tests.integration.api import ApiRefusal
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.front import Front
from tests.integration.karmada import definition, serve
from tests.integration.objects import Json
from tests.integration.permissions import granted_by, used
from tests.integration.process import SchedulerProcess

ROOT = Path(__file__).parents[2]
GROUP = "cluster.open-cluster-management.io"
KIND = 'for workloads where workload.kind == "AddOnPlacementScore" and workload.name =='
SIZE = f'{KIND} "size"\nscore cluster.allocatable.cpu\n'
READY = f'{KIND} "ready"\nfilter cluster.name != "b"\n'
PLACES = 'for workloads where workload.kind == "Placement"\nscore cluster.allocatable.cpu\nchoose 1 to 2 clusters\n'
KINDS = (
    ("v1", "managedclusters", "ManagedCluster", "Cluster"),
    ("v1beta2", "managedclustersets", "ManagedClusterSet", "Cluster"),
    ("v1beta2", "managedclustersetbindings", "ManagedClusterSetBinding", "Namespaced"),
    ("v1beta1", "placements", "Placement", "Namespaced"),
    ("v1beta1", "placementdecisions", "PlacementDecision", "Namespaced"),
)
NAMESPACES = ("a", "b", "c", "shop", "open-cluster-management-hub")


def scores_definition() -> Json:
    """Return a stand-in for AddOnPlacementScore, with the bounds of its values."""
    made = definition(GROUP, "v1alpha1", "addonplacementscores", "AddOnPlacementScore", "Namespaced")
    value = {"type": "integer", "minimum": -100, "maximum": 100}
    item = {
        "type": "object",
        "required": ["name", "value"],
        "properties": {"name": {"type": "string"}, "value": value},
    }
    status = {
        "type": "object",
        "properties": {
            "scores": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "validUntil": {"type": "string", "format": "date-time"},
        },
    }
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    return made


class Hub:
    """The hub as the test and its users see it."""

    def __init__(self, cluster: Cluster) -> None:
        self.api = cluster.api
        for version, plural, kind, scope in KINDS:
            serve(self.api, GROUP, version, definition(GROUP, version, plural, kind, scope))
        serve(self.api, GROUP, "v1alpha1", scores_definition())
        for name in NAMESPACES:
            cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def join(self, name: str, cpu: str) -> None:
        """Register a managed cluster."""
        wanted = raw_member(name, cpu=cpu)
        status = wanted.pop("status")
        self.api.create("managedclusters", wanted)
        self.api.patch("managedclusters", name, {"status": status}, subresource="status")

    def said(self, name: str) -> Json:
        """Return the status of the scores of a cluster; nothing if there are none."""
        try:
            found = self.api.get("addonplacementscores", "policy-scheduler", namespace=name)
        except ApiRefusal as refusal:
            if refusal.code != 404:
                raise
            return {}
        status: Json = found.get("status", {})
        return status

    def ask(self, name: str, **spec: Any) -> None:
        """Create a Placement in a namespace that has all clusters."""
        if not self.api.list("managedclustersetbindings", namespace="shop"):
            self.api.create("managedclustersets", raw_set())
            self.api.create("managedclustersetbindings", raw_set_binding())
        self.api.create("placements", raw_placement(name, **spec))

    def selected(self, name: str) -> dict[str, list[str]]:
        """Return the clusters of each decision of a Placement."""
        query = f"?labelSelector={GROUP}/placement%3D{name}"
        found = self.api.list("placementdecisions", namespace="shop", query=query)
        return {
            each["metadata"]["name"]: [one["clusterName"] for one in each.get("status", {}).get("decisions", ())]
            for each in found
        }

    def change(self, name: str, **spec: Any) -> None:
        """Change the specification of a Placement."""
        self.api.patch("placements", name, {"spec": spec}, namespace="shop")

    def relabel(self, name: str, group: str) -> None:
        """Put a decision into another group, as somebody else might."""
        labels = {"metadata": {"labels": {GROUP_INDEX_LABEL: group}}}
        self.api.patch("placementdecisions", name, labels, namespace="shop")

    def group_of(self, name: str) -> str:
        """Return the group of a decision."""
        group: str = self.api.get("placementdecisions", name, namespace="shop")["metadata"]["labels"][GROUP_INDEX_LABEL]
        return group

    def condition(self, name: str, kind: str = "PlacementSatisfied") -> tuple[str, str]:
        """Return status and reason of a condition of a Placement."""
        status = self.api.get("placements", name, namespace="shop").get("status", {})
        found = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}
        return found.get(kind, ("", ""))

    def scores(self, name: str) -> dict[str, int]:
        return {each["name"]: each["value"] for each in self.said(name).get("scores", ())}


@pytest.fixture
def hub(cluster: Cluster) -> Hub:
    return Hub(cluster)


@pytest.fixture
def process(
    hub: Hub, cluster: Cluster, front: Front, tmp_path: Path, policies: ConfigMapVolume
) -> Iterator[SchedulerProcess]:
    """Yield a scorer with only the permissions of its manifests."""
    manifests = list(yaml.safe_load_all((ROOT / "deploy/fleet/ocm/access.yaml").read_text()))
    for each in manifests:
        cluster.ensure(f"{each['kind'].lower()}s", each)
    token = cluster.token("open-cluster-management-hub", "policy-scheduler-ocm")
    settings = tmp_path / "config.yaml"
    settings.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        "fleet: {engine: ocm, leaseName: policy-scheduler-ocm}\n"
    )
    policies.update({"size.policy": SIZE})
    kubeconfig = front.kubeconfig(tmp_path / "front", user={"token": token})
    given = [f"--config={settings}", f"--kubeconfig={kubeconfig}", f"--policies={policies.path}", "--leader-election"]
    made = SchedulerProcess(tmp_path / "ocm", arguments=given, subcommand="fleet")
    yield made
    made.kill()
    print(f"--- log\n{made.log()[-8000:]}")


def test_each_cluster_has_the_scores_of_the_policies(
    hub: Hub, process: SchedulerProcess, policies: ConfigMapVolume, front: Front
) -> None:
    for name, cpu in (("a", "4"), ("b", "8")):
        hub.join(name, cpu)
    process.start_ready()
    eventually(lambda: (hub.scores("a"), hub.scores("b")) == ({"size": 0}, {"size": 100}))
    until = unix_seconds(hub.said("a")["validUntil"])
    assert until is not None
    hub.join("c", "40")
    eventually(lambda: hub.scores("c") == {"size": 100})
    policies.update({"size.policy": SIZE, "ready.policy": READY})
    eventually(lambda: hub.scores("b") == {"size": 11, "ready": -100})
    assert process.get("/debug/scores?name=b")[1] == '{"scores": {"ready": -100, "size": 11}}'
    assert process.get("/debug/scores?name=none")[0] == 404
    assert process.get("/")[0] == 200
    assert process.metrics()["policy_scheduler_fleet_clusters"] == 3.0
    hub.ask("web", numberOfClusters=1)
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["a"]})
    hub.relabel("web-decision-1", "7")
    eventually(lambda: hub.group_of("web-decision-1") == "0")
    hub.change("web", numberOfClusters=2, decisionStrategy={"groupStrategy": {"clustersPerDecisionGroup": 1}})
    eventually(lambda: len(hub.selected("web")) == 2)
    hub.change("web", numberOfClusters=1)
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["a"]})
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(front))
    assert process.terminate() == 0
    manifests = yaml.safe_load_all((ROOT / "deploy/fleet/ocm/access.yaml").read_text())
    granted = granted_by(manifests, account="policy-scheduler-ocm")
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()
    assert used(front) - granted == set()
    optional = {("events.k8s.io", "events", "patch"), ("coordination.k8s.io", "leases", "watch")}
    assert granted - used(front) - optional == set()


def test_a_cluster_without_a_namespace_delays_no_other(hub: Hub, process: SchedulerProcess) -> None:
    hub.join("lonely", "4")
    hub.join("a", "8")
    process.start_ready()
    eventually(lambda: hub.scores("a") == {"size": 100})
    eventually(lambda: "scores of a cluster cannot be written" in process.log())
    eventually(lambda: process.get("/readyz")[0] == 200)


def test_a_placement_that_asks_for_it_is_decided_by_the_policies(
    hub: Hub, process: SchedulerProcess, policies: ConfigMapVolume
) -> None:
    chooses = (
        'for workloads where workload.kind == "Placement"\nscore cluster.allocatable.cpu\nchoose 1 to 2 clusters\n'
    )
    policies.update({"places.policy": chooses})
    for name, cpu in (("a", "4"), ("b", "8"), ("c", "6")):
        hub.join(name, cpu)
    process.start_ready()
    hub.ask("theirs", annotations={})
    hub.ask("web")
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["b", "c"]})
    eventually(lambda: hub.condition("web") == ("True", "AllDecisionsScheduled"))
    status = hub.api.get("placements", "web", namespace="shop")["status"]
    assert status["numberOfSelectedClusters"] == 2
    assert status["decisionGroups"] == [
        {"decisionGroupIndex": 0, "decisionGroupName": "", "decisions": ["web-decision-1"], "clusterCount": 2}
    ]
    owner = hub.api.get("placementdecisions", "web-decision-1", namespace="shop")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Placement", "web")
    shown = json.loads(process.get("/debug/placements?namespace=shop&name=web")[1])
    assert (shown["select"], shown["has"], shown["clusters"]["b"]["score"]) == (["b", "c"], ["b", "c"], 8.0)
    # a new decision keeps what is selected, and a taint of OCM ends it
    hub.join("d", "40")
    taint = {"key": "unavailable", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"}
    hub.api.patch("managedclusters", "b", {"spec": {"taints": [taint]}})
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["c", "d"]})
    assert hub.selected("theirs") == {}
    assert process.get("/debug/placements?namespace=shop&name=theirs")[0] == 404
    # what somebody else writes is not overwritten by what was decided before it, and is decided again
    emptied = {"status": {"decisions": []}}
    hub.api.patch("placementdecisions", "web-decision-1", emptied, subresource="status", namespace="shop")
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["c", "d"]})
    hub.api.delete("placementdecisions", "web-decision-1", namespace="shop")
    eventually(lambda: hub.selected("web") == {"web-decision-1": ["c", "d"]})
    cel = [{"requiredClusterSelector": {"celSelector": {"celExpressions": ["true"]}}}]
    hub.change("web", predicates=cel)
    eventually(lambda: hub.condition("web", "PlacementMisconfigured") == ("True", "Misconfigured"))
    assert hub.selected("web") == {"web-decision-1": ["c", "d"]}
