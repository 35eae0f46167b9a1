"""The fence: whether this replica may write at this moment; asked right before the bytes of a request go out."""

from __future__ import annotations

from collections.abc import Callable


class Fence:
    """Lets requests pass while all of its conditions hold."""

    def __init__(self, *conditions: Callable[[], bool]) -> None:
        """conditions: asked in this order until one does not hold; without any the fence is always open."""
        self._conditions = conditions

    def allows(self) -> bool:
        """Return whether a request may go out now."""
        for condition in self._conditions:  # noqa: SIM110 (`all` takes twice as long, several times for each pod)
            if not condition():
                return False
        return True


OPEN = Fence()
"""For writers of a process that has no other beside it."""
