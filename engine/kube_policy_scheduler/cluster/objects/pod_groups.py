"""Pods that are placed together or not at all, in the two APIs that name them."""

from __future__ import annotations

from msgspec import field

from kube_policy_scheduler.cluster.objects.metadata import ObjectMeta
from kube_policy_scheduler.cluster.objects.pods import PodCondition
from kube_policy_scheduler.cluster.objects.structs import ApiStruct, Int32


class GangSchedulingPolicy(ApiStruct):
    min_count: Int32 = 1


class PodGroupSchedulingPolicy(ApiStruct):
    """Without `basic`, which asks for nothing."""

    gang: GangSchedulingPolicy | None = None


class PodGroupConstraints(ApiStruct):
    topology: list[dict[str, str]] | None = None


class PodGroupSpec(ApiStruct):
    scheduling_policy: PodGroupSchedulingPolicy = field(default_factory=PodGroupSchedulingPolicy)
    scheduling_constraints: PodGroupConstraints | None = None


class PodGroupStatus(ApiStruct):
    conditions: list[PodCondition] | None = None


class PodGroup(ApiStruct):
    """scheduling.k8s.io/v1alpha2, Kubernetes 1.36 with the feature gate GenericWorkload."""

    metadata: ObjectMeta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CoschedulingPodGroupSpec(ApiStruct):
    min_member: Int32 = 1
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingPodGroup(ApiStruct):
    """scheduling.x-k8s.io/v1alpha1, a CustomResourceDefinition of the scheduler-plugins."""

    metadata: ObjectMeta
    spec: CoschedulingPodGroupSpec = field(default_factory=CoschedulingPodGroupSpec)
