"""Tells people what happened to a pod: Events, its condition and that of its PodGroup. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec

from kube_policy_scheduler.adapters.kube.events import EventRecorder, reference_to
from kube_policy_scheduler.adapters.kube.pod_group_status import PodGroupStatusWriter
from kube_policy_scheduler.adapters.kube.pod_status import PodStatusWriter
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.framework.decide.cycle import Decision
from kube_policy_scheduler.framework.decide.new_nodes import SKIPPED, UNSCHEDULABLE
from kube_policy_scheduler.policy.pod_groups import native_group
from kube_policy_scheduler.tooling.rebalancing.moves import Move

logger = logging.getLogger(__name__)

GATED = "SchedulingGated"
"""Reason of events and conditions, as the API server's for scheduling gates; `kubectl get pods` shows it."""
WAITING = "WaitingOnPermit"
"""Reason of events; kube-scheduler has none for pods that wait at Permit."""

P = ParamSpec("P")


def _isolated(report: Callable[P, None]) -> Callable[P, None]:
    """Log errors instead of raising them: a report about a pod must not change what happens to the pod."""

    @wraps(report)
    def wrapper(*args: P.args, **named: P.kwargs) -> None:
        try:
            report(*args, **named)
        except Exception:
            logger.exception("unexpected error in a report")

    return wrapper


class ApiReporter:
    """Reports to the API server, in the background. Never raises."""

    def __init__(
        self,
        events: EventRecorder,
        statuses: PodStatusWriter,
        groups: PodGroupStatusWriter[PodGroup],
        composites: PodGroupStatusWriter[CompositePodGroup],
        *,
        parents: Callable[[str], Sequence[str]],
    ) -> None:
        """parents: returns the keys of the composite groups that a PodGroup belongs to."""
        self._events = events
        self._statuses = statuses
        self._groups = groups
        self._composites = composites
        self._parents = parents

    @_isolated
    def bound(self, pod: PodInfo, node_name: str, *, by_us: bool) -> None:
        """Record a Scheduled event of our own bindings; the API server itself sets PodScheduled=True."""
        self._statuses.forget(pod.uid)
        if by_us:
            self._events.scheduled(pod, node=node_name)
        if (group := _group_key(pod)) is not None:
            self._groups.scheduled(group)
            for parent in self._parents(group):
                self._composites.scheduled(parent)

    @_isolated
    def unschedulable(self, decision: Decision) -> None:
        """Record a FailedScheduling event and the condition with the whole message.

        The reason of the condition tells autoscalers whether new nodes would help (`framework.decide.new_nodes`).
        """
        found = decision.preemption
        nominated = found.nomination if found is not None else None
        reason, message = UNSCHEDULABLE, decision.message
        if decision.new_nodes is not None and decision.new_nodes.reason == SKIPPED:
            reason, message = SKIPPED, f"{message} {decision.new_nodes.sentence()}"
        self._report(decision.pod, reason, message, nominated_node=nominated)

    @_isolated
    def held(self, pod: PodInfo, why: str) -> None:
        """Record why a pod is kept out of the queue, as an event and its condition."""
        self._waits(pod, GATED, why)
        self._statuses.unschedulable(pod, reason=GATED, message=why)

    @_isolated
    def waiting(self, pod: PodInfo, why: str) -> None:
        """Record an event for a pod that has a place and waits for others; its condition says nothing of it."""
        self._waits(pod, WAITING, why)

    @_isolated
    def devices_pending(self, pod: PodInfo, node_name: str) -> None:
        """Record an event for a pod that is bound once its devices are ready for that."""
        note = f"waiting for binding conditions for device on node {node_name}"
        self._waits(pod, "BindingConditionsPending", note)

    @_isolated
    def failed(self, pod: PodInfo, why: str) -> None:
        """Record an attempt that broke."""
        self._report(pod, "SchedulerError", why)

    @_isolated
    def preempted(self, victim: PodInfo, *, by: PodInfo, node_name: str) -> None:
        """Record that a pod had to go, on that pod."""
        note = f"Preempted by pod {by.uid} on node {node_name}"
        self._events.record(reference_to(victim), type="Normal", reason="Preempted", action="Preempting", note=note)

    @_isolated
    def gang_is_short(self, victim: PodInfo, why: str) -> None:
        """Record on an evicted pod that its gang lost others."""
        note = f"Evicted: {why}"
        self._events.record(
            reference_to(victim), type="Warning", reason="GangIncomplete", action="Evicting", note=note, is_fenced=True
        )

    @_isolated
    def above_max(self, victim: PodInfo, why: str) -> None:
        """Record on an evicted pod which queue uses more than its `max`."""
        self._events.record(
            reference_to(victim),
            type="Normal",
            reason="AboveMax",
            action="Evicting",
            note=f"Evicted: {why}",
            is_fenced=True,
        )

    @_isolated
    def moved(self, victim: PodInfo, move: Move) -> None:
        """Record on an evicted pod where its replacement goes, and why."""
        why = f"`{move.clause}` rejects it there" if move.rejected else f"better by `{move.clause}`"
        note = f"Evicted to move it from node {move.source} to {move.target}: {why}"
        self._events.record(
            reference_to(victim), type="Normal", reason="Rebalanced", action="Rebalancing", note=note, is_fenced=True
        )

    @_isolated
    def nominated(self, pod: PodInfo, node_name: str) -> None:
        """Write which node is kept for the pod, "" for none."""
        self._statuses.nominate(pod, node=node_name)

    def _waits(self, pod: PodInfo, reason: str, why: str) -> None:
        self._events.record(
            reference_to(pod), type="Normal", reason=reason, action="Scheduling", note=why, is_fenced=True
        )

    def _report(self, pod: PodInfo, reason: str, message: str, *, nominated_node: str | None = None) -> None:
        self._events.failed_scheduling(pod, message=message)
        self._statuses.unschedulable(pod, reason=reason, message=message, nominated_node=nominated_node)
        if (group := _group_key(pod)) is not None:
            reason = UNSCHEDULABLE if reason == SKIPPED else reason
            self._groups.unschedulable(group, reason=reason, message=message)
            for parent in self._parents(group):
                self._composites.unschedulable(parent, reason=reason, message=message)


def _group_key(pod: PodInfo) -> str | None:
    """Return `namespace/name` of the pod's PodGroup; as kube-scheduler, only of Kubernetes' own."""
    name = native_group(pod.template)
    return f"{pod.namespace}/{name}" if name is not None else None
