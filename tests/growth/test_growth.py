"""Each thing that a tenant can write is grown by powers of two: every step is linear in it, or does not grow."""

from __future__ import annotations

import pytest

from tests.growth.axes import IN_A_POD, MANY, Axis
from tests.growth.device_axes import DEVICES
from tests.growth.run import measure
from tests.growth.stage import Lines, Memory, Meter

SIZES = (32, 64, 128)
LINEAR = 2.5
"""When things double twice, what a step takes more the second time, at most, per what it takes more the first time: 2
is linear, 4 a square."""
SLACK_LINES = 400
SLACK_BYTES = 60_000
"""Growth too small to tell: tables that double, journals."""


def beyond_linear(axis: Axis, meter: type[Meter], slack: float) -> dict[str, list[float]]:
    """Return the steps that grow faster than they may, with what they took at each size."""
    first, second, third = (measure(axis, size, meter()) for size in SIZES)
    return {
        step: [first.get(step, 0.0), second.get(step, 0.0), most]
        for step, most in third.items()
        if most - second.get(step, 0.0) > LINEAR * max(0.0, second.get(step, 0.0) - first.get(step, 0.0)) + slack
    }


@pytest.mark.parametrize("axis", [*IN_A_POD, *MANY, *DEVICES], ids=lambda axis: axis.name)
def test_time_is_linear(axis: Axis) -> None:
    assert beyond_linear(axis, Lines, SLACK_LINES) == {}


@pytest.mark.parametrize("axis", IN_A_POD, ids=lambda axis: axis.name)
def test_memory_is_linear(axis: Axis) -> None:
    found = beyond_linear(axis, Memory, SLACK_BYTES)
    if found:  # a table that outlives the tests may double in any step, but not in the same one again
        found = {step: sizes for step, sizes in beyond_linear(axis, Memory, SLACK_BYTES).items() if step in found}
    assert found == {}
