"""Objects that anybody may write: each is an error that names itself, or is decided in bounded work."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.karmada import reading
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, PlacementAlone, Work
from kube_policy_scheduler.fleet.karmada.objects import KarmadaCluster, ResourceBinding
from kube_policy_scheduler.times import Steady
from tests.fleet.karmada.bindings import binding, cluster, raw_binding

WORDS = st.sampled_from(
    [
        "clusterAffinity", "clusterAffinities", "affinityName", "overflowAffinities", "clusterNames", "exclude",
        "labelSelector", "matchLabels", "matchExpressions", "key", "operator", "values", "fieldSelector", "In", "NotIn",
        "clusterTolerations", "spreadConstraints", "spreadByField", "minGroups", "maxGroups", "region", "zone",
        "cluster",
        "replicaScheduling", "replicaSchedulingType", "Divided", "Duplicated", "replicaDivisionPreference", "Weighted",
        "Aggregated", "weightPreference", "staticWeightList", "targetCluster", "weight", "dynamicWeight",
        "AvailableReplicas", "a", "b", "",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | WORDS
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=25,
)
PLACEMENTS = st.dictionaries(WORDS, VALUES, max_size=5)


@given(PLACEMENTS, st.integers(0, 2**31 - 1))
def test_any_placement_is_decided_or_told_to_be_wrong(placement: dict[str, Any], replicas: int) -> None:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    maker.replace_clusters([cluster("a"), cluster("b", region="eu", zones=["z"])], Steady(0))
    maker.set_binding(binding(placement=placement, replicas=replicas, has={"a": 3}), Steady(0))
    work = maker.next(Steady(0))
    assert isinstance(work, Work)
    assert work.outcome is not None
    assert work.outcome.message
    assert maker.next(Steady(0)) is None


@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), VALUES, max_size=3))
def test_any_cluster_is_read_or_passed_over(written: dict[str, Any]) -> None:
    try:
        found = msgspec.convert(written, KarmadaCluster)
    except msgspec.ValidationError:
        return  # the reflector passes it over, and says so
    assert reading.cluster(found).allocatable == {}


EVENLY = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 2**31 - 1},
        {"replicas": 2**31 - 1, "placement": {"replicaScheduling": EVENLY}},
        {"gracefulEvictionTasks": [{"fromCluster": f"c{n}"} for n in range(20_000)]},
        {"clusters": [{"name": "a", "replicas": 1}] * 20_000},
        {"placement": {"clusterAffinity": {"exclude": ["x"] * 50_000}}},
        {"placement": {"clusterTolerations": [{"key": f"k{n}"} for n in range(10_000)]}},
    ],
    ids=["copies", "divided", "evictions", "targets", "names", "tolerations"],
)  # fmt: skip
def test_large_objects_take_bounded_work(spec: dict[str, Any]) -> None:
    maker = DecisionMaker(["fleet"], rules=PlacementAlone())
    taints = [{"key": "t", "effect": "NoSchedule"}]
    maker.replace_clusters([cluster("a"), *(cluster(f"m{n}", taints=taints) for n in range(50))], Steady(0))
    written = raw_binding(**{key: value for key, value in spec.items() if key in ("replicas", "placement")})
    written["spec"] |= spec
    began = time.process_time()
    maker.set_binding(msgspec.convert(written, ResourceBinding), Steady(0))
    work = maker.next(Steady(0))
    assert work is not None
    assert time.process_time() - began < 5.0, "far from minutes, on any machine"
