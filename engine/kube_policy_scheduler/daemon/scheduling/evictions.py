"""The only way in which a pod is evicted: one that is not bound yet is never deleted.

Preemption, reclaim, gangs, resizes and rebalancing evict through it. A pod that waits for its gang gives its place
back, and one that is being bound has its binding cancelled: it keeps its uid and returns to the queue, as with
kube-scheduler 1.36. A binding that was sent cannot be taken back; the pod is deleted once it is known to be bound.
(kube-scheduler deletes it at once, and loses a pod that nobody creates again where the deletion comes first.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import assert_never

from kube_policy_scheduler.adapters.kube.errors import KubeError
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.binding_cycles import BindingCycles
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.in_flight import InFlight
from kube_policy_scheduler.daemon.scheduling.passed_on_pods import PassedOnPods
from kube_policy_scheduler.framework.groups.waiting_pods import WaitingPods
from kube_policy_scheduler.framework.queue.pod_transitions import Standing, standing

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""An eviction waits this long for the end of a binding that cannot be cancelled; then it has failed, and is tried again
with the preemptor's next attempt."""
POLL_SECONDS = 0.05
"""The interval at which a pod that another replica binds is checked."""


class Eviction(Enum):
    """The outcome of an eviction."""

    DELETED = "deleted"
    CANCELLED = "cancelled"
    """It was not bound: it is in the queue again."""
    LEFT = "left"
    """It left its node by itself."""
    FAILED = "failed"


class Evictions:
    """Evicts pods."""

    def __init__(
        self,
        context: SchedulerContext,
        *,
        waiting_pods: WaitingPods[AssumedPod],
        cycles: BindingCycles,
        in_flight: InFlight,
        passes: PassedOnPods,
    ) -> None:
        """Make one for a scheduler.

        Args:
            context: of the scheduler.
            waiting_pods: the pods that wait for their gangs.
            cycles: the binding cycles under way.
            in_flight: the tasks, of which those that wait for others do not count.
            passes: the pods that other replicas will bind.
        """
        self._context, self._cluster, self._queue = context, context.cluster, context.queue
        self._waiting_pods, self._cycles, self._in_flight, self._passes = waiting_pods, cycles, in_flight, passes

    def standing(self, uid: str) -> Standing:
        """Return whether a pod is really on its node, or what else is to be done if it is to leave."""
        return standing(self._cluster, uid, self._queue.get(uid), is_passed_on=uid in self._passes)

    async def try_evict(self, victim: PodInfo, *, by: PodInfo) -> bool:
        """Return whether a pod could be evicted; nothing changes."""
        if self.standing(victim.uid) is not Standing.BOUND:
            return True
        return await self._send(self._context.evictor.try_evict, victim, by)

    async def evict(self, victim: PodInfo, *, by: PodInfo) -> Eviction:
        """Evict a pod from the node on which it counts now. Raises nothing but cancellation."""
        uid, loop = victim.uid, asyncio.get_running_loop()
        node_name, until, was_cancelled = self._cluster.node_of(uid), loop.time() + PATIENCE_SECONDS, False
        while True:
            found = self.standing(uid)
            if found is Standing.AWAY or self._cluster.node_of(uid) != node_name:
                return self._left(victim, was_cancelled=was_cancelled)
            cycle = self._cycles.get(uid)
            match found:
                case Standing.BOUND:
                    if await self._send(self._context.evictor.evict, victim, by):
                        return Eviction.DELETED
                    return Eviction.FAILED
                case Standing.WAITING:
                    self._waiting_pods.evict((victim,), by=by)
                    return self._left(victim, was_cancelled=True)
                case Standing.CANCELLABLE:
                    if cycle is not None:
                        cycle.cancel(f"its binding to {node_name} was cancelled: its node is given to {by.key}")
                        was_cancelled = True
                case Standing.SENT:
                    pass
                case _:
                    assert_never(found)
            try:
                with self._in_flight.awaiting_others():
                    async with asyncio.timeout_at(until):
                        await (cycle.ended() if cycle is not None else asyncio.sleep(POLL_SECONDS))
            except TimeoutError:
                fields = {"pod": by.key, "victim": victim.key}
                logger.warning("a victim is being bound, and its binding does not end", extra=fields)
                return Eviction.FAILED
            if cycle is not None and self._queue.get(uid) is cycle.assumed.queued:
                return self._left(victim, was_cancelled=was_cancelled)

    def _left(self, victim: PodInfo, *, was_cancelled: bool) -> Eviction:
        self._cluster.forget_evictions((victim.uid,))  # it comes back under its uid, and does not end then
        return Eviction.CANCELLED if was_cancelled else Eviction.LEFT

    async def _send(self, evict: Callable[[PodInfo], Awaitable[None]], victim: PodInfo, by: PodInfo) -> bool:
        fields = {"pod": by.key, "victim": victim.key}
        try:
            await evict(victim)
        except KubeError as error:
            logger.warning("failed to evict a victim", extra={**fields, "why": str(error)})
            return False
        except Exception:
            logger.exception("unexpected error in an eviction", extra=fields)
            return False
        return True
