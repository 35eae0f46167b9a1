"""Running pods whose resize in place the kubelet has deferred: room is made for them, if the settings allow it.

The pods stay where they are; nothing of them is in the scheduling queue. What to evict is decided on the cluster as it
is, again and again, until the kubelet has resized the pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from math import inf

import msgspec

from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.scheduling.context import SchedulerContext
from kube_policy_scheduler.daemon.scheduling.evictions import Eviction, Evictions
from kube_policy_scheduler.daemon.scheduling.in_flight import InFlight
from kube_policy_scheduler.daemon.scheduling.live_algorithm import LiveAlgorithm
from kube_policy_scheduler.framework.frame import Frame
from kube_policy_scheduler.framework.preempt.resize import ResizePlan, Room, is_deferred, plan_resize
from kube_policy_scheduler.times import Steady

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""Back-off between two looks at one pod, as of pods in the queue."""
MOST_AT_ONCE = 100
"""Pods that are looked at in one turn, those of the highest priority first: each takes about 0.1 ms."""
MOST_KNOWN = 10_000


class _Wait(msgspec.Struct):
    """When a pod is looked at again."""

    due: float = 0.0
    pause_seconds: float = 0.0
    demand: object = None
    """What the pod requests: if it changes, the pod is looked at at once."""


class DeferredResizes:
    """The pods that wait for room to grow."""

    def __init__(
        self, context: SchedulerContext, algorithm: LiveAlgorithm, in_flight: InFlight, evictions: Evictions
    ) -> None:
        self._context, self._algorithm, self._in_flight = context, algorithm, in_flight
        self._evictions = evictions
        self._waiting: dict[str, _Wait] = {}
        self._evicting: set[str] = set()
        self._looked_at = -inf
        self.evicted = 0
        """Pods that were evicted so that others can grow."""

    def __len__(self) -> int:
        """Return how many pods are known to wait."""
        return len(self._waiting)

    def note(self, pods: Iterable[PodInfo]) -> None:
        """Note pods on nodes, as the watch shows them."""
        if self._context.preempts_for_resizes:
            for pod in pods:
                if pod.conditions and is_deferred(pod) and len(self._waiting) < MOST_KNOWN:
                    self._note(pod)

    def _note(self, pod: PodInfo) -> None:
        wait = self._waiting.setdefault(pod.uid, _Wait())
        if wait.demand != pod.demand.requests:
            self._waiting[pod.uid] = _Wait(demand=pod.demand.requests)
            self._context.wakeups.requested.set()

    def look(self, now: Steady) -> None:
        """Look at the pods that are due, and start the evictions that make room for them."""
        if not self._waiting or now - self._looked_at < LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        pods = self._context.cluster.pods
        due = []
        for uid, wait in list(self._waiting.items()):
            pod = pods.get(uid)
            if pod is None or pod.terminating or not is_deferred(pod):
                del self._waiting[uid]
            elif wait.due <= now and uid not in self._evicting:
                due.append((pod, wait))
        due.sort(key=lambda each: (-each[0].priority, each[0].key))
        for pod, wait in due[:MOST_AT_ONCE]:
            wait.pause_seconds = min(max(FIRST_PAUSE_SECONDS, 2 * wait.pause_seconds), LONGEST_PAUSE_SECONDS)
            wait.due = now + wait.pause_seconds
            self._make_room(pod)

    def _make_room(self, pod: PodInfo) -> None:
        plan = self._plan(pod)
        if plan is None:
            return
        fields = {"pod": pod.key, "node": pod.node_name}
        if plan.room is Room.NONE:
            logger.debug("no room for a deferred resize", extra={**fields, "why": plan.why})
        elif plan.room is Room.EVICT:
            logger.info("making room for a deferred resize", extra={**fields, "victims": len(plan.victims)})
            self._evicting.add(pod.uid)
            self._in_flight.start(pod.uid, self._evict_all(pod, plan))

    def _plan(self, pod: PodInfo) -> ResizePlan | None:
        """Return what can be done for a pod; None if it is not ours."""
        context, algorithm = self._context, self._algorithm
        policies, profile = algorithm.policies, algorithm.profile(pod)
        if policies is None or profile is None or not policies.serves(pod):
            return None
        sharding, nodes = context.sharding, context.cluster.nodes
        if sharding is not None and not sharding.is_alone:
            row = nodes.rows.get(pod.node_name)
            if row is None or not sharding.own_nodes(nodes)[row]:
                return None
        frame = Frame(pod, context.cluster, context.wall(), signals=algorithm.signals, ahead=context.cluster.ahead)
        return plan_resize(frame, profile)

    async def _evict_all(self, pod: PodInfo, plan: ResizePlan) -> None:
        try:
            await asyncio.gather(*(self._evict(pod, victim) for victim in plan.victims))
        finally:
            self._evicting.discard(pod.uid)

    async def _evict(self, pod: PodInfo, victim: PodInfo) -> None:
        result = await self._evictions.evict(victim, by=pod)
        if result in (Eviction.DELETED, Eviction.CANCELLED):
            self.evicted += result is Eviction.DELETED
            logger.info("Preempted pod", extra={"pod": pod.key, "victim": victim.key, "how": result.value})
            self._context.reporter.preempted(victim, by=pod, node_name=pod.node_name)
