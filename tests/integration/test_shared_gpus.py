"""Shares of GPUs in a whole cluster: one device per share, named on the pod; a restarted scheduler knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import BASE
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.control_plane import assets
from tests.integration.kubectl import kubectl, run_kubectl
from tests.integration.objects import node, pod

pytestmark = pytest.mark.needs("kubectl")
GPU = "nvidia.com/gpu"
DEVICES = "policy-scheduler/devices"


def gpu_node(name: str, gpus: int) -> dict[str, Any]:
    made = node(name)
    offered = {GPU: str(gpus), f"{GPU}-milli": str(gpus * 1000)}
    made["status"]["capacity"] = made["status"]["allocatable"] = made["status"]["allocatable"] | offered
    return made


def gpu_pod(name: str, resource: str, amount: int) -> dict[str, Any]:
    made = pod(name)
    resources = made["spec"]["containers"][0]["resources"]
    resources["requests"][resource] = str(amount)
    resources["limits"] = {resource: str(amount)}
    return made


def devices(cluster: Cluster, name: str) -> str:
    return str(cluster.pod(name)["metadata"].get("annotations", {}).get(DEVICES, ""))


@pytest.fixture
def protected(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody but the scheduler, here the administrator, may write the annotation."""
    kubectl(cluster.kubeconfig(tmp_path / "admin"), "apply", "-f", str(BASE / "device-annotation.yaml"))


def test_a_pod_gets_its_device_and_a_restarted_scheduler_knows_it(
    cluster: Cluster, scheduler: StartScheduler, protected: None
) -> None:
    cluster.add_nodes(gpu_node("a", 2))
    first = scheduler()
    first.start_ready()
    for name, share in (("one", 600), ("two", 700)):
        cluster.add_pods(gpu_pod(name, f"{GPU}-milli", share))
        cluster.wait_bound(name)
    assert (devices(cluster, "one"), devices(cluster, "two")) == (f"{GPU}=0", f"{GPU}=1")
    first.terminate()
    cluster.delete_pod("one")
    scheduler().start_ready()
    cluster.add_pods(gpu_pod("half", f"{GPU}-milli", 500))
    cluster.wait_bound("half")
    assert devices(cluster, "half") == f"{GPU}=0", "the other has 300 left"
    cluster.add_pods(gpu_pod("large", f"{GPU}-milli", 600), gpu_pod("whole", GPU, 1))
    for name in ("large", "whole"):
        eventually(
            lambda at=name: "too little room on each nvidia.com/gpu device" in cluster.condition(at).get("message", "")
        )  # type: ignore[misc]
    cluster.delete_pod("half")
    eventually(lambda: sorted(filter(None, (devices(cluster, n) for n in ("large", "whole")))) == [f"{GPU}=0"])


def test_without_protection_what_a_tenant_wrote_counts_for_nothing(
    cluster: Cluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    admin = cluster.kubeconfig(tmp_path / "admin")
    kubectl(admin, "delete", "--ignore-not-found", "-f", str(BASE / "device-annotation.yaml"))
    cluster.add_nodes(gpu_node("a", 2))
    process = scheduler().start_ready()
    wishes = gpu_pod("wishes", f"{GPU}-milli", 600)
    wishes["metadata"]["annotations"] = {DEVICES: f"{GPU}=1"}
    cluster.add_pods(wishes)
    cluster.wait_bound("wishes")
    assert devices(cluster, "wishes") == f"{GPU}=0", "it is told the device that it got"
    process.terminate()
    kubectl(admin, "annotate", "pod", "wishes", "--overwrite", f"{DEVICES}={GPU}=1")
    again = scheduler().start_ready()
    cluster.add_pods(gpu_pod("next", f"{GPU}-milli", 600))
    cluster.wait_bound("next")
    assert devices(cluster, "next") == f"{GPU}=1", "the other is taken to be where we would have put it"
    eventually(lambda: again.metrics().get("policy_scheduler_device_annotation_protected") == 0.0)


@pytest.mark.skipif(assets() is None, reason="only a real API server asks admission policies: KUBEBUILDER_ASSETS")
def test_only_the_scheduler_writes_the_devices_of_a_pod(cluster: Cluster, tmp_path: Path) -> None:
    admin = cluster.kubeconfig(tmp_path / "admin")
    kubectl(admin, "apply", "-k", str(BASE))
    all_of_pods = ["pods", "pods/status", "pods/binding", "pods/ephemeralcontainers", "bindings"]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "all-of-pods"},
        "rules": [{"apiGroups": [""], "resources": all_of_pods, "verbs": ["*"]}],
    }
    cluster.ensure("clusterroles", role)
    cluster.ensure("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}})
    kubectl(
        admin, "create", "clusterrolebinding", "tenant", "--clusterrole=all-of-pods", "--serviceaccount=default:tenant"
    )
    cluster.add_nodes(node("a"))
    denied = "only the scheduler may set the annotation policy-scheduler/devices; remove it"

    def as_tenant(*arguments: str, by: str = "system:serviceaccount:default:tenant") -> str:
        done = run_kubectl(admin, f"--as={by}", *arguments)
        return done.stderr if done.returncode else ""

    def write(name: str, thing: dict[str, Any]) -> str:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(thing))
        return str(file)

    def bind(name: str, **annotations: str) -> tuple[str, str]:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": annotations},
            "target": {"kind": "Node", "name": "a"},
        }
        return f"--raw=/api/v1/namespaces/default/pods/{name}/binding", f"--filename={write('binding', binding)}"

    plain, marked = pod("plain"), pod("marked")
    marked["metadata"]["annotations"] = {DEVICES: f"{GPU}=0"}
    eventually(lambda: denied in as_tenant("create", "-f", write("marked", marked)))  # it takes a moment to be in force
    assert as_tenant("create", "-f", write("plain", plain)) == ""
    assert denied in as_tenant("annotate", "pod", "plain", f"{DEVICES}={GPU}=0")
    patch = json.dumps({"metadata": {"annotations": {DEVICES: f"{GPU}=0"}}})
    assert denied in as_tenant("patch", "pod", "plain", "--subresource=status", f"--patch={patch}")
    assert denied in as_tenant("create", *bind("plain", **{DEVICES: f"{GPU}=0"}))
    account = "system:serviceaccount:policy-scheduler:policy-scheduler"
    assert as_tenant("create", *bind("plain", **{DEVICES: f"{GPU}=1"}), by=account) == ""
    assert devices(cluster, "plain") == f"{GPU}=1"
    assert denied in as_tenant("annotate", "pod", "plain", "--overwrite", f"{DEVICES}={GPU}=0")
    assert denied in as_tenant("annotate", "pod", "plain", f"{DEVICES}-")
    assert as_tenant("label", "pod", "plain", "some=label") == ""
    assert as_tenant("patch", "pod", "plain", "--subresource=status", '--patch={"status":{"message":"well"}}') == ""
    assert as_tenant("delete", "pod", "plain", "--wait=false") == ""
    kubectl(admin, "delete", "-f", str(BASE / "device-annotation.yaml"))
