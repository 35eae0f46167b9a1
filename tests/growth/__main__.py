"""Prints how steps grow: `python -m tests.growth lines|memory|seconds SIZES [WORD]`, with an axis's name's WORD."""

from __future__ import annotations

import sys

from tests.growth.axes import IN_A_POD, MANY
from tests.growth.run import measure
from tests.growth.stage import Lines, Memory, Seconds

_METERS = {"lines": (Lines, 1.0, 0.05), "memory": (Memory, 1e-3, 0.05), "seconds": (Seconds, 1e6, 0.3)}
"""By name: the meter, what its numbers are shown as (KB, µs), and the growth per thing that is worth a line."""


def main(kind: str, sizes: list[int], word: str = "") -> None:
    """Print each step that grows with the things there are."""
    meter, scale, least = _METERS[kind]
    for axis in (axis for axis in (*IN_A_POD, *MANY) if word in axis.name):
        rows = [measure(axis, size, meter()) for size in sizes]
        print(axis.name)
        for step in rows[-1]:
            values = [row.get(step, 0.0) * scale for row in rows]
            slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
            if abs(slope) > least:
                print(f"   {step:22}", *(f"{value:10.0f}" for value in values), f"   {slope:.2f} each")


if __name__ == "__main__":
    main(sys.argv[1], [int(text) for text in sys.argv[2].split(",")], *sys.argv[3:4])
