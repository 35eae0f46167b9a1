"""Carries out nominations: reads what Kueue's manager owns of a Workload, applies it with other nominations, tells."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import KUEUE_WORKLOADS
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision
from kube_policy_scheduler.fleet.multikueue.nominator import Nomination, Nominator
from kube_policy_scheduler.fleet.multikueue.objects import KueueWorkload
from kube_policy_scheduler.fleet.multikueue.reading import workload
from kube_policy_scheduler.fleet.multikueue.writes import FIELD_MANAGER, OwnedFieldsError, nomination
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome

logger = logging.getLogger(__name__)

APPLY_PATCH = "application/apply-patch+yaml"
_read = decoder_of(dict[str, Any])
_decode = decoder_of(KueueWorkload)


class NominationWriter:
    """Writes one nomination of a Workload at a time; those of several may be under way."""

    def __init__(
        self,
        transport: Transport,
        nominator: Nominator,
        events: EventRecorder,
        *,
        fence: Fence,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server of Kueue's manager cluster.
            nominator: is told how each nomination ended.
            events: tells people.
            fence: whether this replica may write.
            steady: seconds on a clock that nobody sets.
        """
        self._transport = transport
        self._nominator = nominator
        self._events = events
        self._fence = fence
        self._steady = steady

    async def carry_out(self, work: Nomination) -> FleetDecision | None:
        """Write the nominations that are not there yet, and say how that ended. Raises nothing of the API's.

        Returns:
            What became of it; None if nothing is new, or it is decided again because the Workload has changed.
        """
        attempt = self._nominator.waiting.attempts(work.key) + 1
        if not work.writes:
            self._nominator.done(work, self._now())
            if work.outcome.placed:
                return None
            self._tell(work, "Warning", "NominationFailed", work.outcome.message)
            return _decision(work, WorkloadOutcome.UNPLACED, attempt)
        try:
            after = await self._apply(work)
        except Conflict:
            self._nominator.conflicted(work, self._now())
            return None
        except NotFound:
            self._nominator.delete_workload(work.key)
            return None
        except (KubeError, OwnedFieldsError) as error:
            self._tell(work, "Warning", "NominationFailed", str(error))
            self._nominator.refused(work, self._now())
            return _decision(work, WorkloadOutcome.FAILED, attempt, problem=str(error))
        if after is None:
            self._nominator.conflicted(work, self._now())
            return None
        if work.names:
            self._tell(work, "Normal", "Nominated", f"nominated to {', '.join(work.names)}")
        else:
            self._tell(work, "Warning", "NominationFailed", work.outcome.message)
        self._nominator.done(work, self._now(), after)
        return _decision(work, WorkloadOutcome.PLACED if work.outcome.placed else WorkloadOutcome.UNPLACED, attempt)

    async def _apply(self, work: Nomination) -> KueueWorkload | None:
        """Return the Workload as it is then; None if it was not as it was decided any more.

        Raises:
            KubeError: it could not be read or written.
            OwnedFieldsError: nothing may be written.
        """
        meta = work.workload.metadata
        path = KUEUE_WORKLOADS.path(meta.name, namespace=meta.namespace)
        written = _read(await self._transport.request("GET", path, resource=KUEUE_WORKLOADS.plural))
        if written["metadata"]["resourceVersion"] != meta.resource_version:
            return None
        status = KUEUE_WORKLOADS.path(meta.name, namespace=meta.namespace, subresource="status")
        answer = await self._transport.request(
            "PATCH",
            f"{status}?{urlencode({'fieldManager': FIELD_MANAGER, 'force': 'true'})}",
            body=msgspec.json.encode(nomination(written, work.names)),
            content_type=APPLY_PATCH,
            resource=f"{KUEUE_WORKLOADS.plural}/status",
            fence=self._fence,
        )
        return _decode(answer)

    def _tell(self, work: Nomination, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        meta = work.workload.metadata
        about = Reference("Workload", meta.name, meta.namespace, meta.uid, KUEUE_WORKLOADS.root.removeprefix("/apis/"))
        self._events.record(about, type=kind, reason=reason, action="Nominating", note=note)

    def _now(self) -> Steady:
        return Steady(self._steady())


def _decision(work: Nomination, became: WorkloadOutcome, attempt: int, *, problem: str = "") -> FleetDecision:
    written = work.workload
    asked = workload(written, has={}, attempts=attempt - 1)
    nominated = written.status.nominated_cluster_names or ()
    return FleetDecision(
        key=work.key,
        generation=written.metadata.generation,
        workload=RecordedWorkload(
            kind=asked.kind, name=asked.name, namespace=asked.namespace, uid=asked.uid, replicas=asked.replicas
        ),
        outcome=msgspec.structs.replace(work.outcome, targets=dict.fromkeys(work.names, asked.replicas)),
        became=became,
        before=dict.fromkeys(nominated, asked.replicas),
        attempt=attempt,
        problem=problem,
    )
