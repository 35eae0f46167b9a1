"""The decision maker of a cluster inventory as a process, beside what a cluster manager does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.api import Api
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.front import Front
from tests.integration.karmada import definition, serve
from tests.integration.objects import Json
from tests.integration.permissions import granted_by, used
from tests.integration.process import SchedulerProcess

FOLDER = Path(__file__).parents[2] / "deploy/fleet/clusterprofile"
GROUP, VERSION, NAMESPACE = "multicluster.x-k8s.io", "v1alpha1", "cluster-inventory"
CHEAPEST = (
    'for workloads where workload.kind == "PlacementDecision"\nscore -(cluster.price ?? 9)\nchoose 1 to 2 clusters\n'
)


def decisions_definition() -> Json:
    """Return a stand-in for PlacementDecision: it has no status, and at most 100 decisions."""
    made = definition(GROUP, VERSION, "placementdecisions", "PlacementDecision", "Namespaced")
    any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    item = {
        "type": "object",
        "required": ["clusterProfileRef"],
        "properties": {"clusterProfileRef": any_object, "reason": {"type": "string"}},
    }
    version = made["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "required": ["decisions"],
        "properties": {
            "decisions": {"type": "array", "maxItems": 100, "items": item},
            "schedulerName": {"type": "string"},
        },
    }
    del version["subresources"]
    return made


class Manager:
    """The inventory as a cluster manager and consumers see it."""

    def __init__(self, cluster: Cluster) -> None:
        self.api: Api = cluster.api
        serve(self.api, GROUP, VERSION, definition(GROUP, VERSION, "clusterprofiles", "ClusterProfile", "Namespaced"))
        serve(self.api, GROUP, VERSION, decisions_definition())
        cluster.ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def join(self, name: str, price: str) -> None:
        head = {"name": name, "namespace": NAMESPACE, "annotations": {"policy-scheduler/hourly-price": price}}
        made = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ClusterProfile", "metadata": head, "spec": {}}
        self.api.create("clusterprofiles", made)

    def chosen(self, policy: str) -> dict[str, list[str]]:
        """Return the clusters of each object of a policy, the best first."""
        query = f"?labelSelector={GROUP}/decision-key%3D{policy}"
        found = self.api.request("GET", f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/placementdecisions{query}")
        return {
            each["metadata"]["name"]: [one["clusterProfileRef"]["name"] for one in each["decisions"]]
            for each in found["items"]
        }

    def take(self, name: str) -> None:
        """Write an object of this name as another scheduler does."""
        head = {"name": name, "namespace": NAMESPACE}
        made = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PlacementDecision", "metadata": head}
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/placementdecisions"
        self.api.request("POST", path, {**made, "decisions": [], "schedulerName": "another"})

    def give_back(self, name: str) -> None:
        """Delete an object with the rights of an administrator."""
        self.api.request("DELETE", f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/placementdecisions/{name}")

    def empty(self, name: str) -> None:
        """Do what nobody should."""
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/placementdecisions/{name}"
        self.api.request("PATCH", path, {"decisions": []}, content_type="application/merge-patch+json")


@pytest.fixture
def manager(cluster: Cluster) -> Manager:
    return Manager(cluster)


@pytest.fixture
def process(
    manager: Manager, cluster: Cluster, front: Front, tmp_path: Path, policies: ConfigMapVolume
) -> Iterator[SchedulerProcess]:
    """Yield a decision maker with only the permissions of its manifests."""
    for each in yaml.safe_load_all((FOLDER / "access.yaml").read_text()):
        cluster.ensure(f"{each['kind'].lower()}s", each)
    token = cluster.token(NAMESPACE, "policy-scheduler-inventory")
    policies.update({"cheapest.policy": CHEAPEST})
    kubeconfig = front.kubeconfig(tmp_path / "front", user={"token": token})
    config = yaml.safe_load((FOLDER / "config.yaml").read_text())
    del config["http"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    given = [f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={kubeconfig}", f"--policies={policies.path}"]
    made = SchedulerProcess(tmp_path / "inventory", arguments=given, subcommand="fleet")
    yield made
    made.kill()
    print(f"--- log\n{made.log()[-8000:]}")


def test_each_policy_chooses_clusters_and_consumers_read_them(
    manager: Manager, process: SchedulerProcess, policies: ConfigMapVolume, front: Front
) -> None:
    for name, price in (("a", "3"), ("b", "1"), ("c", "2")):
        manager.join(name, price)
    process.start_ready()
    eventually(lambda: manager.chosen("cheapest") == {"cheapest-decision-1": ["b", "c"]})
    manager.empty("cheapest-decision-1")
    eventually(lambda: manager.chosen("cheapest") == {"cheapest-decision-1": ["b", "c"]})
    manager.api.delete("clusterprofiles", "b", namespace=NAMESPACE)
    eventually(lambda: manager.chosen("cheapest") == {"cheapest-decision-1": ["c", "a"]})
    for number in range(101):
        manager.join(f"m{number:03}", "5")
    policies.update({"cheapest.policy": CHEAPEST, "all.policy": "for workloads where true\nscore -cluster.price\n"})
    eventually(lambda: [len(each) for each in manager.chosen("all").values()] == [100, 3])
    manager.api.delete("clusterprofiles", "m100", namespace=NAMESPACE)
    manager.api.delete("clusterprofiles", "m099", namespace=NAMESPACE)
    manager.api.delete("clusterprofiles", "m098", namespace=NAMESPACE)
    eventually(lambda: [len(each) for each in manager.chosen("all").values()] == [100])
    shown = json.loads(process.get("/debug/placements?name=cheapest")[1])
    assert (shown["select"], shown["has"]) == (["c", "a"], ["c", "a"])
    assert process.get("/debug/placements?name=none")[0] == 404
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(front))
    assert process.terminate() == 0
    manifests = yaml.safe_load_all((FOLDER / "access.yaml").read_text())
    granted = granted_by(manifests, account="policy-scheduler-inventory")
    assert {(each.resource, each.verb) for each in front.exchanges if each.code in (401, 403)} == set()
    assert used(front) - granted == set()
    assert granted - used(front) - {("coordination.k8s.io", "leases", "watch")} == set()


def test_a_name_that_another_scheduler_has_is_told_once(manager: Manager, process: SchedulerProcess) -> None:
    manager.join("a", "3")
    manager.take("cheapest-decision-1")
    process.start_ready()
    why = "PlacementDecision cheapest-decision-1 is of the scheduler 'another'"
    eventually(lambda: why in process.log())
    assert why in json.loads(process.get("/debug/placements?name=cheapest")[1])["message"]
    assert process.metrics()['policy_scheduler_fleet_decisions_total{reason="SchedulerError"}'] == 1
    manager.give_back("cheapest-decision-1")
    eventually(lambda: manager.chosen("cheapest") == {"cheapest-decision-1": ["a"]})
    assert process.log().count(why) == 1
