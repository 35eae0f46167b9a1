"""Workloads and fleets of tests: short to write, and any that there may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.fleet.model import (
    AffinityTerm,
    ClusterAffinity,
    EvictionTask,
    Fleet,
    FleetCluster,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    StaticWeight,
    Workload,
)

CORE = 10**9
DEPLOYMENT = ("apps/v1", "Deployment")


def cluster(name: str, cpu: int, **other: Any) -> FleetCluster:
    """Return a cluster with so many free cores, and room for 110 pods."""
    amounts = {"cpu": cpu * CORE, "pods": 110 * CORE}
    return FleetCluster(**({"name": name, "allocatable": amounts, "apis": frozenset((DEPLOYMENT,))} | other))


def fleet(*clusters: FleetCluster, **other: Any) -> Fleet:
    """Return a fleet of these clusters."""
    return Fleet(tuple(sorted(clusters, key=lambda each: each.name)), **other)


def workload(replicas: int, placement: Placement | None = None, **other: Any) -> Workload:
    """Return a Deployment whose replicas request one core each."""
    given = {
        "kind": "Deployment",
        "name": "web",
        "namespace": "shop",
        "api_version": "apps/v1",
        "requests": {"cpu": CORE},
    }
    return Workload(**(given | {"replicas": replicas, "placement": placement or Placement()} | other))


DYNAMIC = ReplicaScheduling("Divided", "Weighted", weighted=True, dynamic="AvailableReplicas")
AGGREGATED = ReplicaScheduling("Divided", "Aggregated")
EVENLY = ReplicaScheduling("Divided", "Weighted")

NAMES = st.sampled_from(["a", "b", "c", "m1", "m10", "m2"])
AFFINITIES = st.builds(
    ClusterAffinity, names=st.frozensets(NAMES, max_size=4), exclude=st.frozensets(NAMES, max_size=1)
)
TERMS = st.lists(st.tuples(AFFINITIES, st.lists(AFFINITIES, max_size=2)).map(tuple), min_size=1, max_size=3).map(
    lambda parts: tuple(
        AffinityTerm(f"t{place}", affinity, tuple(overflow)) for place, (affinity, overflow) in enumerate(parts)
    )
)
WEIGHTS = st.lists(st.builds(StaticWeight, AFFINITIES, st.integers(0, 9)), max_size=3).map(tuple)
SCHEDULINGS = st.one_of(
    st.sampled_from([None, ReplicaScheduling(), DYNAMIC, AGGREGATED, EVENLY]),
    st.builds(lambda weights: ReplicaScheduling("Divided", "Weighted", weighted=True, weights=weights), WEIGHTS),
)
SPREADS = st.lists(
    st.builds(
        lambda field, least, more: SpreadConstraint(field, "", least, least + more),
        st.sampled_from(["cluster", "region"]),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    max_size=2,
).map(tuple)


def _as_karmada_admits(placement: Placement) -> Placement:
    """Return a placement whose replicas are divided by room where affinities overflow: Karmada's API refuses others."""
    overflows = any(term.overflow for term in placement.terms)
    is_by_room = placement.scheduling in (DYNAMIC, AGGREGATED)
    return replace(placement, scheduling=DYNAMIC) if overflows and not is_by_room else placement


PLACEMENTS = st.one_of(
    st.builds(Placement, affinity=st.none() | AFFINITIES, spread=SPREADS, scheduling=SCHEDULINGS),
    st.builds(Placement, terms=TERMS, spread=SPREADS, scheduling=SCHEDULINGS).map(_as_karmada_admits),
)
CLUSTERS = st.builds(
    cluster,
    NAMES,
    st.integers(0, 20),
    region=st.sampled_from(["", "eu", "us", "as"]),
    deleting=st.sampled_from([False, False, False, True]),
)
FLEETS = st.lists(CLUSTERS, max_size=6, unique_by=lambda each: each.name).map(lambda clusters: fleet(*clusters))
HAS: st.SearchStrategy[Mapping[str, int]] = st.dictionaries(NAMES, st.integers(0, 12), max_size=4)
WORKLOADS = st.builds(
    workload,
    st.integers(0, 30),
    PLACEMENTS,
    uid=st.sampled_from(["", "uid-0", "uid-1"]),
    has=HAS,
    evicting=st.lists(st.builds(EvictionTask, NAMES), max_size=1).map(tuple),
    fresh=st.booleans(),
    observed_term=st.sampled_from(["", "t0", "t1", "gone"]),
)
