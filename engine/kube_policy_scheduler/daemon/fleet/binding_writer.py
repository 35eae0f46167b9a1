"""Carries out what was decided about a binding: first its placement, then its status, and events about both."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import (
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    UnknownOutcome,
    Unreachable,
)
from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import WORK, WORK_VERSION, resource_of
from kube_policy_scheduler.adapters.kube.nesting import bounded
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Work, quota_exceeded, write_failed
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.karmada.writes import Patch, status_patch, targets
from kube_policy_scheduler.fleet.model import Outcome
from kube_policy_scheduler.times import Steady

QUOTA_EXCEEDED = "QuotaExceeded"
"""The reason with which Karmada's webhook refuses a write that a FederatedResourceQuota does not allow."""


class BindingWriter:
    """Writes one binding at a time; several may be under way."""

    def __init__(
        self,
        transport: Transport,
        maker: DecisionMaker,
        events: EventRecorder,
        *,
        fence: Fence,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server of the Karmada control plane.
            maker: is told how each work ended.
            events: tells people.
            fence: whether this replica may write.
            clock: Unix seconds.
            steady: seconds on a clock that nobody sets.
        """
        self._transport = transport
        self._maker = maker
        self._events = events
        self._fence = fence
        self._clock, self._steady = clock, steady

    async def carry_out(self, work: Work) -> None:
        """Write what is not there yet, and tell the decision maker how that ended. Raises nothing of the API's."""
        outcome, binding, generation = work.outcome, work.binding, work.binding.metadata.generation
        if work.patch is not None:
            try:
                binding = await self._patch(binding, work.patch)
                generation = binding.metadata.generation
            except KubeError as error:
                outcome = self._refused(work, error)
                if outcome is None:
                    return
        failed = outcome is not work.outcome
        patch = self._status(work, outcome, binding, generation)
        if patch is not None:
            try:
                binding = await self._patch(binding, patch, subresource="status")
            except Conflict:
                self._maker.conflicted(work, self._now())
                return
            except NotFound:
                self._maker.delete_binding(work.key)
                return
            except KubeError:
                self._maker.refused(work, binding, self._now())
                return
        if outcome is not None and (patch is not None or work.patch is not None):
            self._tell(binding, outcome)
        if failed:
            self._maker.refused(work, binding, self._now())
        else:
            self._maker.done(work, binding, self._now())

    def _refused(self, work: Work, error: KubeError) -> Outcome | None:
        """Return what a refusal of the placement comes to, None if that is not to be told in the binding."""
        match error:
            case Forbidden(reason=reason) if reason == QUOTA_EXCEEDED:
                return quota_exceeded(work, error.message)
            case Forbidden() | Invalid():
                return write_failed(work, str(error))
            case NotFound():
                self._maker.delete_binding(work.key)
            case Conflict():
                self._maker.conflicted(work, self._now())
            case UnknownOutcome() | Unreachable() | Fenced() | ApiError() | _:
                # it may have been written; the watch, and the precondition of the next try, tell
                self._maker.refused(work, work.binding, self._now())
        return None

    def _status(self, work: Work, outcome: Outcome | None, binding: ResourceBinding, generation: int) -> Patch | None:
        if outcome is work.outcome or outcome is None:
            return self._maker.status_of(work, binding, generation=generation, now=self._clock())
        return status_patch(binding, outcome, generation=generation, now=self._clock())

    async def _patch(self, binding: ResourceBinding, body: Patch, *, subresource: str = "") -> ResourceBinding:
        resource, meta = resource_of(binding), binding.metadata
        answer = await self._transport.request(
            "PATCH",
            resource.path(meta.name, namespace=meta.namespace, subresource=subresource),
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH,
            resource=f"{resource.label}/{subresource}" if subresource else resource.label,
            fence=self._fence,
        )
        return _decoder(type(binding))(answer)

    def _tell(self, binding: ResourceBinding, outcome: Outcome) -> None:
        meta, template = binding.metadata, binding.spec.resource
        kind = type(binding).__name__
        about = [
            Reference(kind, meta.name, meta.namespace, meta.uid, f"{WORK}/{WORK_VERSION}"),
            Reference(template.kind, template.name, template.namespace, template.uid, template.api_version),
        ]
        if outcome.placed:
            got = ", ".join(f"{each['name']}:{each.get('replicas', 0)}" for each in targets(outcome))
            note = f"{outcome.message} Result: {{{got}}}"
        else:
            note = outcome.message
        for each in about:
            self._events.record(
                each,
                type="Normal" if outcome.placed else "Warning",
                reason="ScheduleBindingSucceed" if outcome.placed else "ScheduleBindingFailed",
                action="Scheduling",
                note=note,
            )

    def _now(self) -> Steady:
        return Steady(self._steady())


@cache
def _decoder(kind: type[ResourceBinding]) -> Callable[[bytes], ResourceBinding]:
    return bounded(msgspec.json.Decoder(kind).decode)
