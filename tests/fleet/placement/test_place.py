"""Placement by Karmada's rules: laws that hold for all workloads, and what users see."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from kube_policy_scheduler.cluster.selectors import equality
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.fleet.model import (
    AffinityTerm,
    ClusterAffinity,
    Component,
    EvictionTask,
    FieldTest,
    Fleet,
    Outcome,
    Placement,
    Reason,
    ReplicaScheduling,
    ResourceGrade,
    SpreadConstraint,
    StaticWeight,
    Workload,
)
from kube_policy_scheduler.fleet.placement.filters import FILTERS
from kube_policy_scheduler.fleet.placement.place import place
from tests.fleet.worlds import AGGREGATED, CORE, DYNAMIC, EVENLY, FLEETS, WORKLOADS, cluster, fleet, workload


def room_counts(asked: Workload) -> bool:
    scheduling = asked.placement.scheduling
    return scheduling is not None and (scheduling.preference == "Aggregated" or bool(scheduling.dynamic))


@given(WORKLOADS, FLEETS)
def test_a_placed_workload_has_what_it_asks_for(asked: Workload, where: Fleet) -> None:
    outcome = place(asked, where)
    if not outcome.placed:
        return
    counts = list(outcome.targets.values())
    scheduling = asked.placement.scheduling
    if scheduling is None or scheduling.type == "Duplicated":
        assert all(count == asked.replicas for count in counts)
    else:
        assert sum(counts) == asked.replicas
    assert all(count > 0 for count in counts)


@given(WORKLOADS, FLEETS)
def test_room_is_never_exceeded_by_replicas_that_are_new(asked: Workload, where: Fleet) -> None:
    outcome = place(asked, where)
    if not outcome.placed or not room_counts(asked):
        return
    for name, count in outcome.targets.items():
        had, room = asked.has.get(name, 0), outcome.verdicts[name].room
        assert room is not None
        assert count <= max(had, had + room)


@given(WORKLOADS, FLEETS)
def test_nothing_goes_where_a_filter_rejects_it(asked: Workload, where: Fleet) -> None:
    outcome = place(asked, where)
    rejected = {name for name, verdict in outcome.verdicts.items() if verdict.rejected_by}
    gone = {each.name for each in where.clusters if each.deleting}
    if outcome.placed:
        assert not (rejected | gone) & outcome.targets.keys()


@given(WORKLOADS, FLEETS)
def test_what_runs_stays_unless_no_cluster_passes(asked: Workload, where: Fleet) -> None:
    outcome = place(asked, where)
    if outcome.reason is Reason.NO_CLUSTER_FITS:
        assert (outcome.write, dict(outcome.targets)) == (True, {})
    elif not outcome.placed:
        assert (outcome.write, outcome.targets) == (False, asked.has)


@given(WORKLOADS, FLEETS)
def test_decided_again_nothing_moves(asked: Workload, where: Fleet) -> None:
    overflows = any(term.overflow for term in asked.placement.terms)  # goes back to the first tier as it gets room
    outcome = place(asked, where)
    if not outcome.placed or asked.fresh or asked.placement.spread or overflows:
        return
    again = replace(asked, has=outcome.targets, observed_term=outcome.term or "")
    assert place(again, where).targets == outcome.targets


F = fleet(cluster("a", 6), cluster("b", 12), cluster("c", 18))
OWN_FIRST = (
    AffinityTerm("own", ClusterAffinity(names=frozenset("a"))),
    AffinityTerm("cloud", ClusterAffinity(names=frozenset("bc"))),
)
OVERFLOW = (AffinityTerm("own", OWN_FIRST[0].affinity, (OWN_FIRST[1].affinity,)),)
TWO = SpreadConstraint("cluster", "", 2, 2)
BATCH = ClusterAffinity(labels=equality({"pool": "batch"}))
REGIONS = fleet(
    cluster("eu1", 40, region="eu"), cluster("eu2", 10, region="eu"), cluster("us1", 30, region="us"),
    cluster("us2", 5, region="us"), cluster("as1", 50, region="as"),
)  # fmt: skip
BY_REGION = (SpreadConstraint("region", "", 2, 2), SpreadConstraint("cluster", "", 3, 3))


@pytest.mark.parametrize(
    ("asked", "where", "targets"),
    [
        pytest.param(workload(12, Placement(scheduling=DYNAMIC)), F, {"a": 2, "b": 4, "c": 6}, id="by room"),
        pytest.param(workload(12, Placement(scheduling=AGGREGATED)), F, {"c": 12}, id="in as few as can be"),
        pytest.param(workload(20, Placement(scheduling=AGGREGATED)), F, {"b": 8, "c": 12}, id="in two, by room"),
        pytest.param(workload(10, Placement(scheduling=EVENLY)), F, {"a": 4, "b": 3, "c": 3}, id="evenly"),
        pytest.param(workload(2), F, {"a": 2, "b": 2, "c": 2}, id="all everywhere"),
        pytest.param(
            workload(4, Placement(scheduling=DYNAMIC), has={"a": 4, "b": 2, "c": 1}),
            F, {"a": 2, "b": 1, "c": 1}, id="down",
        ),
        pytest.param(
            workload(8, Placement(scheduling=AGGREGATED), has={"a": 4, "b": 4}, fresh=True), F, {"c": 8}, id="afresh"
        ),
        pytest.param(
            workload(12, Placement(scheduling=DYNAMIC), has={"b": 4, "c": 6}, evicting=(EvictionTask("a"),)),
            F, {"b": 5, "c": 7}, id="a is being left",
        ),
        pytest.param(workload(20, Placement(scheduling=DYNAMIC, spread=(TWO,))), F, {"b": 8, "c": 12}, id="two"),
        pytest.param(workload(20, Placement(terms=OWN_FIRST, scheduling=AGGREGATED)), F, {"b": 8, "c": 12}, id="next"),
        pytest.param(
            workload(5, Placement(terms=OWN_FIRST, scheduling=AGGREGATED), has={"c": 5}, observed_term="cloud"),
            F, {"c": 5}, id="no way back",
        ),
        pytest.param(
            workload(12, Placement(terms=OVERFLOW, scheduling=DYNAMIC)), F, {"a": 6, "b": 2, "c": 4}, id="overflow"
        ),
        pytest.param(
            workload(30, Placement(spread=BY_REGION, scheduling=DYNAMIC)),
            REGIONS, {"eu1": 15, "eu2": 4, "us1": 11}, id="two regions, three clusters",
        ),
        pytest.param(
            workload(3, Placement(scheduling=ReplicaScheduling(
                "Divided", "Weighted", weighted=True, weights=(StaticWeight(BATCH, 2),)
            ))),
            fleet(cluster("a", 6), cluster("b", 1, labels={"pool": "batch"})), {"b": 3}, id="fixed weights",
        ),
        pytest.param(
            workload(0, kind="ConfigMap", api_version="v1", requests=None),
            fleet(cluster("a", 0, apis=frozenset({("v1", "ConfigMap")})), cluster("b", 9)), {"a": 0}, id="without pods",
        ),
        pytest.param(
            workload(9, Placement(scheduling=DYNAMIC), room={"b": {"estimator": 3}, "c": {"capacity": 30}}),
            F, {"a": 1, "b": 1, "c": 7}, id="what others say",
        ),
    ],
)  # fmt: skip
def test_replicas_go_where_karmada_puts_them(asked: Workload, where: Fleet, targets: dict[str, int]) -> None:
    outcome = place(asked, where)
    assert (outcome.reason, dict(outcome.targets)) == (Reason.SUCCESS, targets)


def test_components_go_to_one_cluster_together() -> None:
    parts = (Component("jm", 1, {"cpu": CORE}), Component("tm", 4, {"cpu": 2 * CORE}))
    one = Placement(spread=(SpreadConstraint("cluster", "", 1, 1),), scheduling=AGGREGATED)
    asked = workload(0, one, requests=None, components=parts)
    gate = frozenset({"MultiplePodTemplatesScheduling"})
    outcome = place(asked, fleet(cluster("a", 8), cluster("b", 20), features=gate))
    assert (dict(outcome.targets), outcome.components) == ({"b": 0}, parts)
    assert place(asked, fleet(cluster("a", 8), cluster("b", 8), features=gate)).reason is Reason.ERROR


TAINTED = cluster("a", 9, taints=(TaintKey("gpu", "", "NoSchedule"), TaintKey("x", "y", "NoExecute")))
GROUP = {("shop", "app=db"): {("apps/v1", "Deployment", "shop", "db"): frozenset("b")}}
AFFINITY_GATE = frozenset({"WorkloadAffinity"})
EU = ClusterAffinity(fields=(FieldTest("region", "In", frozenset({"eu"})),))
ZONES = ClusterAffinity(fields=(FieldTest("zone", "In", frozenset({"z1"})),))


@pytest.mark.parametrize(
    ("asked", "where", "name", "reason"),
    [
        (
            workload(1, evicting=(EvictionTask("a"),), has={"a": 1}), F,
            "ClusterEviction", "cluster(s) is in the process of eviction",
        ),
        (workload(1, kind="Job"), F, "APIEnablement", "cluster(s) did not have the API resource"),
        (workload(1), fleet(TAINTED), "TaintToleration", "cluster(s) had untolerated taint {gpu:NoSchedule}"),
        (
            workload(1, Placement(affinity=EU)), F,
            "ClusterAffinity", "cluster(s) did not match the placement cluster affinity constraint",
        ),
        (
            workload(1, Placement(affinity=ZONES)), fleet(cluster("a", 1, zones=("z2", "z3"))),
            "ClusterAffinity", "cluster(s) did not match the placement cluster affinity constraint",
        ),
        (
            workload(1, Placement(affinity=ClusterAffinity(labels=None))), F,
            "ClusterAffinity", "cluster(s) did not match the placement cluster affinity constraint",
        ),
        (
            workload(1, Placement(spread=(SpreadConstraint("zone", "", 1, 1),))), F,
            "SpreadConstraint", "cluster(s) did not have zones property",
        ),
        (
            workload(1, affinity_group="app=db"), fleet(cluster("a", 9), groups=GROUP, features=AFFINITY_GATE),
            "WorkloadAffinity", "ResourceBinding with the same affinity group does not target this cluster",
        ),
        (
            workload(1, anti_affinity_group="app=db"),
            fleet(cluster("b", 9), anti_groups=GROUP, features=AFFINITY_GATE),
            "WorkloadAntiAffinity", "cluster already has workload with the same anti-affinity group",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value in FILTERS else "",
)  # fmt: skip
def test_a_filter_says_why(asked: Workload, where: Fleet, name: str, reason: str) -> None:
    outcome = place(asked, where)
    verdict = next(iter(outcome.verdicts.values()))
    assert (verdict.rejected_by, verdict.message) == (name, reason)


@pytest.mark.parametrize(
    ("operator", "zones", "matches"),
    [
        ("In", (), False),
        ("In", ("z1",), True),
        ("In", ("z1", "z2"), True),  # one of its zones is enough
        ("Exists", ("z2",), True),
        ("Exists", (), False),
        ("DoesNotExist", ("z2",), False),
        ("DoesNotExist", (), True),
        ("In", ("z2",), False),
        ("NotIn", (), True),
        ("NotIn", ("z1", "z2"), False),
        ("NotIn", ("z2",), True),
    ],
)
def test_zones_of_a_cluster_affinity(operator: str, zones: tuple[str, ...], matches: bool) -> None:
    zone = ClusterAffinity(fields=(FieldTest("zone", operator, frozenset({"z1"})),))
    outcome = place(workload(1, Placement(affinity=zone)), fleet(cluster("a", 9, zones=zones)))
    assert outcome.placed is matches


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_what_runs_in_a_cluster_is_exempt_from_filters_about_new_ones(name: str) -> None:
    asked = workload(
        1, kind="Job", has={"a": 1}, affinity_group="app=db", anti_affinity_group="app=db"
    )  # fmt: skip
    everyone = {("shop", "app=db"): {("apps/v1", "Deployment", "shop", "db"): frozenset("ab")}}
    where = fleet(TAINTED, groups=GROUP, anti_groups=everyone, features=AFFINITY_GATE)
    outcome = place(asked, where)
    assert outcome.verdicts["a"].rejected_by != name
    assert outcome.placed


def messages() -> list[tuple[str, Outcome, Reason, str]]:
    least = Placement(spread=(SpreadConstraint("cluster", "", 4, 4),))
    two_regions = Placement(spread=(SpreadConstraint("region", "", 4, 4),))
    many = Placement(spread=(SpreadConstraint("region", "", 2, 2), SpreadConstraint("cluster", "", 9, 9)))
    cases = [
        ("no cluster", workload(1), fleet(), Reason.NO_CLUSTER_FITS, "0/0 clusters are available: no cluster exists."),
        (
            "all rejected", workload(1, kind="Job", evicting=(EvictionTask("a"),)), F, Reason.NO_CLUSTER_FITS,
            "0/3 clusters are available: 1 cluster(s) is in the process of eviction,"
            " 2 cluster(s) did not have the API resource.",
        ),
        (
            "too big", workload(40, Placement(scheduling=DYNAMIC), has={"a": 3}), F, Reason.UNSCHEDULABLE,
            "failed to assign replicas: failed to scale up: Clusters available replicas 36 are not enough to schedule.",
        ),
        (
            "too big for all tiers", workload(40, Placement(terms=OVERFLOW, scheduling=DYNAMIC)), F,
            Reason.UNSCHEDULABLE, "failed to assign replicas: Clusters available replicas are not enough to schedule.",
        ),
        (
            "too few clusters", workload(1, least), F, Reason.ERROR,
            "failed to select clusters: the number of feasible clusters is less than spreadConstraint.MinGroups",
        ),
        (
            "too few regions", workload(1, two_regions), REGIONS, Reason.ERROR,
            "failed to select clusters: the number of feasible region is less than spreadConstraint.MinGroups",
        ),
        (
            "too few in regions", workload(1, many), REGIONS, Reason.ERROR,
            "failed to select clusters: the number of clusters is less than the cluster spreadConstraint.MinGroups",
        ),
        (
            "too little room in two", workload(35, Placement(scheduling=DYNAMIC, spread=(TWO,))), F, Reason.ERROR,
            "failed to select clusters: no enough resource when selecting 2 clusters",
        ),
        (
            "no such strategy", workload(1, Placement(scheduling=ReplicaScheduling("Divided"))), F, Reason.ERROR,
            "failed to assign replicas: unsupported replica scheduling strategy, replicaSchedulingType: Divided,"
            " replicaDivisionPreference: , please try another scheduling strategy",
        ),
    ]  # fmt: skip
    return [(name, place(asked, where), reason, message) for name, asked, where, reason, message in cases]


@pytest.mark.parametrize(("name", "outcome", "reason", "message"), messages(), ids=lambda value: str(value)[:30])
def test_the_condition_says_why_it_is_not_placed(name: str, outcome: Outcome, reason: Reason, message: str) -> None:
    assert (outcome.reason, outcome.message) == (reason, message)


def test_grades_of_nodes_count_instead_of_sums() -> None:
    grades = (
        ResourceGrade(1, {"cpu": 0}),
        ResourceGrade(3, {"cpu": 2 * CORE}),
        ResourceGrade(2, {"cpu": 8 * CORE}),
    )
    outcome = place(workload(6, requests={"cpu": 3 * CORE}), fleet(cluster("a", 100, grades=grades), cluster("b", 30)))
    rooms = {name: (verdict.room, verdict.room_by) for name, verdict in outcome.verdicts.items()}
    assert rooms == {"a": (4, "models"), "b": (10, "summary")}


@pytest.mark.parametrize(
    ("where", "room"),
    [
        (cluster("a", 6), 6),
        (cluster("a", 6, summarized=False), 0),
        (cluster("a", 6, allocated={"cpu": 2 * CORE}, allocating={"cpu": CORE // 2}), 3),
        (cluster("a", 6, allocated={"pods": 108 * CORE}), 2),
        (cluster("a", 6, allocated={"pods": 200 * CORE}), 0),
        (cluster("a", 6, allocatable={"pods": 110 * CORE}), 0),
        (cluster("a", 10**12), 110),
    ],
)
def test_room_follows_from_what_the_cluster_says(where: object, room: int) -> None:
    outcome = place(workload(1), fleet(where))  # type: ignore[arg-type]
    assert outcome.verdicts["a"].room == room


def test_very_many_regions_are_answered_in_bounded_work() -> None:
    clusters = [cluster(f"c{number:02}", number, region=f"r{number:02}") for number in range(60)]
    spread = (SpreadConstraint("region", "", 1, 60), SpreadConstraint("cluster", "", 30, 60))
    outcome = place(workload(30, Placement(spread=spread, scheduling=DYNAMIC)), fleet(*clusters))
    assert outcome.placed
    assert sum(outcome.targets.values()) == 30
