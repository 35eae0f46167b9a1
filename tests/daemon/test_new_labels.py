"""Pods that name labels of nodes which nobody has read yet: the columns are made over several turns of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import nodes, objects
from tests.daemon.gang_stage import GangStage
from tests.simulation.virtual_time import run

NODES = 20
TERM = {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "own"}
IN = {"matchExpressions": [{"key": "own", "operator": "In", "values": ["n7"]}]}
SPECS: dict[str, dict[str, Any]] = {
    "selector": {"nodeSelector": {"own": "n7"}},
    "affinity": {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN]}}}
    },
    "preferred": {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": IN}]}
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "own", "whenUnsatisfiable": when, "labelSelector": {}}
            for when in ("DoNotSchedule", "ScheduleAnyway")
        ]
    },
    "anti-affinity": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    "preferred affinity": {
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]}
        }
    },
}


def node(name: str, own: str) -> objects.Node:
    status = {"allocatable": {"cpu": "4", "memory": "256Gi", "pods": "1000"}}
    return msgspec.convert({"metadata": {"name": name, "labels": {"own": own}}, "status": status}, objects.Node)


def pod(name: str, **spec: Any) -> objects.Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {"schedulerName": "policy-scheduler", "containers": containers, **spec},
    }
    return msgspec.convert(body, objects.Pod)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_label_that_a_pod_is_the_first_to_name_is_not_read_of_all_nodes_in_one_turn(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_ROWS_IN_A_STEP", 1)
    monkeypatch.setattr(nodes, "_LABELS", None)  # what reads all at once fails

    async def tell() -> None:
        stage = GangStage(nodes=0, cpus=0, tick=1e-3)
        handlers, cluster = stage.scheduler.event_handlers, stage.scheduler.cluster
        for number in range(NODES):
            handlers.node_changed(node(f"n{number}", "n7" if number == NODES - 1 else f"other-{number}"))
        handlers.pod_changed(pod("p", **spec))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not cluster.assumed
        handlers.node_changed(node("n3", "n7"))  # of the rows that are read already
        handlers.node_changed(node(f"n{NODES - 1}", "moved"))
        await asyncio.sleep(1)
        assert stage.told.times["bound"] == 1
        if "nodeSelector" in spec or "nodeAffinity" in spec.get("affinity", ()):
            assert cluster.node_of("p") == "n3"

    run(tell())


def test_a_pod_keeps_its_turn_and_its_attempt_while_a_column_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_ROWS_IN_A_STEP", 1)

    async def tell() -> None:
        stage = GangStage(nodes=0, cpus=0, tick=1e-3)
        handlers, queue = stage.scheduler.event_handlers, stage.scheduler.queue
        for number in range(NODES):
            handlers.node_changed(node(f"n{number}", "a"))
        handlers.pod_changed(pod("first", nodeSelector={"own": "b"}))
        handlers.pod_changed(pod("second"))
        await asyncio.sleep(1)
        queued = queue.get("first")
        assert queued is not None
        assert queued.attempts == 1
        assert list(stage.told.texts) == ["first"]
        assert stage.told.times["bound"] == 1

    run(tell())
