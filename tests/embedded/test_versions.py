"""What the embedded cluster says and serves as one version of Kubernetes or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kube_policy_scheduler.embedded import EmbeddedCluster
from kube_policy_scheduler.embedded.resources import RESOURCES, catalog
from kube_policy_scheduler.kubernetes_rules import NEWEST, OLDEST, KubernetesVersion
from tests.embedded.rest import Client

GROUP = "/apis/scheduling.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}
Serve = Callable[[str], Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(version: str) -> Client:
            cluster = EmbeddedCluster(kubelets=None, controllers=None, kubernetes=KubernetesVersion.parse(version))
            return Client(stack.enter_context(cluster.in_thread()).url)

        yield start


def group(version: str, kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "train", **metadata},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("version", "git", "groups"),
    [
        ("1.36.2", "v1.36.2+embedded", ["v1", "v1alpha2"]),
        ("1.37", "v1.37.0+embedded", ["v1", "v1beta1", "v1alpha3"]),
        ("1.38.1", "v1.38.1+embedded", ["v1", "v1beta1", "v1alpha3"]),
    ],
)
def test_a_version_is_told_and_its_kinds_are_served(serve: Serve, version: str, git: str, groups: list[str]) -> None:
    client = serve(version)
    told = client.send("GET", "/version").body
    assert (told["gitVersion"], told["minor"]) == (git, git.split(".")[1])
    found = client.send("GET", GROUP).body
    assert [each["version"] for each in found["versions"]] == groups, "the preferred one is the first"
    for each in groups[1:]:
        kinds = client.send("GET", f"{GROUP}/{each}").body["resources"]
        composite = ["compositepodgroups", "compositepodgroups/status"] if each == "v1alpha3" else []
        names = sorted(kind["name"] for kind in kinds)
        assert names == [*composite, "podgroups", "podgroups/status", "workloads"]
    devices = client.send("GET", "/apis/resource.k8s.io/v1").body["resources"]
    assert ("devicetaintrules" in [kind["name"] for kind in devices]) == ("v1beta1" in groups)
    document = client.send("GET", f"/openapi/v3/apis/scheduling.k8s.io/{groups[1]}").body
    assert document["info"]["version"] == git


def test_groups_are_kept_in_the_version_that_is_served(serve: Serve) -> None:
    client = serve("1.37")
    at = f"{GROUP}/v1beta1/namespaces/default/podgroups"
    spec = GANG | {"parentCompositePodGroupName": "tree"}
    made = client.send("POST", at, body=group("v1beta1", "PodGroup", spec))
    assert (made.code, made.body["spec"], made.body["metadata"]["generation"]) == (201, spec, 1)
    status = {"status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}}
    patched = client.send("PATCH", f"{at}/train/status", body=status, content_type="application/merge-patch+json")
    assert patched.body["status"] == status["status"]
    tree = group("v1alpha3", "CompositePodGroup", {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}, name="tree")
    assert client.send("POST", f"{GROUP}/v1alpha3/namespaces/default/compositepodgroups", body=tree).code == 201
    old = f"{GROUP}/v1alpha2/namespaces/default/podgroups"
    assert client.send("POST", old, body=group("v1alpha2", "PodGroup", GANG)).code == 404


def test_a_group_is_the_same_in_both_versions(serve: Serve) -> None:
    client = serve("1.37")
    beta, alpha = (f"{GROUP}/{version}/namespaces/default/podgroups" for version in ("v1beta1", "v1alpha3"))
    made = client.send("POST", alpha, body=group("v1alpha3", "PodGroup", GANG))
    assert (made.code, made.body["apiVersion"]) == (201, "scheduling.k8s.io/v1alpha3")
    for at, version in ((beta, "v1beta1"), (alpha, "v1alpha3")):
        one, many = client.send("GET", f"{at}/train").body, client.send("GET", at).body
        assert (one["apiVersion"], many["apiVersion"]) == (f"scheduling.k8s.io/{version}",) * 2
        assert one == made.body | {"apiVersion": one["apiVersion"]}
        assert [item["metadata"]["name"] for item in many["items"]] == ["train"]
    patch = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "PodGroup",
        "spec": {"schedulingPolicy": {"basic": {}}},
    }
    for media in ("application/merge-patch+json", "application/apply-patch+yaml"):
        changed = client.send("PATCH", f"{alpha}/train?fieldManager=me", body=patch, content_type=media)
        assert (changed.code, changed.body["apiVersion"]) == (200, "scheduling.k8s.io/v1alpha3"), media
        assert client.send("GET", f"{beta}/train").body["apiVersion"] == "scheduling.k8s.io/v1beta1"
    replaced = client.send("PUT", f"{alpha}/train", body=changed.body)
    assert replaced.code == 200
    work = group("v1beta1", "Workload", {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]})
    assert client.send("POST", f"{GROUP}/v1beta1/namespaces/default/workloads", body=work).code == 201
    assert client.send("GET", f"{GROUP}/v1alpha3/namespaces/default/workloads/train").code == 200


def test_a_kind_is_stored_in_one_place_in_every_version() -> None:
    for minor in range(OLDEST, NEWEST + 1):
        served = catalog(KubernetesVersion(minor))
        assert set(served.by_kind.values()) == set(served.resources)
        assert {served.by_storage[each.storage_key].kind for each in served.resources} == {
            each.kind for each in served.resources
        }
    assert all(any(each.is_served_by(KubernetesVersion(minor)) for minor in (36, 37)) for each in RESOURCES)


def test_nodes_say_the_version_of_the_cluster() -> None:
    cluster = EmbeddedCluster(kubernetes=KubernetesVersion.parse("1.37.3"), controllers=None)
    with cluster.in_thread() as serving:
        serving.load([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {}}])
        client = Client(serving.url)
        for _ in range(500):
            info = client.send("GET", "/api/v1/nodes/a").body["status"].get("nodeInfo")
            if info:
                break
    assert info["kubeletVersion"] == "v1.37.3"
