"""The manifests of deploy/: the scheduler has exactly the permissions that it uses."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.deploy.manifests import BASE, objects
from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import ALL_GOOD, StartScheduler
from tests.integration.devices import claim, claim_pod, device_class, extended_pod, left_claim, resource_slice
from tests.integration.front import Exchange, Fault, Front, LoseAnswer
from tests.integration.kubectl import kubectl
from tests.integration.objects import Json, node, pod, pod_group
from tests.integration.permissions import Permission, granted_by, used
from tests.integration.process import SchedulerProcess

pytestmark = pytest.mark.needs("kubectl")

HOME = ACCOUNT = "policy-scheduler"


@pytest.fixture
def secure_front(cluster: Cluster, tmp_path: Path) -> Iterator[Front]:
    """A front with TLS, for a service account trusts nothing else."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "front-ca.crt"
    authority.cert_pem.write_to_path(ca_file)
    with Front(cluster.endpoint, tls=context, ca_file=ca_file) as front:
        yield front


@pytest.fixture
def deployed(
    cluster: Cluster, secure_front: Front, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> SchedulerProcess:
    """The scheduler as its Deployment runs it, with its own service account, after `kubectl apply -k`."""
    kubectl(cluster.kubeconfig(tmp_path / "admin"), "apply", "-k", str(BASE))
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "token").write_text(cluster.token(HOME, ACCOUNT))
    (mounted / "namespace").write_text(HOME)
    assert secure_front.ca_file is not None
    (mounted / "ca.crt").write_bytes(secure_front.ca_file.read_bytes())
    moved = (
        f"import pathlib; from kube_policy_scheduler.adapters.kube import credentials;"
        f"credentials.SERVICE_ACCOUNT = pathlib.Path({str(mounted)!r});"
        f"from kube_policy_scheduler.daemon.main import main; main()"
    )
    (config,) = [o for o in objects() if o["kind"] == "ConfigMap" and o["metadata"]["name"] == ACCOUNT]
    config_file = tmp_path / "config.yaml"
    config_file.write_text(config["data"]["config.yaml"])
    return scheduler(
        f"--config={config_file}",
        f"--policies={policies.path}",
        "--http-secure",  # as it is where others can connect
        defaults=False,
        command=("-c", moved),
        environment={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(secure_front.port)},
    )


def granted() -> set[Permission]:
    return granted_by(objects(), account=ACCOUNT)


def test_what_is_granted_is_what_is_used(
    cluster: Cluster, secure_front: Front, deployed: SchedulerProcess, policies: ConfigMapVolume
) -> None:
    """Walks through everything the scheduler ever asks of an API server."""
    lost: list[str] = []

    def lose_one_answer(exchange: Exchange) -> Fault | None:
        if exchange.is_about("create", "pods/binding") and not lost:
            lost.append(exchange.name)
            return LoseAnswer()
        return None

    secure_front.plan = lose_one_answer
    deployed.start_ready()
    eventually(lambda: cluster.events("policies", reason="PoliciesAccepted", namespace=HOME))
    keeps_former_versions(cluster, policies)
    cluster.add_pods(pod("web", cpu="900m"))
    eventually(lambda: cluster.events("web", reason="FailedScheduling"))
    cluster.add_nodes(node("n1", cpu="1"))
    cluster.wait_bound("web")
    eventually(lambda: cluster.events("web", reason="Scheduled"))
    fails_twice(cluster)
    preempts(cluster)
    binds_volumes(cluster)
    allocates_devices(cluster)
    if cluster.has_pod_groups:
        tells_of_a_group(cluster)
    eventually(lambda: ("coordination.k8s.io", "leases", "update") in used(secure_front))
    viewer = f"Bearer {cluster.token(HOME, 'policy-scheduler-viewer')}"
    assert deployed.get_securely("/policies", authorization=viewer)[0] == 200
    assert deployed.terminate() == 0

    denied = {(e.resource, e.verb) for e in secure_front.exchanges if e.code in (401, 403)}
    assert denied == set()
    assert all(exchange.authorization for exchange in secure_front.exchanges)
    assert used(secure_front) - granted() == set()
    idle = {(group, resource) for group, resource, verb in granted() - used(secure_front) if verb == "get"}
    # a client that may list can see each of them: `get` in addition reveals nothing, and a role without it looks broken
    assert idle <= {(group, resource) for group, resource, verb in granted() if verb == "list"}
    optional = {(group, "podgroups", "watch") for group in ("scheduling.k8s.io", "scheduling.x-k8s.io")}
    # of 1.37
    optional |= {("resource.k8s.io", "devicetaintrules", "watch")}
    optional |= {("scheduling.k8s.io", "compositepodgroups", "watch")}
    optional |= {("scheduling.k8s.io", "compositepodgroups/status", "patch")}
    optional |= {("topology.node.k8s.io", "noderesourcetopologies", verb) for verb in ("list", "watch")}
    optional |= {("coordination.k8s.io", "leases", "watch")}  # a standby's
    optional |= {("policy-scheduler.dev", "deviceannotations", "write")}  # asked by the API server's own admission
    optional |= {("resource.k8s.io", "resourceclaims", "update")}  # for claims with parameters for a driver
    optional |= {("resource.k8s.io", "resourceclaims/binding", "patch")}  # asked by the API server, of a claim's status
    if not cluster.has_pod_groups:
        optional |= {("scheduling.k8s.io", "podgroups/status", "patch")}
    assert {what for what in granted() - used(secure_front) - optional if what[2] != "get"} == set()


def keeps_former_versions(cluster: Cluster, policies: ConfigMapVolume) -> None:
    """Have a version come back, which is then kept under its new number alone."""
    for number, score in enumerate((1, 2, 1), start=1):
        data = {"default.policy": f"{ALL_GOOD}score {score}\n"}
        cluster.api.patch("configmaps", "policies", {"data": data}, namespace=HOME)
        policies.update(data)
        eventually(lambda wanted=number: f"policies-{wanted}" in versions(cluster))
    eventually(lambda: versions(cluster) == {"policies-2", "policies-3"})


def versions(cluster: Cluster) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.api.list("controllerrevisions", namespace=HOME)}


def fails_twice(cluster: Cluster) -> None:
    """Have an event become a series, which is written with a patch."""
    cluster.add_pods(pod("big", cpu="64"))
    eventually(lambda: cluster.events("big", reason="FailedScheduling"))
    for size in ("1100m", "1200m"):
        cluster.api.patch("nodes", "n1", {"status": {"allocatable": {"cpu": size}}}, subresource="status")
    eventually(lambda: any(event.get("series") for event in cluster.events("big")))
    cluster.delete_pod("big")


def preempts(cluster: Cluster) -> None:
    priority: Json = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    cluster.api.create("priorityclasses", priority | {"value": 1000})
    cluster.add_pods(pod("urgent", cpu="1", priorityClassName="urgent"))
    eventually(lambda: "web" not in cluster.placements())
    assert cluster.wait_bound("urgent") == {"urgent": "n1"}
    assert cluster.events("web", reason="Preempted")
    cluster.delete_pod("urgent")


def allocates_devices(cluster: Cluster) -> None:
    """Allocate a claim, and a claim of the scheduler's own for a pod that has another one left from before."""
    cluster.api.patch("nodes", "n1", {"status": {"allocatable": {"cpu": "4"}}}, subresource="status")
    cluster.api.create("resourceclaims", claim("claimed"))
    cluster.add_pods(claim_pod("claimed"), extended_pod("extended", "example.com/gpu", 1))
    cluster.api.create("resourceclaims", left_claim(cluster, "extended"))
    cluster.api.create("resourceslices", resource_slice("n1", devices=("gpu0", "gpu1")))
    cluster.api.create("deviceclasses", device_class("gpu", extended="example.com/gpu"))
    cluster.wait_bound("claimed", "extended")


def binds_volumes(cluster: Cluster) -> None:
    """Bind a claim to a volume that exists, and have another provisioned; we are the volume controllers."""
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "example.com/disks")):
        cluster.ensure(
            "storageclasses",
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
    cluster.api.create("persistentvolumes", volume("disk", storage_class="local"))
    cluster.api.patch("persistentvolumes", "disk", {"status": {"phase": "Available"}}, subresource="status")
    for name in ("local", "made"):
        cluster.api.create("persistentvolumeclaims", volume_claim(name, storage_class=name))
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        cluster.add_pods(pod(f"uses-{name}", volumes=volumes))
    eventually(lambda: cluster.api.get("persistentvolumes", "disk")["spec"].get("claimRef", {}).get("name") == "local")
    bind_claim(cluster, "local", to="disk")
    cluster.wait_bound("uses-local")
    chosen = "volume.kubernetes.io/selected-node"
    eventually(
        lambda: cluster.api.get("persistentvolumeclaims", "made")["metadata"].get("annotations", {}).get(chosen) == "n1"
    )
    cluster.api.create("persistentvolumes", volume("fresh", storage_class="made", claim="made"))
    bind_claim(cluster, "made", to="fresh")
    cluster.wait_bound("uses-made")


def tells_of_a_group(cluster: Cluster) -> None:
    cluster.api.create("podgroups", pod_group("group", size=2))
    cluster.add_pods(*(pod(f"of-group{i}", cpu="10m", schedulingGroup={"podGroupName": "group"}) for i in range(2)))
    eventually(lambda: cluster.condition("group", "PodGroupScheduled", plural="podgroups").get("status") == "True")


def volume(name: str, *, storage_class: str, claim: str = "") -> Json:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def volume_claim(name: str, *, storage_class: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def bind_claim(cluster: Cluster, claim: str, *, to: str) -> None:
    """Do what the volume controller does when a claim has found its volume."""
    uid = cluster.api.get("persistentvolumeclaims", claim)["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": uid}
    cluster.api.patch("persistentvolumes", to, {"spec": {"claimRef": reference}})
    cluster.api.patch("persistentvolumes", to, {"status": {"phase": "Bound"}}, subresource="status")
    done = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    cluster.api.patch("persistentvolumeclaims", claim, {"metadata": {"annotations": done}, "spec": {"volumeName": to}})
    cluster.api.patch("persistentvolumeclaims", claim, {"status": {"phase": "Bound"}}, subresource="status")


def take_away(cluster: Cluster, resource: str) -> list[Any]:
    """Take away the scheduler's permission for a resource; return the rules of its role as they were."""
    before: list[Any] = cluster.api.get("clusterroles", ACCOUNT)["rules"]
    rules = [rule | {"resources": [each for each in rule["resources"] if each != resource]} for rule in before]
    cluster.api.patch("clusterroles", ACCOUNT, {"rules": rules})
    return before


def test_without_a_permission_the_log_says_which(
    cluster: Cluster, secure_front: Front, deployed: SchedulerProcess
) -> None:
    rules = take_away(cluster, "nodes")
    deployed.start_serving()
    eventually(lambda: "failed to list or watch nodes" in deployed.log())
    assert deployed.get("/readyz")[0] == 500
    cluster.api.patch("clusterroles", ACCOUNT, {"rules": rules})
    eventually(lambda: deployed.get("/readyz")[0] == 200)


@pytest.mark.kubernetes("1.37")
def test_without_the_permission_for_taint_rules_it_starts_all_the_same(
    cluster: Cluster, secure_front: Front, deployed: SchedulerProcess
) -> None:
    take_away(cluster, "devicetaintrules")
    deployed.start_ready()
    cluster.add_nodes(node("n1", cpu="1"))
    cluster.add_pods(pod("web", cpu="900m"))
    cluster.wait_bound("web")
    assert "devicetaintrules" in deployed.log()
