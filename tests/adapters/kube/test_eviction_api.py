"""Evictions: what the API server answers, and what is said of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_policy_scheduler.adapters.kube.eviction_api import EVICTED, Evicted, evict
from kube_policy_scheduler.adapters.kube.lists import survey
from tests.fakes.secure_cluster import SecureCluster
from tests.integration.objects import node, pod


def disruption_budget(name: str, allowed: int, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": labels}, "minAvailable": 1},
        "status": {
            "disruptionsAllowed": allowed, "observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1,
        },
    }  # fmt: skip


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    with SecureCluster(kubelets=None, controllers=None).in_thread() as cluster:
        cluster.load([node("a")])
        for name in ("free", "spent", "doubled"):
            made = pod(name, cpu="1", nodeName="a", labels={"app": name})
            made["status"] = {"phase": "Running"}
            cluster.load([made])
        cluster.load([disruption_budget("tight", 0, app="spent")])
        cluster.load([disruption_budget(name, 1, app="doubled") for name in ("x", "y")])
        path = tmp_path / "kubeconfig"
        cluster.kubeconfig(path)
        yield str(path)


def asked(kubeconfig: str, *pods: Evicted) -> dict[str, str]:
    async def ask() -> dict[str, str]:
        return {one.name: said async for one, said in evict(pods, kubeconfig=kubeconfig, context=None)}

    return asyncio.run(ask())


def uids(kubeconfig: str) -> dict[str, str]:
    found = asyncio.run(survey(kubeconfig=kubeconfig, context=None)).objects
    return {one.metadata.name: one.metadata.uid for one in found}


def test_a_spent_budget_is_later_two_budgets_are_never_and_the_others_go_on(kubeconfig: str) -> None:
    known = uids(kubeconfig)
    pods = [Evicted("default", name, known[name]) for name in ("spent", "doubled", "free")]
    said = asked(kubeconfig, *pods, Evicted("default", "nobody", "u"))
    assert said["spent"].startswith("later: ")
    assert said["doubled"].startswith("never: ")
    assert said["free"] == EVICTED
    assert said["nobody"] == "gone already"
    assert uids(kubeconfig).keys() >= {"spent", "doubled"}
    assert "free" not in uids(kubeconfig)


def test_another_pod_of_the_same_name_is_left_alone(kubeconfig: str) -> None:
    assert asked(kubeconfig, Evicted("default", "free", "another")) == {"free": "another pod has its name by now"}


def test_a_server_that_does_not_answer_is_a_failure_of_each(tmp_path: Path, kubeconfig: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text(re.sub(r"(server: \S+):\d+", r"\1:9", Path(kubeconfig).read_text()))
    (said,) = asked(str(broken), Evicted("default", "free", "u")).values()
    assert said.startswith("failed: ")
