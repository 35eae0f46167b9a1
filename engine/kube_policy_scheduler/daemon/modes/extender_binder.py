"""The verb `bind` of an extender: counts the pod on its node at once, and sends the binding to the API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import assert_never

from kube_policy_scheduler.adapters.http.extender_protocol import BindingArguments
from kube_policy_scheduler.adapters.kube.binding import Bound, Outcome, Outdated, Refused, Unknown
from kube_policy_scheduler.cluster.devices.node_devices import ANNOTATION, annotation
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.daemon.modes.asked_pods import AskedPod, AskedPods
from kube_policy_scheduler.daemon.scheduling.context import Binder
from kube_policy_scheduler.daemon.scheduling.schedule_one import Scheduler
from kube_policy_scheduler.framework.evaluate.evaluation import passes
from kube_policy_scheduler.policy.extension import rejections
from kube_policy_scheduler.tooling.decision_record import Outcome as Decided

logger = logging.getLogger(__name__)


class ExtenderBinder:
    """Binds where kube-scheduler wants it, if the policy still does."""

    def __init__(
        self, scheduler: Scheduler, pods: AskedPods, *, binder: Binder, stopwatch: Callable[[], float]
    ) -> None:
        """Arguments as of `Extender`."""
        self._scheduler = scheduler
        self._cluster = scheduler.cluster
        self._algorithm = scheduler.algorithm
        self._pods = pods
        self._binder = binder
        self._stopwatch = stopwatch
        self._settling: dict[str, asyncio.Task[None]] = {}
        """By uid, of pods whose binding is in doubt."""

    async def bind(self, request: BindingArguments) -> str:
        """Bind a pod if the policy still wants it there; return why it is not bound, "" where it is.

        The pod counts on its node from here on, so that a burst is not decided by what the watch has shown alone.
        """
        known = self._pods.get(request.pod_uid)
        pod = known.pod if known is not None else self._scheduler.event_handlers.pending(request.pod_uid)
        if pod is None:
            return f"pod {request.pod_namespace}/{request.pod_name} is unknown: there was no earlier request for it"
        known = known or self._pods.add(pod)
        began = self._stopwatch()
        why = self._assume(known, request.node) or await self._bind(known.pod, request)
        self._pods.report(
            known,
            "bind",
            Decided.BIND_FAILED if why else Decided.ASSIGNED,
            node=request.node,
            message=why,
            bound_seconds=None if why else self._stopwatch() - began,
        )
        return why

    async def _bind(self, pod: PodInfo, request: BindingArguments) -> str:
        """Have the API server bind a pod that counts on its node; return why it does not, "" where it does."""
        if (settling := self._settling.pop(pod.uid, None)) is not None:
            settling.cancel()
        outcome = await self._ask_binder(pod, request)
        match outcome:
            case Bound():
                logger.info("Successfully bound pod to node", extra={"pod": pod.key, "node": request.node})
                return ""
            case Refused(message=why) | Outdated(message=why):
                self._give_back(pod.uid)
                return f"binding to {request.node} failed: {why}"
            case Unknown(message=why):
                # it may be bound: its room stays taken until that is known
                task = asyncio.get_running_loop().create_task(self._settle(pod, request.node, outcome))
                self._settling[pod.uid] = task
                return f"binding to {request.node} has an unknown result: {why}"
            case _:
                assert_never(outcome)

    async def _ask_binder(self, pod: PodInfo, request: BindingArguments) -> Outcome:
        devices = self._cluster.devices.held(pod.uid)
        try:
            return await self._binder.bind(
                namespace=request.pod_namespace,
                name=request.pod_name,
                uid=request.pod_uid,
                node=request.node,
                annotations={ANNOTATION: annotation(devices)} if devices else None,
            )
        except Exception as error:
            logger.exception("unexpected error while binding a pod", extra={"pod": pod.key})
            return Unknown(f"internal error: {error!r}", since=asyncio.get_running_loop().time())

    async def _settle(self, pod: PodInfo, node_name: str, outcome: Outcome) -> None:
        """Find out what happened to a binding; a pod that is not bound takes no room."""
        try:
            while isinstance(outcome, Unknown) and pod.uid in self._cluster.assumed:
                outcome = await self._binder.settle(
                    namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node_name, after=outcome
                )
            if isinstance(outcome, Refused):
                logger.info("Binding with unknown result failed", extra={"pod": pod.key, "node": node_name})
                self._give_back(pod.uid)
        finally:
            if self._settling.get(pod.uid) is asyncio.current_task():
                del self._settling[pod.uid]

    def _assume(self, known: AskedPod, node_name: str) -> str:
        """Count the pod on its node; return why it must not be there, "" where it may."""
        cluster, pod = self._cluster, known.pod
        row = cluster.nodes.rows.get(node_name)
        if row is None:
            return f"node {node_name} is unknown"
        if cluster.node_of(pod.uid) is not None:
            return ""  # a second try; the API server says what is true
        policy, frame, devices = self._pods.policy(pod), self._pods.frame(known), None
        if policy is not None:
            profile = self._pods.profile(policy)
            if not passes(frame, profile, row):
                why = rejections(frame, profile).reasons.get(row, "it has changed")
                return f"node {node_name} no longer passes policy {policy.name}: {why}"
            devices = self._algorithm.cycle.devices(frame, profile, row)
        cluster.assume(pod, node_name, now=self._scheduler.context.clock(), devices=devices)
        return ""

    def _give_back(self, uid: str) -> None:
        self._cluster.forget(uid)
