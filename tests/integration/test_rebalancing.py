"""The scheduler moves pods: evictions through the API server, PodDisruptionBudgets, and where replacements land."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.configmap_volume import ConfigMapVolume
from tests.integration.cluster import Cluster
from tests.integration.conditions import eventually
from tests.integration.conftest import StartScheduler
from tests.integration.objects import node, pod

Json = dict[str, Any]
SSD = "filter node.ready and fits(cpu, mem) and label disk=ssd\nrebalance rest 1s\n"
METRIC = "policy_scheduler_rebalance_moves_total"


def owned(name: str, workload: str, **labels: str) -> Json:
    """A pod that a ReplicaSet would create again."""
    made = pod(name, cpu="500m", labels={"app": workload, **labels})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def budget(name: str, app: str, least: int) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    }


@contextmanager
def replacing(cluster: Cluster) -> Iterator[None]:
    """Do what the controller of ReplicaSets does: create a pod in the place of each that is gone."""
    wanted = {one["metadata"]["name"].partition("-")[0] for one in cluster.pods()}
    done = threading.Event()

    def work() -> None:
        number = 0
        while not done.wait(0.1):
            there = [one for one in cluster.pods() if not one["metadata"].get("deletionTimestamp")]
            for workload in wanted - {one["metadata"]["name"].partition("-")[0] for one in there}:
                number += 1
                cluster.add_pods(owned(f"{workload}-again-{number}", workload))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def configured(tmp_path: Path, **rebalancing: Any) -> str:
    file = tmp_path / "config.yaml"
    settings = {"every": "2s", "mostPerNode": 5, "mostPerNamespace": 5, **rebalancing}
    head = {"apiVersion": "policy-scheduler/v1alpha1", "kind": "PolicySchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**head, "rebalancing": settings}))
    return f"--config={file}"


def on_nodes(cluster: Cluster) -> dict[str, str]:
    """Return the node by workload."""
    return {name.partition("-")[0]: at for name, at in cluster.placements().items() if at}


def test_pods_move_to_the_node_of_the_plan_and_budgets_hold(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    """One is free to go; a budget protects one (429, later); two budgets match one (500, never)."""
    cluster.add_nodes(node("old", labels={"disk": "hdd"}), node("new", labels={"disk": "ssd"}))
    for name in ("free", "kept", "never"):
        cluster.add_pods(owned(f"{name}-0", name))
        cluster.bind(f"{name}-0", "old")
    for made in (budget("kept", "kept", 1), budget("never-1", "never", 0), budget("never-2", "never", 0)):
        cluster.api.create("poddisruptionbudgets", made)
    policies.update({"default.policy": SSD})
    process = scheduler(configured(tmp_path, dryRun=False))
    with replacing(cluster):
        process.start_ready()
        eventually(lambda: on_nodes(cluster) == {"free": "new", "kept": "old", "never": "old"}, else_=process.log)
        eventually(lambda: process.metrics().get(f'{METRIC}{{outcome="landed"}}') == 1, else_=process.log)
        (event,) = eventually(lambda: cluster.events("free-0", reason="Rebalanced"))
        assert "new" in event["note"]
        cluster.api.delete("poddisruptionbudgets", "kept")
        eventually(lambda: on_nodes(cluster) == {"free": "new", "kept": "new", "never": "old"}, else_=process.log)
    metrics = process.metrics()
    assert metrics[f'{METRIC}{{outcome="evicted"}}'] == 2
    assert metrics.get(f'{METRIC}{{outcome="elsewhere"}}', 0) == 0
    assert cluster.overcommitted() == []


def test_a_dry_run_evicts_nothing(
    cluster: Cluster, scheduler: StartScheduler, policies: ConfigMapVolume, tmp_path: Path
) -> None:
    cluster.add_nodes(node("old", labels={"disk": "hdd"}), node("new", labels={"disk": "ssd"}))
    cluster.add_pods(owned("web-0", "web"))
    cluster.bind("web-0", "old")
    policies.update({"default.policy": SSD})
    process = scheduler(configured(tmp_path)).start_ready()
    eventually(lambda: process.metrics().get(f'{METRIC}{{outcome="planned"}}', 0) >= 1, else_=process.log)
    assert "Would move pod" in process.log()
    assert cluster.placements() == {"web-0": "old"}
