"""Pods that were decided and whose binding the watch has not shown yet: on which node, and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class AssumedPods(dict[str, str]):
    """Node by uid, the pod that was assumed first at the beginning."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        super().__init__()
        self._clock = clock
        self._since: dict[str, float] = {}

    def __setitem__(self, uid: str, node_name: str) -> None:
        """Assume a pod on a node."""
        super().__setitem__(uid, node_name)
        self._since.setdefault(uid, self._clock())

    def pop(self, uid: str, *default: Any) -> Any:
        """Forget a pod; return its node."""
        self._since.pop(uid, None)
        return super().pop(uid, *default)

    def seconds(self, uid: str) -> float:
        """Return for how long a pod has been assumed."""
        return self._clock() - self._since[uid]

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest has been assumed; 0.0 where there is none."""
        return max(0.0, self.seconds(next(iter(self)))) if self else 0.0

    def clock_was_set(self, seconds: float) -> None:
        """Take note that the clock was set by so many seconds."""
        self._since = {uid: since + seconds for uid, since in self._since.items()}
