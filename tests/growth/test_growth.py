"""Each thing that a tenant can write is grown by powers of two: every step is linear in it, or does not grow.

Once the things are gone, no step depends on how many there were.
"""

from __future__ import annotations

import pytest

from kube_policy_scheduler.cluster import previous_nodes
from kube_policy_scheduler.cluster.journal import Journal
from tests.growth.axes import IN_A_POD, MANY, Axis
from tests.growth.device_axes import DEVICES
from tests.growth.run import afterwards, left_over, measure
from tests.growth.stage import Lines, Memory, Meter

SIZES = (32, 64, 128)
LEFT = (160, 320)
MOST_LEFT = 1.0
"""Objects that may be left, for each thing that is gone: strings do not count, bounded journals do."""
NOISE_OBJECTS = 8
"""Of the process, such as an entry of a cache that fills meanwhile: the records of the last gangs alone, of which a
thousand are kept, come within one object of what may be left."""
LINEAR = 2.5
"""When things double twice, what a step takes more the second time, at most, per what it takes more the first time: 2
is linear, 4 a square."""
SLACK_LINES = 900
"""A node has 2.7, 5.3 or 10.7 pods of these, so one more or less, which takes 450 lines."""
SLACK_BYTES = 60_000
GONE = (256, 512)
"""More than what is kept for those that may come back."""
FLAT_LINES = 2_400
"""By which steps may differ with what is kept by chance: up to five counters that are made again, each with some 120
lines, and measured with some 300. It does not grow with what is gone."""
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


@pytest.mark.parametrize("axis", [*IN_A_POD, *MANY], ids=lambda axis: axis.name)
def test_what_is_gone_costs_nothing(axis: Axis) -> None:
    few, many = (measure(axis, size, Lines(), afterwards) for size in GONE)
    more = {
        step: (few.get(step, 0.0), lines) for step, lines in many.items() if lines > few.get(step, 0.0) + FLAT_LINES
    }
    assert more == {}


@pytest.mark.parametrize("axis", MANY, ids=lambda axis: axis.name)
def test_what_is_gone_holds_nothing(axis: Axis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Journal.__init__.__kwdefaults__, "most", 16)
    monkeypatch.setattr(previous_nodes, "_MOST_BYTES", 16 * previous_nodes._EACH_BYTES)
    few, many = (measure(axis, size, Lines(), left_over)["objects"] for size in LEFT)
    assert many - few < (LEFT[1] - LEFT[0]) * MOST_LEFT + NOISE_OBJECTS


@pytest.mark.parametrize("axis", IN_A_POD, ids=lambda axis: axis.name)
def test_memory_is_linear(axis: Axis) -> None:
    found = beyond_linear(axis, Memory, SLACK_BYTES)
    if found:  # a table that outlives the tests may double in any step, but not in the same one again
        found = {step: sizes for step, sizes in beyond_linear(axis, Memory, SLACK_BYTES).items() if step in found}
    assert found == {}
