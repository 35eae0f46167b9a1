"""The decision maker beside Karmada's controllers and its webhook: they make bindings, evict, carry out and refuse."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kube_policy_scheduler.fleet.karmada.triggers import DEFAULT_SCHEDULER
from tests.fleet.karmada.bindings import DUPLICATED, DYNAMIC
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.karmada import NAMESPACE, Karmada, serve
from tests.integration.karmada_programs import definitions, free_port, karmada_scheduler, program, running
from tests.integration.objects import Json
from tests.integration.process import SchedulerProcess

GROUPS = ("work.karmada.io", "policy.karmada.io", "config.karmada.io", "apps.karmada.io", "autoscaling.karmada.io")
GROUPS += ("multicluster.x-k8s.io", "networking.karmada.io", "remedy.karmada.io")
NO_EXECUTE = {"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"}
BOTH = [
    {"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]},
    {"groupVersion": "rbac.authorization.k8s.io/v1", "resources": [{"kind": "ClusterRole", "name": "clusterroles"}]},
]
ONE_CLUSTER = DUPLICATED | {"clusterAffinity": {"clusterNames": ["a"]}}
EVERYWHERE = DUPLICATED | {"clusterAffinity": None}
"""As a patch: no affinity any more."""
OWNER = {"propagationpolicy.karmada.io/permanent-id": "p-1"}


@pytest.fixture(autouse=True)
def programs() -> None:
    """Skip the test before anything is started."""
    program("karmada-controller-manager")
    program("karmada-webhook")


@pytest.fixture
def karmada(cluster: Cluster) -> Karmada:
    """A control plane that serves all that Karmada's controllers watch."""
    found = Karmada(cluster.api)
    for each in definitions(*GROUPS):
        version = next(version["name"] for version in each["spec"]["versions"] if version["storage"])
        each["spec"].pop("conversion", None)
        serve(cluster.api, each["spec"]["group"], version, each)
    return found


@pytest.fixture
def ours(cluster: Cluster, karmada: Karmada, tmp_path: Path) -> Iterator[SchedulerProcess]:
    config = f"--kubeconfig={cluster.kubeconfig(tmp_path / 'ours')}"
    arguments = (config, "--scheduler-name=fleet", "--no-leader-election", "--log-format=json")
    process = SchedulerProcess(tmp_path / "fleet", arguments=arguments, subcommand="fleet")
    try:
        yield process.start_ready()
    finally:
        process.kill()
        print(process.log()[-8000:])


def manager(kubeconfig: Path, *more: str) -> list[str]:
    """Return the command of the controllers that need no member clusters; more: names of others."""
    return [
        str(program("karmada-controller-manager")),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(('cluster', 'binding', 'gracefulEviction', *more))}",
        "--feature-gates=Failover=true,GracefulEviction=true",
        "--cluster-monitor-grace-period=1h",  # nobody says that the clusters are well
        "--cluster-startup-grace-period=1h",
        "--enable-no-execute-taint-eviction=true",
        "--no-execute-taint-eviction-purge-mode=Gracefully",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        "--v=2",
    ]


def policy() -> Json:
    spec = {
        "schedulerName": "fleet",
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "placement": DYNAMIC,
        "conflictResolution": "Abort",
    }
    meta = {"name": "web", "namespace": NAMESPACE, "labels": OWNER}
    return {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": meta, "spec": spec}


def deployment(replicas: int) -> Json:
    container = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": spec,
    }


def works(karmada: Karmada) -> dict[str, int]:
    """Return the replicas of the Deployment that the members are to run, by cluster."""
    found = karmada.api.request("GET", "/apis/work.karmada.io/v1alpha1/works")["items"]
    return {
        each["metadata"]["namespace"].removeprefix("karmada-es-"): manifest["spec"]["replicas"]
        for each in found
        if not each["metadata"].get("deletionTimestamp")
        for manifest in each["spec"]["workload"]["manifests"]
        if manifest["kind"] == "Deployment"
    }


def report_healthy(karmada: Karmada, name: str, *clusters: str) -> None:
    """Say that the workload is well in these clusters, as the controllers of a full installation do."""
    health = [{"clusterName": each, "health": "Healthy", "applied": True} for each in clusters]
    status = {"status": {"aggregatedStatus": health}}
    karmada.api.patch("resourcebindings", name, status, namespace=NAMESPACE, subresource="status")


def test_from_a_policy_to_works_and_a_graceful_eviction(
    cluster: Cluster, karmada: Karmada, ours: SchedulerProcess, tmp_path: Path
) -> None:
    for name, cpu in (("a", 6), ("b", 12), ("c", 18)):
        karmada.add_cluster(name, cpu=cpu)
    command, log = manager(cluster.kubeconfig(tmp_path / "manager")), tmp_path / "karmada-controller-manager.log"
    with running(command, log=log):
        policies = f"/apis/policy.karmada.io/v1alpha1/namespaces/{NAMESPACE}/propagationpolicies"
        karmada.api.request("POST", policies, policy())
        karmada.api.create("deployments", deployment(12))
        web = "web-deployment"
        eventually(
            lambda: any(
                each["metadata"]["name"] == web for each in karmada.api.list("resourcebindings", namespace=NAMESPACE)
            )
        )
        assert karmada.binding(web)["spec"]["schedulerName"] == "fleet"
        karmada.wait_placed(web, {"a": 2, "b": 4, "c": 6})
        eventually(lambda: works(karmada) == {"a": 2, "b": 4, "c": 6}, else_=lambda: works(karmada))
        report_healthy(karmada, web, "a")
        karmada.set_cluster("a", {"spec": {"taints": [NO_EXECUTE]}})
        eventually(
            lambda: karmada.binding(web)["spec"].get("gracefulEvictionTasks"), else_=lambda: karmada.binding(web)
        )
        (task,) = karmada.binding(web)["spec"]["gracefulEvictionTasks"]
        assert (task["fromCluster"], task["producer"]) == ("a", "TaintManager")
        karmada.wait_placed(web, {"b": 5, "c": 7})
        assert "a" in works(karmada), "it runs there until the others are healthy"
        assert karmada.binding(web)["spec"]["gracefulEvictionTasks"]
        report_healthy(karmada, web, "b", "c")
        eventually(lambda: not karmada.binding(web)["spec"].get("gracefulEvictionTasks"))
        eventually(lambda: works(karmada) == {"b": 5, "c": 7}, else_=lambda: works(karmada))
        karmada.wait_placed(web, {"b": 5, "c": 7})


REBALANCERS = "/apis/apps.karmada.io/v1alpha1/workloadrebalancers"


def rebalancer(*workloads: Json) -> Json:
    return {
        "apiVersion": "apps.karmada.io/v1alpha1",
        "kind": "WorkloadRebalancer",
        "metadata": {"name": "now"},
        "spec": {"workloads": list(workloads)},
    }


def test_a_workload_rebalancer_has_workloads_placed_afresh_as_karmada_places_them(
    cluster: Cluster, karmada: Karmada, ours: SchedulerProcess, tmp_path: Path
) -> None:
    program("karmada-scheduler")
    for name, cpu in (("a", 6), ("b", 12), ("c", 18)):
        karmada.add_cluster(name, cpu=cpu, apiEnablements=BOTH)
    command = manager(cluster.kubeconfig(tmp_path / "manager"), "workloadRebalancer")
    log = tmp_path / "karmada-controller-manager.log"
    kubeconfig = cluster.kubeconfig(tmp_path / "theirs")
    with running(command, log=log), karmada_scheduler(kubeconfig, log=tmp_path / "karmada-scheduler.log"):
        names = [karmada.add_binding(who, replicas=12, schedulerName=who) for who in ("fleet", DEFAULT_SCHEDULER)]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "role", "uid": "u-role"}
        karmada.add_cluster_binding(
            "role-clusterrole", replicas=0, replicaRequirements=None, placement=ONE_CLUSTER, resource=role
        )
        for name in names:
            karmada.wait_placed(name, {"a": 2, "b": 4, "c": 6})
        karmada.wait_cluster_placed("role-clusterrole", {"a": 0})
        karmada.set_cpu("a", 90)
        karmada.api.patch("clusterresourcebindings", "role-clusterrole", {"spec": {"placement": EVERYWHERE}})
        karmada.wait_cluster_placed("role-clusterrole", {"a": 0, "b": 0, "c": 0})
        placed_at = time.time()
        eventually(lambda: time.time() > placed_at + 2)  # times have whole seconds: it is to come after the placements
        assert karmada.targets(names[0]) == {"a": 2, "b": 4, "c": 6}, "nothing moves by itself"
        there = [
            {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": who}
            for who in ("fleet", DEFAULT_SCHEDULER)
        ]
        without_namespace = {key: text for key, text in role.items() if key != "uid"}
        karmada.api.request("POST", REBALANCERS, rebalancer(*there, without_namespace))

        def results() -> list[str]:
            status = karmada.api.request("GET", f"{REBALANCERS}/now").get("status", {})
            return [each["result"] for each in status.get("observedWorkloads", ())]

        eventually(lambda: results() == ["Successful"] * 3, else_=results)
        eventually(lambda: karmada.targets(names[0])["a"] > 2, else_=lambda: karmada.binding(names[0]))
        eventually(lambda: karmada.targets(names[0]) == karmada.targets(names[1]))
        assert sum(karmada.targets(names[0]).values()) == 12

        def is_done(which: Json) -> bool:
            spec, status = which["spec"], which["status"]
            at = spec["rescheduleTriggeredAt"], status["lastScheduledTime"]
            return at[0] <= at[1] and status["schedulerObservedGeneration"] == which["metadata"]["generation"]

        eventually(lambda: all(is_done(karmada.binding(name)) for name in names))
        eventually(lambda: is_done(karmada.api.get("clusterresourcebindings", "role-clusterrole")))


def test_a_quota_refuses_and_what_runs_stays(
    cluster: Cluster, karmada: Karmada, ours: SchedulerProcess, tmp_path: Path
) -> None:
    authority, port = trustme.CA(), free_port()
    (folder := tmp_path / "webhook").mkdir()
    made = authority.issue_cert("127.0.0.1", "localhost")
    (folder / "tls.crt").write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    made.private_key_pem.write_to_path(folder / "tls.key")
    command = [
        str(program("karmada-webhook")),
        f"--kubeconfig={cluster.kubeconfig(tmp_path / 'webhook.kubeconfig')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        "--feature-gates=FederatedQuotaEnforcement=true",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{(probes := free_port())}",
    ]
    hook: dict[str, Any] = {
        "name": "resourcebinding.karmada.io",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/validate-resourcebinding",
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [
            {
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["work.karmada.io"],
                "apiVersions": ["*"],
                "resources": ["resourcebindings"],
                "scope": "Namespaced",
            }
        ],
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-config"},
        "webhooks": [hook],
    }
    quota = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "FederatedResourceQuota",
        "metadata": {"name": "shop", "namespace": NAMESPACE},
        "spec": {"overall": {"cpu": "5"}},
    }
    quotas = f"/apis/policy.karmada.io/v1alpha1/namespaces/{NAMESPACE}/federatedresourcequotas"
    karmada.add_cluster("a", cpu=60)
    with running(command, log=tmp_path / "karmada-webhook.log"):
        eventually(lambda: is_open(probes))
        eventually(lambda: is_open(port))
        karmada.api.request("POST", quotas, quota)
        status = {"status": {"overall": {"cpu": "5"}, "overallUsed": {"cpu": "0"}}}
        karmada.api.request("PATCH", f"{quotas}/shop/status", status, content_type="application/merge-patch+json")
        karmada.api.create("validatingwebhookconfigurations", configuration)
        try:
            web = karmada.add_binding(replicas=3)
            karmada.wait_placed(web, {"a": 3})
            karmada.change(web, {"replicas": 9})
            said = karmada.wait_reason(web, "QuotaExceeded")
            assert said["status"] == "False"
            assert "shop" in said["message"], said
            assert karmada.targets(web) == {"a": 3}
            observed = karmada.binding(web)["status"]["schedulerObservedGeneration"]
            assert observed < karmada.binding(web)["metadata"]["generation"]
            karmada.change(web, {"replicas": 5})
            karmada.wait_placed(web, {"a": 5})
        finally:
            karmada.api.delete_all("validatingwebhookconfigurations")


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
