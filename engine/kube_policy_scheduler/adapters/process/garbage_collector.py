"""Python's cyclic garbage collector, kept from holding up the event loop. Knows nothing of what is collected."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

YOUNGER_COLLECTIONS = 4
"""Between two full ones. With Python's 10, some 80,000 objects are new then, which takes 20 to 40 ms."""
LONG_SECONDS = 0.01
"""CPU time of a full collection after which what it left is not looked at again."""


@contextmanager
def short_collections(
    *, stopwatch: Callable[[], float] = time.thread_time, freeze: Callable[[], None] = gc.freeze
) -> Iterator[None]:
    """Let full collections come early, and freeze what is left after each that took long.

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
    gc.set_threshold(*before[:2], YOUNGER_COLLECTIONS)
    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
