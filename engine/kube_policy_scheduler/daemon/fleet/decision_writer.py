"""Carries out what was decided about a Placement: its PlacementDecisions, then its status, and events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from kube_policy_scheduler.adapters.kube.client import MERGE_PATCH
from kube_policy_scheduler.adapters.kube.errors import Conflict, KubeError, NotFound
from kube_policy_scheduler.adapters.kube.events import EventRecorder, Reference
from kube_policy_scheduler.adapters.kube.fence import Fence
from kube_policy_scheduler.adapters.kube.fleet_resources import CLUSTER_PLACEMENTS, PLACEMENT_DECISIONS
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.resources import Resource
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.daemon.fleet.engine import FleetDecision, lasts
from kube_policy_scheduler.fleet.ocm.decisions import DecisionObject
from kube_policy_scheduler.fleet.ocm.hub import Hub
from kube_policy_scheduler.fleet.ocm.objects import ClusterPlacement, PlacementDecision, PlacementStatus
from kube_policy_scheduler.fleet.ocm.placer import DECIDED, Decided
from kube_policy_scheduler.times import Steady
from kube_policy_scheduler.tooling.workload_record import RecordedWorkload, WorkloadOutcome
from kube_policy_scheduler.wording import some

Json = dict[str, Any]
_decode = decoder_of(PlacementDecision)
_decode_placement = decoder_of(ClusterPlacement)
_API_VERSION = CLUSTER_PLACEMENTS.root.removeprefix("/apis/")


class DecisionWriter:
    """Writes one decision at a time about a Placement; those of several may be under way."""

    def __init__(
        self,
        transport: Transport,
        hub: Hub,
        events: EventRecorder,
        *,
        fence: Fence,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server of the hub.
            hub: is told how each decision ended.
            events: tells people.
            fence: whether this replica may write.
            steady: seconds on a clock that nobody sets.
        """
        self._transport, self._hub, self._events, self._fence = transport, hub, events, fence
        self._steady = steady

    async def carry_out(self, work: Decided) -> FleetDecision | None:
        """Write what is not there yet, and say how that ended. Raises nothing of the API's.

        Returns:
            What became of it; None if nothing is new, or it is decided again because an object has changed.
        """
        attempt = self._hub.waiting.attempts(work.key) + 1
        if not work.writes:
            self._hub.done(work, self._now())
            return None if work.outcome.placed else _decision(work, WorkloadOutcome.UNPLACED, attempt)
        written: list[ClusterPlacement | PlacementDecision] = []
        try:
            await self._write(work, written)
        except (Conflict, NotFound) as error:  # the watch shows what somebody else wrote or took away
            if isinstance(error, Conflict):
                self._hub.conflicted(work, self._now())
            else:
                self._hub.refused(work, self._now())
            return _decision(work, WorkloadOutcome.FAILED, attempt, problem=str(error)) if lasts(attempt) else None
        except KubeError as error:
            self._tell(work, "Warning", "PlacementFailed", str(error))
            self._hub.refused(work, self._now())
            return _decision(work, WorkloadOutcome.FAILED, attempt, problem=str(error))
        self._hub.done(work, self._now(), written)
        if not work.outcome.placed:
            self._tell(work, "Warning", "PlacementFailed", work.outcome.message)
            return _decision(work, WorkloadOutcome.UNPLACED, attempt)
        if work.objects:
            names = some(work.chosen) if work.chosen else "no cluster"
            self._tell(work, "Normal", "PlacementDecided", f"selected {names}")
        return _decision(work, WorkloadOutcome.PLACED, attempt)

    async def _write(self, work: Decided, written: list[ClusterPlacement | PlacementDecision]) -> None:
        """Write a decision; each write has what it was decided by as its precondition.

        Raises:
            KubeError: a write failed; those before it stay, and the next decision goes on from there.
        """
        for each in work.objects:
            written.append(await self._write_object(work, each))
        for name in work.superfluous:
            known = work.known[name].metadata
            condition = {"preconditions": {"uid": known.uid, "resourceVersion": known.resource_version}}
            await self._send("DELETE", PLACEMENT_DECISIONS, known.namespace, name, condition)
        if work.status != work.placement.status:
            meta = work.placement.metadata
            body = {"metadata": {"resourceVersion": meta.resource_version}, "status": _status(work.status)}
            where = CLUSTER_PLACEMENTS, meta.namespace, meta.name
            written.append(_decode_placement(await self._send("PATCH", *where, body, subresource="status")))

    async def _write_object(self, work: Decided, wanted: DecisionObject) -> PlacementDecision:
        placement = work.placement.metadata
        labels = wanted.labels(placement.name)
        known = work.known.get(wanted.name)
        if known is None:
            owner = {
                "apiVersion": _API_VERSION,
                "kind": DECIDED,
                "name": placement.name,
                "uid": placement.uid,
                "controller": True,
            }
            head = {"name": wanted.name, "namespace": placement.namespace, "labels": labels, "ownerReferences": [owner]}
            body = {"apiVersion": _API_VERSION, "kind": "PlacementDecision", "metadata": head}
            known = _decode(await self._send("POST", PLACEMENT_DECISIONS, placement.namespace, "", body))
        elif any((known.metadata.labels or {}).get(key) != value for key, value in labels.items()):
            head = {"labels": labels, "resourceVersion": known.metadata.resource_version}
            answer = await self._send(
                "PATCH", PLACEMENT_DECISIONS, placement.namespace, wanted.name, {"metadata": head}
            )
            known = _decode(answer)
        status = {"decisions": [{"clusterName": name, "reason": ""} for name in wanted.clusters]}
        body = {"metadata": {"resourceVersion": known.metadata.resource_version}, "status": status}
        answer = await self._send(
            "PATCH", PLACEMENT_DECISIONS, placement.namespace, wanted.name, body, subresource="status"
        )
        return _decode(answer)

    async def _send(
        self, verb: str, resource: Resource[Any], namespace: str, name: str, body: Json, *, subresource: str = ""
    ) -> bytes:
        path = (
            resource.path(name, namespace=namespace, subresource=subresource)
            if name
            else resource.collection(namespace=namespace)
        )
        return await self._transport.request(
            verb,
            path,
            body=msgspec.json.encode(body),
            content_type=MERGE_PATCH if verb == "PATCH" else "application/json",
            resource=f"{resource.label}/{subresource}" if subresource else resource.label,
            fence=self._fence,
        )

    def _tell(self, work: Decided, kind: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        meta = work.placement.metadata
        about = Reference(DECIDED, meta.name, meta.namespace, meta.uid, _API_VERSION)
        self._events.record(about, type=kind, reason=reason, action="Placing", note=note)

    def _now(self) -> Steady:
        return Steady(self._steady())


def _decision(work: Decided, became: WorkloadOutcome, attempt: int, *, problem: str = "") -> FleetDecision:
    meta = work.placement.metadata
    return FleetDecision(
        key=work.key,
        generation=meta.generation,
        workload=RecordedWorkload(kind=DECIDED, name=meta.name, namespace=meta.namespace, uid=meta.uid, replicas=1),
        outcome=msgspec.structs.replace(work.outcome, targets=dict.fromkeys(work.chosen, 1)),
        became=became,
        before=dict.fromkeys(work.before, 1),
        attempt=attempt,
        problem=problem,
    )


def _status(status: PlacementStatus) -> Json:
    """Return the fields of a status that are ours, each of them written out: an absent one would stay as it is."""
    return {
        "numberOfSelectedClusters": status.number_of_selected_clusters,
        "decisionGroups": [
            {
                "decisionGroupIndex": each.decision_group_index,
                "decisionGroupName": each.decision_group_name,
                "decisions": each.decisions or [],
                "clusterCount": each.cluster_count,
            }
            for each in status.decision_groups or ()
        ],
        "conditions": msgspec.to_builtins(status.conditions or []),
    }
