"""Writes the PodScheduled condition and nominatedNodeName of pods that could not be placed; in the background.

A write carries the pod's resource version. If the pod changed meanwhile it is read again first, so that a pod that
was just bound is never marked as unscheduled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from engine.adapters.kube.errors import Conflict, KubeError, NotFound
from engine.adapters.kube.outbox import Outbox, OutboxCounts
from engine.adapters.kube.pod_view import PodView, view_of
from engine.adapters.kube.resources import PODS
from engine.adapters.kube.transport import STRATEGIC_MERGE_PATCH, Transport
from engine.cluster.objects import Pod

_encode = msgspec.json.Encoder().encode
_decode_pod = msgspec.json.Decoder(Pod).decode

CONFLICT_RETRIES = 3
PASSED_ON = "policy-scheduler/PassedOn"
"""Condition of a pod that one replica has decided and another, the owner of the node that it names, is to bind."""


@dataclass(frozen=True, slots=True)
class _Condition:
    """PodScheduled=False, with the reason `Unschedulable`, `SchedulerError` or `SchedulingGated`."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Write:
    """What a pod's status should say; None leaves that part alone, nominated_node "" clears it."""

    pod: PodView
    condition: _Condition | None
    nominated_node: str | None
    passes_on: bool = False
    """Whether the node's owner is to bind the pod, instead of keeping room for it."""


class PodStatusWriter:
    """Queues status writes, newest per pod; `run` sends them."""

    def __init__(
        self,
        transport: Transport,
        *,
        random: Random,
        defer_while: Callable[[], bool] = lambda: False,
        concurrency: int = 8,
        capacity: int = 50_000,
        max_defer_seconds: float = 5.0,
        clock: Callable[[], float] = time.time,
        may_nominate: Callable[[], bool] = lambda: True,
    ) -> None:
        """may_nominate: the fence of replicas that share the work, asked right before a pod is passed on."""
        self._transport = transport
        self._may_nominate = may_nominate
        self._clock = clock
        self._outbox: Outbox[str, _Write] = Outbox(
            self._send,
            name="pod status",
            random=random,
            concurrency=concurrency,
            capacity=capacity,
            max_defer_seconds=max_defer_seconds,
            defer_while=defer_while,
            merge=_merge,
        )

    @property
    def counts(self) -> OutboxCounts:
        """What became of the writes so far."""
        return self._outbox.counts

    def __len__(self) -> int:
        return len(self._outbox)

    def unschedulable(self, pod: PodView, *, reason: str, message: str, nominated_node: str | None = None) -> None:
        """Set PodScheduled=False with the full message, unless the pod says so already.

        nominated_node: "" clears it, None leaves it alone.
        """
        self._put(_Write(pod, _Condition(reason, message), nominated_node))

    def nominate(self, pod: PodView, *, node: str) -> None:
        """Set nominatedNodeName alone; "" clears it."""
        self._put(_Write(pod, None, node))

    async def nominate_now(self, pod: PodView, *, node: str) -> str:
        """Pass a pod on to the owner of a node, without waiting for a turn; return why that failed, "" if not."""
        self._outbox.discard(pod.uid)
        try:
            sent = await self._send(pod.uid, _Write(pod, None, node, passes_on=True), may_send=self._may_nominate)
        except KubeError as error:
            return str(error)
        return "" if sent else "it changed meanwhile"

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

    async def _send(self, uid: str, write: _Write, *, may_send: Callable[[], bool] | None = None) -> bool:
        """Send until the pod's status is as wanted; return False where that can't be had any more."""
        pod: PodView | None = write.pod
        for _ in range(CONFLICT_RETRIES):
            patch = _patch(pod, write, now=self._clock()) if pod is not None else None
            if pod is None:
                return False
            if patch is None:
                return True
            path = PODS.path(pod.name, namespace=pod.namespace, subresource="status")
            try:
                await self._transport.request(
                    "PATCH",
                    path,
                    body=_encode(patch),
                    content_type=STRATEGIC_MERGE_PATCH,
                    resource="pods/status",
                    may_send=may_send,
                )
            except NotFound:
                return False
            except Conflict:
                pod = await self._read_again(write.pod)
            else:
                return True
        return False

    async def _read_again(self, pod: PodView) -> PodView | None:
        """Return the pod as it is now, None if it is gone or needs no such status any more."""
        try:
            body = await self._transport.request("GET", PODS.path(pod.name, namespace=pod.namespace), resource="pods")
            now = _decode_pod(body)
        except (NotFound, msgspec.DecodeError):
            return None
        return view_of(now) if now.metadata.uid == pod.uid and not now.spec.node_name else None


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
                at = datetime.fromtimestamp(now, UTC)
                condition |= {"lastProbeTime": None, "lastTransitionTime": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
            if pod.generation:
                condition["observedGeneration"] = pod.generation
            status["conditions"] = [condition]
    if write.nominated_node is not None:
        # what is known of the pod may have our own nomination in it, which the server does not know yet
        if write.passes_on or write.nominated_node != pod.nominated_node:
            status["nominatedNodeName"] = write.nominated_node or None
        if write.passes_on or any(c.type == PASSED_ON and c.status == "True" for c in pod.conditions):
            passed = {"type": PASSED_ON, "status": str(write.passes_on), "message": write.nominated_node}
            status["conditions"] = [*status.get("conditions", ()), passed]
    if not status:
        return None
    return {"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version}, "status": status}
