"""What policies decide about workloads: which clusters, how many replicas, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_policy_scheduler.fleet.decide import decide
from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import (
    AffinityTerm,
    ClusterAffinity,
    Component,
    EvictionTask,
    Fleet,
    Placement,
    ReplicaScheduling,
    SpreadConstraint,
    Workload,
)
from kube_policy_scheduler.fleet.placement.place import place
from tests.fleet.fleets import NOW, THREE, cluster, policies, workload

OWN_FIRST = 'score 1000 if cluster.provider == "own"\nscore -(cluster.price ?? 9)\ndivide best first'
CHEAPEST = "score -(cluster.price ?? 9)\ndivide best first"
PROVIDERS = Fleet((cluster("a", 9, provider="x"), cluster("b", 9, provider="x"), cluster("c", 5, provider="y")))
ZONES = Fleet(
    tuple(
        cluster(f"c{number}", 1000, region=region, zone=zone)
        for number, (region, zone) in enumerate(
            [("R1", "AZ1"), ("R1", "AZ1"), ("R1", "AZ2"), ("R1", "AZ2"), ("R2", "AZ3")], 1
        )
    )
)
OWN_OR_CLOUD = Placement(
    terms=(AffinityTerm("own", ClusterAffinity(names=frozenset("a")), (ClusterAffinity(names=frozenset("bc")),)),),
    scheduling=ReplicaScheduling("Divided", "Weighted", weighted=True, dynamic="AvailableReplicas"),
)
PLACED: dict[str, tuple[str, Fleet, Workload, dict[str, int]]] = {
    "own first, then the cheapest cloud": (OWN_FIRST, THREE, workload(12), {"a": 6, "c": 6}),
    "the most expensive cloud first to shrink": (
        OWN_FIRST, THREE, workload(7, {"a": 6, "b": 2, "c": 4}), {"a": 6, "c": 1},
    ),
    "lost replicas go to the best of what is left": (
        OWN_FIRST,
        THREE,
        workload(12, {"b": 4, "c": 6}, evicting=(EvictionTask("a"),)),
        {"b": 4, "c": 8},
    ),
    "overflow tiers are filled one after the other": (
        CHEAPEST.replace("-", ""), THREE, workload(12, placement=OWN_OR_CLOUD), {"a": 6, "b": 6},
    ),
    "overflow tiers shrink from the last one": (
        OWN_FIRST, THREE, workload(7, {"a": 6, "b": 2, "c": 4}, placement=OWN_OR_CLOUD), {"a": 6, "c": 1},
    ),
    "evenly": ("divide evenly", THREE, workload(10), {"a": 4, "b": 3, "c": 3}),
    "evenly, as far as there is room": (
        "divide evenly", Fleet((cluster("a", 1), cluster("b", 100))), workload(20), {"a": 1, "b": 19},
    ),
    "afresh by all room": (
        "keep nothing\ndivide by cluster.room + cluster.has", THREE, workload(12, {"a": 4, "b": 2}),
        {"a": 3, "b": 4, "c": 5},
    ),
    "afresh once, because somebody asked for it": (
        "divide evenly", THREE, workload(9, {"a": 9}, fresh=True), {"a": 3, "b": 3, "c": 3},
    ),
    "nothing moves for a better score": (CHEAPEST, THREE, workload(6, {"b": 6}), {"b": 6}),
    "only new replicas are placed": ("divide evenly", THREE, workload(9, {"b": 7}), {"a": 1, "b": 7, "c": 1}),
    "shares by region": (
        "divide over region target eu 70%, us 30% then by cluster.room", THREE, workload(10), {"a": 2, "b": 5, "c": 3},
    ),
    "shares by region, zone and cluster": (
        "divide over region target R1 70%, R2 30% then over zone evenly then evenly",
        ZONES,
        workload(100),
        {"c1": 18, "c2": 17, "c3": 18, "c4": 17, "c5": 30},
    ),
    "a region without a target gets the rest": (
        "divide over region target R1 70% then evenly", ZONES, workload(10),
        {"c1": 2, "c2": 2, "c3": 2, "c4": 1, "c5": 3},
    ),
    "two providers": (
        "choose 2 clusters over provider at least 2\ndivide copies", PROVIDERS, workload(3), {"a": 3, "c": 3},
    ),
    "as few clusters as have room": ("choose 1 to 2 clusters\ndivide evenly", THREE, workload(30), {"b": 12, "c": 18}),
    "at most one region": (
        "choose 2 clusters over region at most 1\ndivide evenly", THREE, workload(8), {"a": 4, "b": 4},
    ),
    "one in each region": (
        "score -(cluster.price ?? 9)\nchoose 2 clusters over region each at most 1\ndivide evenly", THREE, workload(8),
        {"a": 4, "c": 4},
    ),
    "the spread constraints of the Placement apply, too": (
        "choose 1 to 3 clusters\ndivide evenly", THREE,
        workload(8, placement=Placement(spread=(SpreadConstraint("cluster", least=2, most=2),))), {"b": 4, "c": 4},
    ),
    "if they contradict the policy, it has to give way": (
        "choose 1 clusters\ndivide evenly", THREE,
        workload(8, placement=Placement(spread=(SpreadConstraint("cluster", least=2, most=3),))), {"b": 4, "c": 4},
    ),
    "also if it asks for more": (
        "choose 3 clusters\ndivide evenly", THREE,
        workload(8, placement=Placement(spread=(SpreadConstraint("cluster", least=1, most=2),))), {"b": 4, "c": 4},
    ),
    "and what they say of regions": (
        "choose 2 clusters\ndivide evenly", THREE,
        workload(8, placement=Placement(spread=(SpreadConstraint("region", least=1, most=1),))), {"a": 4, "b": 4},
    ),
    "clusters where it runs are chosen first": (
        "score -(cluster.price ?? 9)\nchoose 1 clusters\ndivide evenly", THREE, workload(8, {"b": 4}), {"b": 8},
    ),
    "a filter": ('filter cluster.region == "eu"\ndivide evenly', THREE, workload(8), {"a": 4, "b": 4}),
    "a filter leaves alone what runs, which grows elsewhere": (
        'filter cluster.region == "eu"\ndivide evenly', THREE, workload(8, {"c": 4}), {"a": 2, "b": 2, "c": 4},
    ),
    "what a filter rejects shrinks first": (
        'filter cluster.region == "eu"\ndivide best first', THREE, workload(6, {"a": 2, "c": 6}), {"a": 2, "c": 4},
    ),
    "a filter that says also running": (
        'filter cluster.region == "eu" also running\ndivide evenly', THREE, workload(8, {"c": 4}), {"a": 4, "b": 4},
    ),
    "without a rule of Karmada": (
        "use karmada without TaintToleration\ndivide evenly",
        Fleet((cluster("a", 9, taints=[("k", "", "NoSchedule")]), cluster("b", 9))),
        workload(4),
        {"a": 2, "b": 2},
    ),
    "a statement for some workloads": (
        'divide copies if workload.label.tier == "edge"\ndivide evenly', THREE, workload(3, labels={"tier": "edge"}),
        {"a": 3, "b": 3, "c": 3},
    ),
    "no more than two thirds in each": (
        "score -(cluster.price ?? 9)\ndivide best first at most workload.replicas * 2 / 3 each",
        THREE, workload(6), {"a": 4, "c": 2},
    ),
    "no replicas": ("divide evenly", THREE, workload(0), {}),
    "a workload without pods goes to every cluster that passes": (
        'filter cluster.region == "eu"\ndivide evenly', THREE, workload(0, requests=None), {"a": 0, "b": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED)
def test_a_workload_is_placed(case: str) -> None:
    text, fleet, asked, expected = PLACED[case]
    outcome = policies(text).decide(asked, fleet, Given(NOW))

    assert (outcome.targets, outcome.placed, outcome.write) == (expected, True, True)


STAYS: dict[str, tuple[str, Workload, dict[str, int], str]] = {
    "too little room": (OWN_FIRST, workload(40, {"a": 3}), {"a": 3}, "there is room for 39 of 40 replicas"),
    "a requirement": (
        'require workload.label.team is not missing else "no team"', workload(3, {"a": 3}), {"a": 3}, "no team",
    ),
    "a hold": ("hold if workload.replicas > 2", workload(3, {"a": 3}), {"a": 3}, "workload is held by policy clause"),
    "all that is left is rejected": (
        "filter cluster.has > 9", workload(3), {}, "the policy rejects 3 clusters, all that could run the workload",
    ),
    "all that is left is rejected, though it runs": (
        "filter cluster.has > 9 also running", workload(3, {"a": 3}), {"a": 3}, "the policy rejects 3 clusters",
    ),
    "too few clusters": ("choose 4 clusters", workload(3, {"a": 3}), {"a": 3}, "4 clusters needed, 3 can be chosen"),
    "too few in one region": (
        "choose 3 clusters over region at most 1", workload(3), {},
        "3 clusters in 1 place needed, 2 can be chosen",
    ),
    "the Placement asks for other regions": (
        "choose 2 clusters over provider at least 2",
        workload(3, placement=Placement(spread=(SpreadConstraint("region", least=3, most=3),))), {},
        "the Placement asks for 3 regions, and `choose` leads to 2",
    ),
    "too few regions": (
        "choose 3 clusters over region at least 3", workload(3), {},
        "clusters in 3 different places needed, 2 can be chosen",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_what_runs_stays_and_the_reason_is_said(case: str) -> None:
    text, asked, expected, message = STAYS[case]
    outcome = policies(text).decide(asked, THREE, Given(NOW))

    assert (outcome.targets, outcome.placed, outcome.write) == (expected, False, False)
    assert message in outcome.message


def test_what_has_room_is_placed_and_the_generation_is_seen() -> None:
    outcome = policies("divide evenly at most 4 each partly").decide(workload(13), THREE)

    assert outcome.targets == {"a": 4, "b": 4, "c": 4}
    assert (outcome.placed, outcome.write, outcome.observed) == (False, True, True)
    assert outcome.message == "12 of 13 replicas have room"


def test_each_cluster_has_its_reason() -> None:
    text = OWN_FIRST + '\nfilter cluster.name != "b" as no-b else "not b"'
    outcome = policies(text).decide(workload(12), THREE)
    said = {name: (each.rejected_by, each.message, each.room, each.room_by) for name, each in outcome.verdicts.items()}

    assert said == {
        "a": ("", "all that it may have", 6, "summary"),
        "b": ("no-b", "not b", 12, "summary"),
        "c": ("", "6: rest after a was full", 18, "summary"),
    }


def test_a_missing_value_never_takes_what_runs_away() -> None:
    found = policies("filter number(cluster.label.x) ?? 0 > 1\ndivide evenly")

    assert found.decide(workload(4, {"a": 4}), THREE).targets == {"a": 4}


PLAIN = st.sampled_from(["", "filter cluster.ready", 'filter cluster.region in ["eu", "us"]', "order by workload.name"])
PLACEMENTS = st.builds(
    Placement,
    spread=st.sampled_from([(), (SpreadConstraint("cluster", least=1, most=2),)]),
    scheduling=st.sampled_from(
        [
            None,
            ReplicaScheduling("Duplicated"),
            ReplicaScheduling("Divided", "Aggregated"),
            ReplicaScheduling("Divided", "Weighted"),
            ReplicaScheduling("Divided", "Weighted", weighted=True, dynamic="AvailableReplicas"),
        ]
    ),
)


@given(PLAIN, PLACEMENTS, st.integers(0, 40), st.dictionaries(st.sampled_from("abc"), st.integers(1, 6)))
@settings(max_examples=60)
def test_without_choose_and_divide_the_placement_decides(
    text: str, placement: Placement, replicas: int, has: dict[str, int]
) -> None:
    asked = workload(replicas, has, placement=placement)
    ours, theirs = policies(text).decide(asked, THREE), place(asked, THREE)

    assert (ours.targets, ours.reason, ours.message) == (theirs.targets, theirs.reason, theirs.message)


DIVISIONS = st.sampled_from(
    [
        "divide evenly", "divide best first", "divide by cluster.room", "divide by cluster.room at least 2 each partly",
        "divide over region evenly then best first", "choose 1 to 2 clusters\ndivide evenly at most 5 each",
        "keep nothing\ndivide evenly partly", "filter cluster.region == \"eu\"\ndivide best first",
    ]
)  # fmt: skip


@given(DIVISIONS, st.integers(0, 60), st.dictionaries(st.sampled_from("abc"), st.integers(1, 6)))
@settings(max_examples=100)
def test_what_is_written_fits_and_is_all_or_said_to_be_part(text: str, replicas: int, has: dict[str, int]) -> None:
    outcome = policies(text).decide(workload(replicas, has), THREE)
    room = {name: (verdict.room or 0) + has.get(name, 0) for name, verdict in outcome.verdicts.items()}

    if outcome.write:
        assert all(0 < count <= room[name] for name, count in outcome.targets.items())
        assert outcome.placed is (sum(outcome.targets.values()) == replicas)
        assert outcome.placed or outcome.message == f"{sum(outcome.targets.values())} of {replicas} replicas have room"
    else:
        assert outcome.targets == has


@given(DIVISIONS.filter(lambda text: "keep" not in text), st.dictionaries(st.sampled_from("abc"), st.integers(1, 6)))
@settings(max_examples=60)
def test_nothing_moves_while_nothing_is_lost(text: str, has: dict[str, int]) -> None:
    outcome = policies(text).decide(workload(sum(has.values()), has), THREE)

    assert outcome.targets == has


def test_components_are_placed_as_the_placement_says() -> None:
    asked = workload(2, components=(Component("one", 1), Component("two", 1)))

    assert policies("divide evenly").decide(asked, THREE).targets == place(asked, THREE).targets


def test_the_first_policy_that_matches_governs() -> None:
    found = policies("policy mine\ndivide evenly")
    other: Any = found.governing(workload(3))

    assert other.name == "mine"
    assert found.governing(workload(3), "another-scheduler") is other
    assert decide(workload(3), THREE).targets == place(workload(3), THREE).targets
