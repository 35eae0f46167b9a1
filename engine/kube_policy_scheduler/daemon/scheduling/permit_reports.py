"""Tells people of places that pods at Permit give back."""

from __future__ import annotations

import logging

from kube_policy_scheduler.daemon.scheduling.algorithm import Algorithm
from kube_policy_scheduler.daemon.scheduling.context import AssumedPod, SchedulerContext
from kube_policy_scheduler.framework.cycle import Decision
from kube_policy_scheduler.framework.permit import Group
from kube_policy_scheduler.framework.waiting_pods import WaitingPods

logger = logging.getLogger(__name__)


class PermitReports:
    """Logs them, and reports each as a decision."""

    def __init__(self, context: SchedulerContext, algorithm: Algorithm) -> None:
        self._stopwatch, self._observer, self._reporter = context.stopwatch, context.observer, context.reporter
        self._algorithm = algorithm

    def rejected(self, assumed: AssumedPod, why: str) -> None:
        """A waiting pod gave its place back."""
        queued = assumed.queued
        decision = Decision(queued.pod, None, message=why)
        self._observer.on_decided(self._algorithm.record(queued, decision, seconds=self._stopwatch() - assumed.began))
        self._reporter.unschedulable(decision)

    def gang_rejected(self, group: Group, pods: int, why: str) -> None:
        """So many pods of a gang gave their places back."""
        logger.info("Released assumed pods", extra={"gang": str(group), "pods": pods, "why": why})

    def no_longer_fits(self, assumed: AssumedPod) -> None:
        """The node of a waiting pod changed: the pod is decided again."""
        logger.info(
            "Assumed pod no longer fits its node; scheduling it again",
            extra={"pod": assumed.queued.pod.key, "node": assumed.host},
        )


def waiting_pods(context: SchedulerContext, algorithm: Algorithm) -> WaitingPods[AssumedPod]:
    """Return the pods that wait at Permit, in the daemon."""
    return WaitingPods(
        context.cluster,
        context.queue,
        algorithm,
        events=context.wakeups,
        observer=PermitReports(context, algorithm),
        clock=context.clock,
        stopwatch=context.stopwatch,
    )
