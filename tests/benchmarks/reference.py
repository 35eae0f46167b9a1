"""A loop whose cost measures the machine's speed: other times are compared as multiples of it.

It does what a decision does, in kind: arithmetic on columns, gathers, a maximum, and Python objects in between.
It must never change: stored baselines are multiples of it.
"""

from __future__ import annotations

import time

import numpy as np

_NODES = 5_000
_TURNS = 200


class Reference:
    """The loop and what it works on."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._capacity = generator.integers(1_000, 4_000, _NODES)
        self._held = generator.integers(0, 1_000, _NODES)
        self._rows = np.flatnonzero(self._held < 900)
        self.seen: list[float] = []
        """Everything that `seconds` returned: what differs is noise of the machine."""
        self._records = [{"name": f"node-{number}", "count": number} for number in range(100)]

    def seconds(self) -> float:
        """Return the CPU seconds of one turn, as the least of a few runs."""
        self.seen.append(min(self._run() for _ in range(3)) / _TURNS)
        return self.seen[-1]

    def _run(self) -> float:
        began = time.process_time()
        total = 0.0
        for turn in range(_TURNS):
            free = self._capacity - self._held
            score = free[self._rows] * 100 // self._capacity[self._rows]
            best = int(np.argmax(score))
            total += float(score[best])
            for record in self._records:
                if record["count"] == turn:
                    total += len(str(record["name"]))
        assert total > 0
        return time.process_time() - began
