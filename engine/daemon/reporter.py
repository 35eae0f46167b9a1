"""Tells people what became of a pod: Events and the PodScheduled condition. Decides nothing."""

from __future__ import annotations

from engine.adapters.kube.events import EventRecorder
from engine.adapters.kube.pod_status import PodStatusWriter
from engine.cluster.pods import PodInfo
from engine.framework.cycle import Decision


class ApiReporter:
    """Reports to the API server, in the background."""

    def __init__(self, events: EventRecorder, statuses: PodStatusWriter) -> None:
        self._events = events
        self._statuses = statuses

    def bound(self, pod: PodInfo, node_name: str) -> None:
        """Record a Scheduled event; the API server itself sets PodScheduled=True."""
        self._statuses.forget(pod.uid)
        self._events.scheduled(pod, node=node_name)

    def unschedulable(self, decision: Decision) -> None:
        """Record a FailedScheduling event and the condition with the whole message."""
        self._report(decision.pod, "Unschedulable", decision.message)

    def failed(self, pod: PodInfo, why: str) -> None:
        """Record an attempt that broke."""
        self._report(pod, "SchedulerError", why)

    def _report(self, pod: PodInfo, reason: str, message: str) -> None:
        self._events.failed_scheduling(pod, message=message)
        self._statuses.unschedulable(pod, reason=reason, message=message)
