"""Hand-over of pods between replicas: passed on to the owner of a node, given back, or left to a newcomer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import assert_never
from zlib import crc32

from kube_policy_scheduler.adapters.kube.pod_status import NotPassedOn, PassedOn
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, SchedulerContext
from kube_policy_scheduler.daemon.scheduling.event_handlers import EventHandlers
from kube_policy_scheduler.framework.groups.waiting_pods import WaitingPods
from kube_policy_scheduler.framework.queue.scheduling_queue import QueuedPod

logger = logging.getLogger(__name__)

KEPT_SECONDS = (30.0, 60.0)
"""Between these, by its uid, a pod is decided again that could not be given back: its node may take it by then."""


class HandOver:
    """Hands pods to other replicas, and back."""

    def __init__(
        self,
        context: SchedulerContext,
        waiting_pods: WaitingPods[AssumedPod],
        event_handlers: EventHandlers,
    ) -> None:
        self._context = context
        self._cluster, self._queue, self._clock = context.cluster, context.queue, context.clock
        self._nominator, self._sharding = context.nominator, context.sharding
        self._waiting_pods = waiting_pods
        self._event_handlers = event_handlers
        self._leaving: frozenset[str] = frozenset()
        """What was under way when the members changed last, by uid: part of it may not be ours any more."""
        self.passed_on = 0
        """Pods passed on so far."""
        self.given_back = 0
        """Pods given back to those who passed them on, so far: the conflicts between replicas."""
        self.failed = 0
        """Pods that could not be passed on or given back, so far."""
        if self._nominator is not None:
            self._nominator.on_not_given_back(self._not_given_back)

    @property
    def is_enabled(self) -> bool:
        """Whether replicas share the work."""
        return self._nominator is not None and self._sharding is not None

    def share_with(self, members: Iterable[str]) -> None:
        """Begin nothing from now on that is not ours any more; begin what is ours now."""
        assert self._sharding is not None
        self._waiting_pods.withdraw_all()
        self._sharding.use(members)
        self._leaving = frozenset(self._cluster.assumed)
        self._event_handlers.policies_changed()

    def forget_handed_over(self) -> bool:
        """Forget what was under way at the last change of members and is confirmed or has failed.

        Return whether nothing of it is left.
        """
        is_shown = self._event_handlers.passes.is_shown
        self._leaving = frozenset(uid for uid in self._leaving if uid in self._cluster.assumed and not is_shown(uid))
        return not self._leaving

    def has_settled(self) -> bool:
        """Return whether the watch has shown everything that we did."""
        return all(map(self._event_handlers.passes.is_shown, self._cluster.assumed))

    def is_for_another(self, host: str) -> bool:
        """Return whether a node is another replica's."""
        return self._sharding is not None and not self._sharding.owns_node(host)

    def assume(self, queued: QueuedPod, host: str) -> None:
        """Count a pod on the node of another replica until that has bound it."""
        pod = queued.pod
        self._cluster.assume(pod, host, now=self._clock())
        self._queue.binding_sent(queued)
        self._event_handlers.passes.begin(pod.uid)

    async def pass_on(self, queued: QueuedPod, host: str) -> str:
        """Have the owner of a node bind the pod; return why the attempt failed, "" where nothing is left to do."""
        pod, handlers = queued.pod, self._event_handlers
        assert self._nominator is not None
        match await self._nominator.pass_on(pod, node=host):
            case PassedOn(version=version):
                handlers.was_passed(pod.uid, version=version)
                if self._queue.get(pod.uid) is not queued:
                    return ""  # bound, gone or given back by now
                if pod.uid not in handlers.passes:
                    self._queue.failed(queued, self._context.clock())
                    return ""
                self.passed_on += 1
                logger.info("Passed pod on", extra={"pod": pod.key, "node": host})
                self._queue.done(pod.uid)
            case NotPassedOn(why=why):
                if self._queue.get(pod.uid) is not queued:
                    return ""
                self.failed += 1
                handlers.take_back(pod.uid)
                if self._queue.get(pod.uid) is queued:
                    return f"failed to pass the pod on to the owner of {host}: {why}"
            case outcome:
                assert_never(outcome)
        return ""

    def give_back(self, queued: QueuedPod) -> None:
        """Return a pod that does not fit to the replica that passed it on, if one did."""
        sharding, pod = self._sharding, queued.pod
        if not self.is_enabled or sharding is None or not sharding.was_passed_here(pod):
            return
        self.given_back += 1
        logger.info("Returned pod", extra={"pod": pod.key, "node": pod.nominated_node})
        self._context.nominate(queued, "")
        self._context.reporter.nominated(pod, "")

    def _not_given_back(self, uid: str, why: str) -> None:
        """Decide a pod again later that the API server still shows as passed on to us: nobody else will."""
        pod = self._event_handlers.still_passed_here(uid)
        if pod is None:
            return
        self.failed += 1
        least, most = KEPT_SECONDS
        pause = least + (most - least) * crc32(uid.encode()) / 2**32
        why = (
            f"failed to return the pod to the replica that passed it on; it is tried here again in {pause:.0f} s: {why}"
        )
        logger.warning("Failed to return pod", extra={"pod": pod.key, "node": pod.nominated_node, "why": why})
        self._context.reporter.failed(pod, why)
        asyncio.get_running_loop().call_later(pause, self._decide_again, uid)

    def _decide_again(self, uid: str) -> None:
        pod = self._event_handlers.still_passed_here(uid)
        if pod is not None:
            self._event_handlers.decide_again(pod)
