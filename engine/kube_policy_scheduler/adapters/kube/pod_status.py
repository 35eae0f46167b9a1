"""Writes the PodScheduled condition and nominatedNodeName of pods that could not be placed; in the background.

A write carries the pod's resource version. If the pod changed meanwhile it is read again first, so that a pod that
was just bound is never marked as unscheduled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Any

import msgspec

from kube_policy_scheduler.adapters.kube.binding import LINGER_SECONDS, PATIENCE_SECONDS
from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    Fenced,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    UnknownOutcome,
)
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.outbox import FromOutbox, Outbox, OutboxLimits
from kube_policy_scheduler.adapters.kube.pod_view import PodNow, PodView, view_of
from kube_policy_scheduler.adapters.kube.resources import PODS
from kube_policy_scheduler.adapters.kube.status_patch import patch_status
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.adapters.process.backoff import Backoff
from kube_policy_scheduler.cluster.objects import Pod
from kube_policy_scheduler.cluster.pods import PASSED_ON
from kube_policy_scheduler.cluster.resource_versions import version_number
from kube_policy_scheduler.times import rfc3339

logger = logging.getLogger(__name__)

_decode_pod = decoder_of(Pod)


class PassedOn(msgspec.Struct, frozen=True):
    """The pod is, or soon was, the node's owner's to bind."""

    version: int
    """The pod's resource version as passed on."""


class NotPassedOn(msgspec.Struct, frozen=True):
    """The pod certainly is not passed on."""

    why: str


class _Condition(msgspec.Struct, frozen=True):
    """PodScheduled=False; its reason: `Unschedulable`, `SchedulingSkipped`, `SchedulerError` or `SchedulingGated`."""

    reason: str
    message: str


class _Write(msgspec.Struct, frozen=True):
    """What a pod's status should say; None leaves that part alone, nominated_node "" clears it."""

    pod: PodView
    condition: _Condition | None
    nominated_node: str | None
    passes_on: bool = False
    """Whether the node's owner is to bind the pod, not only to count its nomination."""


LIMITS = OutboxLimits(max_defer_seconds=5.0)


class PodStatusWriter(FromOutbox):
    """Queues status writes, newest per pod; `run` sends them."""

    def __init__(
        self,
        transport: Transport,
        *,
        random: Random,
        defer_while: Callable[[], bool] = lambda: False,
        limits: OutboxLimits = LIMITS,
        clock: Callable[[], float] = time.time,
        fence: Fence = OPEN,
    ) -> None:
        """fence: asked right before each write goes out."""
        self._transport = transport
        self._fence = fence
        self._random = random
        self._clock = clock
        self._outbox: Outbox[str, _Write] = Outbox(
            self._send,
            name="pod status",
            about=lambda _, write: (write.pod.namespace, write.pod.name),
            random=random,
            limits=limits,
            defer_while=defer_while,
            merge=_merge,
            insists=lambda write: not _gives_back(write),  # it is decided again here, and perhaps given back again
            on_lost=self._lost,
        )
        self._on_not_given_back: Callable[[str, str], None] = lambda uid, why: None

    def on_not_given_back(self, listener: Callable[[str, str], None]) -> None:
        """Call a listener with the uid of a pod that stays passed on, since the write was refused for good, and why."""
        self._on_not_given_back = listener

    def unschedulable(self, pod: PodView, *, reason: str, message: str, nominated_node: str | None = None) -> None:
        """Set PodScheduled=False with the full message, unless the pod says so already.

        nominated_node: "" clears it, None leaves it alone.
        """
        self._put(_Write(pod, _Condition(reason, message), nominated_node))

    def nominate(self, pod: PodView, *, node: str) -> None:
        """Set nominatedNodeName alone; "" clears it."""
        self._put(_Write(pod, None, node))

    async def pass_on(self, pod: PodView, *, node: str) -> PassedOn | NotPassedOn:
        """Pass a pod on to the owner of a node, without waiting for a turn.

        Where an answer was lost this goes on until it is certain: a pod that was passed on after all would be bound
        although it counts nowhere here. After a refusal for good, or `PATIENCE_SECONDS`, the pod is only read.
        """
        self._outbox.discard(pod.uid)
        write = _Write(pod, None, node, passes_on=True)
        backoff = Backoff(initial_seconds=0.2, limit_seconds=5.0, random=self._random)
        loop = asyncio.get_running_loop()
        try_until, doubt_since = loop.time() + PATIENCE_SECONDS, -inf
        while True:
            try:
                version = await self._write(write)
            except Fenced as error:
                return NotPassedOn(str(error))
            except KubeError as error:
                if isinstance(error, UnknownOutcome):
                    doubt_since = loop.time()
                problem, is_refused = str(error), _is_refused(error)
            except Exception as error:
                logger.exception("unexpected error while passing on pod %s/%s", pod.namespace, pod.name)
                doubt_since = loop.time()
                problem, is_refused = f"internal error: {error!r}", False
            else:
                if version is not None:
                    return PassedOn(version)
                return _after(pod) if doubt_since > -inf else NotPassedOn("it has changed")
            if doubt_since == -inf:
                return NotPassedOn(problem)
            if is_refused or loop.time() > try_until:
                return await self._find_out(write, doubt_since=doubt_since, why=problem)
            await self._transport.pause(backoff.next_seconds())

    async def _find_out(self, write: _Write, *, doubt_since: float, why: str) -> PassedOn | NotPassedOn:
        """Read a pod until it is certain whether a write that was not answered has passed it on, or never will."""
        pod, loop = write.pod, asyncio.get_running_loop()
        backoff = Backoff(initial_seconds=1.0, limit_seconds=30.0, random=self._random)
        while True:
            try:
                answer = await self._transport.request(
                    "GET", PODS.path(pod.name, namespace=pod.namespace), resource=PODS.plural
                )
                now = _unbound(answer, uid=pod.uid)
            except NotFound:
                return _after(pod)
            except KubeError as error:
                logger.debug("pod %s/%s may be passed on, and cannot be read: %s", pod.namespace, pod.name, error)
            except Exception:
                logger.exception("unexpected error while reading pod %s/%s", pod.namespace, pod.name)
            else:
                if now is None:
                    return _after(pod)
                if _is_passed_on(now) and now.nominated_node == write.nominated_node:
                    return PassedOn(version_number(now.resource_version))
                if loop.time() - doubt_since >= LINGER_SECONDS:
                    return NotPassedOn(why)
            await self._transport.pause(backoff.next_seconds())

    def forget(self, uid: str) -> None:
        """Drop what waits for a pod: it is being bound, or gone."""
        self._outbox.discard(uid)

    async def run(self) -> None:
        """Send for ever; end by cancellation."""
        await self._outbox.run()

    async def drain(self, *, timeout_seconds: float) -> bool:
        """Send what waits, before the process ends; return whether all went out."""
        return await self._outbox.drain(timeout_seconds=timeout_seconds)

    def _put(self, write: _Write) -> None:
        uid = write.pod.uid
        if uid in self._outbox or _patch(write.pod, write, now=self._clock()) is not None:
            self._outbox.put(uid, write)

    def _lost(self, write: _Write, why: str) -> None:
        if _gives_back(write):
            self._on_not_given_back(write.pod.uid, why)

    async def _send(self, uid: str, write: _Write) -> bool:
        return await self._write(write) is not None

    async def _write(self, write: _Write) -> int | None:
        """Send until the pod's status is as wanted; return its version, None if that is no longer possible."""
        pod = write.pod
        found = await patch_status(
            self._transport,
            PODS,
            pod,
            name=pod.name,
            namespace=pod.namespace,
            patch=lambda now: _patch(now, write, now=self._clock()),
            read=partial(_unbound, uid=pod.uid),
            fence=self._fence,
        )
        return version_number(found.resource_version) if found is not None else None


def _unbound(answer: bytes, *, uid: str) -> PodNow | None:
    """Return what an answer says of the pod of that UID, None where it is bound or gone; raises DecodeError."""
    now = _decode_pod(answer)
    return view_of(now) if now.metadata.uid == uid and not now.spec.node_name else None


def _after(pod: PodView) -> PassedOn:
    """A pod that is bound or gone may have been passed on before: the watch tells."""
    return PassedOn(version_number(pod.resource_version) + 1)


def _is_refused(error: KubeError) -> bool:
    """Return whether it is useless to repeat a request."""
    return isinstance(error, Invalid | Forbidden) or (isinstance(error, ApiError) and error.is_denial)


def _merge(old: _Write, new: _Write) -> _Write:
    return _Write(
        new.pod,
        new.condition if new.condition is not None else old.condition,
        new.nominated_node if new.nominated_node is not None else old.nominated_node,
    )


def _patch(pod: PodView, write: _Write, *, now: float) -> dict[str, Any] | None:
    """Return the strategic merge patch that makes pod's status as wanted, None if it is so already.

    A condition that was False before keeps its lastTransitionTime: the server merges conditions by type.
    """
    status: dict[str, Any] = {}
    if write.condition is not None:
        current = next((c for c in pod.conditions if c.type == "PodScheduled"), None)
        wanted = ("False", write.condition.reason, write.condition.message)
        if current is None or (current.status, current.reason, current.message) != wanted:
            condition: dict[str, Any] = {
                "type": "PodScheduled",
                "status": "False",
                "reason": write.condition.reason,
                "message": write.condition.message,
            }
            if current is None or current.status != "False":
                condition |= {"lastProbeTime": None, "lastTransitionTime": rfc3339(now)}
            if pod.generation:
                condition["observedGeneration"] = pod.generation
            status["conditions"] = [condition]
    if write.nominated_node is not None:
        # what is known of the pod may have our own nomination in it, which the server does not know yet
        if write.passes_on or write.nominated_node != pod.nominated_node:
            status["nominatedNodeName"] = write.nominated_node or None
        if write.passes_on or _is_passed_on(pod):
            passed = {"type": PASSED_ON, "status": str(write.passes_on), "message": write.nominated_node}
            status["conditions"] = [*status.get("conditions", ()), passed]
    if not status:
        return None
    return {"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version}, "status": status}


def _gives_back(write: _Write) -> bool:
    return write.nominated_node == "" and _is_passed_on(write.pod)


def _is_passed_on(pod: PodView) -> bool:
    return any(c.type == PASSED_ON and c.status == "True" for c in pod.conditions)
