"""What is asked of a member cluster's estimator: how many more replicas, or sets of them, it has room for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube_policy_scheduler.cluster.objects import NodeSelector, Toleration

NO_OPINION = -1
"""The answer of a server that says nothing about a cluster."""
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
