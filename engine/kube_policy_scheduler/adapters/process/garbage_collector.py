"""Python's cyclic garbage collector, kept from holding up the event loop. Knows nothing of what is collected."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

THRESHOLDS = 4_000, 1, 2
"""New objects before a collection of the youngest, and how many of the younger ones go before one of the next kind.

With the 700 of Python up to 3.12, a collection comes every 20 to 40 pods. Most of what it looks at is in use, and gone
100 ms later: that takes 7 µs for each pod, with the 2,000 of Python 3.13 as with these 2.5. A full collection looks at
40,000 new objects. With Python's numbers these are 80,000, from 3.13 on three times as many, and take 20 ms and more.
"""
LONG_SECONDS = 0.01
"""CPU time of a full collection after which what it left is not looked at again."""


@contextmanager
def short_collections(
    *, stopwatch: Callable[[], float] = time.thread_time, freeze: Callable[[], None] = gc.freeze
) -> Iterator[None]:
    """Let young collections come late and full ones early, and freeze what is left after each that took long.

    A full collection looks at everything that was made since the last freeze, and nothing else can run meanwhile: a
    second with 100,000 nodes that were all listed again. What it finds alive mostly stays. Frozen objects still go when
    nobody refers to them any more; only cycles that become garbage after a freeze stay. Few are frozen, since a
    collection takes long only after some 100,000 objects.
    """
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if info["generation"] < 2:
            return
        if phase == "start":
            began = stopwatch()
        elif stopwatch() - began > LONG_SECONDS:
            freeze()

    before = gc.get_threshold()
    is_incremental = before[2] == 0  # as in Python 3.14.0: the second number says how fast it goes through old objects
    gc.set_threshold(THRESHOLDS[0], *(before[1:] if is_incremental else THRESHOLDS[1:]))
    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
