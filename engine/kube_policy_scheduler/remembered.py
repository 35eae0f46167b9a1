"""Results of pure functions of foreign texts, such as quantities and times: remembered, and forgotten together.

What tenants wrote once is not kept for ever: where thousands of small things stay of many pods that are gone, the large
pieces of memory that these were in can not be given back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import TypeVar

T = TypeVar("T")

LONGEST = 256
"""Characters of a text whose result is remembered, where texts may be of any length."""
_CLEAR: list[Callable[[], object]] = []


def remembered(*, most: int) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """Remember the results of a function for the arguments that were used last, at most this many."""

    def remember(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        found = lru_cache(maxsize=most)(function)
        on_forget(found.cache_clear)
        return found

    return remember


def on_forget(clear: Callable[[], object]) -> None:
    """Call this whenever all is forgotten."""
    _CLEAR.append(clear)


def forget() -> None:
    """Forget all results: what is asked for again is computed again."""
    for clear in _CLEAR:
        clear()
