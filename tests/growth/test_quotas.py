"""With more units in a queue, more queues or more waiting gangs, every step of a pod of a queue is linear at most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube_policy_scheduler.daemon.policies.live import LivePolicies
from kube_policy_scheduler.framework.preempt.standing import counted_units
from tests.growth.quota_scenes import ROOM, SCENES, Scene, measure, measure_gang
from tests.growth.stage import NODES, Lines, Stage
from tests.growth.test_growth import LINEAR, SIZES, SLACK_LINES

UNITS = (512, 1_024, 2_048)
LINES_EACH_UNIT = 70
"""Of a decision that evicts one of them: with 10,000 units, that is about 25 ms."""
LINES_EACH_VICTIM = 6_000
"""Of a gang: about 0.2 ms, in which each is taken away and put back a few times."""
LINES_A_STEP = 25_000
"""Of the count of guaranteed and borrowed units before a scrape, about 5 ms: of so many queues, all are gone over once.
"""
EVICTS = "second guaranteed pod is decided"
OF_ONE_QUEUE = [scene for scene in SCENES if scene.name.startswith("units of a queue")]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_time_is_linear(scene: Scene) -> None:
    measure(scene, SIZES[0] // 2, Lines())  # what is done once in a process is done
    first, second, third = (measure(scene, size, Lines()) for size in SIZES)
    beyond = {
        step: [first[step], second[step], most]
        for step, most in third.items()
        if most - second[step] > LINEAR * max(0.0, second[step] - first[step]) + SLACK_LINES
    }
    assert beyond == {}


@pytest.mark.parametrize("scene", OF_ONE_QUEUE, ids=lambda scene: scene.name)
def test_an_eviction_asks_little_of_each_unit(scene: Scene) -> None:
    """What is the same for all units that count for the same is asked once, and one turn looks at all of them."""
    measure(scene, SIZES[0], Lines())
    few, many = (measure(scene, size, Lines())[EVICTS] for size in UNITS[:2])
    assert (many - few) / (UNITS[1] - UNITS[0]) < LINES_EACH_UNIT


def test_one_more_victim_is_not_compared_with_all_units() -> None:
    """The pod that comes needs a whole node: with twice as many units, there are twice as many victims, each alike."""
    large = replace(OF_ONE_QUEUE[0], millis=lambda n: ROOM // NODES)
    measure(large, SIZES[0], Lines())
    first, second, third = (measure(large, size, Lines())[EVICTS] for size in UNITS)
    assert third - second < LINEAR * (second - first)


def test_of_victims_that_are_alike_one_is_tried_to_stay() -> None:
    """A gang takes whole nodes with four pods each: it is not planned again for each pod that may have to go."""
    measure_gang(4, Lines())
    few, many = (measure_gang(members, Lines())["gang is decided"] for members in (16, 48))
    assert (many - few) / (4 * (48 - 16)) < LINES_EACH_VICTIM


@pytest.mark.parametrize(
    "scene", [scene for scene in SCENES if "gangs" not in scene.name], ids=lambda scene: scene.name
)
def test_units_are_counted_in_steps(scene: Scene) -> None:
    stage = Stage(scene.policy(UNITS[-1]))
    scene.make(stage, UNITS[-1])
    policies = stage.scheduler.algorithm.policies
    assert isinstance(policies, LivePolicies)
    rules, cluster = policies.policy_set.queues, stage.scheduler.cluster
    assert rules is not None
    cluster.track_usage(rules.tree)
    steps, longest = counted_units(cluster, rules, now=stage.now), 0.0
    is_over = False
    while not is_over:
        meter = Lines()
        meter.step("step", lambda: next(steps, ...))
        longest = max(longest, meter.taken["step"])
        is_over = steps.gi_frame is None
    assert longest < LINES_A_STEP
