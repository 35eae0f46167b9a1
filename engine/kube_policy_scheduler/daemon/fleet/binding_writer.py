"""Carries out what was decided about a binding: first its placement, then its status, and events about both."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import WORK, WORK_VERSION, resource_of
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision, lasts
from kube_policy_scheduler.fleet.karmada.decision_maker import DecisionMaker, Work, quota_exceeded, write_failed
from kube_policy_scheduler.fleet.karmada.objects import ResourceBinding
from kube_policy_scheduler.fleet.karmada.writes import Patch, status_patch, targets
from kube_policy_scheduler.fleet.model import Outcome
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome

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

    async def carry_out(self, work: Work) -> FleetDecision | None:
        """Write what is not there yet, and tell the decision maker how that ended. Raises nothing of the API's.

        Returns:
            What became of it; None if nothing was decided, or it is decided again because the binding has changed.
        """
        outcome, binding, generation = work.outcome, work.binding, work.binding.metadata.generation
        attempt = self._maker.waiting.attempts(work.key) + 1
        if work.patch is not None:
            try:
                binding = await self._patch(binding, work.patch)
                generation = binding.metadata.generation
            except (Forbidden, Invalid) as error:
                is_quota = isinstance(error, Forbidden) and error.reason == QUOTA_EXCEEDED
                outcome = quota_exceeded(work, error.message) if is_quota else write_failed(work, str(error))
            except KubeError as error:
                return self._failed(work, work.binding, error, attempt)
        is_refused = outcome is not work.outcome
        patch = self._status(work, outcome, binding, generation)
        if patch is not None:
            try:
                binding = await self._patch(binding, patch, subresource="status")
            except KubeError as error:
                failed = self._failed(work, binding, error, attempt)
                if outcome is None or failed is not None or work.patch is None or is_refused:
                    return failed
                return _decision(work, outcome, _became(work, outcome), attempt)
        is_written = patch is not None or work.patch is not None
        if outcome is not None and is_written:
            self._tell(binding, outcome)
        if is_refused:
            self._maker.refused(work, binding, self._now())
        else:
            self._maker.done(work, binding, self._now())
        if outcome is None or (outcome.placed and not is_written):
            return None
        if is_refused:
            return _decision(work, outcome, WorkloadOutcome.REFUSED, attempt)
        return _decision(work, outcome, _became(work, outcome), attempt)

    def _failed(self, work: Work, binding: ResourceBinding, error: KubeError, attempt: int) -> FleetDecision | None:
        """Take note that a write failed. binding: as it is now."""
        match error:
            case NotFound():
                self._maker.delete_binding(work.key)
                return None
            case Conflict():
                self._maker.conflicted(work, self._now())
                if not lasts(attempt):
                    return None
            case _:  # it may have been written; the watch, and the precondition of the next try, tell
                self._maker.refused(work, binding, self._now())
        if work.outcome is None:
            return None
        return _decision(work, work.outcome, WorkloadOutcome.FAILED, attempt, problem=str(error))

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


def recorded_workload(binding: ResourceBinding) -> RecordedWorkload:
    """Return whose binding it is."""
    template = binding.spec.resource
    return RecordedWorkload(
        kind=template.kind,
        name=template.name,
        namespace=template.namespace,
        api_version=template.api_version,
        uid=template.uid,
        replicas=binding.spec.replicas,
    )


def _became(work: Work, outcome: Outcome) -> WorkloadOutcome:
    if not outcome.placed:
        return WorkloadOutcome.UNPLACED
    return WorkloadOutcome.MOVED if work.trigger is None else WorkloadOutcome.PLACED


def _decision(
    work: Work, outcome: Outcome, became: WorkloadOutcome, attempt: int, *, problem: str = ""
) -> FleetDecision:
    return FleetDecision(
        key=work.key,
        generation=work.binding.metadata.generation,
        workload=recorded_workload(work.binding),
        outcome=outcome,
        became=became,
        before={each.name: each.replicas for each in work.binding.spec.clusters or ()},
        trigger=work.trigger.value if work.trigger is not None else "",
        unread=work.unread,
        attempt=attempt,
        problem=problem,
    )


@cache
def _decoder(kind: type[ResourceBinding]) -> Callable[[bytes], ResourceBinding]:
    return decoder_of(kind)
