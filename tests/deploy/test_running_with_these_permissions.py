"""The scheduler runs under the service account of deploy/, on a cluster that refuses what the roles do not allow."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.embedded import EmbeddedCluster
from engine.embedded.audit import Permission
from engine.embedded.identity import service_account
from engine.embedded.security import SecuritySettings
from tests.deploy.manifests import Json, objects
from tests.deploy.test_permissions import allowed

NAMESPACE = "policy-scheduler"
USER = service_account(NAMESPACE, "policy-scheduler")
SCHEDULER = "policy-scheduler"


def node(name: str, cpu: str) -> Json:
    resources = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, cpu: str, **spec: Any) -> Json:
    container = {"name": "main", "image": "image", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": SCHEDULER, "containers": [container]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def claim(*, phase: str, **spec: Any) -> Json:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "claim",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if spec else {},
        },
        "spec": {"storageClassName": "late", **wanted, **spec},
        "status": {"phase": phase},
    }


@contextmanager
def scheduler(kubeconfig: Path, policies: Path, log: Path) -> Iterator[None]:
    """Run the daemon as a process of its own, with the lease that the role allows."""
    config = policies.parent / "config.yaml"
    config.write_text(
        "apiVersion: policy-scheduler/v1alpha1\nkind: PolicySchedulerConfiguration\n"
        f"kubernetes: {{kubeconfig: {kubeconfig}}}\npolicies: {{path: {policies}}}\n"
        f"http: {{port: 0}}\nleaderElection: {{leaseNamespace: {NAMESPACE}}}\n"
    )
    command = [sys.executable, "-m", "engine.daemon", "--config", str(config)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=15)


def until(what: Callable[[], object], *, log: Path) -> None:
    deadline = time.monotonic() + 20
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(f"did not happen; the scheduler says:\n{log.read_text()[-3000:]}")
        time.sleep(0.02)


@pytest.mark.timeout(90)
def test_everything_works_and_nothing_is_refused(tmp_path: Path) -> None:
    policies, log, kubeconfig = tmp_path / "policies", tmp_path / "scheduler.log", tmp_path / "kubeconfig"
    policies.mkdir()
    (policies / "a.policy").write_text("score 1 if label node=hello\n")
    cluster = EmbeddedCluster(security=SecuritySettings(tls=True, rbac=True))
    cluster.load([*objects(), node("a", "4"), node("b", "4")])
    cluster.load(
        [
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "late"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "disk"},
                "spec": {
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "late",
                    "local": {"path": "/disk"},
                    "nodeAffinity": {
                        "required": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}
                                    ]
                                }
                            ]
                        }
                    },
                },
                "status": {"phase": "Available"},
            },
            claim(phase="Pending"),
            pod("first", "3"),
            pod("too-big", "64"),
        ]
    )
    requests = cluster.requests
    with cluster.in_thread():
        cluster.kubeconfig(kubeconfig, user=USER)
        with scheduler(kubeconfig, policies, log):
            until(lambda: requests.count(user=USER.name, resource="pods/binding", code=201), log=log)
            cluster.load([pod("important", "3", priorityClassName="high", nodeSelector=_where(cluster, "first"))])
            until(lambda: requests.count(user=USER.name, resource="pods", verb="delete"), log=log)
            until(lambda: requests.count(user=USER.name, resource="pods/binding", code=201) >= 2, log=log)
            volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]
            cluster.load([pod("with-disk", "500m", volumes=volumes)])
            until(lambda: requests.count(user=USER.name, verb="patch", resource="persistentvolumes"), log=log)
            cluster.load([claim(phase="Bound", volumeName="disk")])  # what the volume controller does then
            until(lambda: requests.count(user=USER.name, resource="pods/binding", code=201) >= 3, log=log)
            until(lambda: requests.count(user=USER.name, resource="pods/status", verb="patch"), log=log)
            until(lambda: requests.count(user=USER.name, resource="events", verb="create"), log=log)
    assert requests.denied(USER.name) == frozenset()
    used = requests.used(USER.name)
    writes = {(p.group, p.resource, p.verb) for p in used if p.verb not in ("get", "list", "watch")}
    may = {(g, r, v) for g, r, v in allowed() if v not in ("get", "list", "watch")}
    beyond = {("coordination.k8s.io", "leases", "create"), ("coordination.k8s.io", "leases", "update")}
    assert writes - beyond <= may
    idle = may - writes
    # a claim that waits for a provisioner, and an event that is repeated, are rarer than this scene
    assert idle <= {("", "persistentvolumeclaims", "patch"), ("events.k8s.io", "events", "patch")}
    assert Permission("create", "coordination.k8s.io", "leases") in used


def _where(cluster: EmbeddedCluster, name: str) -> dict[str, str]:
    """Return a selector of the node that a pod is on."""
    entry = cluster.api.store.collection("pods").get(("default", name))
    assert entry is not None
    host: str = entry.decode()["spec"]["nodeName"]
    return {"kubernetes.io/hostname": host}
