"""With more units in a queue, more queues or more waiting gangs, every step of a pod of a queue is linear at most."""

from __future__ import annotations

import pytest

from tests.growth.quota_scenes import SCENES, Scene, measure
from tests.growth.stage import Lines
from tests.growth.test_growth import LINEAR, SIZES, SLACK_LINES


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
