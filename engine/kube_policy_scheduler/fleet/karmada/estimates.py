"""What is asked of a member cluster's estimator: how many more replicas, or sets of them, it has room for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.cluster.objects import NodeSelector, Toleration
from kube_policy_scheduler.fleet.karmada.objects import NodeClaim, ReplicaRequirements, ResourceBinding

NO_OPINION = -1
"""The answer of a server that says nothing about a cluster."""
CAPACITY, ESTIMATOR, MEMBER = "capacity", "estimator", "member"
"""Sources of room: replicas were tried out by the rules of the cluster; resources were counted node by node; replicas
were tried out by Kubernetes' own rules on what was read of the cluster."""
MOST_REPLICAS = 2**31 - 1
"""What the answer of a server can say at most."""


class Demand(msgspec.Struct, frozen=True):
    """What one replica asks for."""

    requests: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Quantities by resource."""
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)
    node_affinity: NodeSelector | None = None
    """It is hard."""
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""


class Part(msgspec.Struct, frozen=True):
    """Replicas that are alike, of a workload of one or several kinds of pods."""

    demand: Demand
    replicas: int
    name: str = ""


class Assumed(msgspec.Struct, frozen=True):
    """A workload that is decided, and has no pods yet."""

    namespace: str
    parts: tuple[Part, ...]


class TemplateName(msgspec.Struct, frozen=True):
    """The workload that a question is about, which may say more than the question does."""

    kind: str
    namespace: str
    name: str


class ReplicasQuestion(msgspec.Struct, frozen=True, tag="replicas"):
    """How many more replicas fit."""

    cluster: str
    namespace: str
    demand: Demand
    assumed: tuple[Assumed, ...] = ()
    template: TemplateName | None = None


class SetsQuestion(msgspec.Struct, frozen=True, tag="sets"):
    """How many more whole sets of several parts fit."""

    cluster: str
    namespace: str
    parts: tuple[Part, ...]
    assumed: tuple[Assumed, ...] = ()
    template: TemplateName | None = None


Question = ReplicasQuestion | SetsQuestion


class UnschedulableQuestion(msgspec.Struct, frozen=True):
    """How many pods of a workload have no node."""

    cluster: str
    workload: TemplateName
    threshold_seconds: float = 0.0
    """Only those that have had none for so long."""


def question_about(binding: ResourceBinding, cluster: str) -> Question | None:
    """Return what to ask the estimator of a cluster about a binding; None if it has no pods to ask about."""
    spec, resource = binding.spec, binding.spec.resource
    namespace = resource.namespace
    template = TemplateName(resource.kind, resource.namespace, resource.name)
    if spec.components and len(spec.components) > 1:
        parts = tuple(Part(_demand(each.replica_requirements), each.replicas, each.name) for each in spec.components)
        return SetsQuestion(cluster, namespace, parts, template=template)
    if spec.replicas <= 0:
        return None
    wanted = spec.replica_requirements
    if wanted is not None and wanted.namespace:
        namespace = wanted.namespace
    return ReplicasQuestion(cluster, namespace, _demand(wanted), template=template)


def _demand(wanted: ReplicaRequirements | None) -> Demand:
    if wanted is None:
        return Demand()
    claim = wanted.node_claim or NodeClaim()
    return Demand(
        {name: str(amount) for name, amount in sorted((wanted.resource_request or {}).items())},
        dict(sorted((claim.node_selector or {}).items())),
        claim.hard_node_affinity,
        tuple(claim.tolerations or ()),
        wanted.priority_class_name,
    )
