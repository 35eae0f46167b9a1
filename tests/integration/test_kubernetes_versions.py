"""The scheduler beside an API server of a newer version: its rules are followed, what is new in it is read and told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Embedded
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.devices import DRIVER, claim, claim_pod, device_class, resource_slice
from tests.integration.objects import OURS, Json, node, pod

GROUP = "/apis/scheduling.k8s.io"
GROUPS = f"{GROUP}/v1beta1/namespaces/default/podgroups"
TREES = f"{GROUP}/v1alpha3/namespaces/default/compositepodgroups"


@pytest.fixture
def newer(cluster: Cluster) -> Cluster:
    """A cluster of 1.37 with PodGroups."""
    if "podgroups" not in served(cluster, "v1beta1"):
        pytest.skip("this API server has no PodGroups of v1beta1")
    return cluster


def served(cluster: Cluster, version: str) -> list[str]:
    versions = cluster.api.request("GET", GROUP)["versions"]
    if version not in [each["version"] for each in versions]:
        return []
    return [each["name"] for each in cluster.api.request("GET", f"{GROUP}/{version}")["resources"]]


def told(cluster: Cluster, path: str) -> dict[str, tuple[str, str]]:
    conditions = cluster.api.request("GET", path).get("status", {}).get("conditions", ())
    return {each["type"]: (each["status"], each.get("reason", "")) for each in conditions}


def is_told(cluster: Cluster, path: str, conditions: dict[str, tuple[str, str]]) -> bool:
    return told(cluster, path) == conditions


def of(version: str, kind: str, name: str, **spec: Json | str) -> Json:
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.kubernetes("1.37")
def test_the_rules_of_the_server_are_followed_and_its_groups_are_told_by_their_new_names(
    newer: Cluster, scheduler: StartScheduler
) -> None:
    started = scheduler().start_ready()
    assert "[+]kubernetes" in started.get("/readyz?verbose")[1]
    assert "1.37" in started.get("/readyz?verbose")[1]

    parts = ("left", "right") if "compositepodgroups" in served(newer, "v1alpha3") else ("left",)
    if len(parts) == 2:
        policy = {"gang": {"minGroupCount": 2}}
        newer.api.request("POST", TREES, of("v1alpha3", "CompositePodGroup", "tree", schedulingPolicy=policy))
    for part in parts:
        parent = {"parentCompositePodGroupName": "tree"} if len(parts) == 2 else {}
        gang = {"gang": {"minCount": 1}}
        newer.api.request("POST", GROUPS, of("v1beta1", "PodGroup", part, schedulingPolicy=gang, **parent))
    member = partial(pod, scheduler=OURS, cpu="1")
    newer.add_nodes(node("n1", cpu="1"))
    newer.add_pods(*(member(f"{part}0", schedulingGroup={"podGroupName": part}) for part in parts))
    if len(parts) == 2:
        eventually(lambda: told(newer, f"{GROUPS}/left").get("PodGroupInitiallyScheduled", ("", ""))[0] == "False")
        assert not any(newer.placements().values()), "the tree needs both"
        newer.add_nodes(node("n2", cpu="1"))
    newer.wait_bound()
    scheduled = ("True", "Scheduled")
    for part in parts:
        eventually(partial(is_told, newer, f"{GROUPS}/{part}", {"PodGroupInitiallyScheduled": scheduled}))
    if len(parts) == 2:
        eventually(partial(is_told, newer, f"{TREES}/tree", {"CompositePodGroupInitiallyScheduled": scheduled}))


@pytest.mark.kubernetes("1.37")
def test_pods_of_a_group_share_a_claim_that_is_made_for_the_group(
    newer: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    if not isinstance(newer, Embedded):
        pytest.skip("needs the feature gate DRAWorkloadResourceClaims in the API server")
    newer.add_nodes(node("n1"), node("n2"))
    newer.api.create("deviceclasses", device_class("gpu"))
    for name in ("n1", "n2"):
        newer.api.create("resourceslices", resource_slice(name, devices=("gpu0",)))
    template = {"metadata": {"name": "one"}, "spec": {"spec": claim("web")["spec"]}}
    newer.api.create("resourceclaimtemplates", {"apiVersion": "resource.k8s.io/v1", **template})
    shared = {"name": "gpus", "resourceClaimTemplateName": "one"}
    gang = {"gang": {"minCount": 2}}
    group = of("v1beta1", "PodGroup", "train", schedulingPolicy=gang)
    group["spec"]["resourceClaims"] = [shared]
    newer.api.request("POST", GROUPS, group)
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        "kubernetes: {featureGates: [DRAWorkloadResourceClaims=true]}\n"
    )
    scheduler(f"--config={configuration}").start_ready()
    newer.add_pods(
        *(
            pod(name, scheduler=OURS, schedulingGroup={"podGroupName": "train"}, resourceClaims=[shared])
            for name in "ab"
        )
    )
    placed = newer.wait_bound("a", "b")
    assert len(set(placed.values())) == 1, "the only device of the claim is on one node"
    (made,) = newer.api.list("resourceclaims")
    (user,) = made["status"]["reservedFor"]
    assert (user["apiGroup"], user["resource"], user["name"]) == ("scheduling.k8s.io", "podgroups", "train")


@pytest.mark.kubernetes("1.37")
def test_a_rule_that_taints_devices_is_followed_while_it_is_there(cluster: Cluster, scheduler: StartScheduler) -> None:
    devices = "/apis/resource.k8s.io/v1"
    if "devicetaintrules" not in [each["name"] for each in cluster.api.request("GET", devices)["resources"]]:
        pytest.skip("this API server has no DeviceTaintRules of v1")
    cluster.add_nodes(node("n1"))
    cluster.api.create("deviceclasses", device_class("gpu"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0",)))
    spec = {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "bad", "effect": "NoSchedule"}}
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "bad"}, "spec": spec}
    cluster.api.request("POST", f"{devices}/devicetaintrules", rule)
    scheduler().start_ready()
    cluster.api.create("resourceclaims", claim("web"))
    cluster.add_pods(claim_pod("web"))
    eventually(lambda: "cannot allocate all claims" in cluster.condition("web").get("message", ""))
    cluster.api.request("DELETE", f"{devices}/devicetaintrules/bad")
    assert cluster.wait_bound("web") == {"web": "n1"}
