"""A cluster that nobody uses any more is garbage, whatever was decided in it: commands make many, one after another.

The garbage collector does not look into pods (`PodInfo`), so what is kept with their templates must not lead to the
cluster that they are in.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

from tests.growth.axes import IN_A_POD, MANY, Axis
from tests.growth.device_axes import DEVICES
from tests.growth.run import Unmeasured, beside, measure
from tests.growth.stage import Stage


def left(axes: Sequence[Axis]) -> int:
    """Return how many stages are still there after each axis had one."""
    gc.collect()
    before = sum(isinstance(each, Stage) for each in gc.get_objects())
    for axis in axes:
        measure(axis, 3, Unmeasured(), beside)
    gc.collect()
    return sum(isinstance(each, Stage) for each in gc.get_objects()) - before


def test_whatever_was_decided_in_a_cluster_does_not_keep_it() -> None:
    axes = [*IN_A_POD, *MANY, *DEVICES]
    assert not left(axes) or [axis.name for axis in axes if left([axis])] == []
