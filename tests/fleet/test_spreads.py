"""Replicas of one key over clusters and their domains: what `spread` and `pack` prefer, and what `max skew` bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import HEALTHY, Fleet, Placement, ReplicaScheduling, Workload
from kube_policy_scheduler.fleet.running import RunningWorkloads
from tests.fleet.fleets import NOW, cluster, policies, workload

CLUSTERS = (
    cluster("a", 6, price=3, region="eu"),
    cluster("b", 12, price=5, region="eu"),
    cluster("c", 18, price=4, region="us"),
)
NOWHERE = cluster("n", 9, price=1)
FIRST = "score -(cluster.price ?? 9)\ndivide best first"
APP = {"app": "web"}
OTHERS = (
    workload(4, {"a": 3, "b": 3, "c": 2}, name="other", labels=APP),
    workload(2, {"c": 9}, name="another", labels={"app": "db"}),
)


def fleet(*others: Workload, clusters: Sequence = CLUSTERS) -> Fleet:  # type: ignore[type-arg]
    return Fleet(tuple(clusters), running=RunningWorkloads(others))


def scores(text: str, asked: Workload, found: Fleet) -> dict[str, float]:
    verdicts = policies(f"{text}\ndivide best first").decide(asked, found, Given(NOW)).verdicts
    return {name: round(each.score, 1) for name, each in verdicts.items()}


SCORED: dict[str, tuple[str, Workload, dict[str, float]]] = {
    "the fewest in a cluster": (
        "spread by workload.label.app", workload(1, labels=APP), {"a": 66.7, "b": 66.7, "c": 100.0},
    ),
    "the fewest in a region": (
        "spread by workload.label.app over region", workload(1, labels=APP), {"a": 33.3, "b": 33.3, "c": 100.0},
    ),
    "no other of the key": ("spread by workload.name over region", workload(1), {"a": 100.0, "b": 100.0, "c": 100.0}),
    "what it has itself counts": (
        "spread by workload.name", workload(5, {"a": 2, "b": 1}), {"a": 0.0, "b": 50.0, "c": 100.0},
    ),
    "but not afresh": (
        "spread by workload.name", workload(5, {"a": 2, "b": 1}, fresh=True), {"a": 100.0, "b": 100.0, "c": 100.0},
    ),
    "the most": (
        "pack by workload.label.app over region", workload(1, labels=APP), {"a": 100.0, "b": 100.0, "c": 33.3},
    ),
    "below the target": (
        "spread by workload.label.app over region target us 75%", workload(2, labels=APP),
        {"a": 0.0, "b": 0.0, "c": 83.3},
    ),
    "for its size": (
        "spread by workload.label.app target by cluster.allocatable.cpu", workload(1, labels=APP),
        {"a": 23.8, "b": 47.6, "c": 100.0},
    ),
    "with a weight": (
        "spread by workload.label.app over region weight 2", workload(1, labels=APP),
        {"a": 66.7, "b": 66.7, "c": 200.0},
    ),
    "not for this one": (
        "spread by workload.label.app if workload.priority > 5", workload(1, labels=APP),
        {"a": 0.0, "b": 0.0, "c": 0.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCORED)
def test_a_spread_scores_by_what_runs(case: str) -> None:
    text, asked, expected = SCORED[case]

    assert scores(text, asked, fleet(*OTHERS)) == expected


def test_a_cluster_in_no_domain_has_no_score() -> None:
    assert scores("spread by workload.name over region", workload(1), fleet(clusters=(*CLUSTERS, NOWHERE)))["n"] == 0.0


PLACED: dict[str, tuple[str, Workload, dict[str, int]]] = {
    "as many in each region": ("spread by workload.name over region max skew 1", workload(12), {"a": 6, "c": 6}),
    "one more in the better one": ("spread by workload.name over region max skew 1", workload(13), {"a": 6, "c": 7}),
    "a larger skew leaves more to the rule": (
        "spread by workload.name over region max skew 5", workload(13), {"a": 6, "c": 7},
    ),
    "others of the key count": (
        "spread by workload.label.app over region max skew 1", workload(5, labels=APP), {"a": 1, "c": 4},
    ),
    "more than there is room for in the smallest": (
        "spread by workload.name max skew 1", workload(21), {},
    ),
    "as few as it has": (
        "spread by workload.name over region max skew 1", workload(8, {"a": 2, "c": 10}), {"a": 2, "c": 6},
    ),
    "what runs stays": ("spread by workload.name over region max skew 1", workload(10, {"c": 9}), {"a": 1, "c": 9}),
    "afresh": ("spread by workload.name over region max skew 1", workload(10, {"c": 10}, fresh=True), {"a": 5, "c": 5}),
    "with a division of its own": (
        "spread by workload.name over region max skew 2", workload(10), {"a": 6, "c": 4},
    ),
    "too few domains": (
        "spread by workload.name over region max skew 3 min domains 3", workload(6), {"a": 3, "c": 3},
    ),
    "too few domains for so many": (
        "spread by workload.name over region max skew 3 min domains 3", workload(7), {},
    ),
    "only the chosen clusters count": (
        "spread by workload.name max skew 1\nchoose 2 clusters", workload(8), {"a": 4, "c": 4},
    ),
    "a filter takes its domain away": (
        'spread by workload.name over region max skew 1\nfilter cluster.region == "us"', workload(8), {"c": 8},
    ),
    "together with a limit": (
        "spread by workload.name over region max skew 3\nlimit sum(replicas) by workload.name to 5 over region",
        workload(8), {"a": 5, "c": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED)
def test_a_skew_bounds_the_division(case: str) -> None:
    text, asked, expected = PLACED[case]
    outcome = policies(f"{text}\n{FIRST}").decide(asked, fleet(*OTHERS), Given(NOW))

    assert (outcome.targets if outcome.write else {}) == expected


def test_a_cluster_in_no_domain_is_rejected_unless_it_runs_there() -> None:
    text = f'spread by workload.name over region max skew 9 as even else "no region"\n{FIRST}'
    found = fleet(clusters=(*CLUSTERS, NOWHERE))
    verdict = policies(text).decide(workload(4), found, Given(NOW)).verdicts["n"]

    assert (verdict.rejected_by, verdict.message) == ("even", "no region")
    assert policies(text).decide(workload(4, {"n": 3}), found, Given(NOW)).targets == {"a": 1, "n": 3}


def test_the_message_names_the_spread_that_leaves_too_little() -> None:
    outcome = policies(f"spread by workload.name max skew 1 as even\n{FIRST}").decide(workload(21), fleet(), Given(NOW))

    assert outcome.message == "there is room for 20 of 21 replicas, by even"


@pytest.mark.parametrize(("weights", "written"), [("Weighted", True), ("Aggregated", False)])
def test_the_placement_is_held_to_a_skew(weights: str, written: bool) -> None:
    asked = workload(6, placement=Placement(scheduling=ReplicaScheduling("Divided", weights)))
    outcome = policies("spread by workload.name max skew 1 as even").decide(asked, fleet(), Given(NOW))

    assert outcome.write is written
    assert written or "even" in outcome.message


DIVISIONS = st.sampled_from(
    [
        "divide evenly partly", "divide best first partly", "divide by cluster.room at least 2 each partly",
        "divide over region evenly then best first partly", "choose 2 clusters\ndivide evenly partly", "divide copies",
        "keep nothing\ndivide evenly partly", "score -(cluster.price ?? 9)\ndivide best first partly", "",
    ]
)  # fmt: skip
TOPOLOGIES = {
    "cluster": {each.name: each.name for each in CLUSTERS},
    "region": {each.name: each.region for each in CLUSTERS},
}
HAS = st.dictionaries(st.sampled_from("abc"), st.integers(1, 6))


def skew(has: Mapping[str, int], others: Mapping[str, int], over: str, among: Sequence[str]) -> int:
    counts = {domain: 0 for name, domain in TOPOLOGIES[over].items() if name in among}
    for placed in (has, others):
        for name, count in placed.items():
            if TOPOLOGIES[over][name] in counts:
                counts[TOPOLOGIES[over][name]] += count
    return max(counts.values(), default=0) - min(counts.values(), default=0)


@given(
    st.sampled_from(["cluster", "region"]), st.integers(1, 4), DIVISIONS, st.integers(0, 30), HAS, HAS, st.booleans()
)
@settings(max_examples=200)
def test_no_skew_gets_worse_than_it_may_be(
    over: str, most: int, division: str, replicas: int, has: dict[str, int], others: dict[str, int], fresh: bool
) -> None:
    """What is written keeps to the skew, or is no more uneven than what ran before; and nothing is lost by it."""
    text = f"spread by workload.label.app over {over} max skew {most}\n{division}"
    asked = workload(replicas, has, labels=APP, fresh=fresh)
    outcome = policies(text).decide(asked, fleet(workload(9, others, name="other", labels=APP)), Given(NOW))
    if not outcome.write:
        assert outcome.targets == has
        return
    among = list(outcome.targets) if "choose" in division else "abc"
    kept = {} if fresh or "keep nothing" in division else has
    allowed = max(most, skew(kept, others, over, among) if kept else 0)
    assert skew(outcome.targets, others, over, among) <= allowed
    spare = 1 if "at least 2" in division else 0  # three replicas are 2 and 1, and one of a cluster is too few
    assert sum(outcome.targets.values()) >= min(replicas, sum(kept.values())) - spare


@given(st.integers(1, 3), st.integers(1, 20), HAS)
@settings(max_examples=60)
def test_moves_end_where_the_skew_is_met(most: int, replicas: int, has: dict[str, int]) -> None:
    text = f"spread by workload.name over region max skew {most}\ndivide evenly\nrebalance at most 3 rest 1s"
    asked = workload(sum(has.values()), has)
    for _ in range(50):
        moved = policies(text).rebalance(asked, fleet(), Given(NOW))
        if moved is None:
            break
        asked = replace(asked, has=moved[0].targets, health=dict.fromkeys(moved[0].targets, HEALTHY))
    if sum(has.values()) > 1:
        assert skew(asked.has, {}, "region", "abc") <= max(most, 1)
