"""How many pods and gangs of queues are guaranteed and borrowed: metrics count what `policyctl queues` lists."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kube_policy_scheduler.cluster.quotas import guarantees
from kube_policy_scheduler.cluster.steps import now
from kube_policy_scheduler.framework.preempt import standing, units
from kube_policy_scheduler.framework.preempt.standing import counted_units
from kube_policy_scheduler.tooling.queues import data, report
from tests.policy.queue_worlds import GPU, World

POLICY = f"""
queue alone for pods where pod.label.q == "alone" min {GPU} 1000
queue top min {GPU} 6000, cpu 1
queue a of top for pods where pod.label.q == "a" min {GPU} 2000
queue b of top for pods where pod.label.q == "b"
queue jobs of top for pods where pod.label.q == "jobs" min {GPU} 1000
gang by pod.label.q size 2 if pod.label.q == "jobs"
reclaim
"""


def _world(pods: Sequence[tuple[str, int, int]]) -> World:
    world = World.of(POLICY, 100)
    for queue, gpus, priority in pods:
        world.runs(queue, gpus, priority=priority)
    return world


def test_each_is_guaranteed_by_one_resource_or_borrows_all_that_it_holds() -> None:
    world = _world(
        [("a", 1, 0), ("a", 2, 0), ("b", 5, 0), ("jobs", 1, 0), ("jobs", 1, 0), ("jobs", 1, 0), ("alone", 9, 0)]
    )
    assert world.rules.queues is not None
    found = now(counted_units(world.cluster, world.rules.queues, now=world.now))
    shown = {name: (dict(each.guaranteed), dict(each.borrowed)) for name, each in found.items()}
    assert shown == {
        "alone": ({}, {GPU: 1}),
        "top": ({GPU: 4}, {GPU: 1}),  # both of a, the gang, and the member beyond its size
        "a": ({GPU: 1}, {GPU: 1}),
        "b": ({}, {GPU: 1}),
        "jobs": ({}, {GPU: 2}),  # the gang is larger than what is guaranteed here
    }


@given(
    pods=st.lists(
        st.tuples(st.sampled_from(["top", "a", "b", "jobs", "alone"]), st.integers(0, 3), st.integers(0, 2)),
        max_size=12,
    )
)
def test_the_numbers_are_those_of_the_list(pods: Sequence[tuple[str, int, int]]) -> None:
    """In steps of two units, so that walks go on in another step."""
    world = _world(pods)
    assert world.rules.queues is not None
    modules = guarantees, standing, units
    before = guarantees.WALKED_AT_ONCE
    try:
        for module in modules:
            module.WALKED_AT_ONCE = 2  # type: ignore[attr-defined]
        counted = now(counted_units(world.cluster, world.rules.queues, now=world.now))
    finally:
        for module in modules:
            module.WALKED_AT_ONCE = before  # type: ignore[attr-defined]
    listed = data(report(world.cluster, world.rules.queues, [], now=world.now))["queues"]
    for queue in listed:
        there = counted[queue["name"]]
        assert queue["guaranteedUnits"] == dict(there.guaranteed)
        assert queue["borrowedUnits"] == dict(there.borrowed)
        own = [unit for unit in queue["units"] if unit["in"] == queue["name"]]
        below = {name["name"] for name in listed if name["parent"] == queue["name"]}
        if not below:
            assert sum(there.guaranteed.values()) == len(own)
