"""Compares the caches with a recount while the scheduler runs: a few nodes and pods at a time, in little time.

A difference is a bug in the scheduler. It is counted, logged, and corrected if that is safe: columns are recalculated
from the pods, a pending pod that still counts on a node is forgotten, and the API server is asked about a pod that is
in flight without a task that handles it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Literal, NoReturn

from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.invariants import MOST_WHOLE, is_lost, node_violations, pod_violations
from kube_policy_scheduler.framework.queue.scheduling_queue import Place

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.002
"""For this long at a time, at most about: with five seconds between two looks 0.04 % of a core."""

UNSHOWN_SECONDS = 900.0
"""A current watch that has not shown a binding for this long will not show it: longer than any time-out."""

Kind = Literal["node", "pod", "queue", "binding"]


class CacheComparer:
    """Goes round all nodes and pending pods, and begins again."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        is_current: Callable[[], bool],
        found: Callable[[Kind], None],
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make one.

        Args:
            scheduler: whose cluster, queue and pods in flight are compared.
            is_current: whether the watches show what there is.
            found: receives each violation.
            stopwatch: seconds, for how long a look takes.
        """
        context = scheduler.context
        self._scheduler = scheduler
        self._cluster, self._queue, self._assumed = context.cluster, context.queue, context.cluster.assumed
        self._clock = context.clock
        self._is_current = is_current
        self._found = found
        self._current_since = self._clock()
        self._unshown: set[str] = set()
        """Pods whose binding the watch does not show, and which were reported."""
        self._stopwatch = stopwatch
        self._round = self._go_round()

    async def run(self, *, every_seconds: float) -> NoReturn:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(every_seconds)
            self.look()

    def look(self) -> bool:
        """Look at the next few, and return whether all have been looked at; nothing else may run meanwhile."""
        if not self._is_current():
            self._current_since = self._clock()
        end = self._stopwatch() + LOOK_SECONDS
        while True:
            if next(self._round, self) is self:
                self._round = self._go_round()
                return True
            if self._stopwatch() > end:
                return False

    def _go_round(self) -> Iterator[None]:
        """Yield after each; between two of them anything may have happened."""
        if len(self._queue) <= MOST_WHOLE:
            for problem in self._queue.misplaced():
                self._report("queue", problem)
            yield
        for name in list(self._cluster.nodes.rows):
            if name in self._cluster.nodes.rows:
                self._look_at_node(name)
                yield
        for uid in [queued.pod.uid for queued in self._queue]:
            self._look_at_pod(uid)
            yield
        self._unshown.intersection_update(self._assumed)
        for uid in list(self._assumed):
            self._look_at_assumed(uid)
            yield

    def _look_at_node(self, name: str) -> None:
        problems = list(node_violations(self._cluster, name))
        for problem in problems:
            self._report("node", f"{problem}; recalculated")
        if problems:
            self._cluster.recount(name)

    def _look_at_pod(self, uid: str) -> None:
        queued, assumed = self._queue.get(uid), self._assumed
        if queued is None:
            return
        problems = list(pod_violations(self._cluster, queued, assumed))
        for problem in problems:
            self._report("pod", problem)
        if problems and uid not in assumed and queued.place not in (Place.IN_FLIGHT, Place.PERMIT):
            self._cluster.displace(uid)
        if is_lost(queued, self._scheduler.is_under_way):
            self._report("binding", f"pod {queued.pod.key} is in flight, and no task handles it")
            self._scheduler.settle(queued)

    def _look_at_assumed(self, uid: str) -> None:
        """Look at a pod that was bound, and that the watch should have shown on its node by now."""
        assumed = self._assumed
        if (
            uid not in assumed
            or uid in self._unshown
            or self._queue.get(uid) is not None
            or self._scheduler.is_under_way(uid)
        ):
            return
        seconds = min(self._clock() - assumed.since[uid], self._clock() - self._current_since)
        if seconds >= UNSHOWN_SECONDS and uid not in self._scheduler.event_handlers.passes:
            self._unshown.add(uid)
            pod = self._cluster.pods.get(uid)
            shown = pod.key if pod is not None else uid
            self._report("binding", f"pod {shown} was bound to {assumed[uid]}, and the watch does not show it")

    def _report(self, kind: Kind, problem: str) -> None:
        self._found(kind)
        logger.error("an invariant does not hold, please report this: %s", problem)
