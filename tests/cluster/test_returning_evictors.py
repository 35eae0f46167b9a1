"""The safety net: a workload that is evicted and evicts in turn pauses, longer each time, and is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube_policy_scheduler.cluster.cluster import Cluster
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.cluster.quotas.returning_evictors import MOST_KEPT, ReturningEvictors
from kube_policy_scheduler.times import Steady
from tests.policy.worlds import node, pod

CLUSTER = Cluster()


def of_app(name: str, *, app: str = "", cluster: Cluster = CLUSTER) -> PodInfo:
    """Return a pod of an application, by default of its own."""
    return pod(cluster, name, labels={"app": app or name})


A, B = of_app("a"), of_app("b")


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
    other = of_app("c")
    assert found.may_evict(other, now)
    for number in range(2 * MOST_KEPT + 1):
        found.note(other, [of_app(f"v{number}")], now)
    assert found.may_evict(A, now), "it is not among the last ones that are known"


# --- for a share, nobody evicts again who was evicted ---------------------------------------------------------


def exchanged() -> ReturningEvictors:
    """Return what is known after A has evicted B for a share, and B has evicted A."""
    found = ReturningEvictors()
    found.note(A, [B], Steady(0.0), sharing=[A.uid])
    found.ended(B.uid)
    found.started(A)
    found.note(B, [A], Steady(1.0), sharing=[B.uid])
    found.ended(A.uid)
    found.started(B)
    return found


def test_who_evicted_for_a_share_and_was_evicted_does_so_no_more() -> None:
    found = exchanged()
    assert not found.may_share(A)
    assert found.may_share(B)
    assert found.may_evict(A, Steady(2.0)), "what is guaranteed to it, it may still get"


def test_pods_without_a_controller_that_are_alike_stand_for_each_other() -> None:
    found = exchanged()
    assert not found.may_share(of_app("a2", app="a"))
    assert found.may_share(pod(CLUSTER, "a3", labels={"app": "a"}, cpu="2"))


def test_who_was_evicted_by_a_priority_does_so_no_more_either() -> None:
    found = ReturningEvictors()
    found.note(A, [B], Steady(0.0), sharing=[A.uid])
    found.note(of_app("high"), [A], Steady(1.0), reclaims=False)
    assert not found.may_share(A)


def test_who_evicted_for_a_guarantee_may_still_evict_for_a_share() -> None:
    found = ReturningEvictors()
    found.note(A, [B], Steady(0.0))
    found.note(B, [A], Steady(1.0), sharing=[B.uid])
    assert found.may_share(A)


@pytest.mark.parametrize(
    "happens",
    [
        lambda found: found.ended("another"),
        lambda found: found.started(of_app("new")),
        lambda found: found.changed(),
    ],
    ids=["a pod ends", "a pod starts", "nodes or queues change"],
)
def test_it_may_again_once_something_else_changes(happens: Callable[[ReturningEvictors], None]) -> None:
    found = exchanged()
    happens(found)
    assert found.may_share(A)


def test_changes_of_two_kinds_are_two_changes() -> None:
    found = exchanged()
    found.started(pod(CLUSTER, "new"))
    found.ended("another")
    assert found.may_share(A)


def test_what_comes_of_evictions_changes_nothing_however_late() -> None:
    found = exchanged()
    found.note(of_app("c"), [B], Steady(10_000.0), reclaims=False)
    found.ended(B.uid)
    found.started(of_app("c"))
    found.started(B)
    assert not found.may_share(A)


def test_the_cluster_says_what_changes() -> None:
    cluster = Cluster()
    cluster.set_node(node("n"))
    one, other = of_app("one", cluster=cluster), of_app("other", cluster=cluster)
    cluster.returning_evictors.note(one, [other], Steady(0.0), sharing=[one.uid])
    cluster.returning_evictors.note(other, [one], Steady(0.0), sharing=[other.uid])
    assert not cluster.returning_evictors.may_share(one)
    cluster.set_node(node("n"))
    assert not cluster.returning_evictors.may_share(one), "a heartbeat is no change"
    cluster.set_node(node("m"))
    assert cluster.returning_evictors.may_share(one)
