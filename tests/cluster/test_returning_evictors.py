"""The safety net: a workload that is evicted and evicts in turn pauses, longer each time, and is counted."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.quotas.returning_evictors import MOST_KEPT, ReturningEvictors
from kube_policy_scheduler.times import Steady
from tests.policy.worlds import pod

CLUSTER = Cluster()
A, B = pod(CLUSTER, "a"), pod(CLUSTER, "b")


def after(rounds: int) -> tuple[ReturningEvictors, Steady]:
    """Return what is known after A and B have evicted each other so often, a minute each, and the time."""
    found, now = ReturningEvictors(), 0.0
    for _ in range(rounds):
        for evictor, victim in ((A, B), (B, A)):
            found.note(evictor, [victim], Steady(now))
            now += 60
    return found, Steady(now - 60)


def test_a_workload_that_was_evicted_once_may_evict() -> None:
    found = ReturningEvictors()
    found.note(A, [B], Steady(0.0))
    assert found.may_evict(B, Steady(1.0))
    assert found.total == 0


@pytest.mark.parametrize(("rounds", "pause"), [(2, 20), (3, 40), (5, 160), (9, 600)])
def test_who_goes_on_pauses_longer_each_time(rounds: int, pause: float) -> None:
    found, now = after(rounds)  # A was evicted just now, and has evicted after an eviction one time less
    assert not found.may_evict(A, Steady(now + pause - 1))
    assert found.may_evict(A, Steady(now + pause))


def test_only_the_second_time_counts() -> None:
    assert [after(rounds)[0].total for rounds in range(1, 5)] == [0, 1, 3, 5]


def test_what_is_an_hour_ago_is_forgotten() -> None:
    found, now = after(9)
    assert found.may_evict(A, Steady(now + 3601))
    found.note(A, [B], Steady(now + 7200))
    assert found.total == after(9)[0].total


def test_others_are_not_concerned_and_memory_is_bounded() -> None:
    found, now = after(3)
    other = pod(CLUSTER, "c")
    assert found.may_evict(other, now)
    for number in range(MOST_KEPT + 1):
        found.note(other, [pod(CLUSTER, f"v{number}")], now)
    assert found.may_evict(A, now), "it is not among the last ones that are known"
