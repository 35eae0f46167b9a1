"""Writes the condition of Kubernetes' own PodGroups and composite groups that says whether they are scheduled.

It is sent in the background. kube-scheduler 1.36 calls it PodGroupScheduled, 1.37 PodGroupInitiallyScheduled: the
version of the API tells which. That of composite groups is CompositePodGroupInitiallyScheduled.

A group that was scheduled once stays so, whatever becomes of pods that join it later. PodGroups of the
scheduler-plugins are none of ours: their status is written by the controller that comes with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from kube_policy_scheduler.adapters.kube.discovery import served
from kube_policy_scheduler.adapters.kube.fence import OPEN, Fence
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.outbox import FromOutbox, Outbox, OutboxLimits
from kube_policy_scheduler.adapters.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS, Resource
from kube_policy_scheduler.adapters.kube.status_patch import patch_status
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import CompositePodGroup, PodGroup
from kube_policy_scheduler.times import rfc3339

CONDITION = "PodGroupInitiallyScheduled"
CONDITION_OF_V1ALPHA2 = "PodGroupScheduled"
CONDITION_OF_COMPOSITES = "CompositePodGroupInitiallyScheduled"

GroupT = TypeVar("GroupT", bound=PodGroup | CompositePodGroup)


class _Scheduled(msgspec.Struct, frozen=True):
    """The condition's status, with the reason `Scheduled`, `Unschedulable` or `SchedulerError`."""

    uid: str
    """Of the group that is meant."""
    status: str
    reason: str
    message: str


def _namespace_and_name(key: str, wanted: object) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


class PodGroupStatusWriter(FromOutbox, Generic[GroupT]):
    """Queues conditions of groups of one kind, newest per group; `run` sends them."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[GroupT],
        *,
        find: Callable[[str], GroupT | None],
        random: Random,
        defer_while: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        fence: Fence = OPEN,
    ) -> None:
        """Set up.

        Args:
            transport: to the API server.
            resource: the kind: `POD_GROUPS` or `COMPOSITE_POD_GROUPS`.
            find: returns a group by `namespace/name` as the watch showed it last.
            random: spreads retries.
            defer_while: whether bindings are in flight.
            clock: Unix seconds.
            fence: asked right before each write goes out.
        """
        self._transport = transport
        self._find = find
        self._clock = clock
        self._fence = fence
        self._resource = resource
        self._decode = decoder_of(resource.type)
        self._served: Resource[GroupT] | None = None
        """The kind in the version of this API server, once that was needed."""
        self._outbox: Outbox[str, _Scheduled] = Outbox(
            self._send,
            name="composite pod group status" if resource is COMPOSITE_POD_GROUPS else "pod group status",
            about=_namespace_and_name,
            random=random,
            limits=OutboxLimits(max_defer_seconds=5.0),
            defer_while=defer_while,
            merge=lambda old, new: old if old.status == "True" and new.status != "True" else new,
        )

    def scheduled(self, key: str) -> None:
        """Say that a group has what it asks for; its members are being bound."""
        self._put(key, "True", "Scheduled", "")

    def unschedulable(self, key: str, *, reason: str, message: str) -> None:
        """Say why a group has no place."""
        self._put(key, "False", reason, message)

    async def run(self) -> None:
        """Send for ever; end by cancellation."""
        await self._outbox.run()

    async def drain(self, *, timeout_seconds: float) -> bool:
        """Send what waits, before the process ends; return whether all went out."""
        return await self._outbox.drain(timeout_seconds=timeout_seconds)

    def _put(self, key: str, status: str, reason: str, message: str) -> None:
        group = self._find(key)
        if group is not None:
            wanted = _Scheduled(group.metadata.uid, status, reason, message)
            if self._patch(group, wanted) is not None:
                self._outbox.put(key, wanted)

    async def _send(self, key: str, wanted: _Scheduled) -> None:
        group = self._find(key)
        if group is None:
            return
        if self._served is None:
            self._served = await served(self._transport, self._resource)
        await patch_status(
            self._transport,
            self._served,
            group,
            name=group.metadata.name,
            namespace=group.metadata.namespace,
            patch=lambda now: self._patch(now, wanted),
            read=self._decode,
            fence=self._fence,
        )

    @property
    def _condition(self) -> str:
        """The type of the condition in the version that is served."""
        if self._resource.type is CompositePodGroup:
            return CONDITION_OF_COMPOSITES
        version = self._served.version if self._served is not None else POD_GROUPS.version
        return CONDITION_OF_V1ALPHA2 if version == "v1alpha2" else CONDITION

    def _patch(self, group: GroupT, wanted: _Scheduled) -> dict[str, Any] | None:
        """Return the strategic merge patch that makes a group's condition as wanted, None if it is to stay."""
        if group.metadata.uid != wanted.uid:
            return None
        name = self._condition
        current = next((c for c in group.status.conditions or () if c.type == name), None)
        if current is not None:
            if current.status == "True" != wanted.status:
                return None
            if (current.status, current.reason, current.message) == (wanted.status, wanted.reason, wanted.message):
                return None
        condition: dict[str, Any] = {
            "type": name,
            "status": wanted.status,
            "reason": wanted.reason,
            "message": wanted.message,
        }
        if current is None or current.status != wanted.status:
            condition["lastTransitionTime"] = rfc3339(self._clock())
        metadata = group.metadata
        if metadata.generation:
            condition["observedGeneration"] = metadata.generation
        return {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": {"conditions": [condition]},
        }
