"""Objects that pods refer to: namespaces, controllers, services, budgets, priority classes, and groups of pods."""

from typing import Any

from msgspec import field

from kube_policy_scheduler.cluster.objects.pods import PodCondition
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int32, Labels, LabelSelector, ObjectMeta


class Namespace(ApiStruct):
    metadata: ObjectMeta


class ServiceSpec(ApiStruct):
    selector: Labels | None = None


class Service(ApiStruct):
    metadata: ObjectMeta
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ReplicationControllerSpec(ApiStruct):
    selector: Labels | None = None


class ReplicationController(ApiStruct):
    metadata: ObjectMeta
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)


class WorkloadSpec(ApiStruct):
    selector: LabelSelector | None = None


class ReplicaSet(ApiStruct):
    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class StatefulSet(ApiStruct):
    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class PodDisruptionBudgetSpec(ApiStruct):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(ApiStruct):
    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, Any] | None = None


class PodDisruptionBudget(ApiStruct):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(ApiStruct):
    metadata: ObjectMeta
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


class GangSchedulingPolicy(ApiStruct):
    min_count: Int32 = 1


class PodGroupSchedulingPolicy(ApiStruct):
    """One of the two is set."""

    basic: dict[str, Any] | None = None
    """Requires nothing."""
    gang: GangSchedulingPolicy | None = None


class PodGroupResourceClaim(ApiStruct):
    """One of the two others is set, as of a pod's."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodGroupSpec(ApiStruct):
    scheduling_policy: PodGroupSchedulingPolicy = field(default_factory=PodGroupSchedulingPolicy)
    scheduling_constraints: dict[str, Any] | None = None
    """By kind; `topology` is a list of `{key}`."""
    disruption_mode: str | dict[str, Any] | None = None
    """`Pod` or `PodGroup` (1.36), `{single: {}}` or `{all: {}}` (1.37)."""
    priority: Int32 | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    """Of 1.37, with the feature gate PodGroupPreemptionPolicy."""
    resource_claims: list[PodGroupResourceClaim] | None = None
    """Claims that the pods of the group share."""
    parent_composite_pod_group_name: str | None = None


class PodGroupStatus(ApiStruct):
    conditions: list[PodCondition] | None = None


class PodGroup(ApiStruct):
    """scheduling.k8s.io/v1alpha2 of Kubernetes 1.36, v1beta1 of 1.37; both with the feature gate GenericWorkload."""

    metadata: ObjectMeta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CompositeGangSchedulingPolicy(ApiStruct):
    min_group_count: Int32 = 1


class CompositePodGroupSchedulingPolicy(ApiStruct):
    """One of the two is set."""

    basic: dict[str, Any] | None = None
    """The child groups are scheduled independently."""
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(ApiStruct):
    parent_composite_pod_group_name: str | None = None
    scheduling_policy: CompositePodGroupSchedulingPolicy = field(default_factory=CompositePodGroupSchedulingPolicy)
    scheduling_constraints: dict[str, Any] | None = None
    """As of a PodGroup."""
    disruption_mode: str | dict[str, Any] | None = None
    """As of a PodGroup; a proposed field, which v1alpha3 of Kubernetes 1.37 does not have."""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    """As of a PodGroup."""


class CompositePodGroup(ApiStruct):
    """scheduling.k8s.io/v1alpha3 of Kubernetes 1.37, with the feature gate CompositePodGroup: a group of groups."""

    metadata: ObjectMeta
    spec: CompositePodGroupSpec = field(default_factory=CompositePodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CoschedulingPodGroupSpec(ApiStruct):
    min_member: Int32 = 1
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingPodGroup(ApiStruct):
    """scheduling.x-k8s.io/v1alpha1, a CustomResourceDefinition of the scheduler-plugins."""

    metadata: ObjectMeta
    spec: CoschedulingPodGroupSpec = field(default_factory=CoschedulingPodGroupSpec)
