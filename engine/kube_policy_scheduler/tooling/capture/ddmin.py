"""Delta debugging: the smallest part of a list with which something still holds. Knows nothing of what it is.

After Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def minimised(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return a part of the items, in their order, for which `holds` says yes and of which no single item can go.

    `holds` is taken to say yes for all items; it is asked at most about n² times, mostly about n log n.
    """
    left = list(items)
    if left and holds([]):
        return []
    pieces = 2
    while len(left) > 1:
        size = -(-len(left) // pieces)
        cut = [left[start : start + size] for start in range(0, len(left), size)]
        smaller = next((part for part in cut if len(part) < len(left) and holds(part)), None) if pieces == 2 else None
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        for at in reversed(range(len(cut))):  # those that matter least stand last
            without = [item for index, part in enumerate(cut) if index != at for item in part]
            if len(cut) > 1 and holds(without):
                left, pieces = without, max(len(cut) - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(len(left), pieces * 2)
    return left


def grown(items: Sequence[Item], holds: Callable[[Sequence[Item]], bool], *, first: int) -> list[Item]:
    """Return the shortest beginning of the items that `holds`, among those of `first`, twice, four times as many, …

    Where what matters stands at the beginning, this is much quicker than to begin with everything.
    """
    size = max(first, 1)
    while size < len(items):
        if holds(items[:size]):
            return list(items[:size])
        size *= 2
    return list(items)
