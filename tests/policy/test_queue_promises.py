"""Quota that was made free for a nominated pod is kept for it from pods of no queue."""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.events import ClusterEvent
from kube_policy_scheduler.framework.quota_promises import QueuePromises
from tests.policy.queue_worlds import GPU, World

QUEUES = f"""
queue a for pods where pod.label.q == "a"
queue b for pods where pod.label.q == "b" min {GPU} 2 {{lend}}
"""


def decided(world: World, pod: PodInfo) -> Decision:
    """Return what becomes of a pod now."""
    world.queued[pod.uid] = world.now
    policy = world.rules.governing(pod)
    assert policy is not None
    return world.cycle.decide(world.frame(pod), policy.profile)


def with_nominated(lend: str) -> tuple[World, PodInfo]:
    """Return a node of 5 GPUs with 1 of a and 2 of no queue, where another pod of a is nominated; b keeps 1."""
    world = World.of(QUEUES.format(lend=lend), 5)
    world.runs("a", 1)
    world.runs("none", 1, 1)
    nominated = world.pod("a", priority=10)
    world.cluster.nominate(nominated, "n0")
    return world, nominated


@pytest.mark.parametrize(
    ("lend", "priority", "fits"),
    [
        pytest.param(f"lend {GPU} 1", 0, False, id="queue b keeps the rest"),
        pytest.param(f"lend {GPU} 1", 10, False, id="the nominated pod comes before its equals"),
        pytest.param(f"lend {GPU} 1", 20, True, id="a higher priority may take it"),
        pytest.param(f"lend {GPU} 2", 0, True, id="queue b keeps nothing"),
    ],
)
def test_a_pod_of_no_queue_takes_nothing_of_what_was_made_free(lend: str, priority: int, fits: bool) -> None:
    world, _ = with_nominated(lend)
    assert (decided(world, world.pod("none", priority=priority)).host is not None) is fits


def test_the_message_says_what_it_waits_for() -> None:
    world, _ = with_nominated(f"lend {GPU} 1")
    assert (
        "queues could no longer lend what was made free for other pods: 1000 example.com/gpu requested; it waits until "
        "these have started" in decided(world, world.pod("none")).message
    )


def test_it_starts_once_the_nominated_pod_has_and_hears_of_that() -> None:
    world, nominated = with_nominated(f"lend {GPU} 1")
    world.cluster.nominate(nominated, "")
    world.cluster.place(nominated, "n0")
    assert decided(world, world.pod("none")).host == "n0"
    assert {ClusterEvent.POD_ADD, ClusterEvent.POD_DELETE} <= QueuePromises.events


def test_a_nomination_that_ends_keeps_nothing() -> None:
    world, nominated = with_nominated(f"lend {GPU} 1")
    world.cluster.nominate(nominated, "")
    assert decided(world, world.pod("none")).host == "n0"
