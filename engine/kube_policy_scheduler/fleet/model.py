"""A workload of a fleet, the clusters that it may run in, and what is decided for it.

Everything here is a value. Amounts of resources are whole billionths (`quantities.nanos`): sums of them are exact.
Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import msgspec

from kube_policy_scheduler.cluster.objects import Toleration
from kube_policy_scheduler.cluster.selectors import Selector
from kube_policy_scheduler.cluster.taints import TaintKey
from kube_policy_scheduler.lang.compiling.member_values import MemberValue

NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""An empty mapping."""

MESSAGE_CHARACTERS = 32_768
"""Of the message of a condition: the API allows no more."""
Identity: TypeAlias = tuple[str, str, str, str]
"""API version, kind, namespace and name of a workload: what tells it from all others."""
HEALTHY = "Healthy"
"""The health of a workload in a cluster in which it runs as it should."""


class ClusterCondition(msgspec.Struct, frozen=True):
    """One of the conditions of a cluster, such as Ready."""

    status: str
    """True, False or Unknown."""
    since: float | None = None
    """When the status became this; None if nobody wrote it."""


class ResourceGrade(msgspec.Struct, frozen=True):
    """A class of nodes of a cluster: so many nodes, each with at least so much free."""

    count: int
    least: Mapping[str, int]
    """Billionths by resource: the lower bound of the grade."""


class Member(Protocol):
    """What is known of the nodes and pods of a cluster, because it was read itself."""

    @property
    def at(self) -> float | None:
        """When it was read, Unix seconds; None: that does not matter, or it never was."""
        ...

    @property
    def problem(self) -> str:
        """Why nothing is known of it now; "" if something is."""
        ...

    def value(self, asked: MemberValue, now: float) -> float:
        """Return a value of it, `asked.missing` if it has none or nobody knows it. now: Unix seconds."""
        ...


class ToldMember(msgspec.Struct, frozen=True, eq=False):
    """What somebody else said of a member: values, so that it may be read and changed elsewhere meanwhile."""

    values: Mapping[MemberValue, float]
    at: float | None = None
    """When it was read, Unix seconds; None: never."""
    problem: str = ""
    """Why there are no values now; "" if there are."""

    def value(self, asked: MemberValue, now: float) -> float:
        """Return a value of it, `asked.missing` if it has none or nobody said it. now: Unix seconds."""
        return self.values.get(asked, asked.missing)

    def answers(self, asked: Iterable[MemberValue]) -> bool:
        """Return whether it says all of these, or why it does not."""
        return bool(self.problem) or all(each in self.values for each in asked)

    def says_the_same(self, before: ToldMember | None) -> bool:
        """Return whether it has the values of another one."""
        return before is not None and _comparable(self.values) == _comparable(before.values)


def _comparable(values: Mapping[MemberValue, float]) -> Mapping[MemberValue, float | None]:
    """Return values of which each equals itself."""
    return {asked: value if value == value else None for asked, value in values.items()}


def units(resource: str, billionths: int) -> int:
    """Return an amount in the units in which room is counted: thousandths of a CPU, else whole units, rounded up."""
    return -(-billionths // (10**6 if resource == "cpu" else 10**9))


class FleetCluster(msgspec.Struct, frozen=True, dict=True):
    """A member cluster: what its object says."""

    name: str
    labels: Mapping[str, str] = NOTHING
    annotations: Mapping[str, str] = NOTHING
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[TaintKey, ...] = ()
    version: str = ""
    """The version of Kubernetes, such as "v1.36.2"."""
    sync_mode: str = ""
    """Push or Pull."""
    conditions: Mapping[str, ClusterCondition] = NOTHING
    """By type."""
    deleting: bool = False
    nodes_ready: int | None = None
    nodes_total: int | None = None
    summarized: bool = True
    """Whether it says what it has: without a resource summary there is no room."""
    allocatable: Mapping[str, int] = NOTHING
    """Billionths by resource: the sum over its nodes."""
    allocated: Mapping[str, int] = NOTHING
    """Billionths by resource that pods on its nodes request."""
    allocating: Mapping[str, int] = NOTHING
    """Billionths by resource that its pods without a node request."""
    counts_requests: bool = True
    """Whether it says what its pods request; without that, nobody knows what is free."""
    grades: tuple[ResourceGrade, ...] = ()
    """Classes of its nodes; empty if it does not say, or its specification has no resource models."""
    apis: frozenset[tuple[str, str]] = frozenset()
    """(group and version, kind) of what it serves, such as ("apps/v1", "Deployment")."""
    member: Member | None = None
    """Its nodes and pods; None: they are not read."""

    @property
    def ready(self) -> bool:
        """Return whether its condition Ready is True."""
        condition = self.conditions.get("Ready")
        return condition is not None and condition.status == "True"

    def requested(self, resource: str) -> int:
        """Return billionths of a resource that its pods request, with those that have no node yet."""
        return self.allocated.get(resource, 0) + self.allocating.get(resource, 0)

    def free(self, resource: str) -> int | None:
        """Return billionths of a resource that are not requested, maybe negative; None if that is not reported."""
        held = self.allocatable.get(resource)
        return None if held is None or not self.counts_requests else held - self.requested(resource)

    @cached_property
    def spare(self) -> Mapping[str, int]:
        """Return what is free of each resource that is reported, in `units`, at least 0. It is asked for with each
        decision, and a cluster stays the same for many of them."""
        return {name: max(0, units(name, self.free(name) or 0)) for name in self.allocatable}


class FieldTest(msgspec.Struct, frozen=True):
    """A requirement on the provider, the region or the zones of a cluster."""

    key: str
    """provider, region or zone."""
    operator: str
    """In or NotIn. Karmada's webhook refuses Exists and DoesNotExist, but they mean what they say without it."""
    values: frozenset[str]


class ClusterAffinity(msgspec.Struct, frozen=True):
    """Which clusters may be chosen; without any requirement all may."""

    labels: Selector | None = Selector()
    """None matches no cluster."""
    fields: tuple[FieldTest, ...] = ()
    names: frozenset[str] = frozenset()
    """If there are any, only these."""
    exclude: frozenset[str] = frozenset()


class AffinityTerm(msgspec.Struct, frozen=True):
    """One of several cluster affinities that are tried in their order."""

    name: str
    affinity: ClusterAffinity
    overflow: tuple[ClusterAffinity, ...] = ()
    """Where replicas go for which the clusters of `affinity` have no room, in this order."""


class SpreadConstraint(msgspec.Struct, frozen=True):
    """Over how many groups of clusters a workload is spread."""

    field: str = ""
    """cluster, region, zone or provider; empty if `label` is meant."""
    label: str = ""
    least: int = 0
    most: int = 0


class StaticWeight(msgspec.Struct, frozen=True):
    """The weight of the clusters that an affinity matches."""

    target: ClusterAffinity
    weight: int


class ReplicaScheduling(msgspec.Struct, frozen=True):
    """How the replicas are divided among the clusters that are chosen."""

    type: str = "Duplicated"
    """Duplicated or Divided."""
    preference: str = ""
    """Weighted or Aggregated; empty if nobody said."""
    weighted: bool = False
    """Whether there is a weight preference."""
    weights: tuple[StaticWeight, ...] = ()
    dynamic: str = ""
    """AvailableReplicas, or empty."""


class Placement(msgspec.Struct, frozen=True):
    """What the owner of a workload asks for: `spec.placement` of its binding."""

    affinity: ClusterAffinity | None = None
    terms: tuple[AffinityTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    scheduling: ReplicaScheduling | None = None


class Component(msgspec.Struct, frozen=True):
    """One of several kinds of pods that make up a workload, such as a job manager."""

    name: str
    replicas: int
    requests: Mapping[str, int] = NOTHING
    """Billionths by resource that each replica requests."""


class EvictionTask(msgspec.Struct, frozen=True):
    """A cluster that a workload is leaving: what runs there ends once it is healthy elsewhere."""

    cluster: str
    replicas: int = 0
    reason: str = ""
    producer: str = ""


class Workload(msgspec.Struct, frozen=True):
    """What is to be placed: a binding with the template that it names."""

    kind: str
    name: str
    namespace: str = ""
    """Empty for kinds without one."""
    api_version: str = ""
    uid: str = ""
    """Of the template; decides ties."""
    labels: Mapping[str, str] | None = None
    """Of the template; None as long as it has not been read."""
    annotations: Mapping[str, str] | None = None
    """Of the template; None as long as it has not been read."""
    replicas: int = 0
    requests: Mapping[str, int] | None = None
    """Billionths by resource that each replica requests; None if its binding says nothing about it."""
    components: tuple[Component, ...] = ()
    priority: int = 0
    priority_class: str = ""
    has: Mapping[str, int] = NOTHING
    """Replicas by cluster, as last decided: `spec.clusters`."""
    evicting: tuple[EvictionTask, ...] = ()
    health: Mapping[str, str] = NOTHING
    """By cluster: Healthy, Unhealthy or Unknown."""
    room: Mapping[str, Mapping[str, int]] = NOTHING
    """By cluster: replicas that others say still fit beside what it has, by source ("capacity", "estimator").

    Who has no opinion is absent. What follows from the status of a cluster is computed, and is not in here.
    """
    placement: Placement = Placement()
    observed_term: str = ""
    """The name of the affinity term by which it was placed last."""
    fresh: bool = False
    """Whether somebody asked to decide it afresh, without regard to where it runs."""
    created: float | None = None
    """When its binding was created."""
    decided: float | None = None
    """When it was placed last."""
    attempts: int = 0
    """Number of failed attempts since it was last placed."""
    affinity_group: str = ""
    anti_affinity_group: str = ""

    @property
    def identity(self) -> Identity:
        """Return what tells it from all others."""
        return self.api_version, self.kind, self.namespace, self.name

    @property
    def has_pods(self) -> bool:
        """Return whether it is made of pods; a ConfigMap or a Service is not."""
        return self.replicas > 0 or self.requests is not None or bool(self.components)


Groups: TypeAlias = Mapping[tuple[str, str], Mapping[Identity, frozenset[str]]]
"""By namespace and group: the clusters of each workload of the group that is placed."""


class Running(Protocol):
    """What runs where, as clauses count it (`fleet.running`)."""

    def amounts(self, counted: Any, key: str, *, without: Workload) -> dict[str, int]:
        """Return what is counted of a key by cluster, in billionths, without one workload."""
        ...

    def workloads(self, counted: Any, key: str, clusters: Iterable[str], *, without: Workload) -> int:
        """Return how many workloads of a key run in at least one of some clusters, without one of them."""
        ...


class Fleet(msgspec.Struct, frozen=True):
    """The clusters, in the order of their names, and what else runs on them."""

    clusters: tuple[FleetCluster, ...] = ()
    groups: Groups = NOTHING
    """Workload affinity groups."""
    anti_groups: Groups = NOTHING
    """Workload anti-affinity groups."""
    running: Running | None = None
    """What runs where, for policies that count other workloads; None: nobody says."""
    features: frozenset[str] = frozenset()
    """Feature gates of Karmada that are on, such as MultiplePodTemplatesScheduling or WorkloadAffinity."""
    without: frozenset[str] = frozenset()
    """Filters of Karmada that are not asked: its engine does not say what they ask for."""
    whole: bool = False
    """Whether each chosen cluster is to run all of a workload: nothing is divided, whatever a policy says."""
    keep_empty: bool = False
    """Whether clusters without replicas are chosen, too (`--enable-empty-workload-propagation`)."""


class Reason(StrEnum):
    """The reason of the condition Scheduled."""

    SUCCESS = "Success"
    NO_CLUSTER_FITS = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ERROR = "SchedulerError"


class Verdict(msgspec.Struct, frozen=True):
    """What is said about one cluster."""

    rejected_by: str = ""
    """The filter or clause that rejected it; empty if it is feasible."""
    message: str = ""
    """Why it is rejected, or why it got this many replicas."""
    room: int | None = None
    """Replicas that still fit beside what it has; None if nobody says."""
    room_by: str = ""
    """The source that said so: capacity, estimator, models or summary."""
    read_at: float | None = None
    """When its nodes and pods were read by which the policy decides, Unix seconds; None: it reads none, or they were
    never read."""
    unread: str = ""
    """Why its nodes and pods are not known, though the policy reads them; "" if they are."""
    score: float = 0.0
    tier: int = 0
    """0 for the clusters of the affinity, 1 and more for those that take what has no room there."""


class Outcome(msgspec.Struct, frozen=True):
    """What is decided for a workload."""

    reason: Reason
    message: str
    targets: Mapping[str, int] = NOTHING
    """Replicas by cluster that `spec.clusters` is to have: what it has, if nothing is to be written."""
    write: bool = False
    """Whether `spec.clusters` and the annotation are written: always when it is placed."""
    observed: bool = False
    """Whether the generation counts as seen, so that evictions go on."""
    term: str | None = None
    """The affinity term that worked, if the placement has terms."""
    components: tuple[Component, ...] = ()
    """What each target gets of each component, if the workload is placed by components."""
    verdicts: Mapping[str, Verdict] = NOTHING
    """By cluster: all that are not being deleted."""
    policy: str | None = None
    """The name of the policy that decided; None if the Placement alone did."""

    @property
    def placed(self) -> bool:
        """Return whether the workload has all that it asks for."""
        return self.reason is Reason.SUCCESS
