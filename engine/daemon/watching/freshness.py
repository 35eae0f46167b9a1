"""Whether the view of the cluster is current enough to decide by. Knows watches, not what they show.

Nodes and pods are watched apart. After an outage the pods of meanwhile may be known before the nodes that went
meanwhile are: a decision between the two would send a pod to a node that is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.adapters.kube.changes import Phase
from engine.adapters.kube.reflector import Reflector

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 0.05
"""From the moment when all watches go on: what happened meanwhile comes right behind the answer's head."""
PATIENCE_SECONDS = 10.0
"""With the API server in reach, a watch that cannot be had holds decisions up no longer than this: what is done to pods
is mostly done by ourselves. Not so where somebody else decided until now (`Reflector.reopen`)."""


class Freshness:
    """Answers for a few watches together."""

    def __init__(
        self,
        reflectors: Sequence[Reflector[Any]],
        *,
        is_reachable: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """reflectors: those a decision cannot do without. is_reachable: whether the API server is."""
        self._reflectors = reflectors
        self._is_reachable = is_reachable
        self._clock = clock
        self._broken_at: float | None = None
        self._resumed_at: float | None = None
        self._has_warned = False

    def __call__(self) -> bool:
        """Return whether to decide now; cheap, and to be asked again soon if not."""
        if all(reflector.status.phase is Phase.WATCHING for reflector in self._reflectors):
            return self._has_settled()
        now = self._clock()
        self._resumed_at = None
        if self._broken_at is None or not self._is_reachable():
            self._broken_at = now
        if now - self._broken_at < PATIENCE_SECONDS:
            return False
        owes = any(reflector.owes for reflector in self._reflectors)
        if not self._has_warned:
            self._has_warned = True
            late = [r.status.problem for r in self._reflectors if r.status.phase is not Phase.WATCHING]
            does = "nothing is decided until it is known what others did" if owes else "deciding by an old view"
            logger.warning("no watch for %.0f s, %s: %s", PATIENCE_SECONDS, does, "; ".join(late))
        return not owes

    def _has_settled(self) -> bool:
        if self._broken_at is None:
            return True
        now = self._clock()
        if self._resumed_at is None:
            self._resumed_at = now
        if now - self._resumed_at < SETTLE_SECONDS:
            return False
        self._broken_at = self._resumed_at = None
        self._has_warned = False
        return True
