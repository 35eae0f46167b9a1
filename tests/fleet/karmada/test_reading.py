"""From Karmada's objects to workloads and clusters: what is read, and what strange objects come to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_policy_scheduler.fleet.karmada import objects, reading
from kube_policy_scheduler.fleet.model import Workload
from kube_policy_scheduler.fleet.placement import affinity

SPEC = {
    "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
    "replicas": 3,
    "replicaRequirements": {"resourceRequest": {"cpu": "1500m", "memory": "1Gi"}, "priorityClassName": "high"},
    "clusters": [{"name": "a", "replicas": 2}],
    "gracefulEvictionTasks": [{"fromCluster": "b", "replicas": 1, "reason": "TaintUntolerated", "producer": "T"}],
    "schedulePriority": {"priority": 7},
}


def workload(**spec: Any) -> Workload:
    status = spec.pop("status", {})
    return reading.workload(msgspec.convert({"spec": SPEC | spec, "status": status}, objects.ResourceBinding))


def test_a_binding_is_read_whole(snapshot: object) -> None:
    placement = {
        "clusterAffinities": [
            {
                "affinityName": "own",
                "labelSelector": {"matchLabels": {"tier": "gold"}},
                "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]},
                "overflowAffinities": [{"clusterNames": ["c"], "exclude": ["d"]}],
            }
        ],
        "clusterTolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "gpu", "operator": "Lt", "value": "3"}],
        "spreadConstraints": [{"spreadByField": "region", "minGroups": 2, "maxGroups": 3}],
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [{"targetCluster": {"clusterNames": ["a"]}, "weight": 2}]},
        },
    }
    status = {
        "schedulerObservingAffinityName": "own",
        "lastScheduledTime": "2026-11-20T09:00:00Z",
        "aggregatedStatus": [{"clusterName": "a", "health": "Healthy"}],
    }
    found = workload(placement=placement, rescheduleTriggeredAt="2026-11-20T09:00:01Z", status=status)
    assert msgspec.to_builtins(found, enc_hook=dict) == snapshot


@pytest.mark.parametrize(
    ("asked", "last", "fresh"),
    [
        ("2026-11-20T10:00:00Z", "2026-11-20T09:00:00Z", True),
        ("2026-11-20T09:00:00Z", "2026-11-20T09:00:00Z", False),
        ("2026-11-20T10:00:00Z", None, False),
        (None, "2026-11-20T09:00:00Z", False),
        ("tomorrow", "2026-11-20T09:00:00Z", False),
    ],
)
def test_it_is_decided_afresh_if_that_was_asked_for_since(asked: str | None, last: str | None, fresh: bool) -> None:
    assert workload(rescheduleTriggeredAt=asked, status={"lastScheduledTime": last}).fresh is fresh


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"placement": {"spreadConstraints": "all"}},
            "spec.placement cannot be read: Expected `array",
        ),
        ({"placement": {"spreadConstraints": [{"minGroups": "two"}]}}, "spec.placement cannot be read: Expected `int`"),
        (
            {"replicaRequirements": {"resourceRequest": {"cpu": "many"}}},
            "a request of spec cannot be read: not",
        ),
    ],
)
def test_what_is_not_karmadas_form_is_an_error(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(reading.BindingError) as error:
        workload(**spec)
    assert str(error.value).startswith(problem)


def test_strange_but_possible_values_are_read() -> None:
    affinity = {"labelSelector": {"matchExpressions": [{"key": "!", "operator": "Like"}]}}
    found = workload(
        replicas=-3,
        clusters=[{"name": "a", "replicas": -1}, {"name": "\N{SNOWMAN}" * 300, "replicas": 2**31 - 1}],
        placement={"clusterAffinity": affinity, "replicaScheduling": {"replicaSchedulingType": "Divided"}},
    )
    assert (found.replicas, found.has["a"], len(found.has)) == (0, 0, 2)
    assert found.placement.affinity is not None
    assert found.placement.affinity.labels is None, "matches no cluster"


def test_a_cluster_is_read_whole(snapshot: object) -> None:
    written = {
        "metadata": {"name": "a", "labels": {"tier": "gold"}, "annotations": {"policy-scheduler/hourly-price": "3"}},
        "spec": {
            "syncMode": "Push",
            "provider": "own",
            "region": "eu",
            "zones": ["z1", "z2"],
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
            "resourceModels": [
                {"grade": 1, "ranges": [{"name": "cpu", "min": "2", "max": "8"}]},
                {"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "2"}]},
            ],
        },
        "status": {
            "kubernetesVersion": "v1.36.2",
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T09:00:00Z"}],
            "nodeSummary": {"totalNum": 3, "readyNum": 2},
            "resourceSummary": {
                "allocatable": {"cpu": "6", "memory": "1Gi", "x": "?"},
                "allocated": {"cpu": "500m"},
                "allocatableModelings": [{"grade": 0, "count": 1}, {"grade": 1, "count": 2}, {"grade": 1, "count": 1}],
            },
        },
    }
    found = reading.cluster(msgspec.convert(written, objects.KarmadaCluster))
    assert msgspec.to_builtins(found, enc_hook=dict) == snapshot
    assert found.ready
    assert found.free("cpu") == 5_500_000_000
    assert found.free("x") is None


def test_a_cluster_without_status_has_no_room() -> None:
    found = reading.cluster(msgspec.convert({"metadata": {"name": "a"}}, objects.KarmadaCluster))
    assert (found.summarized, found.ready, found.grades) == (False, False, ())


@pytest.mark.parametrize("counts", [[], [{"grade": 0, "count": -1}]])
def test_nodes_that_are_not_counted_by_grades_count_by_sums(counts: list[dict[str, int]]) -> None:
    written = {
        "metadata": {"name": "a"},
        "spec": {"resourceModels": [{"grade": 0, "ranges": [{"name": "cpu", "min": "1"}]}]},
        "status": {"resourceSummary": {"allocatableModelings": counts}},
    }
    assert reading.cluster(msgspec.convert(written, objects.KarmadaCluster)).grades == ()


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("provider", "In", ["aws"], True),
        ("provider", "NotIn", ["gcp"], True),
        ("provider", "NotIn", [], False),
        ("region", "NotIn", None, False),
        ("provider", "In", ["aws", "Alibaba Cloud"], False),
        ("region", "NotIn", ["x" * 64], False),
        ("zone", "NotIn", [], True),
        ("zone", "In", ["z1", "any text"], True),
    ],
)
def test_a_test_of_a_field_that_karmada_cannot_read_matches_no_cluster(
    key: str, operator: str, values: list[str] | None, matches: bool
) -> None:
    test = {"key": key, "operator": operator, "values": values}
    written = msgspec.convert({"fieldSelector": {"matchExpressions": [test]}}, objects.ClusterAffinity)
    spec = {"provider": "aws", "region": "eu", "zones": ["z1", "z2"]}
    cluster = reading.cluster(msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, objects.KarmadaCluster))
    assert affinity.matches(reading.affinity(written), cluster) is matches
