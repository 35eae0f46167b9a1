"""Waits for a condition, with a timeout and a text that shows the actual state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")
Show = Callable[[], object]

POLL_SECONDS = 0.04


def eventually(
    look: Callable[[], T], *, within: float = PATIENCE_SECONDS, every: float = POLL_SECONDS, else_: Show | None = None
) -> T:
    """Return the first true value of `look`; an AssertionError inside it counts as not yet.

    Args:
        look: called repeatedly.
        within: seconds until the test fails.
        every: seconds between two looks.
        else_: what to show then.
    """
    deadline = time.monotonic() + within
    while True:
        problem: object = None
        found: T | None = None
        try:
            found = look()
        except AssertionError as error:
            problem = error
        if found:
            return found
        if time.monotonic() > deadline:
            shown = f"\n{else_()}" if else_ is not None else ""
            raise AssertionError(f"not true within {within:g} s: {problem or found!r}{shown}")
        time.sleep(every)
