"""Prints how steps grow: `python -m tests.growth lines|memory|seconds SIZES [WORD]`, with an axis's name's WORD.

Those of quotas are named "units of a queue", "queues of a tree" and "gangs that wait".
"""

from __future__ import annotations

import sys
from functools import partial

from tests.growth import quota_scenes
from tests.growth.axes import IN_A_POD, MANY
from tests.growth.run import measure
from tests.growth.stage import Lines, Memory, Seconds

_METERS = {"lines": (Lines, 1.0, 0.05), "memory": (Memory, 1e-3, 0.05), "seconds": (Seconds, 1e6, 0.3)}
"""By name: the meter, what its numbers are shown as (KB, µs), and the growth per thing that is worth a line."""


def main(kind: str, sizes: list[int], word: str = "") -> None:
    """Print each step that grows with the things there are."""
    meter, scale, least = _METERS[kind]
    things = [(axis.name, partial(measure, axis)) for axis in (*IN_A_POD, *MANY)]
    things += [(scene.name, partial(quota_scenes.measure, scene)) for scene in quota_scenes.SCENES]
    for name, measured in ((name, measured) for name, measured in things if word in name):
        rows = [measured(size, meter()) for size in sizes]
        print(name)
        for step in rows[-1]:
            values = [row.get(step, 0.0) * scale for row in rows]
            slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
            if abs(slope) > least:
                print(f"   {step:22}", *(f"{value:10.0f}" for value in values), f"   {slope:.2f} each")


if __name__ == "__main__":
    main(sys.argv[1], [int(text) for text in sys.argv[2].split(",")], *sys.argv[3:4])
