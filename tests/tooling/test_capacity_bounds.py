"""Bounds beside greedy answers: no scheduler can need fewer nodes."""

from __future__ import annotations

from random import Random

import pytest

from kube_policy_scheduler.cluster.pods import PodInfo, Templates
from kube_policy_scheduler.tooling.capacity.room import least_nodes
from tests.tooling.worlds import things_of

OFFERED = {"cpu": 4000, "memory": 64 * 2**30, "pods": 110}


def pods_of(millis: list[int]) -> list[PodInfo]:
    templates = Templates()
    return [templates.pod(pod) for pod in things_of([], [{"cpu": f"{each}m"} for each in millis])]


def fewest(sizes: list[int], room: int, bins: tuple[int, ...] = (), best: int = 99) -> int:
    """Return how many bins are enough, by trying everything."""
    if len(bins) >= best:
        return best
    if not sizes:
        return len(bins)
    first, *others = sizes
    for at, used in enumerate(bins):
        if used + first <= room and used not in bins[:at]:
            best = min(best, fewest(others, room, (*bins[:at], used + first, *bins[at + 1 :]), best))
    return min(best, fewest(others, room, (*bins, first), best))


@pytest.mark.parametrize(
    ("millis", "least"),
    [
        ([], 0),
        ([1000], 1),
        ([3000] * 5, 5),
        ([1000] * 9, 3),
        ([2500, 2500, 1600], 3),
        ([2400, 2400, 2400, 1700, 1700], 4),
    ],
)
def test_pods_that_fit_beside_no_other_need_a_node_each(millis: list[int], least: int) -> None:
    assert least_nodes(pods_of(millis), OFFERED) == least


def test_the_bound_is_a_bound_and_mostly_the_answer() -> None:
    random, met = Random(3), 0
    for _ in range(150):
        millis = sorted((random.randint(1, 16) * 250 for _ in range(random.randint(1, 8))), reverse=True)
        bound, answer = least_nodes(pods_of(millis), OFFERED), fewest(millis, OFFERED["cpu"])
        assert bound <= answer, millis
        met += bound == answer
    assert met > 140
