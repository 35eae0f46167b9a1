"""OCM's API objects as structs that hold only what a score reads."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects import ObjectMeta, Taint
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Resources


class ManagedClusterSpec(ApiStruct):
    taints: list[Taint] | None = None


class ManagedClusterCondition(ApiStruct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class ManagedClusterClaim(ApiStruct):
    name: str = ""
    value: str = ""


class ManagedClusterVersion(ApiStruct):
    kubernetes: str = ""


class ManagedClusterStatus(ApiStruct):
    conditions: list[ManagedClusterCondition] | None = None
    allocatable: Resources | None = None
    version: ManagedClusterVersion = field(default_factory=ManagedClusterVersion)
    cluster_claims: list[ManagedClusterClaim] | None = None


class ManagedCluster(ApiStruct):
    """A cluster that is registered at a hub."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ManagedClusterSpec = field(default_factory=ManagedClusterSpec)
    status: ManagedClusterStatus = field(default_factory=ManagedClusterStatus)
