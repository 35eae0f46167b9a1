"""Pods as an estimator tries them out: what a question says, and what the template in the cluster adds."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from kube_policy_scheduler.adapters.kube.errors import KubeError, NotFound
from kube_policy_scheduler.adapters.kube.nesting import decoder_of
from kube_policy_scheduler.adapters.kube.transport import Transport
from kube_policy_scheduler.cluster import objects
from kube_policy_scheduler.cluster.pods import PodInfo
from kube_policy_scheduler.fleet.karmada.estimates import (
    MOST_REPLICAS,
    Demand,
    Question,
    ReplicasQuestion,
    TemplateName,
)
from kube_policy_scheduler.tooling.capacity.counting import Fitting, count_copies, count_sets, place_assumed
from kube_policy_scheduler.tooling.capacity.seats import Seats, Stop

logger = logging.getLogger(__name__)

WORKLOADS = {
    "Deployment": ("/apis/apps/v1", "deployments"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    "Job": ("/apis/batch/v1", "jobs"),
}
"""By kind: where it is, of those with a template of pods at the usual place."""
_CLAIMS = "/apis/resource.k8s.io/v1", "resourceclaimtemplates"
READ_SECONDS = 1.0
"""For a template; without an answer the request alone decides. Whoever asks waits 3 s."""
UID = "estimate"
"""Of pods that are tried out: no pod of the API server has such a uid."""


class _PodTemplate(msgspec.Struct):
    metadata: objects.ObjectMeta = msgspec.field(default_factory=objects.ObjectMeta)
    spec: objects.PodSpec = msgspec.field(default_factory=objects.PodSpec)


class _WorkloadSpec(msgspec.Struct):
    template: _PodTemplate = msgspec.field(default_factory=_PodTemplate)


class _Workload(msgspec.Struct):
    spec: _WorkloadSpec = msgspec.field(default_factory=_WorkloadSpec)


_decode = decoder_of(_Workload)
_decode_claims = decoder_of(objects.ResourceClaimTemplate)
_MOST_CLAIMS = 32
"""Of a pod, as the API server allows."""


class MemberTemplate(msgspec.Struct, frozen=True):
    """What the cluster says of the pods of a workload."""

    metadata: objects.ObjectMeta
    spec: objects.PodSpec
    claims: tuple[objects.ResourceClaimTemplate, ...] = ()
    """From which its pods get claims of their own."""


class ReadsTemplates(Protocol):
    """Reads the templates of workloads."""

    async def read(self, template: TemplateName) -> MemberTemplate | None:
        """Return the template of the pods; None: there is none to be read."""
        ...


class PodTemplates:
    """Reads the template of a workload's pods from the API server; of containers, only what scheduling asks for."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._told: set[str] = set()

    async def read(self, template: TemplateName) -> MemberTemplate | None:
        """Return the template of the pods, None if the cluster has none or it cannot be read."""
        where = WORKLOADS.get(template.kind)
        if where is None or not template.namespace:
            return None
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._template(where, template)
        except NotFound:
            return None  # it is not in this cluster yet
        except (KubeError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if template.kind not in self._told:
                self._told.add(template.kind)
                why = str(error) or f"no answer within {READ_SECONDS:g} s"
                fields = {"kind": template.kind, "why": why}
                logger.warning("templates cannot be read; what requests say decides alone", extra=fields)
            return None

    async def _template(self, where: tuple[str, str], template: TemplateName) -> MemberTemplate:
        found = _decode(await self._get(*where, template.namespace, template.name)).spec.template
        names = (each.resource_claim_template_name for each in (found.spec.resource_claims or ())[:_MOST_CLAIMS])
        claims = [
            _decode_claims(await self._get(*_CLAIMS, template.namespace, name)) for name in names if name is not None
        ]
        return MemberTemplate(found.metadata, found.spec, tuple(claims))

    async def _get(self, root: str, plural: str, namespace: str, name: str) -> bytes:
        path = f"{root}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        return await self._transport.request("GET", path, resource=plural)


def tried_out(
    question: Question, template: MemberTemplate | None, seats: Seats, *, scheduler: str, stop: Stop
) -> Fitting:
    """Return how many more replicas or sets fit in a cluster, which is as before at the end.

    Args:
        question: what is asked.
        template: of the pods; None: the question alone describes them.
        seats: of the cluster.
        scheduler: that decides about pods whose template is not known.
        stop: True ends the work; what fits so far is the answer then.
    """
    cluster = seats.cluster

    def pod(demand: Demand, namespace: str, like: MemberTemplate | None, number: int) -> PodInfo:
        made = pod_of(demand, namespace or "default", like, number=number, scheduler=scheduler)
        return cluster.templates.pod(made)

    assumed = [(each.namespace, part) for each in question.assumed for part in each.parts]
    with cluster.ledger.silent(), seats.trying():
        for claims in template.claims if template is not None else ():
            seats.set_object(claims)
        placed = [
            (pod(part.demand, namespace, None, -number), part.replicas)
            for number, (namespace, part) in enumerate(assumed, 1)
        ]
        place_assumed(seats, placed, stop=stop)
        if isinstance(question, ReplicasQuestion):
            return count_copies(
                seats, pod(question.demand, question.namespace, template, 0), most=MOST_REPLICAS, stop=stop
            )
        parts = [
            (pod(part.demand, question.namespace, template, number), part.replicas)
            for number, part in enumerate(question.parts)
        ]
        return count_sets(seats, parts, most=MOST_REPLICAS, stop=stop)


def pod_of(
    demand: Demand, namespace: str, template: MemberTemplate | None, *, number: int, scheduler: str
) -> objects.Pod:
    """Return the pod that a question is about.

    What the question says counts: requests, node selector, node affinity and tolerations. The template adds labels,
    affinity to pods, spread, volumes, claims, ports and the scheduler.

    Args:
        demand: of the question.
        namespace: of the pod.
        template: what the cluster says; None: it has none.
        number: tells the pods of one question apart.
        scheduler: that decides about pods without a template.
    """
    requests = objects.ResourceRequirements(requests=dict(demand.requests))
    uid = f"{UID}-{number}"
    if template is None:
        spec = objects.PodSpec(scheduler_name=scheduler)
        metadata = objects.ObjectMeta(name=uid, namespace=namespace, uid=uid)
    else:
        spec, told = template.spec, template.metadata
        metadata = objects.ObjectMeta(
            name=uid, namespace=namespace, uid=uid, labels=told.labels, annotations=told.annotations
        )
    ports = [port for each in spec.containers or () for port in each.ports or ()]
    known = spec.affinity or objects.Affinity()
    preferred = known.node_affinity.preferred if known.node_affinity is not None else None
    of_nodes = objects.NodeAffinity(required=demand.node_affinity, preferred=preferred)
    return objects.Pod(
        metadata=metadata,
        spec=replace(
            spec,
            node_name="",
            node_selector=dict(demand.node_selector) or None,
            affinity=replace(known, node_affinity=of_nodes),
            tolerations=list(demand.tolerations) or None,
            containers=[objects.Container(name="all", image=_image(spec), resources=requests, ports=ports or None)],
            init_containers=None,
            overhead=None,
            resources=None,
            priority_class_name=demand.priority_class or spec.priority_class_name,
        ),
    )


def _image(spec: objects.PodSpec) -> str:
    return spec.containers[0].image if spec.containers else ""
