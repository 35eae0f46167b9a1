"""Counts again while the scheduler runs: a few nodes and pending pods at a time, in a small share of the time.

What is found wrong is a fault of ours. It is counted, logged, and put right where that is safe: columns are written
anew from the pods, and a pod that waits and yet takes room gives it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Literal, NoReturn

from engine.cluster.cluster import Cluster
from engine.daemon.watching.informer import Informer
from engine.framework.events import ClusterEvent
from engine.framework.invariants import MOST_WHOLE, node_violations, pod_violations
from engine.framework.queue import Place, SchedulingQueue

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.002
"""For so long at a time, at most about: with five seconds between two looks 0.04 % of a core."""

Kind = Literal["node", "pod", "queue"]


class Recounting:
    """Goes round all nodes and pending pods, and begins again."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        informer: Informer,
        found: Callable[[Kind], None],
        stopwatch: Callable[[], float],
    ) -> None:
        """found: told of each violation."""
        self._cluster = cluster
        self._queue = queue
        self._informer = informer
        self._found = found
        self._stopwatch = stopwatch
        self._round = self._go_round()
        self.rounds = 0
        """How often everything was looked at."""

    async def run(self, *, every_seconds: float) -> NoReturn:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(every_seconds)
            self.look()

    def look(self) -> None:
        """Look at the next few; nothing else may run meanwhile."""
        end = self._stopwatch() + LOOK_SECONDS
        while True:
            if next(self._round, self) is self:
                self._round = self._go_round()
                self.rounds += 1
                return
            if self._stopwatch() > end:
                return

    def _go_round(self) -> Iterator[None]:
        """Yield after each; between two of them anything may have happened."""
        if len(self._queue) <= MOST_WHOLE:
            for problem in self._queue.misplaced():
                self._tell("queue", problem)
            yield
        for name in list(self._cluster.nodes.rows):
            if name in self._cluster.nodes.rows:
                self._look_at_node(name)
                yield
        for uid in [queued.pod.uid for queued in self._queue]:
            self._look_at_pod(uid)
            yield

    def _look_at_node(self, name: str) -> None:
        problems = list(node_violations(self._cluster, name))
        for problem in problems:
            self._tell("node", f"{problem}; counted anew")
        if problems:
            self._cluster.recount(name)
            self._informer.happened(ClusterEvent.POD_DELETE)

    def _look_at_pod(self, uid: str) -> None:
        queued, assumed = self._queue.get(uid), self._informer.assumed
        if queued is None:
            return
        problems = list(pod_violations(self._cluster, queued, assumed))
        for problem in problems:
            self._tell("pod", problem)
        if problems and uid not in assumed and queued.place not in (Place.IN_FLIGHT, Place.PERMIT):
            self._cluster.displace(uid)
            self._informer.happened(ClusterEvent.POD_DELETE)

    def _tell(self, kind: Kind, problem: str) -> None:
        self._found(kind)
        logger.error("an invariant does not hold, please report this: %s", problem)
