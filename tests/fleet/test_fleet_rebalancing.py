"""Later moves of replicas: how many, from where, and when none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kube_policy_scheduler.fleet.judging import Given
from kube_policy_scheduler.fleet.model import EvictionTask, Fleet, Workload
from tests.fleet.fleets import NOW, THREE, cluster, policies, workload

BACK = """\
score 1000 if cluster.provider == "own"
score -(cluster.price ?? 9)
divide best first
rebalance at most 2 rest 10min if cluster.condition_age.Ready ?? 0s > 10min"""


def passes(text: str, asked: Workload, fleet: Fleet = THREE) -> list[Mapping[str, int]]:
    """Return the placement after each pass, until nothing moves any more."""
    found = []
    for _ in range(20):
        moved = policies(text).rebalance(asked, fleet, Given(NOW))
        if moved is None:
            return found
        found.append(moved[0].targets)
        asked = workload(asked.replicas, moved[0].targets)
    raise AssertionError("it never ends")


def test_replicas_go_back_two_at_a_time() -> None:
    assert passes(BACK, workload(5, {"c": 5})) == [{"a": 2, "c": 3}, {"a": 4, "c": 1}, {"a": 5}]


def test_nothing_moves_to_a_cluster_that_just_came_back() -> None:
    back = Fleet((cluster("a", 6, price=3, provider="own", ready_for=60.0), *THREE.clusters[1:]))

    assert passes(BACK, workload(5, {"c": 5}), back) == []


SETTLED = {
    "decided a minute ago": workload(5, {"c": 5}, decided=NOW - 60),
    "leaving a cluster": workload(5, {"c": 5}, evicting=(EvictionTask("b"),)),
    "not healthy yet": workload(5, {"c": 5}, health={"c": "Unknown"}),
    "replicas are lost": workload(5, {"c": 4}),
    "nowhere yet": workload(5),
}


@pytest.mark.parametrize("case", SETTLED)
def test_a_workload_stays_while_it_is_on_its_way(case: str) -> None:
    assert policies(BACK).rebalance(SETTLED[case], THREE, Given(NOW)) is None


def test_it_moves_once_it_has_rested() -> None:
    assert policies(BACK).rebalance(workload(5, {"c": 5}, decided=NOW - 601), THREE, Given(NOW)) is not None


MOVED = [{"a": 3, "c": 1}, {"a": 4}]


@pytest.mark.parametrize(("margin", "moved"), [(0, MOVED), (1, []), (0.5, MOVED)])
def test_a_margin_is_by_how_much_the_other_cluster_must_be_better(margin: float, moved: list[dict[str, int]]) -> None:
    text = f"score -(cluster.price ?? 9)\ndivide best first\nrebalance margin {margin}"

    assert passes(text, workload(4, {"c": 4})) == moved


def test_each_cluster_has_the_first_rebalance_that_lets_it_gain() -> None:
    text = 'divide evenly\nrebalance at most 1 if cluster.name == "a"\nrebalance at most 3'

    assert passes(text, workload(9, {"c": 9}))[0] == {"a": 1, "b": 2, "c": 6}


def test_without_rebalance_nothing_moves() -> None:
    assert policies("divide evenly").rebalance(workload(9, {"c": 9}), THREE, Given(NOW)) is None


@pytest.mark.parametrize(
    ("replicas", "moved"), [(1, []), (2, [{"a": 1, "c": 1}, {"a": 2}]), (3, [{"a": 2, "c": 1}, {"a": 3}])]
)
def test_one_replica_always_stays_where_it_is_healthy(replicas: int, moved: list[dict[str, int]]) -> None:
    assert passes(BACK, workload(replicas, {"c": replicas})) == moved
