"""`volume_room`: what drivers publish, as the filter for volumes reads it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.framework.frame import Frame
from tests.builtins.test_calls import value_of
from tests.policy.worlds import node, pod

GIB = 2.0**30


def made(*, publishes: bool = True, provisioner: str = "csi") -> Cluster:
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.set_node(node(name, rack=name))
    things: list[tuple[type, dict[str, Any]]] = [
        (objects.StorageClass, {"metadata": {"name": "fast"}, "provisioner": provisioner}),
        (objects.CSIDriver, {"metadata": {"name": "csi"}, "spec": {"storageCapacity": publishes}}),
        (objects.CSIStorageCapacity, capacity("a", "100Gi")),
        (objects.CSIStorageCapacity, capacity("b", "100Gi") | {"maximumVolumeSize": "10Gi"}),
    ]
    for kind, body in things:
        cluster.set_object(msgspec.convert(body, kind))
    return cluster


def capacity(rack: str, amount: str) -> dict[str, Any]:
    return {
        "metadata": {"name": rack, "namespace": "x"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"rack": rack}},
        "capacity": amount,
    }


def room(cluster: Cluster, storage_class: str = "fast") -> list[Any]:
    return value_of(f'volume_room("{storage_class}")', Frame(pod(cluster, "p"), cluster, 0.0))[0]


def test_the_largest_volume_that_there_is_room_for_is_known_by_node() -> None:
    cluster = made()
    before = room(cluster)
    cluster.set_object(msgspec.convert(capacity("a", "1Gi"), objects.CSIStorageCapacity))

    assert before == [100 * GIB, 10 * GIB, None]
    assert room(cluster) == [GIB, 10 * GIB, None]


@pytest.mark.parametrize("facts", [{"publishes": False}, {"provisioner": "kubernetes.io/no-provisioner"}])
def test_nothing_is_known_where_nothing_is_published(facts: dict[str, Any]) -> None:
    assert room(made(**facts)) == [None] * 3
    assert room(made(), "other") == [None] * 3
