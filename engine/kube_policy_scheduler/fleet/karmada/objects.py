"""Karmada's API objects as structs that hold only what a decision reads."""

from __future__ import annotations

from typing import Any

from msgspec import field

from kube_policy_scheduler.cluster.objects import LabelSelector, NodeSelector, ObjectMeta, Taint, Toleration
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int32, Int64, Labels, Resources


class FieldRequirement(ApiStruct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class FieldSelector(ApiStruct):
    match_expressions: list[FieldRequirement] | None = None


class ClusterAffinity(ApiStruct):
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    cluster_names: list[str] | None = None
    exclude: list[str] | None = None


class ClusterAffinityTerm(ClusterAffinity):
    affinity_name: str = ""
    overflow_affinities: list[ClusterAffinity] | None = None


class SpreadConstraint(ApiStruct):
    spread_by_field: str = ""
    spread_by_label: str = ""
    min_groups: Int64 = 0
    max_groups: Int64 = 0


class StaticClusterWeight(ApiStruct):
    target_cluster: ClusterAffinity = field(default_factory=ClusterAffinity)
    weight: Int64 = 0


class ClusterPreferences(ApiStruct):
    static_weight_list: list[StaticClusterWeight] | None = None
    dynamic_weight: str = ""


class ReplicaSchedulingStrategy(ApiStruct):
    replica_scheduling_type: str = ""
    replica_division_preference: str = ""
    weight_preference: ClusterPreferences | None = None


class Placement(ApiStruct):
    cluster_affinity: ClusterAffinity | None = None
    cluster_affinities: list[ClusterAffinityTerm] | None = None
    cluster_tolerations: list[Toleration] | None = None
    spread_constraints: list[SpreadConstraint] | None = None
    replica_scheduling: ReplicaSchedulingStrategy | None = None


class NodeClaim(ApiStruct):
    node_selector: Labels | None = None
    hard_node_affinity: NodeSelector | None = None
    tolerations: list[Toleration] | None = None


class ReplicaRequirements(ApiStruct):
    resource_request: Resources | None = None
    node_claim: NodeClaim | None = None
    namespace: str = ""
    priority_class_name: str = ""


class Component(ApiStruct):
    name: str = ""
    replicas: Int32 = 0
    replica_requirements: ReplicaRequirements | None = None


class TargetComponent(ApiStruct):
    name: str = ""
    replicas: Int32 = 0


class TargetCluster(ApiStruct):
    name: str = ""
    replicas: Int32 = 0
    components: list[TargetComponent] | None = None


class ObjectReference(ApiStruct):
    """The template: what is propagated."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class GracefulEvictionTask(ApiStruct):
    from_cluster: str = ""
    replicas: Int32 | None = None
    reason: str = ""
    producer: str = ""


class Suspension(ApiStruct):
    scheduling: bool | None = None


class SchedulePriority(ApiStruct):
    priority: Int32 = 0


class WorkloadAffinityGroups(ApiStruct):
    affinity_group: str = ""
    anti_affinity_group: str = ""


class BindingSpec(ApiStruct):
    resource: ObjectReference = field(default_factory=ObjectReference)
    replicas: Int32 = 0
    replica_requirements: ReplicaRequirements | None = None
    components: list[Component] | None = None
    clusters: list[TargetCluster] | None = None
    placement: dict[str, Any] | None = None
    """As it is written: it is compared with the placement that was applied last, and written back."""
    scheduler_name: str = ""
    graceful_eviction_tasks: list[GracefulEvictionTask] | None = None
    reschedule_triggered_at: str | None = None
    suspension: Suspension | None = None
    schedule_priority: SchedulePriority | None = None
    workload_affinity_groups: WorkloadAffinityGroups | None = None


class AggregatedStatusItem(ApiStruct):
    cluster_name: str = ""
    health: str = ""
    applied: bool = False


class Condition(ApiStruct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: Int64 = 0


class BindingStatus(ApiStruct):
    scheduler_observed_generation: Int64 = 0
    scheduler_observed_affinity_name: str = field(default="", name="schedulerObservingAffinityName")
    last_scheduled_time: str | None = None
    conditions: list[Condition] | None = None
    aggregated_status: list[AggregatedStatusItem] | None = None


class ResourceBinding(ApiStruct):
    """What places a template that has a namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: BindingSpec = field(default_factory=BindingSpec)
    status: BindingStatus = field(default_factory=BindingStatus)


class ClusterResourceBinding(ResourceBinding):
    """The same for a template without a namespace; it has none itself."""


class ResourceModelRange(ApiStruct):
    name: str = ""
    min: str | int | float = 0


class ResourceModel(ApiStruct):
    grade: Int64 = 0
    ranges: list[ResourceModelRange] | None = None


class ClusterSpec(ApiStruct):
    sync_mode: str = ""
    provider: str = ""
    region: str = ""
    zones: list[str] | None = None
    taints: list[Taint] | None = None
    resource_models: list[ResourceModel] | None = None


class ApiResource(ApiStruct):
    kind: str = ""


class ApiEnablement(ApiStruct):
    group_version: str = ""
    resources: list[ApiResource] | None = None


class NodeSummary(ApiStruct):
    total_num: Int32 = 0
    ready_num: Int32 = 0


class AllocatableModeling(ApiStruct):
    grade: Int64 = 0
    count: Int64 = 0


class ResourceSummary(ApiStruct):
    allocatable: Resources | None = None
    allocated: Resources | None = None
    allocating: Resources | None = None
    allocatable_modelings: list[AllocatableModeling] | None = None


class ClusterStatus(ApiStruct):
    kubernetes_version: str = ""
    conditions: list[Condition] | None = None
    api_enablements: list[ApiEnablement] | None = None
    node_summary: NodeSummary | None = None
    resource_summary: ResourceSummary | None = None


class KarmadaCluster(ApiStruct):
    """A Cluster of `cluster.karmada.io`."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ClusterSpec = field(default_factory=ClusterSpec)
    status: ClusterStatus = field(default_factory=ClusterStatus)
