"""Counts the pods of a workload for which there is no node: Karmada's descheduler takes these replicas elsewhere."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

import msgspec

from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster.objects import LabelSelector, ObjectMeta
from kube_policy_scheduler.cluster.objects.structs import ApiStruct
from kube_policy_scheduler.daemon.modes.estimated_pods import WORKLOADS
from kube_policy_scheduler.daemon.observing.metrics import EstimatorMetrics
from kube_policy_scheduler.fleet.karmada.estimates import NO_OPINION, TemplateName, UnschedulableQuestion
from kube_policy_scheduler.times import unix_seconds

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 4
"""Questions whose pods are listed at a time; the others wait for their turn."""
PAGE_OBJECTS = 500
MOST_PAGES = 40
"""Of one list: 20,000 pods without a node. Whoever asks gets the number of those."""
_OPERATORS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


class _Condition(ApiStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class _Status(ApiStruct):
    conditions: list[_Condition] | None = None


class _WorkloadSpec(ApiStruct):
    selector: LabelSelector | None = None


class _Thing(ApiStruct):
    """A pod or a ReplicaSet: who owns it, and since when its conditions are as they are."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Workload(ApiStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _WorkloadSpec = msgspec.field(default_factory=_WorkloadSpec)


class _ListMeta(msgspec.Struct):
    next: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    items: list[_Thing] = []
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_decode = decoder_of(_Workload)
_decode_page = decoder_of(_Page)


class PodsWithoutNode:
    """Answers from the API server of this cluster, about workloads that have a selector of pods."""

    def __init__(
        self,
        transport: Transport,
        *,
        cluster_name: str,
        metrics: EstimatorMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make one.

        Args:
            transport: to the API server.
            cluster_name: of the cluster, in the fleet; about others there is no opinion.
            metrics: counts.
            clock: Unix seconds.
        """
        self._transport, self._cluster_name = transport, cluster_name
        self._metrics, self._clock = metrics, clock
        self._permits = asyncio.Semaphore(MOST_AT_ONCE)
        self._fails = False

    async def unschedulable(self, question: UnschedulableQuestion, *, seconds: float) -> int:
        """Return how many pods of a workload have had no node for longer than a time; -1 for no opinion.

        Args:
            question: about which workload.
            seconds: until the answer must be there.
        """
        found = await self._within(question, seconds) if question.cluster == self._cluster_name else None
        self._metrics.answers.labels("none" if found is None else "counted").inc()
        return NO_OPINION if found is None else found

    async def _within(self, question: UnschedulableQuestion, seconds: float) -> int | None:
        try:
            async with asyncio.timeout(seconds), self._permits:
                found = await self._count(question)
        except NotFound:
            return None  # it is not in this cluster
        except (KubeError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if not self._fails:
                why = str(error) or "no answer in time"
                logger.warning("pods without a node cannot be counted", extra={"why": why})
            self._fails = True
            return None
        self._fails = False
        return found

    async def _count(self, question: UnschedulableQuestion) -> int | None:
        workload = question.workload
        where = WORKLOADS.get(workload.kind)
        if where is None or not workload.namespace:
            return None
        path = f"{_collection(*where, workload)}/{quote(workload.name, safe='')}"
        found = _decode(await self._transport.request("GET", path, resource=where[1]))
        selector = _query(found.spec.selector) if found.spec.selector is not None else ""
        if not selector or not found.metadata.uid:
            return None
        owners = {found.metadata.uid}
        if workload.kind == "Deployment":
            sets = await self._things("/apis/apps/v1", "replicasets", workload, {"labelSelector": selector})
            owners = {each.metadata.uid for each in sets if _is_owned(each, owners)}
        asked = {"labelSelector": selector, "fieldSelector": "spec.nodeName="}
        pods = await self._things("/api/v1", "pods", workload, asked)
        since = self._clock() - question.threshold_seconds
        return sum(1 for each in pods if _is_owned(each, owners) and _waits_since(each, since))

    async def _things(self, root: str, plural: str, of: TemplateName, query: dict[str, str]) -> list[_Thing]:
        """Return the objects of a list in the namespace of a workload, at most 20,000."""
        found: list[_Thing] = []
        asked = query | {"limit": str(PAGE_OBJECTS)}
        for _ in range(MOST_PAGES):
            path = f"{_collection(root, plural, of)}?{urlencode(asked)}"
            page = _decode_page(await self._transport.request("GET", path, resource=plural))
            found += page.items
            if not page.metadata.next:
                break
            asked["continue"] = page.metadata.next
        return found


def _collection(root: str, plural: str, of: TemplateName) -> str:
    return f"{root}/namespaces/{quote(of.namespace, safe='')}/{plural}"


def _query(selector: LabelSelector) -> str:
    """Return a label selector as a query; "" if it selects everything, or has an operator that there is not."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for each in selector.match_expressions or ():
        form = _OPERATORS.get(each.operator)
        if form is None:
            return ""
        parts.append(form.format(key=each.key, values=",".join(each.values or ())))
    return ",".join(parts)


def _is_owned(thing: _Thing, owners: set[str]) -> bool:
    return any(each.controller and each.uid in owners for each in thing.metadata.owner_references or ())


def _waits_since(pod: _Thing, since: float) -> bool:
    """Return whether no node was found for a pod, for as long as that."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    for each in pod.status.conditions or ():
        if each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable":
            began = unix_seconds(each.last_transition_time)
            return began is not None and began <= since
    return False
