"""The small controller manager: workloads get pods, owned objects go with their owners, namespaces empty out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.embedded.errors import ApiError
from kube_policy_scheduler.embedded.requests import Target
from kube_policy_scheduler.embedded.resources import resource
from kube_policy_scheduler.embedded.subresources import evict
from tests.patience import PATIENCE_SECONDS

Json = dict[str, Any]


class Driver:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    def target(self, plural: str, group: str = "", name: str = "") -> Target:
        found = resource(plural, group=group)
        return Target("update", found, "default" if found.namespaced else None, name, "")

    def create(self, plural: str, body: Json, group: str = "") -> Json:
        done: Json = orjson.loads(self.cluster.api.create(self.target(plural, group), body))
        return done

    def delete(self, plural: str, name: str, group: str = "") -> None:
        self.cluster.api.delete(self.target(plural, group, name), {})

    def patch(self, plural: str, name: str, body: Json, group: str = "") -> None:
        content = orjson.dumps(body)
        target = self.target(plural, group, name)
        self.cluster.api.patch(target, content, content_type="application/merge-patch+json")

    def get(self, storage_key: str, name: str, namespace: str = "default") -> Json | None:
        entry = self.cluster.api.store.collection(storage_key).get((namespace, name))
        return entry.decode() if entry else None

    def pods(self) -> list[Json]:
        return [entry.decode() for entry in self.cluster.api.store.collection("pods").scan()]

    def status(self, storage_key: str, name: str) -> Json:
        found = self.get(storage_key, name)
        return {} if found is None else found.get("status") or {}

    def bind_all(self, node: str = "a") -> None:
        for pod in self.pods():
            if not pod["spec"].get("nodeName"):
                pod["spec"]["nodeName"] = node
                self.cluster.api.store.collection("pods").put(pod)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - anything may make it true
                await asyncio.sleep(0.001)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with EmbeddedCluster() as cluster:
        capacity = {"cpu": "64", "memory": "64Gi", "pods": "110"}
        cluster.load(
            [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": capacity}}]
        )
        yield Driver(cluster)


def workload(name: str, replicas: int = 2, image: str = "x", **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    selector = {"matchLabels": {"app": name}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": selector, "template": template, **spec},
    }


async def test_a_deployment_gets_pods_and_counts_those_that_are_ready(driver: Driver) -> None:
    driver.create("deployments", workload("d", 3), "apps")
    await driver.until(lambda: len(driver.pods()) == 3)
    assert all(pod["metadata"]["labels"]["app"] == "d" for pod in driver.pods())
    driver.bind_all()
    await driver.until(lambda: driver.status("apps/deployments", "d").get("readyReplicas") == 3)


async def test_scaling_a_deployment_down_takes_pods_away(driver: Driver) -> None:
    driver.create("deployments", workload("d", 3), "apps")
    await driver.until(lambda: len(driver.pods()) == 3)
    driver.patch("deployments", "d", {"spec": {"replicas": 1}}, "apps")
    await driver.until(lambda: len(driver.pods()) == 1)


async def test_a_new_template_replaces_the_pods(driver: Driver) -> None:
    driver.create("deployments", workload("d", 2), "apps")
    await driver.until(lambda: len(driver.pods()) == 2)
    template = {"spec": {"containers": [{"name": "c", "image": "new"}]}}
    driver.patch("deployments", "d", {"spec": {"template": template}}, "apps")
    await driver.until(lambda: [pod["spec"]["containers"][0]["image"] for pod in driver.pods()] == ["new", "new"])


async def test_a_deleted_pod_is_replaced(driver: Driver) -> None:
    driver.create("replicasets", workload("r", 1), "apps")
    await driver.until(lambda: len(driver.pods()) == 1)
    first = driver.pods()[0]["metadata"]["name"]
    driver.delete("pods", first)
    await driver.until(lambda: [pod["metadata"]["name"] for pod in driver.pods()] not in ([], [first]))


async def test_what_is_owned_goes_with_its_owner(driver: Driver) -> None:
    driver.create("deployments", workload("d"), "apps")
    await driver.until(lambda: len(driver.pods()) == 2)
    driver.delete("deployments", "d", "apps")
    await driver.until(lambda: not driver.pods())
    assert len(driver.cluster.api.store.collection("apps/replicasets")) == 0


async def test_a_stateful_set_makes_its_pods_in_order(driver: Driver) -> None:
    driver.create("statefulsets", workload("s", 2, serviceName="s"), "apps")
    await driver.until(lambda: [pod["metadata"]["name"] for pod in driver.pods()] == ["s-0"])
    driver.bind_all()
    await driver.until(lambda: [pod["metadata"]["name"] for pod in driver.pods()] == ["s-0", "s-1"])


async def test_a_job_is_complete_when_enough_pods_have_succeeded(driver: Driver) -> None:
    template = {
        "metadata": {"annotations": {"embedded/run-seconds": "0"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
    }
    spec = {"completions": 3, "parallelism": 2, "template": template}
    driver.create("jobs", {"metadata": {"name": "j"}, "spec": spec}, "batch")

    def complete() -> bool:
        driver.bind_all()
        return any(item["type"] == "Complete" for item in driver.status("batch/jobs", "j").get("conditions", ()))

    await driver.until(complete)
    assert driver.status("batch/jobs", "j")["succeeded"] == 3


async def test_a_deleted_namespace_takes_everything_in_it_along(driver: Driver) -> None:
    api = driver.cluster.api
    api.create(Target("create", resource("namespaces"), None, "", ""), {"metadata": {"name": "n"}})
    inside = Target("create", resource("configmaps"), "n", "", "")
    api.create(inside, {"metadata": {"name": "c"}})
    api.delete(Target("delete", resource("namespaces"), None, "n", ""), {})
    with pytest.raises(ApiError, match="because it is being terminated"):
        api.create(inside, {"metadata": {"name": "d"}})
    await driver.until(lambda: driver.get("namespaces", "n", "") is None)
    assert driver.get("configmaps", "c", "n") is None


async def test_a_budget_allows_no_more_evictions_than_its_limit(driver: Driver) -> None:
    driver.create("replicasets", workload("r", 2), "apps")
    await driver.until(lambda: len(driver.pods()) == 2)
    driver.bind_all()
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "r"}}}}
    driver.create("poddisruptionbudgets", budget, "policy")
    await driver.until(lambda: driver.status("policy/poddisruptionbudgets", "b").get("disruptionsAllowed") == 1)
    first, second = (pod["metadata"]["name"] for pod in driver.pods())
    evict(driver.cluster.api, driver.target("pods", name=first), {})
    with pytest.raises(ApiError) as refused:
        evict(driver.cluster.api, driver.target("pods", name=second), {})
    assert refused.value.code == 429
    assert "disruption budget" in refused.value.message


def claim(name: str, storage_class: str, **spec: Any) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": {"storageClassName": storage_class, **wanted, **spec}}


def volume(name: str, storage_class: str, storage: str) -> Json:
    capacity = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"]}
    source = {"csi": {"driver": "d", "volumeHandle": name}}
    return {"metadata": {"name": name}, "spec": {"storageClassName": storage_class, **capacity, **source}}


async def test_a_claim_gets_the_smallest_volume_that_is_large_enough(driver: Driver) -> None:
    for name, storage in (("small", "500Mi"), ("large", "10Gi"), ("right", "2Gi")):
        driver.create("persistentvolumes", volume(name, "manual", storage))
    driver.create("persistentvolumeclaims", claim("c", "manual"))
    await driver.until(lambda: driver.status("persistentvolumeclaims", "c").get("phase") == "Bound")
    assert (driver.get("persistentvolumeclaims", "c") or {})["spec"]["volumeName"] == "right"
    bound = driver.get("persistentvolumes", "right", "") or {}
    assert (bound["status"]["phase"], bound["spec"]["claimRef"]["name"]) == ("Bound", "c")


async def test_a_claim_of_a_class_that_waits_gets_its_volume_when_a_node_is_chosen(driver: Driver) -> None:
    meta = {"metadata": {"name": "fast"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    driver.create("storageclasses", meta, "storage.k8s.io")
    driver.create("persistentvolumeclaims", claim("c", "fast"))
    driver.create("persistentvolumeclaims", claim("other", "fast"))
    chosen = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "a"}}}
    driver.patch("persistentvolumeclaims", "c", chosen)
    await driver.until(lambda: driver.status("persistentvolumeclaims", "c").get("phase") == "Bound")
    assert driver.status("persistentvolumeclaims", "other")["phase"] == "Pending"


async def test_a_volume_with_a_claim_reference_is_bound_to_it(driver: Driver) -> None:
    driver.create("persistentvolumeclaims", claim("c", "manual"))
    given = volume("v", "manual", "1Gi")
    given["spec"]["claimRef"] = {"namespace": "default", "name": "c"}
    driver.create("persistentvolumes", given)
    await driver.until(lambda: driver.status("persistentvolumeclaims", "c").get("phase") == "Bound")


async def test_a_deleted_claim_stays_while_a_pod_uses_it(driver: Driver) -> None:
    driver.create("persistentvolumeclaims", claim("c", "manual"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}
    driver.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    driver.delete("persistentvolumeclaims", "c")
    await asyncio.sleep(0.05)
    assert driver.get("persistentvolumeclaims", "c") is not None
    driver.delete("pods", "p")
    await driver.until(lambda: driver.get("persistentvolumeclaims", "c") is None)


async def test_dependents_stay_when_their_owner_leaves_them_behind(driver: Driver) -> None:
    driver.create("replicasets", workload("r", 2), "apps")
    await driver.until(lambda: len(driver.pods()) == 2)
    options = {"propagationPolicy": "Orphan"}
    driver.cluster.api.delete(driver.target("replicasets", "apps", "r"), options)
    await driver.until(lambda: not any(pod["metadata"].get("ownerReferences") for pod in driver.pods()))
    assert len(driver.pods()) == 2
