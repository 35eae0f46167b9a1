"""The scorer of Open Cluster Management as a process, beside what the test does as the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kube_policy_scheduler.times import unix_seconds
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.fleet.ocm.hub import raw_cluster
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
NAMESPACES = ("a", "b", "c", "open-cluster-management-hub")


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
        serve(self.api, GROUP, "v1", definition(GROUP, "v1", "managedclusters", "ManagedCluster", "Cluster"))
        serve(self.api, GROUP, "v1alpha1", scores_definition())
        for name in NAMESPACES:
            cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def join(self, name: str, cpu: str) -> None:
        """Register a managed cluster."""
        wanted = raw_cluster(name, cpu=cpu)
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
    assert process.metrics()["policy_scheduler_fleet_clusters"] == 3.0
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(front))
    assert process.terminate() == 0
    manifests = yaml.safe_load_all((ROOT / "deploy/fleet/ocm/access.yaml").read_text())
    granted = granted_by(manifests, account="policy-scheduler-ocm")
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()
    assert used(front) - granted == set()
    assert granted - used(front) - {("coordination.k8s.io", "leases", "watch")} == set()


def test_a_cluster_without_a_namespace_delays_no_other(hub: Hub, process: SchedulerProcess) -> None:
    hub.join("lonely", "4")
    hub.join("a", "8")
    process.start_ready()
    eventually(lambda: hub.scores("a") == {"size": 100})
    eventually(lambda: "scores of a cluster cannot be written" in process.log())
    eventually(lambda: process.get("/readyz")[0] == 200)
