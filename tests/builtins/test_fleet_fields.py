"""Every field of clusters and workloads has the value that its objects say, read by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kube_policy_scheduler.builtins.environment import environment
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.diagnostics import Source
from kube_policy_scheduler.fleet.columns import FleetColumns, FleetFrame, Room
from kube_policy_scheduler.fleet.model import ClusterCondition, Component, EvictionTask, FleetCluster, Workload
from kube_policy_scheduler.lang.checked import Definition
from kube_policy_scheduler.lang.compiling.expressions import Compiler
from kube_policy_scheduler.lang.load import check_sources
from kube_policy_scheduler.lang.statements import WORKLOADS
from kube_policy_scheduler.lang.types import Shape
from tests.builtins.test_calls import plain

NOW = 1_767_787_200.0
GIB, CORE = 2**30 * 10**9, 10**9
CLUSTERS = (
    FleetCluster(
        name="a",
        labels={"tier": "gold", "topology.kubernetes.io/region": "elsewhere"},
        annotations={"owner": "red", "policy-scheduler/hourly-price": "0.25"},
        provider="own",
        region="eu",
        zones=("eu-1a", "eu-1b"),
        taints=(TaintKey("gpu", "", "NoSchedule"),),
        version="v1.36.2",
        sync_mode="Push",
        conditions={"Ready": ClusterCondition("True", NOW - 60), "Overloaded": ClusterCondition("False")},
        nodes_ready=3,
        nodes_total=4,
        allocatable={"cpu": 8 * CORE, "memory": 16 * GIB, "nvidia.com/gpu": 2 * CORE},
        allocated={"cpu": CORE, "memory": 4 * GIB},
        allocating={"cpu": CORE},
    ),
    FleetCluster(name="b", conditions={"Ready": ClusterCondition("False", NOW)}),
)
WORKLOAD = Workload(
    kind="Deployment",
    name="web",
    namespace="shop",
    api_version="apps/v1",
    labels={"app": "web"},
    annotations={"note": "hello"},
    replicas=6,
    requests={"cpu": CORE // 2, "memory": GIB},
    components=(Component("jobmanager", 1), Component("worker", 5)),
    priority=7,
    priority_class="high",
    has={"a": 4},
    evicting=(EvictionTask("b"),),
    health={"a": "Healthy"},
    created=NOW - 600,
    decided=NOW - 120,
    attempts=3,
)
VALUES: dict[str, Any] = {
    "cluster.allocatable.cpu": [8.0, 0.0],
    'cluster.allocatable["nvidia.com/gpu"]': [2.0, None],
    "cluster.annotation.owner": ["red", None],
    "cluster.condition_age.Ready": [60.0, 0.0],
    "cluster.conditions.Overloaded": ["False", None],
    "cluster.evicting": [False, True],
    "cluster.free.cpu": [6.0, 0.0],
    "cluster.free.mem": [12.0 * 2**30, 0.0],
    "cluster.has": [4.0, 0.0],
    "cluster.healthy": [True, False],
    "cluster.label.tier": ["gold", None],
    'cluster.label["topology.kubernetes.io/region"]': ["elsewhere", None],
    "cluster.name": ["a", "b"],
    "cluster.nodes_ready": [3.0, None],
    "cluster.nodes_total": [4.0, None],
    "cluster.price": [0.25, None],
    "cluster.provider": ["own", None],
    "cluster.ready": [True, False],
    "cluster.region": ["eu", None],
    "cluster.requested.cpu": [2.0, 0.0],
    "cluster.room": [9.0, 0.0],
    "cluster.room_by": ["capacity", None],
    "cluster.sync_mode": ["Push", None],
    "cluster.taints": [("gpu",), ()],
    "cluster.tier": [0.0, 1.0],
    "cluster.used_fraction.cpu": [0.25, 1.0],
    'cluster.used_fraction["nvidia.com/gpu"]': [0.0, None],
    "cluster.version": ["v1.36.2", None],
    "cluster.zone": ["eu-1a", None],
    "cluster.zones": [("eu-1a", "eu-1b"), ()],
    "workload.annotation.note": "hello",
    "workload.api_version": "apps/v1",
    "workload.attempts": 3.0,
    "workload.components": ("jobmanager", "worker"),
    "workload.created": NOW - 600,
    "workload.kind": "Deployment",
    "workload.label.app": "web",
    "workload.name": "web",
    "workload.namespace": "shop",
    "workload.priority": 7.0,
    "workload.priority_class": "high",
    "workload.replicas": 6.0,
    "workload.request.cpu": 0.5,
    "workload.request.pods": 1.0,
    'workload.request["nvidia.com/gpu"]': 0.0,
    "workload.waiting": 120.0,
    'count(c in fleet.clusters where c.label.tier == "gold")': 1.0,
    "sum(c.free.cpu for c in region.clusters)": [6.0, 0.0],
    "count(distinct c.provider for c in fleet.clusters)": 1.0,
}
"""By the expression as a policy writes it: a list has one value per cluster."""
FRAME = FleetFrame(
    WORKLOAD,
    FleetColumns(CLUSTERS),
    Room(np.array([9.0, np.nan]), ("capacity", "")),
    NOW,
    tiers=np.array([0.0, 1.0]),
)


def test_every_field_has_a_value_here() -> None:
    read = {text for value in VALUES for text in (value, value.partition("[")[0], value.rpartition(".")[0])}

    assert environment().of(WORKLOADS).fields.keys() - read == set()


@pytest.mark.parametrize("text", VALUES)
@pytest.mark.parametrize("rows", ["all", "one"])
def test_a_field_has_the_value_that_the_objects_say(text: str, rows: str) -> None:
    checked = check_sources([Source("a.policy", f"for workloads where true\nlet x = {text}\n")], environment())
    definition = checked.policies[0].definitions["x"]
    assert isinstance(definition, Definition)
    assert definition.value is not None
    info = definition.value.info
    frame = FRAME if rows == "all" else FRAME.at(np.array([1], np.int64))
    value = Compiler(environment().pods).compile(definition.value)(frame)
    expected = VALUES[text]
    shown = [plain(value, info, row) for row in range(frame.size)]

    assert not checked.failed
    assert info.shape is (Shape.NODE if isinstance(expected, list) else Shape.DECISION)
    wanted = expected if isinstance(expected, list) else [expected] * 2
    assert shown == (wanted if rows == "all" else wanted[1:])
